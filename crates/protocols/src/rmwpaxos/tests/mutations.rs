//! Each rule that a mutation leaves out is caught: by random schedules within a stated budget, or
//! by a schedule made for it.

use super::explore::{explore, explore_deltas, explore_listings};
use super::{
    combined, contention, converge, deltas, fences, memory, once, presence_conflict, removal,
    repair, rollback_detector, schedules,
};
use crate::mutation::{self, Mutation};

/// The check that catches a mutation.
enum Catch {
    /// Random schedules, at most this many.
    Seeds(u64),
    /// The same with every possible delta.
    DeltaSeeds(u64),
    /// The same with listings among the commands.
    ListingSeeds(u64),
    Schedule(fn() -> Result<(), String>),
    /// Another protocol's rule.
    Elsewhere,
}

fn catch(mutation: Mutation) -> Catch {
    match mutation {
        Mutation::EqualValues => Catch::Schedule(schedules::equal_values_under_different_rounds),
        Mutation::NoIncarnation => Catch::Schedule(schedules::restart_with_the_same_number),
        Mutation::TwoMinters => Catch::Seeds(1_000),
        Mutation::NoAncestry => Catch::Seeds(100),
        Mutation::EarlyOk => Catch::Seeds(6_000),
        Mutation::LowExclusion => Catch::Schedule(schedules::a_quorum_below_an_attempt),
        Mutation::AnyChosen => Catch::Seeds(4_000),
        Mutation::ChosenIgnoresFloor => {
            Catch::Schedule(|| removal::a_report_from_before_the_deletion(false))
        }
        Mutation::NilFromMixed => Catch::Schedule(removal::an_undecided_tombstone),
        Mutation::CollectByMajority => Catch::Schedule(removal::a_tombstone_that_one_lacks),
        Mutation::NoBallotFloor => Catch::Schedule(removal::late_accepts_after_a_removal),
        Mutation::NoVersionFloor => Catch::Schedule(removal::an_attempt_removed_with_its_register),
        Mutation::AbsentAsTombstone => Catch::Schedule(removal::a_floor_of_another_key),
        Mutation::OneHolderWins => Catch::Schedule(presence_conflict::one_that_brings_back),
        Mutation::WitnessIgnored => {
            Catch::Schedule(presence_conflict::one_that_lost_a_register_the_last_missed)
        }
        Mutation::WitnessAlone => {
            Catch::Schedule(presence_conflict::one_holder_against_absent_members)
        }
        Mutation::FloorsStay => Catch::Schedule(rollback_detector::a_floor_that_went_back),
        Mutation::DenialIgnored => {
            Catch::Schedule(presence_conflict::one_that_brings_back_while_one_is_away)
        }
        Mutation::VolatilePromises => Catch::Schedule(schedules::power_loss_after_a_promise),
        Mutation::NoRecovery => Catch::Seeds(100),
        Mutation::NoCrashVector => Catch::Schedule(memory::an_acknowledgement_from_before_a_loss),
        Mutation::AdoptMinority => Catch::Schedule(memory::recovery_from_a_minority),
        Mutation::NoOpBelowAttempt => Catch::Schedule(contention::a_refusal_below_an_attempt),
        Mutation::ForgetForwarded => Catch::Seeds(1_000),
        Mutation::ForwardAnyIncarnation => Catch::Schedule(contention::a_forward_to_a_later_start),
        Mutation::NoQuorumAfterForward => Catch::Seeds(6_000),
        Mutation::ExpireByOne => Catch::Schedule(contention::clocks_that_jump),
        Mutation::CountdownKept => Catch::Schedule(contention::a_deadline_set_anew),
        Mutation::ReplyBeforeStored | Mutation::ExposeUnflushed => Catch::Seeds(1_000),
        Mutation::AckOfHigherBallot => {
            Catch::Schedule(contention::acknowledgements_of_a_higher_ballot)
        }
        Mutation::AcceptBelowPromise => Catch::Seeds(100),
        Mutation::AnswerFromTip => Catch::Seeds(4_000),
        Mutation::StaleAnswers => Catch::Schedule(|| {
            memory::an_answer_to_an_earlier_start()?;
            contention::an_answer_to_an_earlier_forward()
        }),
        Mutation::HintOfAnotherBallot => Catch::Schedule(repair::a_hint_of_another_ballot),
        Mutation::HintOfAnEarlierRound => Catch::Schedule(repair::a_hint_of_an_earlier_round),
        Mutation::ListHighest => Catch::ListingSeeds(1_000),
        Mutation::NoComparison => Catch::Schedule(converge::a_write_missed),
        Mutation::OneDenies => Catch::Schedule(rollback_detector::one_that_lost_a_register),
        Mutation::AllAreTold => Catch::Schedule(rollback_detector::two_that_went_back),
        Mutation::RepairBelowFloor => Catch::Schedule(converge::a_late_accept_after_a_removal),
        Mutation::RepairRemoved => Catch::Schedule(converge::a_removal_that_one_missed),
        Mutation::DeltaAnyBase => Catch::Schedule(deltas::the_same_bytes_under_another_round),
        Mutation::DeltaNoDigest => Catch::Schedule(deltas::a_damaged_delta),
        Mutation::DeltaUnchecked | Mutation::NeedFullIsAck => Catch::DeltaSeeds(1_000),
        Mutation::TipUnderAskedRound => Catch::Schedule(deltas::a_later_state_under_its_own_round),
        Mutation::FirstOnAnyBase => {
            Catch::Schedule(combined::an_acceptor_that_holds_something_else)
        }
        Mutation::FirstBelowFloor => Catch::Schedule(combined::a_version_below_a_floor),
        Mutation::FirstFromBeforeLoss => {
            Catch::Schedule(combined::a_first_proposal_from_before_a_loss)
        }
        Mutation::FirstRepeatedAfterLoss => {
            Catch::Schedule(combined::a_first_proposal_repeated_after_a_loss)
        }
        Mutation::FirstAcceptedByProposer => {
            Catch::Schedule(combined::a_first_proposal_without_acceptors)
        }
        Mutation::OnceForgetsNoOps => Catch::Schedule(once::a_condition_that_fails_for_a_repeat),
        Mutation::OnceEvictsOldest => Catch::Schedule(once::a_session_too_many),
        Mutation::OnceRefusalStays => Catch::Schedule(once::a_refusal_of_a_command_that_ran),
        Mutation::OnceLostOnDelete => Catch::Schedule(once::a_repeat_after_a_deletion),
        Mutation::OnceCollected => Catch::Schedule(once::a_repeat_after_a_while),
        Mutation::OnceDroppedByOne => Catch::Schedule(once::a_clock_that_jumps),
        Mutation::OnceFromUndecided => Catch::Schedule(once::a_repeat_of_an_undecided_command),
        Mutation::FenceNotDurable => Catch::Schedule(fences::a_fence_that_is_not_durable),
        Mutation::FenceApart => Catch::Schedule(fences::a_fence_apart_from_its_ballot),
        Mutation::FenceOnOne | Mutation::FenceUnderAnyBallot => {
            Catch::Schedule(fences::a_tombstone_without_its_fence)
        }
        Mutation::FenceSilent | Mutation::ProposedByLaterIncarnation => {
            Catch::Schedule(fences::a_live_process_that_was_shut_out)
        }
        Mutation::FenceNotRecovered => Catch::Schedule(fences::a_fence_that_an_acceptor_forgot),
        // Rules of other protocols, which extend the list themselves.
        _ => Catch::Elsewhere,
    }
}

/// True if the schedule fails, by a claim or by an assertion.
fn goes_wrong(play: impl FnOnce() -> Result<(), String> + std::panic::UnwindSafe) -> bool {
    !std::panic::catch_unwind(play).is_ok_and(|played| played.is_ok())
}

fn is_caught(mutation: Mutation) -> bool {
    match catch(mutation) {
        Catch::Seeds(limit) => (0..limit).any(|seed| {
            let durable = seed % 2 == 0;
            goes_wrong(move || explore(seed / 2, 3, durable))
        }),
        Catch::DeltaSeeds(limit) => (0..limit).any(|seed| {
            let durable = seed % 2 == 0;
            goes_wrong(move || explore_deltas(seed / 2, 3, durable))
        }),
        Catch::ListingSeeds(limit) => (0..limit).any(|seed| {
            let durable = seed % 2 == 0;
            goes_wrong(move || explore_listings(seed / 2, 3, durable))
        }),
        Catch::Schedule(play) => goes_wrong(play),
        Catch::Elsewhere => true,
    }
}

#[test]
fn every_mutation_is_caught() {
    let mut survivors = Vec::new();
    for &one in Mutation::ALL {
        if let Catch::Schedule(play) = catch(one) {
            assert_eq!(play(), Ok(()), "{} must pass without a mutation", one.name());
        }
        mutation::set(Some(one));
        let caught = is_caught(one);
        mutation::set(None);
        if !caught {
            survivors.push(one.name());
        }
    }
    assert!(survivors.is_empty(), "no test notices {survivors:?}");
}
