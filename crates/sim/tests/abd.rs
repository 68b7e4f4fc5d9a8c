//! The smallest complete protocol in the simulator: it holds under everything, and its broken variants do not.

use sim::{Durability, FaultSet, SimConfig, run};

/// Runs seeds; the first failure is printed with the line that replays it.
fn check(config: &SimConfig, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let config = SimConfig { seed, ..config.clone() };
        if let Err(failure) = run(&config) {
            panic!("{}", sim::replay(&config, failure));
        }
    }
}

#[test]
fn holds_without_faults() {
    check(&SimConfig { faults: FaultSet::NONE, ..SimConfig::new("abd", 0) }, 0..20);
}

#[test]
fn holds_under_all_faults_on_every_medium() {
    for durability in [Durability::Volatile, Durability::Pmem, Durability::Disk] {
        let config = SimConfig::new("abd", 0);
        check(&SimConfig { durability: Some(durability), ops: 100, ..config }, 0..40);
    }
}

#[test]
fn holds_with_five_nodes() {
    check(&SimConfig { nodes: 5, ops: 100, ..SimConfig::new("abd", 0) }, 0..20);
}

#[test]
fn a_seed_is_one_run() {
    for seed in 0..10 {
        let config = SimConfig::new("abd", seed);
        assert_eq!(run(&config), run(&config), "seed {seed}");
    }
}

#[test]
fn a_protocol_that_does_not_exist_is_named() {
    let misuse = sim::validate(&SimConfig::new("raft", 1)).unwrap_err();
    assert!(misuse.0.contains("'raft'") && misuse.0.contains("abd"), "{misuse:?}");
}

#[cfg(feature = "mutations")]
#[test]
fn every_broken_variant_is_caught() {
    use protocols::mutation::Mutation;
    let broken = [
        Mutation::NoIncarnation,
        Mutation::NoRecovery,
        Mutation::ReplyBeforeStored,
        Mutation::ExposeUnflushed,
        Mutation::NoWriteBack,
        Mutation::StaleAnswers,
        Mutation::StoreOlder,
        Mutation::DropTombstone,
        Mutation::RecoverFromSelf,
    ];
    let config = SimConfig::new("abd", 1);
    let effort = sim::Effort { seeds_max: 3_000, starts: 1, threads: 2 };
    let broken = broken.map(Mutation::name);
    let mutants = sim::mutants(&config, effort, &broken, |_| {});
    let survivors: Vec<_> = mutants.iter().filter(|mutant| !mutant.is_caught()).collect();
    assert!(survivors.is_empty(), "{survivors:?}");
}

/// That a page was adopted waits for storage, and is dropped when the loss of another shard is raised meanwhile.
#[test]
fn a_shard_is_recovered_though_another_is_lost_meanwhile() {
    let cuts = "ops=13,clients=1,strikes=28,salt=2182,plain,without=reorder+one-way+slow+crash+\
                crash-after-turn+rolling-restart+torn+rot+disk-full+jump+eviction";
    let cuts = sim::Cuts::parse(cuts).expect("cuts");
    let config = SimConfig { cuts, ..SimConfig::new("abd", 60) };
    if let Err(failure) = run(&config) {
        panic!("{failure}");
    }
}
