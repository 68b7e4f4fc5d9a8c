//! Two members that do not hear each other, while the others hear both.

use types::NodeId;

use super::rules::{Single, full, lease_beat, ms, swapped};
use super::world::{Check, MS, World};
use crate::GroupValue;
use crate::message::GroupBeat;

fn epoch(world: &World) -> u32 {
    world.value().map_or(0, |value| value.epoch().0)
}

/// Cuts the pair off from each other for good. How many epochs begin later.
fn cut(mut world: World, (one, other): (usize, usize), has_writes: bool) -> Check<u32> {
    world.form()?;
    world.cuts.extend([(one, other), (other, one)]);
    let all = world.all();
    let begin = world.now;
    let (mut next_write, mut written, mut middle) = (begin, 0, 0);
    while world.now < begin + 40_000 * MS {
        world.advance(&all)?;
        if world.now < begin + 20_000 * MS {
            (middle, written) = (epoch(&world), 0);
        }
        if has_writes && world.now >= next_write {
            next_write = world.now + 100 * MS;
            for node in all.clone() {
                written += u32::from(world.write(node, 0)?);
            }
        }
    }
    assert!(written > 0 || !has_writes, "writes go on");
    let active = world.value().filter(GroupValue::is_active).expect("a configuration");
    assert!(active.configuration.full().count() > 1, "more than one copy is left");
    Ok(epoch(&world) - middle)
}

#[test]
pub(super) fn epochs_do_not_alternate_between_two_that_do_not_hear_each_other() {
    let mut count = 0;
    for seed in 0..40 {
        let world = World::new(seed);
        let nodes = world.nodes.len();
        if nodes < 3 || world.replicas != nodes {
            continue;
        }
        count += 1;
        let pair = (seed as usize % nodes, (seed as usize + 1) % nodes);
        let epochs = cut(world, pair, seed % 2 == 0).unwrap_or_else(|it| panic!("{seed}: {it}"));
        assert!(epochs <= 1, "seed {seed}: {epochs} epochs in 20 s");
    }
    assert!(count > 5);
}

#[test]
fn member_that_others_hear_is_left_to_them() {
    let (mut single, _) = Single::member();
    single.pass(ms(100), &[(2, lease_beat(2, 1)), (3, lease_beat(3, 1))]);
    let beats = [(2, lease_beat(2, 1))];
    assert_eq!(swapped(&single.pass_hearing(ms(2_000), &beats, &[1, 2, 3])), []);
    let accusing = GroupBeat { stalled: vec![NodeId(3)], ..lease_beat(2, 1) };
    let effects = single.pass_hearing(ms(100), &[(2, accusing)], &[1, 2, 3]);
    assert_eq!(swapped(&effects).len(), 1, "it holds writes up");
    let (mut single, _) = Single::member();
    single.pass(ms(100), &[(2, lease_beat(2, 1)), (3, lease_beat(3, 1))]);
    single.pass_hearing(ms(2_000), &beats, &[1, 2, 3]);
    let values = swapped(&single.pass_hearing(ms(100), &beats, &[1, 2]));
    assert_eq!(values[0].members(), [full(1), full(2)], "no node hears it any more");
}
