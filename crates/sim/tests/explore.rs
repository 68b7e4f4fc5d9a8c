//! Small worlds, explored to their end, for every protocol that has a test of its own here.

use std::fmt::Debug;

use protocols::Protocol;
use protocols::abd::Abd;
use protocols::hermes::Hermes;
use protocols::rmwpaxos::RmwPaxos;
use sim::explore::{Budget, Plan, explore, worlds};

const STATES_MAX: u64 = 100_000;

fn holds<P: Protocol + Debug>(is_wanted: impl Fn(&Plan) -> bool) {
    let wanted = worlds(STATES_MAX).into_iter().filter(|(_, _, plan)| is_wanted(plan));
    let mut explored = 0;
    for (name, is_plain, plan) in wanted {
        if !is_plain && !P::PROPERTIES.read_modify_write {
            continue;
        }
        let found = explore::<P>(&plan);
        if let Some(fault) = found.fault {
            panic!("{name}: {}\n{}", fault.what, fault.path.join("\n"));
        }
        assert!(found.is_complete, "{name}: more than {STATES_MAX} states");
        assert!(found.ends > 0, "{name}: it never ends");
        explored += 1;
    }
    assert!(explored > 0, "there is a world for {}", P::NAME);
}

fn is_short(plan: &Plan) -> bool {
    plan.clients.iter().all(|(_, inputs)| inputs.len() == 1)
}

#[test]
fn two_commands_and_a_loss_or_a_stop_leave_rmwpaxos_linearizable() {
    holds::<RmwPaxos>(|plan| is_short(plan) && plan.budget.wipes + plan.budget.timers == 0);
}

#[test]
fn two_plain_commands_are_linearizable_on_abd() {
    holds::<Abd>(|plan| is_short(plan) && plan.budget == Budget::default());
}

#[test]
fn two_commands_are_linearizable_on_hermes() {
    holds::<Hermes>(|plan| is_short(plan) && plan.budget == Budget::default());
}
