//! Values so long that replicas send deltas, in whole nodes, under all faults.

use sim::{Campaign, SimConfig, campaign};

/// The marks that a run must have reached for the seeds to prove anything.
const REACHED: [&str; 4] = [
    "a proposal travels as a delta",
    "a delta cannot be applied",
    "a proposal is asked for whole while it is under way",
    "a proposal is asked for whole when it is settled",
];

#[test]
fn small_changes_of_long_values_are_linearizable() {
    let config = SimConfig { ops: 300, ..SimConfig::new("rmwpaxos", 0) };
    let plan = Campaign { config, seeds: 80, threads: 2, failures_max: 1 };
    let report = campaign(&plan, |_| {});
    if let Some((seed, failure)) = report.failures.first() {
        let config = SimConfig { seed: *seed, ..plan.config };
        panic!("{}", sim::replay(&config, failure.clone()));
    }
    let reached = base::assertions::reached();
    for mark in REACHED {
        assert!(reached.contains(&mark), "no seed shows that {mark}");
    }
}
