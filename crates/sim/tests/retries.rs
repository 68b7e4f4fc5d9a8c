//! Lines under `ONCE` that clients send again and again, in whole nodes, under all faults.

use sim::{Campaign, CampaignReport, FaultSet, MediumKind, Mix, SimConfig, Speech, campaign, run};

/// The marks that a run must have reached for the seeds to prove anything.
const REACHED: [&str; 2] =
    ["a vote on windows of remembered commands", "a command is forgotten after its window"];

fn config() -> SimConfig {
    SimConfig { mix: Some(Mix::Retries), ..SimConfig::new("rmwpaxos", 0) }
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
fn repeated_lines_run_once() {
    check(config(), 100);
    check(SimConfig { nodes: 5, ops: 100, ..config() }, 8);
    let reached = base::assertions::reached();
    for mark in REACHED {
        assert!(reached.contains(&mark), "no seed shows that {mark}");
    }
}

#[test]
fn repeated_lines_run_once_through_sessions() {
    check(SimConfig { speech: Some(Speech::Resp), ..config() }, 30);
}

#[test]
fn repeated_lines_run_once_on_every_medium() {
    for medium in [MediumKind::Disk, MediumKind::Pmem] {
        check(SimConfig { medium: Some(medium), ops: 100, ..config() }, 10);
    }
}

#[test]
fn calm_network_answers_nearly_every_transmission() {
    let report = check(SimConfig { faults: FaultSet::NONE, ..config() }, 40);
    assert!((report.unknown + report.failed) * 300 <= report.ops, "{report:?}");
    assert!(report.refused * 10 <= report.ops, "{report:?}");
}

#[test]
fn protocol_without_once_gets_no_repeats() {
    let config = SimConfig { protocol: "abd".into(), ..config() };
    assert!(sim::validate(&config).is_err());
    assert!(run(&SimConfig { mix: Some(Mix::Register), protocol: "abd".into(), ..config }).is_ok());
}
