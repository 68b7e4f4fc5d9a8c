//! Real commands on lists, sets, hashes and sorted sets, in whole nodes, under all faults.

use sim::{Campaign, Mix, SimConfig, Speech, campaign};

const SEEDS: u64 = 8;

fn config(mix: Mix) -> SimConfig {
    SimConfig { mix: Some(mix), ..SimConfig::new("rmwpaxos", 0) }
}

/// Runs seeds; the first failure is printed with the line that replays it.
fn check(config: SimConfig, seeds: u64) {
    let plan = Campaign { config, seeds, threads: 2, failures_max: 1 };
    let report = campaign(&plan, |_| {});
    if let Some((seed, failure)) = report.failures.first() {
        let config = SimConfig { seed: *seed, ..plan.config };
        panic!("{}", sim::replay(&config, failure.clone()));
    }
    assert!(report.undecided <= seeds, "{} keys are undecided", report.undecided);
}

#[test]
fn collections_are_linearizable() {
    for &mix in Mix::COLLECTIONS {
        check(config(mix), SEEDS);
    }
}

#[test]
fn collections_are_linearizable_through_sessions() {
    for &mix in Mix::COLLECTIONS {
        check(SimConfig { speech: Some(Speech::Resp), ..config(mix) }, SEEDS / 2);
    }
}

#[test]
fn default_workload_has_all_collections() {
    let drawn = |seed| sim::run::drawn(&SimConfig::new("rmwpaxos", seed)).keys;
    let keys: Vec<Mix> = (0..200).flat_map(drawn).collect();
    for mix in Mix::COLLECTIONS {
        assert!(keys.contains(mix), "{}", mix.name());
    }
}
