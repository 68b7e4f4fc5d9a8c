//! Small worlds, explored to their end, for every protocol there is.

use std::fmt::Debug;

use checker::model::kv::KvInput;
use protocols::Protocol;
use protocols::abd::Abd;
use protocols::caspaxos::CasPaxos;
use protocols::classic_paxos::{ClassicPaxos, Waiting};
use protocols::configured::Configured;
use protocols::craq::Craq;
use protocols::hermes::Hermes;
use protocols::rmwpaxos::{CoreAlone, RmwPaxos};
use protocols::zab::Zab;
use sim::explore::{Budget, WorldPlan, explore, is_livable, worlds};

const STATES_MAX: u64 = 400_000;

fn holds<P: Protocol + Debug>(is_wanted: impl Fn(&WorldPlan) -> bool) {
    let mut explored = 0;
    for named in worlds(STATES_MAX) {
        if !is_livable::<P>(&named) || !is_wanted(&named.plan) {
            continue;
        }
        let found = explore::<P>(&named.plan, |_| true);
        if let Some(fault) = found.fault {
            panic!("{}: {}\n{}", named.name, fault.reason, fault.path.join("\n"));
        }
        assert!(found.is_complete, "{}: more than {STATES_MAX} states", named.name);
        assert!(found.ends > 0, "{}: it never ends", named.name);
        explored += 1;
    }
    assert!(explored > 0, "there is a world for {}", P::NAME);
}

fn is_short(plan: &WorldPlan) -> bool {
    plan.epochs.is_empty() && plan.clients.iter().all(|(_, inputs)| inputs.len() == 1)
}

#[test]
fn two_commands_and_a_crash_leave_rmwpaxos_linearizable() {
    holds::<RmwPaxos>(|plan| is_short(plan) && plan.budget.wipes + plan.budget.timers == 0);
}

/// Nodes keep their memory: recovery is a service.
#[test]
fn two_commands_and_a_crash_leave_the_core_alone_linearizable() {
    holds::<CoreAlone>(|plan| is_short(plan) && plan.budget.wipes + plan.budget.timers == 0);
}

#[test]
fn two_plain_commands_are_linearizable_on_abd() {
    holds::<Abd>(|plan| is_short(plan) && plan.budget == Budget::default());
}

#[test]
fn two_commands_are_linearizable_on_classic_paxos() {
    // Two writes have more states than a test can visit.
    let has_read = |plan: &WorldPlan| plan.clients.iter().any(|it| it.1 == [KvInput::Get]);
    let is_small = |plan: &WorldPlan| is_short(plan) && plan.budget == Budget::default();
    holds::<ClassicPaxos>(|plan| is_small(plan) && has_read(plan));
    holds::<Waiting>(|plan| is_small(plan) && has_read(plan));
}

#[test]
fn two_commands_are_linearizable_on_caspaxos() {
    let has_read = |plan: &WorldPlan| plan.clients.iter().any(|it| it.1 == [KvInput::Get]);
    let is_small = |plan: &WorldPlan| is_short(plan) && plan.budget == Budget::default();
    holds::<CasPaxos>(|plan| is_small(plan) && has_read(plan));
}

#[test]
fn two_commands_are_linearizable_on_craq() {
    holds::<Configured<Craq>>(|plan| is_short(plan) && plan.budget == Budget::default());
}

#[test]
fn two_commands_are_linearizable_on_hermes() {
    holds::<Configured<Hermes>>(|plan| is_short(plan) && plan.budget == Budget::default());
}

fn has_epochs(plan: &WorldPlan) -> bool {
    !plan.epochs.is_empty()
}

#[test]
fn epochs_leave_craq_linearizable() {
    holds::<Configured<Craq>>(has_epochs);
}

/// Two epochs in a row have more states than a test can visit.
#[test]
fn epochs_leave_hermes_linearizable() {
    holds::<Configured<Hermes>>(|plan| plan.epochs.len() == 1);
}

/// The election alone has more states than a test can visit: a part of one world.
#[test]
fn a_write_and_a_read_are_as_zab_promises() {
    let named = worlds(100_000).into_iter().find(is_livable::<Zab>);
    let found = explore::<Zab>(&named.expect("there is a world for zab").plan, |_| true);
    let fault = found.fault.map(|fault| (fault.reason, fault.path.join("\n")));
    assert_eq!(fault, None);
    assert!(found.ends > 0, "it never ends");
}

/// From an order that stands.
#[test]
fn settled_order_keeps_its_promises() {
    holds::<Zab>(|plan| plan.is_settled && plan.budget == Budget::default());
}

/// All orders of a restart and an election have more states than a test can visit: a part of them.
#[test]
fn order_outlives_a_restart() {
    let is_it = |plan: &WorldPlan| plan.is_settled && plan.budget.restarts > 0;
    let restarts: Vec<_> = worlds(30_000).into_iter().filter(|it| is_it(&it.plan)).collect();
    assert!(!restarts.is_empty());
    for named in restarts {
        let found = explore::<Zab>(&named.plan, |_| true);
        let fault = found.fault.map(|fault| (fault.reason, fault.path.join("\n")));
        assert_eq!(fault, None, "{}", named.name);
        assert!(found.ends > 0, "{}: it never ends", named.name);
    }
}

#[cfg(feature = "mutations")]
mod mistakes {
    use protocols::mutation::{Mutation, set};

    use super::*;

    /// Some world with a change of epoch shows the mistake.
    fn is_caught<P: Protocol + Debug>(mutation: Mutation) -> bool {
        set(Some(mutation));
        let found = worlds(STATES_MAX)
            .iter()
            .filter(|named| has_epochs(&named.plan) && is_livable::<P>(named))
            .any(|named| explore::<P>(&named.plan, |_| true).fault.is_some());
        set(None);
        found
    }

    #[test]
    fn mistake_of_an_order_is_caught() {
        set(Some(Mutation::ApplyUncommitted));
        let is_it = |plan: &WorldPlan| plan.is_settled && plan.budget == Budget::default();
        let caught = worlds(STATES_MAX)
            .iter()
            .filter(|named| is_it(&named.plan))
            .all(|named| explore::<Zab>(&named.plan, |_| true).fault.is_some());
        set(None);
        assert!(caught);
    }

    #[test]
    fn mistakes_between_epochs_are_caught() {
        assert!(is_caught::<Configured<Hermes>>(Mutation::AcksOutliveEpoch));
        assert!(is_caught::<Configured<Craq>>(Mutation::NoTable));
        assert!(is_caught::<Configured<Craq>>(Mutation::ShadowsAreNoEnd));
        assert!(is_caught::<Configured<Craq>>(Mutation::ShadowServes));
    }
}
