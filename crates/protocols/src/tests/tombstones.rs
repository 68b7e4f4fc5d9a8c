//! Removal of tombstones: schedules made for single mutants. Each holds without them.

use base::Nanos;
use types::{Outcome, Wire};

use super::World;
use super::asks::Ask;
use super::letter::Letter;
use super::steps::{A, ALL, B, C};
use crate::abd::{Abd, Message};
use crate::protocol::Protocol;
use crate::register_cache::CachedRegister;
use crate::toolkit::eras::Step;

impl<P: Protocol> World<P> {
    /// Lets time pass at all nodes. Messages arrive in between, unless they are withheld.
    pub(super) fn idle_but(
        &mut self,
        millis: u64,
        is_withheld: impl Fn(&Letter<P::Message>) -> bool,
    ) {
        for _ in 0..millis.div_ceil(10) {
            loop {
                self.bag.retain(|letter| !is_withheld(letter));
                if !self.bag.is_empty() {
                    let letter = self.bag.remove(0);
                    self.deliver(letter);
                } else if !ALL.into_iter().any(|node| self.flush(node) || self.deliver_own(node)) {
                    break;
                }
            }
            self.pass(Nanos::from_millis(10), ALL.into_iter());
        }
    }

    pub(super) fn idle_all(&mut self, millis: u64) {
        self.idle_but(millis, |_| false);
    }

    pub(super) fn is_absent(&self, index: usize, key: usize) -> bool {
        matches!(self.nodes[index].cache.get(&self.keys[key]), CachedRegister::Absent)
    }

    /// The node that runs the first round, and the others.
    pub(super) fn by_turn(&self) -> [usize; 3] {
        let first = usize::from(self.shard().0) % 3;
        [first, (first + 1) % 3, (first + 2) % 3]
    }

    pub(super) fn ask_and_end(&mut self, index: usize, key: usize, ask: Ask) {
        let tag = self.ask(index, key, ask);
        self.done(tag);
        self.drain();
    }
}

pub(super) fn goes<M: std::fmt::Debug + Wire>(
    letter: &Letter<M>,
    from: usize,
    to: usize,
    part: &str,
) -> bool {
    letter.goes(from, to) && letter.has(part)
}

/// A replica missed the deletion.
pub(super) fn abd_tombstone_that_one_lacks() -> Result<(), String> {
    let mut world = World::<Abd>::new(3, false, 7);
    let [first, second, late] = world.by_turn();
    world.ask_and_end(first, 0, Ask::Set(1));
    let delete = world.ask(first, 0, Ask::Remove);
    for _ in 0..3 {
        world.idle_but(10, |it| goes(it, first, late, "Store {"));
    }
    assert!(!world.is_open(delete));
    world.idle_but(2_000, |it| goes(it, first, late, "Store {"));
    world.idle_all(20_000);
    assert!(world.is_absent(first, 0) && world.is_absent(second, 0));
    world.judge(&[late])
}

fn late_store(durable: bool, between: impl Fn(&mut World<Abd>)) -> Result<(), String> {
    let mut world = World::<Abd>::new(3, durable, 7);
    let write = world.ask(A, 0, Ask::Set(1));
    while world.bag.iter().all(|letter| !goes(letter, A, B, "Store {")) {
        let letter = world.bag.remove(0);
        world.deliver(letter);
        ALL.into_iter().for_each(|node| while world.flush(node) {});
    }
    let at =
        world.bag.iter().position(|letter| goes(letter, A, B, "Store {")).expect("it is there");
    world.deliver_copy(at);
    let late = world.take(A, B, "Store {");
    world.done(write);
    world.ask_and_end(A, 0, Ask::Remove);
    world.idle_all(2_000);
    assert!(ALL.into_iter().all(|node| world.is_absent(node, 0)));
    between(&mut world);
    late.into_iter().for_each(|letter| world.deliver(letter));
    world.drain();
    world.judge(&[B, C])
}

/// A copy of a store arrives after the key was deleted and its registers were removed.
pub(super) fn abd_late_store() -> Result<(), String> {
    late_store(false, |_| ())
}

/// The same at a replica that has restarted.
pub(super) fn abd_late_store_after_a_restart() -> Result<(), String> {
    late_store(true, |world| {
        world.kill(B, 99, 0);
        world.start(B);
    })
}

/// The same at a replica that has lost its memory.
pub(super) fn abd_late_store_after_an_amnesia() -> Result<(), String> {
    late_store(false, |world| {
        world.kill(B, 0, 0);
        world.start(B);
        world.idle_all(500);
        assert!(!world.nodes[B].cache.is_forgotten(world.shard()));
    })
}

/// The last answer to a replica that recovers a key comes after the key was deleted.
pub(super) fn abd_recovery_that_lingers() -> Result<(), String> {
    let mut world = World::<Abd>::new(3, false, 7);
    world.kill(C, 0, 0);
    world.start(C);
    for (from, to, part) in [
        (C, A, "Era"),
        (C, B, "Era"),
        (A, C, "EraTold"),
        (B, C, "EraTold"),
        (C, A, "List"),
        (C, B, "List"),
    ] {
        world.carry(from, to, part);
    }
    let write = world.ask(A, 0, Ask::Set(1));
    world.carry(A, C, "Query");
    world.carry(A, B, "Query");
    world.carry(B, A, "State");
    world.carry(C, A, "Query");
    world.carry(A, C, "State");
    world.carry(C, B, "Query");
    let late = world.take(B, C, "State");
    assert_eq!(late.len(), 1);
    world.carry(A, C, "Page {");
    world.carry(B, C, "Page {");
    assert!(!world.nodes[C].cache.is_forgotten(world.shard()));
    let is_withheld = |it: &Letter<_>| goes(it, B, C, "State") || goes(it, C, B, "Query");
    world.idle_but(200, is_withheld);
    let delete = world.ask(A, 0, Ask::Remove);
    world.idle_but(2_500, is_withheld);
    assert!(!world.is_open(write) && !world.is_open(delete));
    assert!(ALL.into_iter().all(|node| world.is_absent(node, 0)));
    late.into_iter().for_each(|letter| world.deliver(letter));
    world.judge(&[C, B])
}

/// A write is slow while tombstones of its shard are removed.
pub(super) fn abd_write_beside_a_round() -> Result<(), String> {
    let mut world = World::<Abd>::new(3, false, 7);
    let writer = world.by_turn()[1];
    world.ask_and_end(A, 1, Ask::Set(1));
    world.ask_and_end(A, 1, Ask::Remove);
    world.idle_all(900);
    let write = world.ask(writer, 0, Ask::Set(2));
    world.idle_but(900, |it| ALL.into_iter().any(|to| goes(it, writer, to, "Store {")));
    world.settle(&[write]);
    match world.outcomes.get(&write) {
        Some(Outcome::Reply(_)) => world.judge(&ALL),
        outcome => Err(format!("the write ends with {outcome:?}")),
    }
}

/// A new value is written where the tombstone is gone, and one replica still holds it.
pub(super) fn abd_write_below_a_tombstone() -> Result<(), String> {
    let mut world = World::<Abd>::new(3, false, 7);
    let [first, writer, late] = world.by_turn();
    for ask in [Ask::Set(1), Ask::Set(2), Ask::Remove] {
        world.ask_and_end(late, 0, ask);
    }
    world.idle_but(2_000, |it| goes(it, first, late, "Bury"));
    assert!(world.is_absent(first, 0) && !world.is_absent(late, 0));
    let write = world.ask(writer, 0, Ask::Set(3));
    world.idle_but(100, |it| goes(it, late, writer, "State"));
    assert!(!world.is_open(write));
    world.judge(&[late])
}

#[test]
fn registers_of_deleted_keys_of_abd_go() {
    let mut world = World::<Abd>::new(3, true, 7);
    for key in [0, 1] {
        world.ask_and_end(A, key, Ask::SetExpiring(1));
    }
    world.ask_and_end(B, 0, Ask::Remove);
    world.idle_all(2_500);
    for (node, key) in ALL.into_iter().zip([0, 1, 0]) {
        assert!(world.is_absent(node, key));
    }
    world.ask_and_end(C, 0, Ask::Set(2));
    assert_eq!(world.judge(&ALL), Ok(()));
}

/// A replica is away: tombstones stay until it is back.
#[test]
fn tombstones_of_abd_wait_for_all_replicas() {
    let mut world = World::<Abd>::new(3, true, 7);
    world.ask_and_end(A, 0, Ask::Set(1));
    world.kill(C, 99, 0);
    let delete = world.ask(A, 0, Ask::Remove);
    world.settle(&[delete]);
    world.idle_all(15_000);
    assert!(!world.is_absent(A, 0) && !world.is_absent(B, 0));
    world.start(C);
    world.idle_all(15_000);
    assert!(ALL.into_iter().all(|node| world.is_absent(node, 0)));
    assert_eq!(world.judge(&ALL), Ok(()));
}

/// A start that forgot the era would begin operations in an earlier one.
#[test]
fn operation_waits_until_its_era_is_stored() {
    for ask in [Ask::Get, Ask::Set(1), Ask::Remove] {
        let mut world = World::<Abd>::new(3, true, 7);
        let (from, shard) = (world.nodes[A].as_peer(), world.shard());
        let message = Message::Era { id: 1, shard, step: Step::Advance { era: 3 } };
        world.deliver(Letter { from, to: C, losses: Vec::new(), message });
        let asked = world.ask(C, 0, ask);
        let is_sent = |world: &World<Abd>| world.bag.iter().any(|it| it.has("Query"));
        assert!(!is_sent(&world), "{ask:?}");
        while world.flush(C) {}
        assert!(is_sent(&world), "{ask:?}");
        world.done(asked);
        assert_eq!(world.judge(&ALL), Ok(()));
    }
}
