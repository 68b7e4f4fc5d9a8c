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
fn registers_live_with_regions_between_their_replicas() {
    check("rmwpaxos", 20, 0..40);
    check("rmwpaxos", 150, 0..40);
    check("rmwpaxos", 400, 0..20);
    check("abd", 100, 0..20);
}

#[test]
fn a_recovery_whose_proposal_takes_long_ends() {
    check("rmwpaxos", 150, [333, 1290, 1331]);
}

#[test]
fn what_nobody_waits_for_is_not_given_up_while_its_answer_is_on_its_way() {
    check("rmwpaxos", 400, [10_379, 10_389, 11_812]);
}
