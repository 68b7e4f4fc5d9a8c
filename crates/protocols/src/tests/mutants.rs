//! Mutations of the configured protocols, of abd, caspaxos, classic-paxos and zab are caught.
//! Random worlds do so within a stated budget, or a schedule made for one.

use super::chains;
use super::explore::explore;
use super::forgotten::forgotten_again;
use super::full_turns;
use super::lives;
use super::repeats;
use super::reviewed;
use super::schedules as play;
use super::zab::{regressions as zab_faults, schedules as zab};
use super::{tombstones, traps};
use crate::abd::Abd;
use crate::caspaxos::{self, CasPaxos};
use crate::classic_paxos::ClassicPaxos;
use crate::configured::Configured;
use crate::craq::{self, Craq};
use crate::hermes::Hermes;
use crate::mutation::{self, Mutation};

/// The check that catches a mutation.
#[derive(Clone, Copy)]
enum Catch {
    /// Random worlds of a protocol, at most this many.
    Hermes(u64),
    Craq(u64),
    CasPaxos(u64),
    ClassicPaxos(u64),
    Schedule(fn() -> Result<(), String>),
}

/// Every rule of `configured`, `hermes`, `craq` and `caspaxos`, those of tombstones of `abd`, and
/// those of `classic-paxos` and `zab` that the simulator does not reach.
const CAUGHT: &[(Mutation, Catch)] = &[
    (Mutation::OldEpochCounts, Catch::Schedule(play::craq_steered_copy_of_the_epoch_before)),
    (
        Mutation::AnyProcessCounts,
        Catch::Schedule(play::an_answer_of_another_process::<Configured<Hermes>>),
    ),
    (
        Mutation::AnyProcessCounts,
        Catch::Schedule(play::an_answer_of_another_process::<Configured<Craq>>),
    ),
    (
        Mutation::ReadWithoutLease,
        Catch::Schedule(play::a_read_at_a_node_left_out::<Configured<Hermes>>),
    ),
    (
        Mutation::ReadWithoutLease,
        Catch::Schedule(play::a_read_at_a_node_left_out::<Configured<Craq>>),
    ),
    (
        Mutation::CopyFromShadow,
        Catch::Schedule(play::a_copy_from_an_empty_process::<Configured<Hermes>>),
    ),
    (
        Mutation::CopyFromShadow,
        Catch::Schedule(play::a_copy_from_an_empty_process::<Configured<Craq>>),
    ),
    (Mutation::ShadowServes, Catch::Schedule(play::a_read_at_a_shadow::<Configured<Hermes>>)),
    (Mutation::ShadowServes, Catch::Schedule(play::a_read_at_a_shadow::<Configured<Craq>>)),
    (
        Mutation::CopiedBeforeDurable,
        Catch::Schedule(play::a_copy_that_is_not_durable::<Configured<Hermes>>),
    ),
    (
        Mutation::CopiedBeforeDurable,
        Catch::Schedule(play::a_copy_that_is_not_durable::<Configured<Craq>>),
    ),
    (Mutation::DropsEarly, Catch::Schedule(traps::message_before_its_epoch::<Hermes>)),
    (Mutation::DropsEarly, Catch::Schedule(traps::message_before_its_epoch::<Craq>)),
    (Mutation::ReadWithoutLease, Catch::Schedule(traps::craq_refusal_of_a_deposed_head)),
    (Mutation::ForgetsEnded, Catch::Schedule(traps::craq_copy_of_a_refused_command)),
    (Mutation::LaterReadsJoin, Catch::Schedule(traps::craq_read_behind_an_earlier_question)),
    (Mutation::TakeLate, Catch::Schedule(lives::hermes_late_version_after_a_round)),
    (Mutation::BuryUnraised, Catch::Schedule(lives::hermes_late_version_before_an_era)),
    (Mutation::RaiseAnyHeld, Catch::Schedule(lives::hermes_write_that_others_finished)),
    (Mutation::CollectBesideCopy, Catch::Schedule(lives::hermes_deletion_beside_a_copy)),
    (Mutation::AckEarlierLife, Catch::Schedule(lives::hermes_births_of_two_eras)),
    (Mutation::EndEarlierLife, Catch::Schedule(lives::hermes_write_below_a_later_life)),
    (Mutation::StaleEndsWell, Catch::Schedule(lives::hermes_write_on_a_removed_tombstone)),
    (Mutation::AcksWithoutShadows, Catch::Schedule(play::hermes_write_beside_a_copy)),
    (Mutation::RunsCopies, Catch::Hermes(1_000)),
    (Mutation::RunsCopies, Catch::Craq(1_000)),
    (Mutation::AckBeforeDurable, Catch::Schedule(play::hermes_acknowledgement_before_its_flush)),
    (Mutation::RangesOverGaps, Catch::Schedule(play::hermes_range_with_a_gap)),
    (Mutation::RangeByFirstTicket, Catch::Schedule(play::hermes_range_before_its_flush)),
    (Mutation::AbortOnHigher, Catch::Schedule(play::hermes_rmw_superseded_at_its_coordinator)),
    (Mutation::ReplayLiveRmw, Catch::Schedule(play::hermes_replay_beside_its_coordinator)),
    (Mutation::AcksOutliveEpoch, Catch::Hermes(1_000)),
    (Mutation::ReadInvalid, Catch::Hermes(1_000)),
    (Mutation::ValidateAnyVersion, Catch::Hermes(1_000)),
    (Mutation::ValidateByMajority, Catch::Hermes(1_000)),
    (Mutation::AckLosingRmw, Catch::Hermes(6_000)),
    (Mutation::HandOnBeforeDurable, Catch::Schedule(play::craq_version_handed_on_before_its_flush)),
    (Mutation::ShadowsAreNoEnd, Catch::Schedule(play::craq_write_beside_a_copy)),
    (Mutation::ReadDirty, Catch::Craq(1_000)),
    (Mutation::UpForCopy, Catch::Craq(1_000)),
    (Mutation::NoTable, Catch::Craq(1_000)),
    (Mutation::RepeatsUnseen, Catch::Schedule(repeats::craq_repeat_without_effect)),
    (Mutation::ForgetsLong, Catch::Schedule(repeats::craq_long_reply_of_a_dead_head)),
    (Mutation::ForgetsLong, Catch::Schedule(repeats::craq_long_reply_at_the_next_head)),
    (Mutation::CommitsLate, Catch::Schedule(full_turns::hermes_commits_of_a_full_turn)),
    (Mutation::EndUncounted, Catch::Schedule(reviewed::abd_value_at_a_minority)),
    (Mutation::EndMissed, Catch::Schedule(reviewed::abd_end_that_a_replica_missed)),
    // The second loss comes before a page, before its registers, and at the end.
    (Mutation::RecoveryGoesOn, Catch::Schedule(|| forgotten_again::<Abd>("Page {"))),
    (Mutation::RecoveryGoesOn, Catch::Schedule(|| forgotten_again::<Abd>("Adopt {"))),
    (Mutation::RecoveryGoesOn, Catch::Schedule(|| forgotten_again::<Abd>("Recovered {"))),
    (Mutation::RecoveryGoesOn, Catch::Schedule(|| forgotten_again::<CasPaxos>("Page {"))),
    (Mutation::RecoveryGoesOn, Catch::Schedule(|| forgotten_again::<CasPaxos>("Recover {"))),
    (Mutation::RecoveryGoesOn, Catch::Schedule(|| forgotten_again::<CasPaxos>("Recovered {"))),
    (Mutation::RecoveryGoesOn, Catch::Schedule(|| forgotten_again::<ClassicPaxos>("Page {"))),
    (Mutation::RecoveryGoesOn, Catch::Schedule(|| forgotten_again::<ClassicPaxos>("Recover {"))),
    (Mutation::RecoveryGoesOn, Catch::Schedule(|| forgotten_again::<ClassicPaxos>("Recovered {"))),
    (Mutation::ZabResendsCopied, Catch::Schedule(zab_faults::write_that_a_copy_includes)),
    (Mutation::NoFloor, Catch::Schedule(play::craq_late_version_of_a_deleted_key)),
    (Mutation::MintBelowFloor, Catch::Craq(4_000)),
    (Mutation::FloorOverPends, Catch::Schedule(play::craq_floor_above_a_version_on_its_way)),
    (Mutation::BuryNames, Catch::Craq(1_000)),
    (Mutation::CleanEndsHere, Catch::Schedule(chains::acknowledgement_lost_behind_a_clean_member)),
    (Mutation::RunsLateSteers, Catch::Schedule(craq::late_command)),
    (Mutation::VerifyByMajority, Catch::Schedule(tombstones::abd_tombstone_that_one_lacks)),
    (Mutation::BuryUnclosed, Catch::Schedule(tombstones::abd_late_store)),
    (Mutation::ForgetClosed, Catch::Schedule(tombstones::abd_late_store_after_a_restart)),
    (Mutation::RecoverUndated, Catch::Schedule(tombstones::abd_late_store_after_an_amnesia)),
    (Mutation::AdoptLate, Catch::Schedule(tombstones::abd_recovery_that_lingers)),
    (Mutation::AdvanceEarly, Catch::Schedule(tombstones::abd_write_beside_a_round)),
    (Mutation::MintBelowEra, Catch::Schedule(tombstones::abd_write_below_a_tombstone)),
    (Mutation::AnswerNewer, Catch::Schedule(play::classic_paxos_command_after_the_promise)),
    (Mutation::RecomputeAttempt, Catch::Schedule(play::classic_paxos_attempt_that_others_complete)),
    (Mutation::CommitAnyVote, Catch::Schedule(play::classic_paxos_decision_of_a_higher_ballot)),
    (Mutation::IgnoreLowerVotes, Catch::ClassicPaxos(1_000)),
    (Mutation::NoRegistry, Catch::ClassicPaxos(1_000)),
    (Mutation::ReadCommittedOnly, Catch::ClassicPaxos(1_000)),
    (Mutation::GrantUsedTwice, Catch::Schedule(play::caspaxos_grant_of_an_attempt_given_up)),
    (Mutation::GrantOutlivesEpoch, Catch::Schedule(caspaxos::grant_of_another_epoch)),
    (Mutation::GrantSkipsDeadline, Catch::Schedule(caspaxos::grant_of_an_expiring_key)),
    (Mutation::TombstoneCovers, Catch::Schedule(play::caspaxos_attempt_on_a_vote_that_is_lost)),
    (Mutation::RecoversNoPromise, Catch::Schedule(play::caspaxos_promise_of_a_replica_that_forgot)),
    (Mutation::RecomputeAttempt, Catch::Schedule(play::caspaxos_attempt_that_others_complete)),
    (Mutation::LowExclusion, Catch::Schedule(play::caspaxos_attempt_that_others_complete)),
    (Mutation::VoteIsNoPromise, Catch::CasPaxos(1_000)),
    (Mutation::AnswersUnchosen, Catch::CasPaxos(1_000)),
    (Mutation::EarlyOk, Catch::CasPaxos(1_000)),
    (Mutation::IgnoreLowerVotes, Catch::CasPaxos(1_000)),
    (Mutation::NoRegistry, Catch::CasPaxos(1_000)),
    (Mutation::AcceptBelowPromise, Catch::CasPaxos(1_000)),
    (Mutation::NoWriteBack, Catch::CasPaxos(1_000)),
    (Mutation::AdoptMinority, Catch::CasPaxos(1_000)),
    (Mutation::ZabForgetsPromises, Catch::Schedule(zab::promise_that_was_forgotten)),
    (Mutation::ZabComparesZxidsOnly, Catch::Schedule(zab::history_that_was_left_behind)),
    (Mutation::ZabCountsUnjoined, Catch::Schedule(zab::acknowledgement_before_joining)),
    (Mutation::ZabNeverNotes, Catch::Schedule(zab::leader_behind_its_epoch)),
    (Mutation::ZabReadsBehind, Catch::Schedule(zab::read_at_a_worker_behind)),
    (Mutation::ZabAdoptsOlder, Catch::Schedule(zab::write_beside_a_copy)),
    (Mutation::ZabForgetsDeletions, Catch::Schedule(zab::deletion_beside_a_copy)),
    (Mutation::ZabAppliesAgain, Catch::Schedule(zab::countdown_over_a_restart)),
];

fn goes_wrong<E>(play: impl FnOnce() -> Result<(), E> + std::panic::UnwindSafe) -> bool {
    !std::panic::catch_unwind(play).is_ok_and(|played| played.is_ok())
}

fn is_caught(catch: Catch) -> bool {
    match catch {
        Catch::Hermes(most) => {
            (0..most).any(|seed| goes_wrong(move || explore::<Configured<Hermes>>(seed, false)))
        }
        Catch::Craq(most) => {
            (0..most).any(|seed| goes_wrong(move || explore::<Configured<Craq>>(seed, false)))
        }
        Catch::CasPaxos(most) => {
            (0..most).any(|seed| goes_wrong(move || explore::<CasPaxos>(seed, false)))
        }
        Catch::ClassicPaxos(most) => {
            (0..most).any(|seed| goes_wrong(move || explore::<ClassicPaxos>(seed, false)))
        }
        Catch::Schedule(play) => goes_wrong(play),
    }
}

#[test]
fn every_rule_left_out_is_noticed() {
    let mut survivors = Vec::new();
    for (place, &(one, catch)) in CAUGHT.iter().enumerate() {
        if let Catch::Schedule(play) = catch {
            assert_eq!(play(), Ok(()), "{place}: {} holds without a mutation", one.name());
        }
        mutation::set(Some(one));
        let is_caught = is_caught(catch);
        mutation::set(None);
        if !is_caught {
            survivors.push((place, one.name()));
        }
    }
    assert!(survivors.is_empty(), "no test notices {survivors:?}");
}

#[test]
fn every_rule_of_groups_has_its_check() {
    let is_of_groups = |name: &str| {
        ["group-", "hermes-", "craq-", "caspaxos-", "abd-"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    for one in Mutation::ALL.iter().filter(|one| is_of_groups(one.name())) {
        assert!(CAUGHT.iter().any(|(caught, _)| caught == one), "{} has no check", one.name());
    }
}
