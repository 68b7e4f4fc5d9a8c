//! Transactions over several keys in whole nodes, through sessions, under all faults.

use sim::{Campaign, CampaignReport, FaultSet, Mix, SimConfig, campaign};

const SEEDS: u64 = 12;

fn config(mix: Mix) -> SimConfig {
    SimConfig { mix: Some(mix), ..SimConfig::new("rmwpaxos", 0) }
}

/// Runs seeds; the first failure is printed with the line that replays it.
fn check(config: SimConfig, seeds: u64) -> CampaignReport {
    let plan = Campaign { config, seeds, threads: 2, failures_max: 1 };
    let report = campaign(&plan, |_| {});
    if let Some((seed, failure)) = report.failures.first() {
        let config = SimConfig { seed: *seed, ..plan.config };
        panic!("{}", sim::replay(&config, failure.clone()));
    }
    report
}

#[test]
fn transactions_are_strictly_serializable() {
    let report = check(config(Mix::Transactions), SEEDS);
    assert!(report.unknown * 100 < report.ops * 15, "they say too little: {report:?}");
    let reached = base::assertions::reached();
    for mark in ["a lock of a dead coordinator is pushed", "a transaction is attempted again"] {
        assert!(reached.contains(&mark), "no seed reaches: {mark}");
    }
    check(SimConfig { nodes: 5, ops: 100, ..config(Mix::Transactions) }, 4);
}

#[test]
fn scripts_are_strictly_serializable() {
    check(config(Mix::Scripts), 3);
}

#[test]
fn transfers_conserve_the_sum() {
    check(config(Mix::Transfers), SEEDS);
}

/// Nearly all transfers over ten accounts succeed where nodes and links do.
#[test]
fn contended_transfers_make_progress() {
    let calm = SimConfig { faults: FaultSet::NONE, ..config(Mix::Transfers) };
    let report = check(calm, 8);
    assert!(report.returned * 10 > report.ops * 9, "{report:?}");
}

#[test]
fn default_workload_has_transactions() {
    let drawn = |seed| sim::run::drawn(&SimConfig::new("rmwpaxos", seed)).keys;
    let keys: Vec<Mix> = (0..300).flat_map(drawn).collect();
    for mix in [Mix::Transactions, Mix::Scripts, Mix::Transfers] {
        assert!(keys.contains(&mix), "{}", mix.name());
    }
}
