//! Directed schedules: orders of events that random search seldom draws.

use checker::serializable::{Promise, check};

use super::world::{Faults, World};
use crate::mutation::{self, Mutation};

/// Ends all faults, reads all lists at one time, and judges.
fn finish(mut world: World) -> World {
    world.heal();
    world.read(2, &[0, 1, 2, 3]);
    world.heal();
    let finding = check(&world.history, Promise::Strict);
    assert!(finding.holds(), "{:?}\n{}", finding.anomalies(), world.trace());
    world.check_registers(0);
    world
}

/// T1: the coordinator commits late, after another node has aborted the transaction and cleared a
/// lock. The record must still say so.
pub(super) fn late_commit_after_an_abort() {
    let mut world = World::new(1, Faults::NONE);
    world.begin(0, &[0, 1]);
    world.deliver_one();
    world.deliver_one();
    world.pause(0);
    world.begin_plain(1, 0);
    world.run_for(300);
    world.resume(0);
    world.deliver_of(0);
    finish(world);
}

/// A coordinator pauses before its commit. A node that takes it for gone aborts its transaction.
fn aborted_by_another() -> World {
    let mut world = World::new(1, Faults::NONE);
    world.begin(0, &[0, 1]);
    world.deliver_one();
    world.deliver_one();
    world.pause(0);
    world.take_for_gone(0, true);
    world.begin_plain(1, 0);
    world.run_for(300);
    world
}

/// T1: another node aborts the transaction of a coordinator that it takes for gone, clears a lock
/// and forgets the record. Then the coordinator commits late.
pub(super) fn late_commit_of_one_taken_for_gone() {
    let mut world = aborted_by_another();
    world.look_after_records(1);
    world.deliver_all_of(1);
    assert_eq!(world.records(), 0, "{}", world.trace());
    world.take_for_gone(0, false);
    world.resume(0);
    world.deliver_all_of(0);
    world.begin(0, &[0, 1]);
    world.deliver_all_of(0);
    assert_eq!(world.committed, 2, "{}", world.trace());
    finish(world);
}

/// One broken link makes a node look gone. If it lives, it forgets its records itself.
#[test]
fn new_record_of_one_taken_for_gone_stays() {
    let mut world = aborted_by_another();
    world.look_after_new_records(1);
    world.deliver_all_of(1);
    assert_eq!(world.records(), 1, "{}", world.trace());
    world.look_after_records(1);
    world.deliver_all_of(1);
    assert_eq!(world.records(), 0, "{}", world.trace());
    world.take_for_gone(0, false);
    world.resume(0);
    finish(world);
}

/// T1: the commit waits at its node while that takes another incarnation.
pub(super) fn commit_of_a_former_incarnation() {
    let mut world = aborted_by_another();
    world.look_after_records(1);
    world.deliver_all_of(1);
    world.take_for_gone(0, false);
    world.renew(0);
    world.resume(0);
    finish(world);
}

/// T3: the commit is written unseen, settled and forgotten. The coordinator then finds its own
/// abort: it must not run again.
pub(super) fn abort_after_a_forgotten_commit() {
    let mut world = World::new(once_without_repeats(), Faults::NONE);
    world.begin(0, &[0, 1]);
    world.deliver_of(0);
    world.deliver_of(0);
    world.lose_answer(0);
    world.run_late(1);
    world.look_after_records(1);
    world.deliver_all_of(1);
    world.deliver_of(0);
    finish(world);
}

/// A seed whose first transaction is not repeated by its client.
fn once_without_repeats() -> u64 {
    4
}

/// T4: the commit lands after its outcome was unknown, and before the coordinator looks.
pub(super) fn commit_of_unknown_outcome() {
    for mask in [0, 1] {
        let mut world = World::new(once_without_repeats(), Faults::NONE);
        world.begin(0, &[0, 1]);
        world.deliver_of(0);
        world.deliver_of(0);
        world.lose_answer(0);
        world.run_late(mask);
        world.deliver_of(0);
        world.crash(0);
        world.run_late(0);
        world.begin_plain(1, 0);
        world.begin_plain(2, 1);
        finish(world);
    }
}

/// T5: a take runs again after its key was settled and written. The lock is cleared, and the later
/// write stays.
pub(super) fn stray_lock_after_the_settle() {
    let mut world = World::new(once_without_repeats(), Faults::NONE);
    world.begin(0, &[0, 1]);
    // The key of list 1 comes first.
    world.repeat_later(0);
    world.deliver_of(0);
    world.deliver_of(0);
    world.deliver_of(0);
    world.deliver_of(0);
    world.begin_plain(1, 1);
    world.run_plain_all();
    world.run_late(1);
    world.crash(0);
    world.begin_plain(2, 1);
    finish(world);
}

/// T7: a watched key that was written overtakes.
pub(super) fn written_key_overtakes() {
    let mut world = World::new(1, Faults::NONE);
    world.begin_plain(1, 0);
    world.run_plain_all();
    world.begin_watched(0, 0, None);
    world.deliver_all_of(0);
    assert_eq!(world.committed, 1, "{}", world.trace());
    finish(world);
}

/// T7: locks overtake no watch.
pub(super) fn lock_does_not_overtake() {
    let mut world = World::new(1, Faults::NONE);
    world.begin_plain(1, 0);
    world.run_plain_all();
    world.begin_watched(0, 0, Some(1));
    world.deliver_all_of(0);
    assert_eq!(world.committed, 2, "{}", world.trace());
    finish(world);
}

/// T8: a transaction commits between the reads of a snapshot.
pub(super) fn commit_between_two_reads() {
    for seed in 0..8 {
        let mut world = World::new(seed, Faults::NONE);
        world.read(0, &[0, 1]);
        world.deliver_of(0);
        world.begin(1, &[0, 1]);
        world.deliver_all_of(1);
        world.deliver_all_of(0);
        finish(world);
    }
}

/// T11: a coordinator that is connected and silent is passed over.
pub(super) fn silent_coordinator_is_pushed() {
    let mut world = World::new(1, Faults::NONE);
    world.begin(0, &[0, 1]);
    world.deliver_one();
    world.deliver_one();
    world.pause(0);
    world.begin_plain(1, 0);
    world.run_for(300);
    assert_eq!(world.committed, 1, "{}", world.trace());
    finish(world);
}

/// T11: a transaction that was aborted keeps its priority.
pub(super) fn priority_is_kept() {
    let mut world = World::new(1, Faults::NONE);
    world.begin(1, &[0, 1]);
    let older = world.starts(1)[0];
    world.wait(3);
    world.begin(0, &[0, 1]);
    let younger = world.starts(0)[0];
    assert!(older < younger);
    world.deliver_of(0);
    world.deliver_of(0);
    world.wait(3);
    for _ in 0..6 {
        world.deliver_of(1);
    }
    world.deliver_of(0);
    let again = world.starts(0);
    assert!(!again.is_empty() && again.iter().all(|it| *it == younger), "{again:?}");
    finish(world);
}

#[test]
fn directed_schedules_hold() {
    for schedule in [
        late_commit_after_an_abort,
        late_commit_of_one_taken_for_gone,
        commit_of_a_former_incarnation,
        abort_after_a_forgotten_commit,
        commit_of_unknown_outcome,
        stray_lock_after_the_settle,
        written_key_overtakes,
        lock_does_not_overtake,
        commit_between_two_reads,
        silent_coordinator_is_pushed,
        priority_is_kept,
    ] {
        schedule();
    }
}

/// The coordinator dies after any number of requests. Those under way run late, or never, in any
/// combination. Then other nodes meet the locks. All lists show the transaction, or none does.
#[test]
fn coordinator_may_die_at_every_step() {
    assert!(!mutation::is(Mutation::ForgetAbortedEarly));
    for requests in 0..9 {
        for mask in 0..8 {
            for is_transaction in [false, true] {
                let mut world = World::new(2, Faults::NONE);
                world.begin(0, &[0, 1, 2]);
                (0..requests).for_each(|_| world.deliver_one());
                world.crash(0);
                let late = world.late();
                if mask >= 1 << late {
                    continue;
                }
                world.run_late(mask);
                if is_transaction {
                    world.begin(1, &[2, 0, 1]);
                } else {
                    world.begin_plain(1, 0);
                    world.begin_plain(2, 2);
                }
                finish(world);
            }
        }
    }
}
