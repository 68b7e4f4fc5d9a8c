//! The smallest complete protocol in the simulator: it passes under all faults, and its mutants
//! fail.

use checker::model::kv::{KvInput, KvOutput};
use protocols::abd::{Abd, Message};
use sim::clients::Ended;
use sim::scenario::Scenario;
use sim::workload::operation::Output;
use sim::{Durability, FaultSet, Mix, SimConfig, run};

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
fn times_to_live_hold_under_all_faults() {
    let config = SimConfig::new("abd", 0);
    check(&SimConfig { mix: Some(Mix::PlainExpiry), ops: 100, ..config }, 0..40);
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
fn unknown_protocol_is_named() {
    let misuse = sim::validate(&SimConfig::new("raft", 1)).unwrap_err();
    assert!(misuse.0.contains("'raft'") && misuse.0.contains("abd"), "{misuse:?}");
}

fn holds_with_cuts(seed: u64, cuts: &str) {
    let cuts = sim::Cuts::parse(cuts).expect("cuts");
    let config = SimConfig { cuts, ..SimConfig::new("abd", seed) };
    if let Err(failure) = run(&config) {
        panic!("{failure}");
    }
}

/// The adoption of a page waits for storage. It is dropped when the loss of another shard is raised
/// meanwhile.
#[test]
fn shard_recovers_while_another_is_lost() {
    holds_with_cuts(
        60,
        "ops=13,clients=1,strikes=28,salt=2182,plain,without=reorder+one-way+slow+crash+\
         crash-after-turn+rolling-restart+torn+rot+disk-full+jump+eviction",
    );
}

/// The same for records of a page whose register is still being read.
#[test]
fn page_is_adopted_while_another_shard_is_lost() {
    let cuts = "ops=6,clients=1,strikes=3,salt=726,plain,without=duplication+delay+reorder+drift";
    holds_with_cuts(1904, cuts);
}

fn is_store(message: &Message) -> bool {
    matches!(message, Message::Store { .. })
}

/// An acknowledgement from before a loss of memory, in five nodes.
///
/// A writer needs two nodes besides itself. The first acknowledges, forgets, and recovers from
/// nodes without the write. So once the second has acknowledged, the value is at two members of
/// five.
fn an_acknowledgement_from_before_a_loss() {
    let mut it = Scenario::<Abd>::new(5, Durability::Volatile);
    let old = it.write(1, "x", "old");
    assert_eq!(it.settle(old), Ended::Returned(Output::Text(KvOutput::Done)));
    it.run_for_millis(5);
    it.hold(|it| it.from == 1 && is_store(&it.message));
    let new = it.write(1, "x", "new");
    it.run_until(|it| (2..=5).all(|to| it.holds(1, to, is_store)));
    it.deliver_one(1, 2, is_store);
    it.run_for_millis(1);
    // It recovers without the writer.
    let without_writer = it.lose(|it| it.from == 1 && it.to == 2 && !is_store(&it.message));
    it.crash_and_wipe(2);
    it.start(2);
    it.run_until(|it| !it.is_recovering(2));
    it.lift(without_writer);
    it.deliver_one(1, 3, is_store);
    it.run_for_millis(1);
    let others = |node: u16| node == 1 || node == 3;
    let apart = it.lose(move |it| others(it.from) != others(it.to) && !is_store(&it.message));
    let read = it.read(4, "x");
    it.settle(read);
    it.lift(apart);
    it.release_all();
    it.settle(new);
    it.check();
}

#[test]
fn acknowledgement_before_loss_does_not_count() {
    an_acknowledgement_from_before_a_loss();
}

/// The tombstone of a delete reaches its own node alone. A second delete meets it there and finds
/// the key absent: it makes a majority hold a tombstone before it replies.
#[test]
fn delete_completes_the_tombstone_of_a_minority() {
    let mut it = Scenario::<Abd>::new(3, Durability::Volatile);
    let old = it.write(1, "x", "old");
    assert_eq!(it.settle(old), Ended::Returned(Output::Text(KvOutput::Done)));
    it.run_for_millis(5);
    let alone = it.lose(|it| it.from == 1 && it.to != 1 && is_store(&it.message));
    it.ask(1, "x", KvInput::Expire(None));
    it.run_for_millis(20);
    it.lift(alone);
    let silent = it.lose(|it| it.from == 3 && it.to == 2);
    let stuck = it.lose(|it| it.from == 1 && it.to == 3);
    let again = it.ask(2, "x", KvInput::Expire(None));
    assert_eq!(it.settle(again), Ended::Returned(Output::Text(KvOutput::Done)));
    it.crash(1);
    it.lift(silent);
    it.lift(stuck);
    let read = it.read(3, "x");
    assert_eq!(it.settle(read), Ended::Returned(Output::Text(KvOutput::Value(None))));
    it.check();
}

#[cfg(feature = "mutations")]
mod mistakes {
    use protocols::mutation::{self, Mutation};

    #[test]
    #[should_panic(expected = "not linearizable")]
    fn without_crash_vectors_a_write_is_lost() {
        mutation::set(Some(Mutation::NoCrashVector));
        super::an_acknowledgement_from_before_a_loss();
    }
}
