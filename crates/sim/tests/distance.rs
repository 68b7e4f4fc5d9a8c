//! Distant nodes.

use sim::{SimConfig, run};

fn check(protocol: &str, distance: u64, seeds: impl IntoIterator<Item = u64>) {
    for seed in seeds {
        let config = SimConfig { distance: Some(distance), ..SimConfig::new(protocol, seed) };
        if let Err(failure) = run(&config) {
            panic!("{}", sim::replay(&config, failure));
        }
    }
}

#[test]
fn registers_work_across_regions() {
    check("rmwpaxos", 20, 0..15);
    check("rmwpaxos", 150, 0..15);
    check("rmwpaxos", 400, 0..8);
    check("abd", 100, 0..8);
}

#[test]
fn a_recovery_whose_proposal_takes_long_ends() {
    check("rmwpaxos", 150, [333, 1290, 1331]);
}

#[test]
fn unwatched_proposal_waits_for_its_answer() {
    check("rmwpaxos", 400, [10_379, 10_389, 11_812]);
}
