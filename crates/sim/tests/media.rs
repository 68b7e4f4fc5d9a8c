//! The real engines under the workers, and real sessions between clients and workers.

use sim::{
    Campaign, CampaignReport, Durability, FaultSet, MediumKind, SimConfig, Speech, campaign, run,
};

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

fn config(medium: MediumKind) -> SimConfig {
    SimConfig { medium: Some(medium), ops: 100, ..SimConfig::new("rmwpaxos", 0) }
}

#[test]
fn registers_are_linearizable_on_the_disk_engine() {
    check(config(MediumKind::Disk), 25);
    check(SimConfig { protocol: "abd".into(), ..config(MediumKind::Disk) }, 25);
}

#[test]
fn registers_are_linearizable_on_the_pmem_engine() {
    check(config(MediumKind::Pmem), 6);
    check(SimConfig { protocol: "abd".into(), ..config(MediumKind::Pmem) }, 10);
}

/// All faults of a volatile node, with few resident registers.
fn volatile() -> SimConfig {
    let faults = "loss,delay,reorder,partition,reset,pause,crash,rolling-restart,amnesia,jump,eviction,workers";
    SimConfig {
        durability: Some(Durability::Volatile),
        faults: FaultSet::parse(faults).expect("they exist"),
        ..config(MediumKind::Model)
    }
}

#[test]
fn volatile_registers_are_linearizable_under_eviction() {
    check(volatile(), 50);
    check(SimConfig { nodes: 5, ..volatile() }, 15);
    check(SimConfig { speech: Some(Speech::Resp), ..volatile() }, 20);
    check(SimConfig { protocol: "abd".into(), ..volatile() }, 30);
}

#[test]
fn registers_are_linearizable_through_sessions() {
    check(SimConfig { speech: Some(Speech::Resp), ..config(MediumKind::Model) }, 60);
    check(SimConfig { speech: Some(Speech::Resp), ..config(MediumKind::Disk) }, 20);
}

#[test]
fn sessions_on_a_calm_network_answer_nearly_everything() {
    let calm = SimConfig { faults: FaultSet::NONE, ..config(MediumKind::Model) };
    let report = check(SimConfig { speech: Some(Speech::Resp), ..calm }, 60);
    let in_vain = report.unknown + report.failed;
    assert!(in_vain * 300 <= report.ops, "{in_vain} of {}", report.ops);
}

#[test]
fn a_seed_is_one_run_on_every_medium() {
    for &medium in MediumKind::ALL {
        for seed in 0..4 {
            let config = SimConfig { seed, ..config(medium) };
            assert_eq!(run(&config), run(&config), "seed {seed} on {medium:?}");
        }
    }
}

#[test]
fn total_order_requires_a_medium_with_log() {
    let config = SimConfig { protocol: "zab".into(), ..config(MediumKind::Disk) };
    let misuse = sim::validate(&config).unwrap_err();
    assert!(misuse.0.contains("log"), "{misuse:?}");
}

#[test]
fn shard_lost_again_stays_forgotten() {
    let faults = FaultSet::parse("delay,crash,amnesia,rot,eviction").expect("they exist");
    let config = SimConfig { faults, ..SimConfig::new("rmwpaxos", 100_683) };
    if let Err(failure) = run(&config) {
        panic!("{failure}");
    }
}

#[test]
fn damaged_split_bucket_leaves_the_ring() {
    let faults = "delay,crash,crash-after-turn,restart-all,torn,amnesia,rot,eviction,workers";
    let faults = FaultSet::parse(faults).expect("they exist");
    let medium = Some(MediumKind::Disk);
    let config = SimConfig { faults, medium, ..SimConfig::new("rmwpaxos", 102_433) };
    if let Err(failure) = run(&config) {
        panic!("{failure}");
    }
}

#[test]
fn damaged_resident_register_survives_eviction() {
    let faults = "delay,crash,crash-after-turn,restart-all,torn,amnesia,rot,eviction,workers";
    let faults = FaultSet::parse(faults).expect("they exist");
    let medium = Some(MediumKind::Disk);
    let config = SimConfig { faults, medium, ..SimConfig::new("rmwpaxos", 104_234) };
    if let Err(failure) = run(&config) {
        panic!("{failure}");
    }
}
