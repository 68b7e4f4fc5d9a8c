//! The order of effects: messages and replies against durability.

use base::Nanos;
use bytes::Bytes;
use node::Input;
use storage::{Completion, Place};
use types::{
    Access, AmnesiaCount, Command, Database, Incarnation, NodeId, Outcome, SessionId, Shard, Tag,
};

use crate::toy::{DELAY, Say};
use crate::world::{DISK, PEER, Sender, VOLATILE, World, key, keys_in, replies, sent};

#[test]
fn message_waits_for_its_ticket() {
    let mut world = World::new();
    let put = |name, op| Say::Put { key: key(name), value: Bytes::from_static(b"v"), op };
    world.frame(Sender::default(), &[put("a", 1)]);
    assert!(world.turn().frames.is_empty());
    world.frame(Sender::default(), &[put("b", 2), put("c", 3)]);
    assert!(world.turn().frames.is_empty());
    assert!(world.script.complete_one());
    assert_eq!(sent(&world.turn(), PEER), [(AmnesiaCount(1), vec![Say::Ack { op: 1 }])]);
    assert!(world.script.complete_one());
    let acks = vec![Say::Ack { op: 2 }, Say::Ack { op: 3 }];
    assert_eq!(sent(&world.turn(), PEER), [(AmnesiaCount(1), acks)]);
    assert!(world.worker.is_idle());
}

#[test]
fn reply_waits_for_its_ticket() {
    let mut world = World::new();
    world.ask(DISK, &key("a"), "local v");
    assert_eq!(replies(&world.turn()), []);
    world.script.complete_all();
    assert_eq!(replies(&world.turn()), [(1, "ok".to_string())]);
}

/// After a crash a register that outlived its clock's trace is told of, and the clock stands still.
#[test]
fn countdown_is_stored_after_the_first_use_of_its_clock_is_saved() {
    let mut world = World::new();
    world.ask(DISK, &key("a"), "count v");
    let asked = world.turn();
    assert!(asked.uptimes_changed && asked.replies.is_empty());
    let save = world.keeper.look(world.now).expect("the clock was never used");
    world.ask(DISK, &key("b"), "local v");
    assert!(world.turn().replies.is_empty());
    world.script.complete_all();
    assert!(world.turn().replies.is_empty());
    assert_eq!(world.script.state().writes, [], "the save is not durable yet");
    world.keeper.on_saved(&save, world.now);
    assert!(world.turn().replies.is_empty(), "the registers are not durable yet");
    assert_eq!(world.script.state().writes.len(), 2);
    world.script.complete_all();
    let expected = [(1, "ok".to_string()), (2, "ok".to_string())];
    assert_eq!(replies(&world.turn()), expected);
    world.ask(DISK, &key("c"), "count v");
    world.turn();
    assert_eq!(world.script.state().writes.len(), 3, "its clock is known");
}

#[test]
fn a_message_to_oneself_waits_alike_and_never_meets_the_network() {
    let mut world = World::new();
    world.ask(DISK, &key("a"), "set v");
    let out = world.turn();
    let mut peers: Vec<NodeId> = out.frames.iter().map(|(node, _)| *node).collect();
    peers.sort();
    assert_eq!(peers, [NodeId(2), NodeId(3)]);
    world.frame(Sender::default(), &[Say::Ack { op: 1 }]);
    assert_eq!(replies(&world.turn()), [], "one of three has it for sure");
    world.script.complete_all();
    let out = world.turn();
    assert_eq!(replies(&out), [(1, "v".to_string())]);
    assert!(out.frames.is_empty());
}

#[test]
fn storage_that_is_durable_at_once_lets_a_turn_finish_the_request() {
    let mut world = World::alone();
    world.script.state().at_once = true;
    assert_eq!(world.replies(DISK, &key("a"), "set v"), [(1, "v".to_string())]);
    assert_eq!(world.replies(VOLATILE, &key("a"), "set w"), [(2, "w".to_string())]);
    assert!(world.worker.next_timer() > Some(world.now), "nothing is left to do");
    assert!(world.worker.is_idle());
}

#[test]
fn a_changed_register_is_encoded_once_per_turn() {
    let mut world = World::new();
    let keys = keys_in(Shard(3), 2);
    for _ in 0..5 {
        world.ask(DISK, &keys[0], "local v");
        world.ask(DISK, &keys[0], "mark");
        world.ask(DISK, &keys[1], "local v");
    }
    world.turn();
    let expected = [
        Place::Meta(DISK, Shard(3)),
        Place::Cell(DISK, keys[0].clone()),
        Place::Cell(DISK, keys[1].clone()),
    ];
    assert_eq!(world.script.state().writes, expected, "fields first, then each register once");
    world.turn();
    assert_eq!(world.script.state().writes.len(), 3);
}

#[test]
fn a_removed_register_is_removed_from_storage() {
    let mut world = World::new();
    world.script.state().at_once = true;
    let a = key("a");
    world.replies(DISK, &a, "local v");
    assert_eq!(world.script.state().durable.len(), 1);
    world.replies(DISK, &a, "del");
    assert_eq!(world.script.state().durable.len(), 0);
    assert_eq!(world.replies(DISK, &a, "get"), [(3, "-".to_string())]);
}

#[test]
fn databases_are_apart() {
    let mut world = World::alone();
    world.script.state().at_once = true;
    let a = key("a");
    world.replies(VOLATILE, &a, "local v");
    assert_eq!(world.replies(DISK, &a, "get"), [(2, "-".to_string())]);
    assert_eq!(world.replies(VOLATILE, &a, "get"), [(3, "v".to_string())]);
}

#[test]
fn timers_fire_once_when_they_are_due() {
    let mut world = World::new();
    assert_eq!(world.replies(DISK, &key("a"), "timer"), []);
    assert_eq!(world.worker.next_timer(), Some(DELAY));
    world.now = DELAY - Nanos(1);
    assert_eq!(replies(&world.turn()), []);
    world.now = DELAY;
    assert_eq!(replies(&world.turn()), [(1, "rang".to_string())]);
    assert_eq!(world.worker.next_timer(), None);
    world.now = DELAY + DELAY;
    assert_eq!(replies(&world.turn()), []);
}

#[test]
fn requests_that_nobody_can_serve_are_answered() {
    let mut world = World::new();
    world.ask(Database(9), &key("a"), "get");
    world.input(Input::Request {
        tag: Tag(77),
        session: SessionId(1),
        database: DISK,
        key: key("a"),
        command: Command::new(Access::Update, Bytes::from_static(b"get")),
    });
    let expected = [(Tag(1), Outcome::Unsupported("none")), (Tag(77), Outcome::Unsupported("toy"))];
    assert_eq!(world.turn().replies, expected);
    assert!(world.worker.is_idle());
}

#[test]
fn peers_come_and_go() {
    let mut world = World::new();
    let is_up = |world: &World| world.worker.peers().get(PEER).is_some_and(|peer| peer.up);
    let incarnation = Incarnation(4);
    world.input(Input::PeerUp { node: PEER, incarnation, amnesia: AmnesiaCount(3) });
    world.turn();
    assert!(is_up(&world));
    assert_eq!((world.stat("toy_up"), world.stat("toy_views")), (2, 2), "both databases know");
    world.input(Input::PeerReset { node: PEER });
    world.ask(DISK, &key("a"), "suspect");
    assert_eq!(world.turn().suspects, [(DISK, PEER)]);
    assert!(!is_up(&world));
    assert_eq!(world.stat("toy_resets"), 2);
}

#[test]
fn a_full_store_lets_few_writes_in_and_all_reads_and_what_peers_say() {
    let mut world = World::new();
    world.script.state().full = true;
    let taken = (0..1000).take_while(|_| {
        let takes = world.worker.takes_writes();
        world.ask(DISK, &key("a"), "local v");
        world.turn();
        takes
    });
    assert!((1..100).contains(&taken.count()), "peers alone must not starve this node's clients");
    assert!(world.worker.takes_requests(), "reads need no room");
    world.script.complete_all();
    world.turn();
    assert!(world.worker.takes_writes(), "some have got their outcomes");
    let put = Say::Put { key: key("a"), value: Bytes::from_static(b"v"), op: 1 };
    world.frame(Sender::default(), &[put]);
    world.turn();
    world.script.complete_all();
    assert_eq!(sent(&world.turn(), PEER).len(), 1);
}

#[test]
fn a_failed_store_silences_the_worker_for_ever() {
    let mut world = World::new();
    world.ask(DISK, &key("a"), "set v");
    world.script.complete(Completion::Failed("no space".to_string()));
    for _ in 0..2 {
        let out = world.turn();
        assert_eq!(out.failed.as_deref(), Some("storage failed: no space"));
        assert!(out.frames.is_empty() && out.replies.is_empty());
        world.ask(DISK, &key("a"), "get");
    }
    assert!(!world.worker.takes_requests());
}

#[test]
fn a_broken_invariant_stops_the_node_before_anything_of_the_turn_is_said() {
    let mut world = World::new();
    world.ask(DISK, &key("a"), "set v");
    world.ask(DISK, &key("a"), "fail");
    let out = world.turn();
    assert_eq!(out.failed.as_deref(), Some("database 0: toy: the toy broke"));
    assert!(out.frames.is_empty() && out.replies.is_empty());
    assert_eq!(world.script.state().writes, []);
}

#[test]
fn more_answers_than_requests_are_a_broken_invariant() {
    let mut world = World::new();
    world.ask(DISK, &key("a"), "twice");
    let out = world.turn();
    assert!(out.failed.is_some() && out.replies.is_empty());
}
