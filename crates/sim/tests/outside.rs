//! Directed schedules of nodes that are no replicas of a key: they propose without an acceptor.

use checker::model::kv::{KvInput, KvOutput};
use protocols::ReplicaSets;
use protocols::rmwpaxos::{Message, RmwPaxos};
use sim::clients::Ended;
use sim::scenario::{Asked, Scenario};
use sim::store::Durability;
use sim::workload::operation::Output;
use types::{Epoch, Key, NodeId};

const NODES: u16 = 5;
const KEY: &str = "x";

/// The replicas of the key, and the nodes that are none.
fn inside_and_outside() -> (Vec<u16>, Vec<u16>) {
    let nodes: Vec<NodeId> = (1..=NODES).map(NodeId).collect();
    let sets = ReplicaSets::spread(Epoch(1), NodeId(1), &nodes, 3);
    let set = sets.of(Key::new(KEY.as_bytes()).shard());
    (1..=NODES).partition(|&node| set.index(NodeId(node)).is_some())
}

fn spread(durability: Durability) -> Scenario<RmwPaxos> {
    Scenario::with_replicas(usize::from(NODES), 3, durability)
}

fn append(it: &mut Scenario<RmwPaxos>, node: u16, value: &str) -> Asked {
    it.ask(node, KEY, KvInput::Append(value.into()))
}

fn has_run(ended: &Ended) -> bool {
    matches!(ended, Ended::Returned(_))
}

fn is_accept(message: &Message) -> bool {
    matches!(message, Message::Accept { .. } | Message::AcceptDelta { .. })
}

fn is_of_acceptor(message: &Message) -> bool {
    matches!(
        message,
        Message::State { .. }
            | Message::Promise { .. }
            | Message::Accepted { .. }
            | Message::Listed { .. }
            | Message::Compared { .. }
    )
}

#[test]
fn node_outside_the_set_writes_and_reads() {
    let (inside, outside) = inside_and_outside();
    let mut it = spread(Durability::Disk);
    let silent = outside.clone();
    it.hold(move |it| silent.contains(&it.from) && is_of_acceptor(&it.message));
    let written = it.write(outside[0], KEY, "a");
    assert_eq!(it.settle(written), Ended::Returned(Output::Text(KvOutput::Done)));
    let appended = append(&mut it, outside[1], "b");
    assert!(has_run(&it.settle(appended)));
    for node in inside.iter().chain(&outside) {
        assert_eq!(it.value(*node, KEY).as_deref(), Some("ab"), "through n{node}");
    }
    let deleted = it.ask(outside[0], KEY, KvInput::Del);
    assert!(has_run(&it.settle(deleted)));
    assert_eq!(it.value(inside[0], KEY), None);
    assert!(it.held().is_empty(), "a node outside the set answered as an acceptor");
    it.check();
}

#[test]
fn node_outside_the_set_asks_replicas_only() {
    let (inside, outside) = inside_and_outside();
    let mut it = spread(Durability::Disk);
    let (asker, replicas) = (outside[0], inside.clone());
    it.hold(move |it| it.from == asker && it.message.key().is_some() && !replicas.contains(&it.to));
    let written = it.write(outside[0], KEY, "a");
    assert_eq!(it.settle(written), Ended::Returned(Output::Text(KvOutput::Done)));
    assert_eq!(it.value(outside[0], KEY).as_deref(), Some("a"));
    assert!(it.held().is_empty(), "a node outside the set was asked");
}

/// One replica and the proposer would be a majority of three, if the proposer were one.
#[test]
fn node_outside_the_set_never_counts_itself() {
    let (inside, outside) = inside_and_outside();
    let mut it = spread(Durability::Disk);
    it.crash(inside[1]);
    it.crash(inside[2]);
    let written = it.write(outside[0], KEY, "a");
    assert!(!has_run(&it.settle(written)));
    let read = it.read(outside[0], KEY);
    assert!(!has_run(&it.settle(read)));
    it.start(inside[1]);
    it.start(inside[2]);
    it.run_for_millis(100);
    it.check();
}

/// The replica acknowledges, and forgets before the second one has heard of the proposal.
fn an_acknowledgement_from_before_a_loss() {
    let (inside, outside) = inside_and_outside();
    let mut it = spread(Durability::Volatile);
    let old = it.write(inside[0], KEY, "old");
    assert!(has_run(&it.settle(old)));
    it.run_for_millis(20);
    let writer = outside[0];
    it.hold(move |it| it.from == writer && is_accept(&it.message));
    let new = it.write(writer, KEY, "new");
    it.run_until(|it| inside.iter().all(|&to| it.holds(writer, to, is_accept)));
    it.deliver_one(writer, inside[0], is_accept);
    it.run_for_millis(1);
    it.crash_and_wipe(inside[0]);
    it.start(inside[0]);
    it.run_until(|it| !it.is_recovering(inside[0]));
    assert_eq!(it.value(inside[0], KEY).as_deref(), Some("old"));
    it.deliver_one(writer, inside[1], is_accept);
    it.run_for_millis(1);
    // Had the lost acknowledgement counted, the write would be chosen and then disappear.
    let others = [inside[0], inside[2]];
    let apart = it.lose(move |it| others.contains(&it.from) != others.contains(&it.to));
    let read = it.read(inside[2], KEY);
    it.settle(read);
    it.lift(apart);
    it.release_all();
    it.settle(new);
    it.check();
}

#[test]
fn node_outside_the_set_forwards_contended_keys_only() {
    let (inside, outside) = inside_and_outside();
    let mut it = spread(Durability::Volatile);
    let asker = outside[0];
    let is_forward = |message: &Message| matches!(message, Message::Forward { .. });
    let counted = it.hold(move |it| it.from == asker && is_forward(&it.message));
    for _ in 0..10 {
        let appended = append(&mut it, asker, "a");
        assert!(has_run(&it.settle(appended)));
    }
    assert!(it.held().is_empty(), "no other node writes");
    it.lift(counted);
    it.run_for_millis(100);
    let accepts = it.hold(move |it| it.from == asker && is_accept(&it.message));
    let lost = append(&mut it, asker, "b");
    it.run_until(|it| inside.iter().all(|&to| it.holds(asker, to, is_accept)));
    let overtaking = append(&mut it, inside[1], "c");
    assert!(has_run(&it.settle(overtaking)));
    it.lift(accepts);
    it.hold(move |it| it.from == asker && is_forward(&it.message));
    it.deliver(|it| is_accept(&it.message));
    it.run_until(|it| it.holds(asker, inside[1], is_forward));
    it.release_all();
    assert!(has_run(&it.settle(lost)));
    assert_eq!(it.value(asker, KEY).as_deref(), Some("aaaaaaaaaacb"));
    it.check();
}

#[test]
fn node_outside_the_set_recovers_nothing() {
    let (inside, outside) = inside_and_outside();
    let mut it = spread(Durability::Volatile);
    let written = it.write(inside[0], KEY, "a");
    assert!(has_run(&it.settle(written)));
    let wiped = outside[0];
    it.hold(move |it| it.from == wiped && matches!(it.message, Message::Recover { .. }));
    it.crash_and_wipe(wiped);
    it.start(wiped);
    it.run_until(|it| !it.is_recovering(wiped));
    assert_eq!(it.value(wiped, KEY).as_deref(), Some("a"));
    let appended = append(&mut it, wiped, "b");
    assert!(has_run(&it.settle(appended)));
    assert_eq!(it.value(inside[1], KEY).as_deref(), Some("ab"));
    assert!(it.held().is_empty());
    it.check();
}

#[test]
fn acknowledgement_before_loss_does_not_count_outside() {
    an_acknowledgement_from_before_a_loss();
}

#[cfg(feature = "mutations")]
mod mistakes {
    use protocols::mutation::{self, Mutation};

    #[test]
    #[should_panic(expected = "not linearizable")]
    fn without_crash_vectors_it_counts_outside() {
        mutation::set(Some(Mutation::NoCrashVector));
        super::an_acknowledgement_from_before_a_loss();
    }
}
