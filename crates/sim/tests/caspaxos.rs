//! CASPaxos in the simulator: it holds under all faults, on every medium, and beyond its
//! replicas.

use sim::{Campaign, Durability, FaultSet, Mix, SimConfig, campaign};

/// Runs seeds; the first failure is printed with the line that replays it.
fn check(config: SimConfig, seeds: u64) {
    let plan = Campaign { config, seeds, threads: 2, failures_max: 1 };
    let report = campaign(&plan, |_| {});
    if let Some((seed, failure)) = report.failures.first() {
        let config = SimConfig { seed: *seed, ..plan.config };
        panic!("{}", sim::replay(&config, failure.clone()));
    }
}

fn config(ops: u64) -> SimConfig {
    SimConfig { ops, ..SimConfig::new("caspaxos", 0) }
}

#[test]
fn caspaxos_holds_without_faults() {
    check(SimConfig { faults: FaultSet::NONE, ..config(100) }, 30);
}

#[test]
fn caspaxos_holds_under_all_faults_on_every_medium() {
    for durability in [Durability::Volatile, Durability::Pmem, Durability::Disk] {
        check(SimConfig { durability: Some(durability), ..config(100) }, 40);
    }
}

#[test]
fn caspaxos_holds_beyond_its_replicas() {
    check(SimConfig { nodes: 5, replicas: Some(3), ..config(100) }, 20);
}

#[test]
fn keys_of_caspaxos_expire_in_time() {
    check(SimConfig { mix: Some(Mix::Expiry), ..config(100) }, 40);
}
