//! Services over registers in memory, with late, lost and unanswered requests, restarts and pauses.

mod mistakes;
mod programs;
mod registers;
mod schedules;
mod world;

use base::Nanos;
use checker::serializable::{Promise, check};

use crate::mutation::{self, Mutation};
use world::{Faults, World};

/// Random schedules of each kind.
const SEEDS: u64 = 1000;

fn explore(seeds: std::ops::Range<u64>, faults: Faults) -> (u64, u64) {
    let (mut committed, mut attempted) = (0, 0);
    for seed in seeds {
        let mut world = World::new(seed, faults);
        for _ in 0..60 {
            world.step();
        }
        world.heal();
        let finding = check(&world.history, Promise::Strict);
        assert!(finding.holds(), "seed {seed}: {:?}\n{}", finding.anomalies(), world.trace());
        world.check_registers(seed);
        committed += world.committed;
        attempted += world.attempted;
    }
    (committed, attempted)
}

#[test]
fn quiet_transactions_all_commit() {
    let (committed, attempted) = explore(0..SEEDS, Faults::NONE);
    assert_eq!(committed, attempted);
    assert!(attempted > 10 * SEEDS, "{attempted}");
}

#[test]
fn histories_are_strictly_serializable() {
    let (committed, attempted) = explore(0..SEEDS, Faults::ALL);
    assert!(committed * 3 > attempted, "{committed} of {attempted}");
}

/// An uncontended transaction needs two requests in a row before its reply.
#[test]
fn reply_comes_after_two_round_trips() {
    let mut world = World::new(1, Faults::NONE);
    world.begin(0, &[0, 1]);
    assert_eq!(world.deliver_all(), 2, "both keys at once");
    assert_eq!(world.committed, 0);
    assert_eq!(world.deliver_all(), 1, "the record");
    assert_eq!(world.committed, 1);
    assert_eq!(world.deliver_all(), 2, "the keys are settled");
    assert_eq!(world.deliver_all(), 1, "the record is forgotten");
    assert!(world.is_quiet());
    assert!(!world.has_timers(), "an ended transaction leaves none");
}

#[test]
fn key_with_an_unknown_outcome_is_taken_again() {
    let mut world = World::new(1, Faults::NONE);
    world.begin(0, &[0, 1]);
    world.doubt_one();
    for _ in 0..10 {
        world.deliver_all();
    }
    assert_eq!(world.committed, 1);
    world.heal();
    world.check_registers(1);
    assert!(check(&world.history, Promise::Strict).holds());
}

/// A coordinator that dies after any number of requests leaves no lock that stays.
#[test]
fn locks_of_a_dead_coordinator_end() {
    for requests in 0..8 {
        let mut world = World::new(2, Faults::NONE);
        world.begin(0, &[0, 1]);
        for _ in 0..requests {
            world.deliver_one();
        }
        world.crash(0);
        world.begin(1, &[0, 1]);
        world.begin_plain(2, 1);
        let before = world.now;
        world.heal();
        assert!(world.now < before + Nanos::from_millis(1_000), "after {requests} requests");
        // The third request writes the commit, and the client hears of it at once.
        let own = u64::from(requests >= 3);
        assert_eq!(world.committed, 2 + own + world::KEYS, "after {requests} requests");
        world.check_registers(2);
        assert!(check(&world.history, Promise::Strict).holds());
    }
}

/// Two round trips, and no lock.
#[test]
fn quiet_reads_write_no_register() {
    let mut world = World::new(1, Faults::NONE);
    world.read(0, &[0, 1]);
    assert_eq!(world.deliver_all(), 2, "the first collect");
    assert_eq!(world.committed, 0);
    assert_eq!(world.deliver_all(), 2, "the second one");
    assert_eq!(world.committed, 1);
    assert!(world.is_quiet() && !world.has_timers());
    assert_eq!(world.writes(), 0);
}

/// A write between the collects makes another one follow.
#[test]
fn reads_between_writes_are_repeated() {
    let mut world = World::new(1, Faults::NONE);
    world.read(0, &[0, 1]);
    world.deliver_one();
    world.begin_plain(1, 0);
    world.begin_plain(1, 1);
    world.run_plain_all();
    world.deliver_all();
    for _ in 0..2 {
        assert_eq!(world.committed, 2, "the plain commands");
        assert_eq!(world.deliver_all(), 2);
    }
    assert_eq!(world.committed, 3);
    assert!(check(&world.history, Promise::Strict).holds());
}

/// T6: a repeat gets the first answer, even if that was nil.
fn repeat_of_nil_is_nil() -> bool {
    let mut world = World::new(1, Faults::NONE);
    for version in [Some(9), None] {
        world.begin_watched(0, 0, version);
        for _ in 0..6 {
            world.deliver_all();
        }
    }
    assert!(world.is_quiet());
    world.committed == 0
}

fn nil_is_repeated() {
    assert!(repeat_of_nil_is_nil());
}

#[test]
fn nil_is_remembered() {
    nil_is_repeated();
    mutation::set(Some(Mutation::OnceWithoutChange));
    let is_nil = repeat_of_nil_is_nil();
    mutation::set(None);
    assert!(!is_nil, "the mistake is noticed");
}

#[test]
fn forgotten_repeats_are_noticed() {
    mutation::set(Some(Mutation::OnceNotKept));
    let found = std::panic::catch_unwind(|| explore(0..SEEDS, Faults::ALL));
    mutation::set(None);
    assert!(found.is_err());
}
