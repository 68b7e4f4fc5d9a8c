//! zab in the simulator: times to live, and seeds that failed. `waist.rs` runs it on every medium.

use sim::{Campaign, Cuts, Mix, SimConfig, campaign, run};

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
    SimConfig { ops, ..SimConfig::new("zab", 0) }
}

#[test]
fn keys_of_zab_expire_in_time() {
    check(SimConfig { mix: Some(Mix::Expiry), ..config(100) }, 40);
}

/// A read waits and pins its absent register. The entry of a later write of its session ends the
/// read, and needs the register.
#[test]
fn entry_that_ends_a_read_has_its_register() {
    let cuts = "ops=3,key=2,clients=1,strikes=5,salt=1788,without=loss+reorder+crash+\
                crash-after-turn+amnesia+roll-back+flush-error";
    let cuts = Cuts::parse(cuts).expect("cuts");
    if let Err(failure) = run(&SimConfig { cuts, ..SimConfig::new("zab", 4_000_271) }) {
        panic!("{failure}");
    }
}
