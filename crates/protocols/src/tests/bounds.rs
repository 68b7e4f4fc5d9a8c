//! Bounds of the work of abd, and of the time that it takes.

use super::World;
use super::asks::Ask;
use super::schedules::{A, B, C};
use crate::abd::Abd;
use crate::toolkit::eras::{Eras, checked};

/// A round would lead to an era that no peer takes.
#[test]
fn last_era_of_abd_stays() {
    let last = (1 << 56) - 1;
    assert!(checked(last).is_ok() && checked(last + 1).is_err());
    let mut world = World::<Abd>::new(3, false, 7);
    let shard = world.shard();
    world.nodes[B].metas.get_mut(shard).raise(Eras::begun(last));
    world.ask_and_end(A, 0, Ask::Set(1));
    world.ask_and_end(A, 0, Ask::Remove);
    world.idle_all(20_000);
    for node in [A, B, C] {
        assert!(world.nodes[node].metas.get(shard).now <= last);
        assert!(!world.is_absent(node, 0));
    }
    assert_eq!(world.judge(&[A, B, C]), Ok(()));
}
