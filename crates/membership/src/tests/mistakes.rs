//! Each rule that a mutation leaves out is caught, by a random world or by a schedule made for it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::chaos::explore;
use super::{choices, cut_pair, losses, rules};
use crate::mutation::{self, Mutation};

/// The check that catches a mutation.
enum Catch {
    /// Random worlds from this seed on; at most [`WORLDS`] of them.
    From(u64),
    Schedule(fn()),
}

const WORLDS: u64 = 1_000;

fn catch(mutation: Mutation) -> Catch {
    match mutation {
        Mutation::CopiedAnyEpoch => {
            Catch::Schedule(choices::shadow_is_full_once_it_copied_in_the_last_active_epoch)
        }
        Mutation::StaleJoins | Mutation::OldReportJoins => {
            Catch::Schedule(choices::only_empty_and_connected_nodes_join_at_the_end)
        }
        Mutation::AnswersBeforeRead | Mutation::VolatilePromise => {
            Catch::Schedule(rules::node_without_record_does_not_answer_before_it_read)
        }
        Mutation::SeenAnyImage => {
            Catch::Schedule(rules::later_process_ends_the_wait_only_with_its_image)
        }
        Mutation::UnknownIsDone => Catch::Schedule(rules::swap_of_unknown_outcome_is_read_first),
        Mutation::GrantsKept => Catch::Schedule(rules::grants_of_an_earlier_epoch_do_not_count),
        Mutation::NoQuarantine | Mutation::QuarantineBySetting | Mutation::SealedEarly => {
            Catch::Schedule(rules::restarted_granter_waits_for_its_former_grants)
        }
        Mutation::RaiseWithoutSeal => Catch::Schedule(rules::every_rise_of_the_promise_seals),
        Mutation::InstallBelowPromise => Catch::Schedule(rules::late_install_is_ignored),
        Mutation::OneWorkerSealed => Catch::From(250),
        Mutation::WriterIsNode => Catch::From(150),
        Mutation::RestartedNeedsJoined => {
            Catch::Schedule(choices::restarted_full_member_keeps_role_and_place)
        }
        Mutation::OrderCutOff => {
            Catch::Schedule(losses::order_is_refused_at_a_node_that_is_cut_off)
        }
        Mutation::LossErases => {
            Catch::Schedule(losses::rest_of_a_damaged_image_is_kept_until_a_full_member_is_heard)
        }
        Mutation::NoPolling => {
            Catch::Schedule(rules::node_looks_for_a_value_that_it_has_not_installed)
        }
        Mutation::NoStallEvidence => {
            Catch::Schedule(rules::member_that_does_not_acknowledge_is_left_out)
        }
        Mutation::LeavesOutUnheard => Catch::Schedule(
            cut_pair::epochs_do_not_alternate_between_two_that_do_not_hear_each_other,
        ),
        Mutation::MissingForgotten => Catch::Schedule(rules::member_without_seal_is_distrusted),
        _ => Catch::From(0),
    }
}

/// A schedule that passes with all rules fails without one.
fn fails(check: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(check)).is_err()
}

#[test]
fn every_rule_is_needed() {
    let mut missed = Vec::new();
    for &mutation in Mutation::ALL {
        mutation::set(Some(mutation));
        let world = |seed: &u64| {
            fails(|| {
                explore(*seed).expect("a violation");
            })
        };
        let caught = match catch(mutation) {
            Catch::From(first) => (first..first + WORLDS).find(world).map(|seed| seed.to_string()),
            Catch::Schedule(schedule) => fails(schedule).then(|| "its schedule".to_string()),
        };
        mutation::set(None);
        println!("{}: {caught:?}", mutation.name());
        if caught.is_none() {
            missed.push(mutation.name());
        }
    }
    assert_eq!(missed, [""; 0]);
}
