//! Schedules of repair: pending repairs, and hints that a round is chosen. [spec 9.3, 9.7]

use base::Nanos;
use types::{Reply, Round};

use super::steps::{Kind, claim};
use super::strings::Ask;
use super::world::{Envelope, World};
use crate::protocol::Event;

const LATE: Nanos = Nanos::from_millis(150);

fn volatile() -> World {
    World::new(3, false, 1)
}

fn accepted(world: &World, node: usize) -> Round {
    world.held(node).map_or(Round::NONE, |register| register.accepted)
}

fn reads(m: &Envelope) -> bool {
    m.is(Kind::Read) || m.is(Kind::State)
}

/// The first node writes without the third. The bag then holds the first node's pending repairs.
fn written_by_two(world: &mut World) {
    world.append(0, "a");
    world.flow(|m| m.among(&[0, 1]));
    world.lose_all();
    world.pass_at(0, LATE);
    world.flow(|m| m.among(&[0]));
}

#[test]
fn owner_repairs_a_member_that_missed_a_proposal() -> Result<(), String> {
    let mut world = volatile();
    written_by_two(&mut world);
    world.flow(|_| true);
    claim(accepted(&world, 2) == accepted(&world, 0), "the third holds it now")?;
    claim(world.held(2).is_some_and(|register| register.chosen), "and knows it chosen")?;
    world.pass_at(0, Nanos::from_secs(5));
    world.lose(|m| m.is(Kind::Compare));
    claim(world.bag.is_empty(), "no repair is pending any more")
}

#[test]
fn hint_answers_a_read_of_disagreeing_replicas() -> Result<(), String> {
    let mut world = volatile();
    written_by_two(&mut world);
    world.flow(|m| m.is(Kind::Chosen));
    world.lose_all();
    let read = world.start(2, Ask::Get);
    world.flow(|m| m.among(&[1, 2]) && reads(m));
    claim(world.reply(read) == Some(Reply::bulk("a")), "one round trip is enough")?;
    world.finish_with("va")
}

#[test]
fn acknowledged_or_rewritten_rounds_send_no_hint() -> Result<(), String> {
    let mut world = volatile();
    for text in ["a", "b", "c"] {
        world.write(0, Ask::Append(text));
    }
    world.pass_at(0, LATE);
    claim(world.bag.is_empty(), "no repair is pending")?;
    world.append(0, "d");
    world.flow(|m| m.among(&[0, 1]));
    world.write(0, Ask::Append("e"));
    world.lose_all();
    world.pass_at(0, LATE);
    world.flow(|m| m.among(&[0]));
    claim(world.bag.is_empty(), "the next proposal said it")?;
    world.finish_with("vabcde")
}

#[test]
fn returning_member_is_repaired() -> Result<(), String> {
    let mut world = volatile();
    world.sees(0, 2, false);
    written_by_two(&mut world);
    claim(world.bag.is_empty(), "no message goes to the absent member")?;
    world.sees(0, 2, true);
    let node = world.nodes[2].peers.me();
    world.step(0, Event::PeerUp { node });
    world.pass_at(0, Nanos::from_millis(10));
    world.flow(|_| true);
    claim(accepted(&world, 2) == accepted(&world, 0), "the third holds it now")
}

#[test]
fn silent_member_is_not_reminded_for_ever() -> Result<(), String> {
    let mut world = volatile();
    written_by_two(&mut world);
    let mut sent = 0;
    for _ in 0..200 {
        world.flow(|m| m.among(&[0]));
        sent += world.take(|m| m.is(Kind::Accept)).len();
        world.lose_all();
        world.pass_at(0, LATE);
    }
    claim((2..10).contains(&sent), "some reminders, then no more")
}

/// A hint of a round reaches an acceptor that holds an undecided one of another ballot.
pub(super) fn a_hint_of_another_ballot() -> Result<(), String> {
    let mut world = volatile();
    written_by_two(&mut world);
    let late = world.take(|m| m.is(Kind::Accept) || m.is(Kind::Chosen));
    world.append(2, "b");
    let phase_one = |m: &Envelope| m.is(Kind::Prepare) || m.is(Kind::Promise);
    world.flow(|m| phase_one(m) && !m.among(&[2]));
    world.flow(|m| m.goes(Kind::Accept, 2, 1));
    world.lose_all();
    world.deliver_all(late);
    world.lose_all();
    claim(accepted(&world, 2) == accepted(&world, 0), "two hold the chosen round")?;
    read_new_then_old(&mut world, 0)
}

/// A hint of a round reaches an acceptor that holds a later, undecided one of its ballot.
pub(super) fn a_hint_of_an_earlier_round() -> Result<(), String> {
    let mut world = volatile();
    written_by_two(&mut world);
    let late = world.take(|m| m.is(Kind::Accept) || m.is(Kind::Chosen));
    world.append(0, "b");
    world.flow(|m| m.goes(Kind::Accept, 0, 1));
    world.lose_all();
    world.deliver_all(late);
    world.lose_all();
    claim(accepted(&world, 2) == accepted(&world, 0), "two hold the chosen round")?;
    read_new_then_old(&mut world, 2)
}

/// The second acceptor holds an undecided round. After a read of it no read may return an earlier
/// one.
fn read_new_then_old(world: &mut World, last_reader: usize) -> Result<(), String> {
    world.start(1, Ask::Get);
    world.flow(|m| m.among(&[1, 2]) && reads(m));
    world.lose_all();
    let last = world.start(last_reader, Ask::Get);
    world.flow(|m| m.among(&[0, 2]) && reads(m));
    claim(world.reply(last) == Some(Reply::bulk("a")), "the older state is chosen")?;
    world.finish()
}

#[test]
fn a_hint_speaks_of_its_ballot_only() -> Result<(), String> {
    a_hint_of_another_ballot()
}

#[test]
fn hint_covers_no_later_round() -> Result<(), String> {
    a_hint_of_an_earlier_round()
}

/// Each proposal for a member that accepts none costs the others a write.
#[test]
fn refusing_member_does_not_keep_others_writing() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    world.write(0, Ask::Append("a"));
    world.append(0, "b");
    world.flow(|m| m.among(&[0, 1]));
    world.lose_all();
    let brings_state = |m: &Envelope| {
        let kinds = [Kind::Accept, Kind::Delta, Kind::Combined, Kind::Repair];
        m.receiver() == 2 && kinds.contains(&m.kind())
    };
    let (mut last, mut written) = (accepted(&world, 0), 0);
    for _ in 0..12_000 {
        world.pass(Nanos::from_millis(10));
        world.lose(brings_state);
        world.flow(|m| !brings_state(m));
        world.lose_all();
        let now = accepted(&world, 0);
        written += u32::from(now != last);
        last = now;
    }
    claim((1..16).contains(&written), &format!("proposed anew {written} times in two minutes"))?;
    world.rest(Nanos::from_secs(3_600));
    claim(accepted(&world, 2) == accepted(&world, 0), "it has it once it has room")
}
