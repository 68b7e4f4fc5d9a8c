//! The protocol trait supports other designs. One has local reads at any member of a changing
//! group, and one a leader and a log of one order.

use sim::{Campaign, CampaignReport, Cuts, Durability, FaultSet, Mix, SimConfig, campaign, run};

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

fn config(protocol: &str, durability: Durability) -> SimConfig {
    SimConfig { durability: Some(durability), ops: 100, ..SimConfig::new(protocol, 0) }
}

#[test]
fn craq_is_linearizable_on_a_calm_network() {
    let config = SimConfig { faults: FaultSet::NONE, ..config("craq", Durability::Volatile) };
    let report = check(config, 60);
    // A timeout of 20 ms is short until the group has formed.
    let in_vain = report.unknown + report.failed;
    assert!(in_vain * 5 <= report.ops, "{in_vain} of {}", report.ops);
}

#[test]
fn craq_is_linearizable_under_all_faults() {
    for durability in [Durability::Volatile, Durability::Pmem, Durability::Disk] {
        check(config("craq", durability), 30);
    }
}

#[test]
fn craq_is_linearizable_with_five_nodes() {
    check(SimConfig { nodes: 5, ..config("craq", Durability::Disk) }, 20);
}

#[test]
fn craq_is_linearizable_on_three_of_five_nodes() {
    check(SimConfig { nodes: 5, replicas: Some(3), ..config("craq", Durability::Disk) }, 20);
}

#[test]
fn hermes_is_linearizable_on_a_calm_network() {
    for durability in [Durability::Volatile, Durability::Pmem, Durability::Disk] {
        let config = SimConfig { faults: FaultSet::NONE, ..config("hermes", durability) };
        let report = check(config, 100);
        // A timeout of 20 ms is short until the group has formed, and for a disk whose flushes take
        // 2 ms.
        let in_vain = report.unknown + report.failed;
        assert!(in_vain * 5 <= report.ops, "{in_vain} of {}", report.ops);
    }
}

#[test]
fn hermes_is_linearizable_under_all_faults() {
    for durability in [Durability::Volatile, Durability::Pmem, Durability::Disk] {
        check(config("hermes", durability), 150);
    }
}

#[test]
fn hermes_is_linearizable_with_five_nodes() {
    check(SimConfig { nodes: 5, ..config("hermes", Durability::Disk) }, 60);
}

#[test]
fn hermes_is_linearizable_on_three_of_five_nodes() {
    check(SimConfig { nodes: 5, replicas: Some(3), ..config("hermes", Durability::Disk) }, 40);
}

#[test]
fn zab_is_sequential_on_a_calm_network() {
    for durability in [Durability::Volatile, Durability::Pmem, Durability::Disk] {
        let config = SimConfig { faults: FaultSet::NONE, ..config("zab", durability) };
        let report = check(config, 100);
        // A timeout of 20 ms is short until there is a leader.
        let in_vain = report.unknown + report.failed;
        assert!(in_vain * 20 <= report.ops, "{in_vain} of {}", report.ops);
        assert!(report.undecided * 4 <= report.seeds, "{} undecided", report.undecided);
    }
}

#[test]
fn zab_is_sequential_under_all_faults() {
    for durability in [Durability::Volatile, Durability::Pmem, Durability::Disk] {
        let report = check(config("zab", durability), 150);
        assert!(report.undecided * 4 <= report.seeds, "{} undecided", report.undecided);
    }
}

#[test]
fn zab_is_sequential_with_five_nodes() {
    check(SimConfig { nodes: 5, ..config("zab", Durability::Disk) }, 60);
}

#[test]
fn keys_of_zab_expire_in_time() {
    check(
        SimConfig { mix: Some(Mix::Expiry), durability: None, ..config("zab", Durability::Disk) },
        40,
    );
}

/// A read waits and pins its absent register. The entry of a later write of its session ends the
/// read, and needs the register.
#[test]
fn entry_of_zab_that_ends_a_read_has_its_register() {
    let cuts = "ops=3,key=2,clients=1,strikes=5,salt=1788,without=loss+reorder+crash+\
                crash-after-turn+amnesia+roll-back+flush-error";
    let cuts = Cuts::parse(cuts).expect("cuts");
    if let Err(failure) = run(&SimConfig { cuts, ..SimConfig::new("zab", 4_000_271) }) {
        panic!("{failure}");
    }
}
