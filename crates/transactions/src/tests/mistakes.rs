//! Each rule that a mutation leaves out is caught: by random schedules within a stated number, or
//! by a schedule made for it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::schedules;
use super::world::Faults;
use crate::mutation::{self, Mutation};

/// The check that catches a mutation.
enum Catch {
    /// Random schedules with all faults, at most this many.
    Seeds(u64),
    /// The same without faults: all transactions commit.
    CalmSeeds(u64),
    Schedule(fn()),
}

fn catch(mutation: Mutation) -> Catch {
    match mutation {
        Mutation::ForgetAbortedEarly => Catch::Schedule(schedules::late_commit_after_an_abort),
        Mutation::ForgetUnfenced => Catch::Schedule(schedules::late_commit_of_one_taken_for_gone),
        Mutation::CommitUnbound => Catch::Schedule(schedules::commit_of_a_former_incarnation),
        Mutation::FinishedWhileDeciding => Catch::Seeds(500),
        Mutation::AbortedIsLost => Catch::Schedule(schedules::abort_after_a_forgotten_commit),
        Mutation::UnknownIsAborted => Catch::Schedule(schedules::commit_of_unknown_outcome),
        Mutation::SettleAnyVersion => Catch::Schedule(schedules::stray_lock_after_the_settle),
        Mutation::OnceNotKept => Catch::Seeds(500),
        Mutation::OnceWithoutChange => Catch::Schedule(super::nil_is_repeated),
        Mutation::WatchIgnored => Catch::Schedule(schedules::written_key_overtakes),
        Mutation::WatchAnyVersion => Catch::Schedule(schedules::lock_does_not_overtake),
        Mutation::SingleCollect => Catch::Schedule(schedules::commit_between_two_reads),
        Mutation::PushLive => Catch::Seeds(3_000),
        Mutation::WaitForSilent => Catch::Schedule(schedules::silent_coordinator_is_pushed),
        Mutation::NoTieBreak => Catch::CalmSeeds(50),
        Mutation::PriorityLost => Catch::Schedule(schedules::priority_is_kept),
        Mutation::SecondDecision | Mutation::ForgetBeforeSettled => Catch::Seeds(50),
        Mutation::ReplyBeforeCommit => Catch::Seeds(50),
    }
}

/// A schedule that passes with all rules fails without one.
fn fails(check: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(check)).is_err()
}

fn run(seed: u64, faults: Faults) {
    let (committed, attempted) = super::explore(seed..seed + 1, faults);
    assert!(faults != Faults::NONE || committed == attempted, "{committed} of {attempted}");
}

#[test]
fn every_rule_is_needed() {
    let mut missed = Vec::new();
    for &mutation in Mutation::ALL {
        mutation::set(Some(mutation));
        let first = |seeds: u64, faults| {
            (0..seeds).find(|seed| fails(|| run(*seed, faults))).map(|seed| seed + 1)
        };
        let tries = match catch(mutation) {
            Catch::Seeds(seeds) => first(seeds, Faults::ALL),
            Catch::CalmSeeds(seeds) => first(seeds, Faults::NONE),
            Catch::Schedule(schedule) => fails(schedule).then_some(1),
        };
        mutation::set(None);
        println!("{}: caught after {tries:?} schedules", mutation.name());
        if tries.is_none() {
            missed.push(mutation.name());
        }
    }
    assert_eq!(missed, [""; 0]);
}
