//! Which frames a worker believes, and how it treats the others.

use bytes::Bytes;
use node::{Input, frame_payload};
use proptest::collection::vec;
use proptest::prelude::*;
use storage::Place;
use types::{AmnesiaCount, Epoch, Incarnation, NodeId, Shard, Wire};

use crate::toy::Say;
use crate::world::{DISK, ME, PEER, Sender, Shape, World, frame, key, keys_in, sent};

fn wide(shard: u8) -> Say {
    Say::Wide { shard: Shard(shard) }
}

#[test]
fn messages_of_a_dead_process_or_from_before_a_loss_are_dropped() {
    let mut world = World::new();
    let fresh =
        Sender { incarnation: Incarnation(5), amnesia: AmnesiaCount(3), ..Sender::default() };
    world.frame(fresh, &[wide(0)]);
    world.turn();
    assert_eq!(world.stat("toy_wide"), 1);
    world.frame(Sender { incarnation: Incarnation(4), ..fresh }, &[wide(0)]);
    world.frame(Sender { amnesia: AmnesiaCount(2), ..fresh }, &[wide(0)]);
    world.frame(Sender { epoch: Epoch(2), ..fresh }, &[wide(0)]);
    world.turn();
    assert_eq!((world.stat("toy_wide"), world.stat("worker_frames_stale")), (1, 3));
    let other = Sender { node: NodeId(3), ..Sender::default() };
    world.frame(other, &[wide(0)]).frame(fresh, &[wide(0)]);
    world.turn();
    assert_eq!(world.stat("toy_wide"), 3);
}

#[test]
fn a_message_that_became_stale_while_it_waited_is_dropped() {
    let mut world = World::new();
    world.script.state().slow_metas = true;
    world.frame(Sender::default(), &[wide(0)]);
    world.turn();
    world.frame(Sender { amnesia: AmnesiaCount(2), ..Sender::default() }, &[]);
    world.turn();
    world.script.finish_loads();
    world.turn();
    assert_eq!((world.stat("toy_wide"), world.stat("toy_metas")), (0, 1));
}

#[test]
fn a_grown_loss_is_told_to_every_engine_and_passed_on() {
    let mut world = World::new();
    let learned = Sender { amnesia: AmnesiaCount(9), ..Sender::default() };
    world.frame(learned, &[]).frame(learned, &[]);
    world.ask(DISK, &key("a"), "set v");
    let out = world.turn();
    assert_eq!(world.stat("toy_views"), 2, "once for each database");
    let (_, bytes) = out.frames.iter().find(|(to, _)| *to == NodeId(3)).expect("it is sent to");
    let (header, _, _) = frame_payload::decode(bytes).expect("own frames decode");
    assert_eq!((header.sender, header.epoch), (ME, Epoch(1)));
    let losses: Vec<_> = header.crash_vector().collect();
    assert_eq!(losses, [(PEER, AmnesiaCount(9)), (NodeId(3), AmnesiaCount(0))]);
}

#[test]
fn a_crash_vector_learned_after_a_message_was_written_still_travels_with_it() {
    let mut world = World::new();
    world.ask(DISK, &key("a"), "set v");
    world.frame(Sender { amnesia: AmnesiaCount(9), ..Sender::default() }, &[]);
    let out = world.turn();
    for (_, bytes) in &out.frames {
        let (header, _, _) = frame_payload::decode(bytes).expect("own frames decode");
        assert!(header.crash_vector().any(|known| known == (PEER, AmnesiaCount(9))));
    }
}

#[test]
fn messages_for_another_worker_are_split_off_whole() {
    let mut world = World::shaped(Shape { workers: 4, ..Shape::default() }, Default::default());
    let says = [wide(1), wide(0), wide(3), wide(5), wide(4)];
    world.frame(Sender::default(), &says);
    let out = world.turn();
    assert_eq!(world.stat("toy_wide"), 2);
    let parts: Vec<_> = out.misrouted.iter().map(|(to, from, _)| (*to, *from)).collect();
    assert_eq!(parts, [(1, PEER), (3, PEER)]);
    assert_eq!(out.misrouted[0].2, frame(Sender::default(), &[wide(1), wide(5)]));
    assert_eq!(out.misrouted[1].2, frame(Sender::default(), &[wide(3)]));
}

#[test]
fn frames_under_a_false_name_are_refused() {
    let mut world = World::new();
    for (sender, link) in [(NodeId(3), PEER), (ME, ME), (NodeId(9), NodeId(9))] {
        let bytes = frame(Sender { node: sender, ..Sender::default() }, &[wide(0)]);
        world.input(Input::Frame { from: link, bytes });
    }
    world.turn();
    assert_eq!((world.stat("toy_wide"), world.stat("worker_frames_malformed")), (0, 3));
}

#[test]
fn a_message_under_another_shard_or_database_is_refused() {
    let mut world = World::new();
    let say = Say::Put { key: keys_in(Shard(1), 1)[0].clone(), value: Bytes::new(), op: 1 };
    let header = frame(Sender::default(), &[]);
    for (database, shard) in [(0, 2), (5, 1), (200, 1)] {
        let mut bytes = header.to_vec();
        frame_payload::put_message(&mut bytes, types::Database(database), Shard(shard), |out| {
            say.encode(out);
        });
        world.input(Input::Frame { from: PEER, bytes: Bytes::from(bytes) });
    }
    world.turn();
    assert_eq!(world.stat("worker_messages_malformed"), 3);
    assert_eq!(world.script.state().writes, []);
}

#[test]
fn a_worker_whose_store_is_overrun_takes_answers_and_no_writes_of_peers() {
    let mut world = World::new();
    let put = || Say::Put { key: key("a"), value: Bytes::new(), op: 1 };
    world.script.state().overrun = true;
    world.frame(Sender::default(), &[put(), wide(0), put()]);
    world.ask(DISK, &key("b"), "set v");
    world.turn();
    assert_eq!((world.stat("toy_wide"), world.stat("worker_messages_shed")), (1, 2));
    let [a, b] = ["a", "b"].map(|text| Place::Cell(DISK, key(text)));
    assert_eq!(world.script.state().writes.last(), Some(&b), "its own clients are another matter");
    world.script.state().overrun = false;
    world.frame(Sender::default(), &[put()]);
    world.turn();
    assert_eq!(world.stat("worker_messages_shed"), 2);
    assert_eq!(world.script.state().writes, [b, a]);
}

#[test]
fn a_worker_with_much_that_waits_for_reads_takes_no_more_writes_of_peers() {
    let mut world = World::new();
    world.script.state().slow_registers = true;
    let value = Bytes::from(vec![b'v'; 1 << 20]);
    for n in 0..100 {
        let put = Say::Put { key: key(&format!("key {n}")), value: value.clone(), op: 1 };
        world.frame(Sender::default(), &[put]);
        world.turn();
    }
    let shed = world.stat("worker_messages_shed");
    assert!((30..40).contains(&shed), "{shed} of a hundred of 1 MiB");
    world.script.finish_loads();
    world.turn();
    world.frame(Sender::default(), &[Say::Put { key: key("key 99"), value, op: 1 }]);
    world.turn();
    assert_eq!(world.stat("worker_messages_shed"), shed);
}

#[test]
fn messages_around_a_malformed_one_are_taken() {
    let mut world = World::new();
    let mut bytes = frame(Sender::default(), &[wide(0)]).to_vec();
    frame_payload::put_message(&mut bytes, DISK, Shard(0), |out| out.extend_from_slice(b"\xff"));
    frame_payload::put_message(&mut bytes, DISK, Shard(0), |out| wide(0).encode(out));
    bytes.extend_from_slice(&[0, 0, 255, 0, 0, 0, 1]);
    world.input(Input::Frame { from: PEER, bytes: Bytes::from(bytes) });
    world.turn();
    assert_eq!(world.stat("toy_wide"), 2);
    assert_eq!(world.stat("worker_messages_malformed"), 1);
    assert_eq!(world.stat("worker_frames_malformed"), 1, "the last one is cut short");
}

#[test]
fn a_long_turn_is_cut_into_frames_that_the_transport_takes() {
    let mut world = World::new();
    let value = "v".repeat(700_000);
    for _ in 0..5 {
        world.ask(DISK, &key("a"), &format!("set {value}"));
    }
    let frames = sent(&world.turn(), PEER);
    assert_eq!(frames.iter().map(|(_, says)| says.len()).collect::<Vec<_>>(), [2, 2, 1]);
}

#[test]
fn frame_buffers_are_reused() {
    let mut world = World::new();
    world.ask(DISK, &key("a"), "set v");
    let out = world.turn();
    let (_, used) = out.frames.into_iter().next().expect("peers are told");
    let at = used.as_ptr();
    world.worker.recycle(used);
    world.ask(DISK, &key("a"), "set w");
    assert!(world.turn().frames.iter().any(|(_, frame)| frame.as_ptr() == at));
}

proptest! {
    #[test]
    fn noise_does_no_harm(noise in vec(any::<u8>(), 0..200)) {
        let mut world = World::new();
        world.input(Input::Frame { from: PEER, bytes: Bytes::from(noise) });
        let out = world.turn();
        prop_assert_eq!(out.failed, None);
        prop_assert!(out.frames.is_empty() && out.replies.is_empty());
    }

    #[test]
    fn a_damaged_frame_does_no_harm(at in 0_usize..100, mask in 1_u8.., cut in 0_usize..100) {
        let mut world = World::new();
        let put = Say::Put { key: key("a"), value: Bytes::from_static(b"value"), op: 1 };
        let mut bytes = frame(Sender::default(), &[put, wide(0), Say::Ack { op: 1 }]).to_vec();
        let len = bytes.len();
        bytes[at % len] ^= mask;
        bytes.truncate(len - cut % len);
        world.input(Input::Frame { from: PEER, bytes: Bytes::from(bytes) });
        world.turn();
        world.script.complete_all();
        prop_assert_eq!(world.turn().failed, None);
        // It still serves correct senders, unless the damage was a plausible claim to be newer.
        let newest = Sender {
            incarnation: Incarnation::MAX,
            amnesia: AmnesiaCount::MAX,
            ..Sender::default()
        };
        let before = world.stat("toy_wide");
        world.frame(newest, &[wide(0)]);
        world.turn();
        prop_assert_eq!(world.stat("toy_wide"), before + 1);
    }
}
