//! Faults that reviews and random worlds found, each as a schedule.

use types::Outcome;

use super::World;
use super::node::Plan;
use super::order::Do;
use super::schedules::{A, B, C, PLAN, SESSION};

/// The leader took a write. Then its node lost a register, and copied a state that includes it.
pub(in super::super) fn write_that_a_copy_includes() -> Result<(), String> {
    let mut world = World::led(PLAN);
    world.done(A, 0, Do::Set);
    world.pass(100);
    world.held.push((A, C, ""));
    let write = world.ask(C, SESSION, 0, Do::Append);
    world.drain();
    world.damage(C, 1);
    world.held.clear();
    world.settle(&[write]);
    if world.order.outcome(write) != Some(&Outcome::Unknown) {
        return Err(format!("it ends with {:?}", world.order.outcome(write)));
    }
    world.judge()
}

/// Every other node needs a copy before the epoch stands.
#[test]
fn leader_in_synchronisation_gives_pages() {
    let mut world = World::led(Plan { log_len: 24_000, ..PLAN });
    world.done(A, 0, Do::Set);
    world.kill(B, 9, u64::MAX);
    for _ in 0..60 {
        world.done(A, 0, Do::Set);
    }
    world.pass(1_000);
    world.kill(C, 9, u64::MAX);
    world.pass(1_000);
    world.start(B, 0);
    world.done(B, 0, Do::ReadLast);
    assert!(world.fault.is_none() && !world.nodes[C].is_up);
    assert_eq!(world.judge(), Ok(()));
}

#[test]
fn half_copied_state_answers_no_read() {
    let mut world = World::led(PLAN);
    world.done(A, 0, Do::Set);
    world.pass(100);
    world.kill(C, 0, 0);
    world.start_empty(C);
    world.held.push((A, C, "Register {"));
    assert!(world.pass_until(|world| world.is_sent(A, C, "Register {")));
    let read = world.ask(C, SESSION, 0, Do::Get);
    world.pass(300);
    assert!(!world.is_answered(read));
    assert_eq!(world.judge(), Ok(()));
}

/// A worker is behind another, which has shown that a key is gone.
#[test]
fn session_never_goes_back_over_an_absent_key() {
    let mut world = World::led(Plan { workers: 2, ..PLAN });
    world.slow.insert((B, 1));
    world.done(A, 1, Do::Set);
    world.done(A, 0, Do::Set);
    world.done(A, 0, Do::Delete);
    world.pass(100);
    world.done(B, 0, Do::Get);
    world.ask(B, SESSION, 1, Do::Get);
    world.pass(20);
    assert_eq!(world.judge(), Ok(()));
}

/// All at once, of one session and one key.
#[test]
fn requests_on_one_key_keep_their_order() {
    let mut world = World::led(Plan { workers: 2, ..PLAN });
    world.slow.insert((B, 1));
    for what in [Do::Append, Do::Get, Do::Append, Do::Get, Do::Delete, Do::Get] {
        world.ask(B, SESSION, 1, what);
        world.pass(5);
    }
    assert_eq!(world.judge(), Ok(()));
}

/// The page of an earlier copy arrives in a later one.
#[test]
fn late_page_is_void() {
    let mut world = World::led(PLAN);
    world.done(A, 0, Do::Set);
    world.pass(100);
    world.kill(C, 0, 0);
    world.start_empty(C);
    world.held.push((A, C, "Register {"));
    assert!(world.pass_until(|world| world.is_sent(A, C, "Register {")));
    let late = world.take(A, C, "Register {");
    world.kill(C, 0, 0);
    world.done(A, 0, Do::Delete);
    world.held.push((A, C, "Page {"));
    world.start_empty(C);
    assert!(world.pass_until(|world| world.is_sent(A, C, "Page {")));
    late.into_iter().for_each(|letter| world.deliver(letter));
    world.pass(50);
    assert_eq!(world.judge(), Ok(()));
}

/// A node joins twice. The leader's answer to the first attempt comes last.
#[test]
fn late_answer_to_an_earlier_attempt_is_void() {
    let mut world = World::new(PLAN);
    for other in [A, B] {
        world.hold_between(other, C);
    }
    assert!(world.pass_until(|world| world.serves(&[A, B])));
    world.done(A, 0, Do::Set);
    world.release_between(A, C);
    world.held.push((A, C, "Sync {"));
    assert!(world.pass_until(|world| world.is_sent(A, C, "Sync {")));
    let late = world.take(A, C, "Sync {");
    world.reset_one(C, A, false);
    world.held.clear();
    assert!(world.pass_until(|world| world.serves(&[A, B, C])));
    late.into_iter().for_each(|letter| world.deliver(letter));
    assert_eq!(world.fault, None);
    world.done(A, 0, Do::Append);
    assert_eq!(world.judge(), Ok(()));
}

/// A follower lacks entries that its leader has cut off, and is given up. Then a copy of its
/// promise arrives, which the leader took up before.
#[test]
fn late_copy_of_a_promise_is_void() {
    let mut world = World::new(Plan { log_len: 24_000, ..PLAN });
    world.held.push((C, A, "AckEpoch {"));
    assert!(world.pass_until(|world| world.is_sent(C, A, "AckEpoch {")));
    let is_it = |letter: &super::Letter| format!("{:?}", letter.message).contains("AckEpoch {");
    let at = world.bag.iter().position(is_it).expect("a promise");
    let late = world.bag[at].copy();
    world.held.clear();
    assert!(world.pass_until(|world| world.serves(&[A, B, C])));
    world.held.push((A, C, "Propose {"));
    for _ in 0..20 {
        world.done(A, 0, Do::Set);
    }
    world.pass(150);
    world.lose_between(A, C);
    world.deliver(late);
    world.held.clear();
    world.pass(1_000);
    assert!(world.pass_until(|world| world.serves(&[A, B, C])), "it joins anew");
    world.done(C, 0, Do::ReadLast);
    assert_eq!(world.judge(), Ok(()));
}

/// A session's reads wait while the time of their key ends, and its next write waits behind them.
#[test]
fn read_of_an_ended_key_comes_before_later_writes() {
    let mut world = World::led(PLAN);
    world.done(C, 0, Do::SetExpiring);
    world.held.push((C, A, "Write {"));
    for (key, what) in [(1, Do::Set), (0, Do::Get), (0, Do::Append)] {
        world.ask(C, SESSION, key, what);
    }
    world.pass(105);
    world.held.clear();
    world.pass(50);
    assert_eq!(world.order.open(), []);
    assert_eq!(world.judge(), Ok(()));
}

/// The key of the first read has ended at this node: the read takes a place in the order.
#[test]
fn read_waits_for_an_earlier_one_in_the_order() {
    let mut world = World::led(PLAN);
    world.done(C, 0, Do::SetExpiring);
    world.held.push((C, A, "Write {"));
    let asks = [(1, Do::Set), (0, Do::Get), (2, Do::Get)];
    let asked = asks.map(|(key, what)| world.ask(C, SESSION, key, what));
    world.pass(105);
    let first = world.take(C, A, "Write {");
    first.into_iter().for_each(|letter| world.deliver(letter));
    assert!(world.pass_until(|world| world.is_answered(asked[0])));
    assert!(!world.is_answered(asked[1]) && !world.is_answered(asked[2]));
    world.held.clear();
    assert!(world.pass_until(|world| world.is_answered(asked[2])));
    assert!(world.is_answered(asked[1]));
    assert_eq!(world.judge(), Ok(()));
}

/// The writes of the only follower arrive. Its signs of life wait behind them.
#[test]
fn leader_keeps_a_follower_whose_writes_arrive() {
    let mut world = World::led(PLAN);
    world.kill(C, 9, u64::MAX);
    let epoch = world.meta(A).current;
    world.held.extend([(B, A, "Ack {"), (B, A, "AckLeader {")]);
    for session in 0..20 {
        world.ask(B, SESSION + session, 0, Do::Append);
        world.pass(50);
        assert_eq!(world.meta(A).accepted, epoch);
        assert!(!world.is_sent(A, B, "Look {"), "it leads");
    }
    world.held.clear();
    world.pass(50);
    assert_eq!(world.order.open(), []);
    assert_eq!(world.meta(B).current, epoch);
    assert_eq!(world.judge(), Ok(()));
}

/// A node has the whole state of a leader, which fails before the node has noted its epoch durably.
/// It founds the next epoch with a node that has to copy.
#[test]
fn founder_gives_pages_of_a_state_just_copied() {
    let mut world = World::led(Plan { log_len: 24_000, ..PLAN });
    world.done(A, 0, Do::Set);
    world.held.extend([(A, B, "Propose {"), (A, B, "Snap {"), (A, B, "Sync {")]);
    for _ in 0..60 {
        world.done(A, 0, Do::Set);
    }
    world.pass(1_000);
    world.kill(C, 0, 0);
    world.start_empty(C);
    world.unflushed.insert(C);
    let has_noted = |world: &World| {
        world.meta(C).current.counter > 0 && world.meta(C).current == world.meta(A).accepted
    };
    for _ in 0..2_000 {
        world.pass(5);
        if has_noted(&world) {
            break;
        }
        world.flush(C, 0);
    }
    assert!(has_noted(&world), "C has copied");
    world.kill(A, 9, u64::MAX);
    world.bag.clear();
    world.held.clear();
    // Longer than it waits for a silent leader.
    world.pass(1_000);
    world.unflushed.clear();
    world.done(B, 0, Do::ReadLast);
    assert!(world.leader(B) == C && !world.nodes[A].is_up);
    assert_eq!(world.judge(), Ok(()));
}
