//! Slow members: they are spared proposals, and get them before they matter.

use base::Nanos;
use types::Round;

use super::steps::{Kind, claim};
use super::strings::Ask;
use super::world::{Envelope, World};
use crate::peers::Pace;
use crate::protocol::Event;

const LATE: Nanos = Nanos::from_millis(150);
const SOON: Nanos = Nanos::from_millis(10);

fn brings_state(m: &Envelope) -> bool {
    [Kind::Accept, Kind::Delta, Kind::Combined, Kind::Repair].contains(&m.kind())
}

fn is_state_for_third(m: &Envelope) -> bool {
    brings_state(m) && m.receiver() == 2
}

fn accepted(world: &World, node: usize) -> Round {
    world.held(node).map_or(Round::NONE, |register| register.accepted)
}

/// All hold a value, and the first node sees the third at this pace.
fn written_and_seen(pace: Pace) -> World {
    let mut world = World::new(3, true, 1);
    world.write(0, Ask::Append("a"));
    world.sees_pace(0, 2, pace);
    world
}

/// The first node spares the third, and has written.
fn written_without_the_third() -> Result<World, String> {
    let mut world = written_and_seen(Pace::Spared);
    let tag = world.append(0, "b");
    claim(!world.bag.iter().any(is_state_for_third), "it is spared")?;
    world.flow(|m| m.among(&[0, 1]));
    claim(world.reply(tag).is_some(), "two of three are enough")?;
    claim(accepted(&world, 2) < accepted(&world, 0), "the third has missed it")?;
    Ok(world)
}

#[test]
fn spared_member_is_repaired_once_steady() -> Result<(), String> {
    let mut world = written_without_the_third()?;
    world.pass_at(0, LATE);
    world.flow(|m| m.among(&[0]));
    claim(!world.bag.iter().any(brings_state), "no owner reminds a slow member")?;
    world.sees_pace(0, 2, Pace::Steady);
    world.pass_at(0, SOON);
    world.flow(|m| m.among(&[0, 2]) && !m.is(Kind::Compare));
    claim(accepted(&world, 2) == accepted(&world, 0), "it holds it now")?;
    world.finish_with("vab")
}

#[test]
fn spared_member_is_asked_if_others_are_silent() -> Result<(), String> {
    let mut world = written_and_seen(Pace::Spared);
    let tag = world.append(0, "b");
    world.lose(|m| m.among(&[0, 1]) && m.receiver() == 1);
    world.pass_at(0, LATE);
    world.flow(|m| m.among(&[0, 2]));
    claim(world.reply(tag).is_some(), "the slow one makes the majority")?;
    world.finish_with("vab")
}

#[test]
fn messages_queued_for_slow_peers_are_not_resent() -> Result<(), String> {
    let mut world = written_and_seen(Pace::Slow);
    world.sees(0, 1, false);
    let tag = world.append(0, "b");
    let waits = world.take(|m| m.receiver() == 2);
    claim(waits.iter().any(brings_state), "it is told once")?;
    world.pass_at(0, LATE);
    world.flow(|m| m.among(&[0]));
    claim(!world.bag.iter().any(is_state_for_third), "and not again")?;
    world.deliver_all(waits);
    world.flow(|m| m.among(&[0, 2]));
    claim(world.reply(tag).is_some(), "it answers in the end")?;
    world.finish_with("vab")
}

#[test]
fn slow_peer_gets_missed_proposals_once_steady() -> Result<(), String> {
    let mut world = written_and_seen(Pace::Slow);
    world.sees(0, 1, false);
    let tag = world.append(0, "b");
    world.lose(|m| m.receiver() == 2);
    world.sees_pace(0, 2, Pace::Steady);
    world.pass_at(0, Nanos::from_secs(1));
    world.flow(|m| m.among(&[0, 2]));
    claim(world.reply(tag).is_some(), "it is told again")?;
    world.finish_with("vab")
}

/// The member that stands in for the slow one dies, so the slow one must not be spared.
#[test]
fn spared_member_is_told_once_others_leave() -> Result<(), String> {
    let mut world = written_and_seen(Pace::Spared);
    let tag = world.append(0, "b");
    world.lose(|m| m.receiver() == 1);
    world.sees(0, 1, false);
    world.sees_pace(0, 2, Pace::Slow);
    world.pass_at(0, LATE);
    let told = world.take(|m| m.receiver() == 2);
    claim(told.iter().any(brings_state), "it gets the spared proposal")?;
    world.pass_at(0, LATE);
    world.flow(|m| m.among(&[0]));
    claim(!world.bag.iter().any(is_state_for_third), "and once is enough")?;
    world.deliver_all(told);
    world.flow(|m| m.among(&[0, 2]));
    claim(world.reply(tag).is_some(), "it makes the majority")?;
    world.finish_with("vab")
}

/// Another link to the same peer is still slow.
#[test]
fn messages_lost_with_a_link_are_resent() -> Result<(), String> {
    let mut world = written_and_seen(Pace::Slow);
    world.sees(0, 1, false);
    let tag = world.append(0, "b");
    world.flow(|m| m.among(&[0]));
    world.lose_all();
    let node = world.nodes[2].peers.me();
    world.step(0, Event::PeerReset { node });
    world.step(0, Event::PeerUp { node });
    world.flow(|m| m.among(&[0, 2]));
    claim(world.reply(tag).is_some(), "it is told again at once")?;
    world.finish_with("vab")
}

/// The second node is fast but never acknowledges, because its medium cannot keep up.
#[test]
fn silent_member_does_not_stand_in_for_long() -> Result<(), String> {
    let mut world = written_and_seen(Pace::Spared);
    let is_shed = |m: &Envelope| brings_state(m) && m.receiver() == 1;
    let first = world.append(0, "b");
    world.lose(is_shed);
    world.pass_at(0, LATE);
    world.lose(is_shed);
    world.flow(|m| !is_shed(m));
    claim(world.reply(first).is_some(), "the slow one is asked after a while")?;
    let second = world.append(0, "c");
    world.lose(is_shed);
    world.flow(|m| !is_shed(m));
    claim(world.reply(second).is_some(), "and then at once")?;
    world.lose_all();
    world.finish_with("vabc")
}

/// The fast member answers late once. A slow one that is sometimes first is not needed for that.
#[test]
fn a_hiccup_does_not_end_sparing_for_good() -> Result<(), String> {
    let mut world = written_and_seen(Pace::Spared);
    let first = world.append(0, "b");
    world.flow(|m| m.among(&[0]));
    let late = world.take(|m| m.receiver() == 1);
    world.pass_at(0, LATE);
    world.flow(|m| m.among(&[0, 2]));
    claim(world.reply(first).is_some(), "the slow one stood in")?;
    world.deliver_all(late);
    for _ in 0..4 {
        world.flow(|_| true);
        world.append(0, "c");
        world.flow(|m| m.among(&[0, 2]));
        world.flow(|m| m.among(&[0, 1]));
        world.pass_at(0, Nanos::from_secs(2));
    }
    world.flow(|_| true);
    world.append(0, "d");
    claim(!world.bag.iter().any(is_state_for_third), "it is spared again")?;
    world.finish_with("vabccccd")
}

/// A majority needs the spared one where another has lost the register.
#[test]
fn spared_member_helps_to_recover_a_register() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    world.append(0, "a");
    world.flow(|m| m.among(&[0, 2]));
    world.lose_all();
    world.calm();
    world.crash_damaged(0);
    world.sees_pace(0, 2, Pace::Spared);
    world.sees_pace(1, 2, Pace::Spared);
    let tag = world.append(1, "b");
    claim(world.settle(), "it comes to an end")?;
    claim(world.reply(tag).is_some(), "the register is recovered, and written")?;
    world.finish_with("vab")
}
