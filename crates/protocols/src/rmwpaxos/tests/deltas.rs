//! Proposals as deltas: no acceptor ever builds a wrong state, whichever base it holds. [spec 9.3]

use std::sync::Arc;

use base::{Millis, Nanos};
use types::{Ballot, Epoch, Incarnation, NodeId, Wire};

use super::steps::{Kind, claim};
use super::strings::Ask;
use super::world::{Envelope, Ways, World};
use crate::rmwpaxos::core::acceptor::{self, Accepted, Moment, Proposal};
use crate::rmwpaxos::{Delta, Message, Payload, Register, Ring, ShardMeta, State, StateFields};

fn world(durable: bool) -> World {
    World::with(3, durable, 1, Ways { by_message: true, always_deltas: true, core_alone: false })
}

fn k_at(world: &World, node: usize) -> u32 {
    world.held(node).map_or(0, |register| register.accepted.k())
}

fn is_k(envelope: &Envelope, wanted: u32) -> bool {
    matches!(&envelope.message, Message::AcceptDelta { round, .. } if round.k() == wanted)
}

/// Node 0 owns the key and all hold `a`. Its proposals `ab` and `abc` are in flight.
fn two_under_way(durable: bool) -> World {
    let mut world = world(durable);
    world.write(0, Ask::Append("a"));
    world.append(0, "b");
    world.append(0, "c");
    world
}

#[test]
fn holders_of_the_base_get_deltas() -> Result<(), String> {
    let mut world = two_under_way(false);
    for receiver in [1, 2] {
        let sent = world.bag.iter().filter(|m| m.goes(Kind::Delta, 0, receiver)).count();
        claim(sent == 2, "both proposals are deltas")?;
    }
    world.flow(|m| !m.is(Kind::NeedFull));
    claim((0..3).all(|node| k_at(&world, node) == 3), "and are taken in order")?;
    claim(world.bag.is_empty(), "no member asks for more")?;
    world.finish_with("vabc")
}

#[test]
fn new_owner_sends_deltas_to_base_reporters() -> Result<(), String> {
    let mut world = world(false);
    world.write(0, Ask::Append("a"));
    world.append(0, "b");
    world.flow(|m| m.goes(Kind::Accept, 0, 0));
    world.lose_all();
    world.calm();
    world.append(1, "c");
    world.prepared(&[0, 1]);
    claim(world.bag.iter().any(|m| m.goes(Kind::Delta, 1, 0)), "it reported the base")?;
    claim(world.bag.iter().any(|m| m.goes(Kind::Accept, 1, 2)), "its state is unknown")?;
    world.finish_with("vabc")
}

#[test]
fn chosen_base_is_expected_at_members_not_asked() -> Result<(), String> {
    let mut world = world(false);
    world.append(0, "a");
    world.prepared(&[0, 1, 2]);
    world.lose(|m| m.goes(Kind::Accept, 0, 2));
    world.flow(|_| true);
    world.calm();
    world.append(1, "b");
    world.prepared(&[0, 1]);
    world.flow(|m| m.goes(Kind::Delta, 1, 2));
    claim(k_at(&world, 2) == 0, "it does not have it")?;
    world.flow(|m| m.goes(Kind::NeedFull, 2, 1) || m.goes(Kind::Accept, 1, 2));
    claim(k_at(&world, 2) == 1, "and is sent it whole")?;
    world.finish_with("vab")
}

#[test]
fn delta_after_a_lost_one_is_requested_whole() -> Result<(), String> {
    let mut world = two_under_way(false);
    world.lose(|m| m.receiver() == 1 && is_k(m, 2));
    world.flow(|m| m.goes(Kind::Delta, 0, 1));
    claim(k_at(&world, 1) == 1, "no round is accepted")?;
    claim(world.bag.iter().any(|m| m.goes(Kind::NeedFull, 1, 0)), "it says so")?;
    world.flow(|m| m.is(Kind::NeedFull) || m.goes(Kind::Accept, 0, 1));
    claim(k_at(&world, 1) == 3, "the whole state is taken")?;
    world.append(0, "d");
    world.flow(|m| m.is(Kind::Accepted) || m.goes(Kind::Accept, 0, 0));
    claim(world.bag.iter().any(|m| m.receiver() == 1 && is_k(m, 4)), "deltas go on from there")?;
    world.finish_with("vabcd")
}

#[test]
fn overtaking_delta_is_requested_whole() -> Result<(), String> {
    let mut world = two_under_way(false);
    let mut deltas = world.take(|m| m.goes(Kind::Delta, 0, 1));
    deltas.reverse();
    world.deliver_all(deltas);
    claim(k_at(&world, 1) == 2, "the first is taken where its base is")?;
    world.flow(|m| m.is(Kind::NeedFull) || m.goes(Kind::Accept, 0, 1));
    claim(k_at(&world, 1) == 3, "the second came whole")?;
    world.finish_with("vabc")
}

#[test]
fn a_delta_that_comes_again_is_acknowledged_again() -> Result<(), String> {
    let mut world = two_under_way(false);
    let deltas = world.take(|m| m.goes(Kind::Delta, 0, 1));
    world.deliver_all(deltas.clone());
    world.lose(|m| m.goes(Kind::Accepted, 1, 0));
    world.deliver_all(deltas);
    let acks = world.take(|m| m.goes(Kind::Accepted, 1, 0));
    let is_newest =
        |m: &Envelope| matches!(&m.message, Message::Accepted { round, .. } if round.k() == 3);
    claim(acks.len() == 2 && acks.iter().all(is_newest), "both name the held round")?;
    claim(!world.bag.iter().any(|m| m.is(Kind::NeedFull)), "no state is missing")?;
    world.deliver_all(acks);
    world.finish_with("vabc")
}

/// The first delta was accepted and not flushed when power was lost.
#[test]
fn delta_after_power_loss_changes_no_older_state() -> Result<(), String> {
    let mut world = two_under_way(true);
    let mut deltas = world.take(|m| m.goes(Kind::Delta, 0, 1));
    let second = deltas.pop().into_iter().collect();
    for delta in deltas {
        world.deliver(delta);
    }
    claim(k_at(&world, 1) == 2, "it is in memory")?;
    world.crash(1, 0);
    claim(k_at(&world, 1) == 1, "and gone")?;
    world.deliver_all(second);
    claim(k_at(&world, 1) == 1, "its successor is not accepted")?;
    world.finish_with("vabc")
}

#[test]
fn an_acceptor_that_forgot_everything_applies_no_delta() -> Result<(), String> {
    let mut world = two_under_way(false);
    let deltas = world.take(|m| m.goes(Kind::Delta, 0, 1));
    world.crash(1, 0);
    world.deliver_all(deltas);
    claim(world.held(1).is_none(), "it takes no part")?;
    world.finish_with("vabc")
}

#[test]
fn delta_to_an_absent_register_promises_no_ballot() -> Result<(), String> {
    let mut world = world(false);
    world.append(0, "a");
    claim(!world.bag.iter().any(|m| m.is(Kind::Delta)), "an absent register has no bytes to keep")?;
    world.prepared(&[0, 2]);
    world.lose(|m| m.receiver() == 1);
    world.flow(|_| true);
    claim(world.held(1).is_none(), "it has got no message")?;
    world.append(0, "b");
    world.flow(|m| m.goes(Kind::Delta, 0, 1));
    claim(world.held(1).is_none(), "it is as if the delta had been lost")?;
    world.flow(|m| m.is(Kind::NeedFull) || m.goes(Kind::Accept, 0, 1));
    claim(k_at(&world, 1) == 2, "the whole state is taken")?;
    world.finish_with("vab")
}

#[test]
fn to_and_from_a_tombstone_states_travel_whole() -> Result<(), String> {
    let mut world = world(false);
    world.write(0, Ask::Append("a"));
    for ask in [Ask::Delete, Ask::Append("b")] {
        world.start(0, ask);
        claim(!world.bag.iter().any(|m| m.is(Kind::Delta)), "there is no value to change")?;
        world.flow(|_| true);
    }
    world.finish_with("vb")
}

/// Node 1 lacks `a` and cannot apply the delta to `ab`. Its question is in flight when `ab` is
/// chosen.
fn asked_for_a_chosen_round() -> (World, Vec<Envelope>) {
    let mut world = world(false);
    world.append(0, "a");
    world.prepared(&[0, 1, 2]);
    world.lose(|m| m.goes(Kind::Accept, 0, 1));
    world.flow(|_| true);
    world.append(0, "b");
    world.flow(|m| !m.is(Kind::NeedFull));
    let asked = world.take(|m| m.is(Kind::NeedFull));
    (world, asked)
}

#[test]
fn chosen_round_is_sent_whole_on_request() -> Result<(), String> {
    let (mut world, asked) = asked_for_a_chosen_round();
    claim(asked.len() == 1 && k_at(&world, 1) == 0, "it asks once and holds no round")?;
    claim(world.nodes[0].protocol.core.actives().is_empty(), "no proposer works on the key")?;
    world.deliver_all(asked);
    world.flow(|_| true);
    claim(k_at(&world, 1) == 2, "it has caught up")?;
    world.finish_with("vab")
}

pub(super) fn a_later_state_under_its_own_round() -> Result<(), String> {
    let (mut world, asked) = asked_for_a_chosen_round();
    world.append(0, "c");
    world.lose(|m| m.receiver() == 1);
    world.deliver_all(asked);
    let sent = world.take(|m| m.goes(Kind::Accept, 0, 1));
    let is_tip =
        |m: &Envelope| matches!(&m.message, Message::Accept { round, .. } if round.k() == 3);
    world.deliver_all(sent.clone());
    world.finish_with("vabc")?;
    claim(sent.len() == 1 && sent.iter().all(is_tip), "the newest, under its own round")
}

#[test]
fn ended_round_is_answered_with_the_newest_state() -> Result<(), String> {
    a_later_state_under_its_own_round()
}

/// The question arrives before or after the owner knows that another has taken over.
#[test]
fn question_to_a_former_owner_revives_no_state() -> Result<(), String> {
    for knows in [false, true] {
        let mut world = two_under_way(false);
        world.lose(|m| m.receiver() > 0 && is_k(m, 2));
        world.flow(|m| m.goes(Kind::Delta, 0, 1) || m.goes(Kind::Accept, 0, 0));
        let asked = world.take(|m| m.is(Kind::NeedFull));
        claim(asked.len() == 1, "it asks")?;
        let late = world.take(|m| m.goes(Kind::Delta, 0, 2));
        world.lose_all();
        world.calm();
        world.append(2, "d");
        world.flow(|m| m.among(&[1, 2]));
        world.lose_all();
        if knows {
            world.deliver_all(late);
            world.flow(|m| m.is(Kind::Other));
            world.pass_at(0, Nanos::from_millis(50));
        }
        world.lose_all();
        world.deliver_all(asked);
        world.flow(|m| m.goes(Kind::Accept, 0, 1) || m.goes(Kind::Other, 0, 1));
        let holds = world.held(1).map(|register| register.accepted.ballot().node());
        claim(holds == Some(NodeId(3)), "the later round stays")?;
        world.finish_with("vadbc")?;
    }
    Ok(())
}

pub(super) fn a_question_is_no_answer() -> Result<(), String> {
    let mut world = world(false);
    world.write(0, Ask::Append("a"));
    let tags = [world.append(0, "b"), world.append(0, "c")];
    world.lose(|m| m.receiver() == 2 || (m.receiver() == 1 && is_k(m, 2)));
    world.flow(|m| !m.goes(Kind::Accept, 0, 1));
    claim(k_at(&world, 0) == 3 && k_at(&world, 1) == 1, "only its proposer holds it")?;
    claim(tags.iter().all(|&tag| world.is_open(tag)), "and no other acknowledged it")?;
    world.finish_with("vabc")
}

#[test]
fn requesting_the_whole_is_no_vote() -> Result<(), String> {
    a_question_is_no_answer()
}

pub(super) fn a_damaged_delta() -> Result<(), String> {
    let mut world = world(false);
    world.write(0, Ask::Append("a"));
    world.append(0, "b");
    let sent = world.take(|m| m.goes(Kind::Delta, 0, 1));
    for mut envelope in sent {
        let mut bytes = envelope.message.to_bytes();
        *bytes.last_mut().expect("a message has bytes") ^= 1;
        envelope.message = Message::from_bytes(&bytes).expect("its last byte is the value's");
        world.deliver(envelope);
    }
    claim(k_at(&world, 1) == 1, "a wrong digest is not accepted")?;
    world.finish_with("vab")
}

#[test]
fn a_damaged_delta_makes_no_state() -> Result<(), String> {
    a_damaged_delta()
}

/// An identity proposal left the same bytes under another round than the one a delta was made from.
pub(super) fn the_same_bytes_under_another_round() -> Result<(), String> {
    let ballot = Ballot::new(Epoch(1), 1, NodeId(1), Incarnation(1));
    let state = |version, value| {
        let mut ring = Ring::default();
        ring.push(ballot);
        let value = Some(value);
        State::new(&StateFields {
            version,
            mod_version: version,
            ring,
            expiry: None,
            once: None,
            lock: None,
            value,
        })
    };
    let (old, new) = (state(1, &b"a"[..]), state(2, b"ab"));
    let delta = Delta::between((ballot.round(2), &old), &new).ok_or("both have values")?;
    let held =
        Register { accepted: ballot.round(1), state: Some(old), ..Register::promise_only(ballot) };
    let mut register = Some(held.clone());
    let payload = Payload::Delta(Arc::new(delta));
    let proposal = Proposal { round: ballot.round(3), chosen_k: 2, payload };
    let moment = Moment { now: Nanos(1), uptime: &Millis(1) };
    let meta = ShardMeta::default();
    let accepted = acceptor::on_accept(&mut register, &meta, Epoch(1), proposal, moment);
    claim(accepted == Accepted::NeedFull, "another round is another base")?;
    claim(register == Some(held), "it did not change, and no round is known to be chosen")
}

#[test]
fn equal_bytes_under_another_round_are_no_base() -> Result<(), String> {
    the_same_bytes_under_another_round()
}

/// Bytes to others of sixteen more on a value of 64 KiB, acknowledgements included.
#[test]
fn small_append_costs_few_bytes_per_member() -> Result<(), String> {
    static LARGE: [u8; 64 * 1024] = [b'x'; 64 * 1024];
    let large = std::str::from_utf8(&LARGE).expect("it is ASCII");
    let mut world = World::with(
        3,
        false,
        1,
        Ways { by_message: false, always_deltas: false, core_alone: false },
    );
    world.write(0, Ask::Append(large));
    for asker in [0, 1] {
        world.append(asker, "sixteen more of.");
        let mut sent = 0;
        while !world.bag.is_empty() {
            let envelope = world.bag.remove(0);
            sent += if envelope.from.node == envelope.to {
                0
            } else {
                envelope.message.to_bytes().len()
            };
            world.deliver(envelope);
        }
        world.calm();
        let whole: usize = world.held(asker).map_or(0, |register| register.to_bytes().len());
        println!("node {asker}: {sent} bytes to others, states whole {}", 2 * whole);
        claim(whole > LARGE.len() && sent < 512, "only the change travels")?;
    }
    world.finish()
}
