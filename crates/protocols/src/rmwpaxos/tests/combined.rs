//! Schedules of phase 1 and the first proposal in one message. [spec 9.5, P0]

use base::Nanos;
use types::Reply;

use super::steps::{Kind, claim};
use super::strings::Ask;
use super::world::{Envelope, Ways, World};
use crate::protocol::Event;

/// Nodes ask their own acceptors without messages, as combined prepare-accepts require.
fn world(durable: bool) -> World {
    World::with(3, durable, 1, Ways { by_message: false, always_deltas: false, core_alone: false })
}

/// Longer than a proposer waits for a member.
fn lose_patience(world: &mut World, node: usize) {
    world.pass_at(node, Nanos::from_millis(20));
}

/// A1 and A2 have moved on without A3. A3's proposal on its older state is in flight to both, under
/// a ballot above their choice.
fn one_lags() -> Result<(World, Vec<Envelope>), String> {
    let mut world = world(false);
    world.write(0, Ask::Append("a"));
    world.append(1, "b");
    world.flow(|m| m.among(&[0, 1]));
    world.lose_all();
    world.calm();
    world.append(2, "c");
    let first = world.take(|m| m.is(Kind::Combined));
    let ahead = world.held(0).map(|register| register.accepted.ballot());
    claim(first.len() == 2, "both others are asked")?;
    claim(world.held(2).map(|register| register.promised) > ahead, "under a higher ballot")?;
    Ok((world, first))
}

#[test]
fn proposer_in_agreement_writes_in_one_round_trip() -> Result<(), String> {
    for durable in [false, true] {
        let mut world = world(durable);
        world.write(0, Ask::Append("a"));
        let tag = world.append(1, "b");
        world.flow(|m| m.goes(Kind::Combined, 1, 0) || m.goes(Kind::Accepted, 0, 1));
        world.flow(|m| m.among(&[1]));
        claim(world.reply(tag) == Some(Reply::Integer(2)), "one other is enough")?;
        world.finish_with("vab")?;
    }
    Ok(())
}

/// An acceptor that has moved on gets a proposal on its earlier round.
pub(super) fn an_acceptor_that_holds_something_else() -> Result<(), String> {
    let (mut world, first) = one_lags()?;
    world.deliver_all(first);
    world.flow(|_| true);
    claim(world.bag.is_empty(), "no time has to pass")?;
    world.finish_with("vabc")
}

#[test]
fn acceptor_completes_phase_one_on_its_base_only() -> Result<(), String> {
    an_acceptor_that_holds_something_else()
}

/// No acceptor took the first proposal, and the next proposer asks its proposer.
pub(super) fn a_first_proposal_without_acceptors() -> Result<(), String> {
    let (mut world, _) = one_lags()?;
    world.sees(0, 1, false);
    world.append(0, "d");
    world.flow(|m| m.among(&[0, 2]));
    world.sees(0, 1, true);
    world.finish()
}

#[test]
fn a_proposer_accepts_after_another_has() -> Result<(), String> {
    a_first_proposal_without_acceptors()
}

/// A3 missed a removal. Its proposal on an absent register counts versions from too low a floor.
pub(super) fn a_version_below_a_floor() -> Result<(), String> {
    let mut world = world(false);
    let neighbour = world.neighbour.clone();
    world.write_key(0, &neighbour, Ask::Append("a"));
    world.write_key(0, &neighbour, Ask::Delete);
    world.collect(0, |m| !(m.is(Kind::Remove) && m.receiver() == 2));
    world.lose_all();
    claim(world.nodes[1].register(&neighbour).is_none(), "others have removed it")?;
    claim(world.nodes[2].register(&neighbour).is_some(), "one has not")?;
    let tag = world.append(2, "b");
    world.flow(|_| true);
    let version =
        |register: &crate::rmwpaxos::Register| register.state.as_ref().map(|it| it.version());
    let versions: Vec<_> = (0..3).map(|node| world.held(node).and_then(version)).collect();
    claim(versions == [Some(3); 3], &format!("the floor is 2: {versions:?}"))?;
    claim(world.reply(tag) == Some(Reply::Integer(1)), "its fate is certain")?;
    world.finish_with("vb")
}

#[test]
fn first_version_lies_above_the_floors() -> Result<(), String> {
    a_version_below_a_floor()
}

/// A first proposal waits at A1 for its register to be read. Meanwhile its proposer A3 loses its
/// memory, recovers, and lets A2 write under a lower ballot.
pub(super) fn a_first_proposal_from_before_a_loss() -> Result<(), String> {
    let mut world = world(false);
    world.append(2, "c");
    let early = world.take(|m| m.goes(Kind::Combined, 2, 0));
    world.lose_all();
    world.crash(2, 0);
    world.flow(|_| true);
    claim(!world.nodes[2].is_recovering(), "it has recovered")?;
    let tag = world.append(1, "b");
    world.flow(|m| m.among(&[1, 2]));
    claim(!world.is_open(tag), "two have decided")?;
    world.lose_all();
    for Envelope { from, message, .. } in early {
        world.step(0, Event::Peer { from, message });
    }
    world.lose_all();
    // The next proposer builds on the higher report of A1 and A2.
    world.calm();
    world.sees(0, 2, false);
    world.append(0, "d");
    world.flow(|m| m.among(&[0, 1]));
    world.sees(0, 2, true);
    world.finish_with("vbd")
}

#[test]
fn promise_from_before_a_loss_completes_no_phase() -> Result<(), String> {
    a_first_proposal_from_before_a_loss()
}

/// Only A1 is asked. It holds a round that no other holds, and declines. Then it forgets, recovers
/// an absent register from the others, and gets a copy of the first proposal.
#[test]
fn declined_proposal_is_never_accepted() -> Result<(), String> {
    let mut world = world(false);
    world.append(1, "b");
    world.flow(|m| m.goes(Kind::Combined, 1, 0));
    world.lose_all();
    world.sees(2, 1, false);
    let tag = world.append(2, "c");
    let copy = world.take(|m| m.goes(Kind::Combined, 2, 0));
    world.deliver_all(copy.clone());
    world.flow(|m| m.goes(Kind::NeedFull, 0, 2));
    claim(world.combined_is_over(2), "each asked member holds another round")?;
    world.lose_all();
    world.crash(0, 0);
    world.flow(|m| recovers(m) || m.among(&[0]));
    claim(!world.nodes[0].is_recovering(), "it has recovered")?;
    world.lose_all();
    world.deliver_all(copy);
    world.lose_all();
    for _ in 0..10 {
        world.pass_at(2, Nanos::from_millis(50));
        world.flow(|m| m.among(&[0, 2]));
    }
    claim(world.reply(tag) == Some(Reply::Integer(1)), "it happens once, under another ballot")?;
    world.finish()
}

fn recovers(message: &Envelope) -> bool {
    [Kind::Recover, Kind::Recovered, Kind::List, Kind::Listed].contains(&message.kind())
}

/// A3 has missed more transitions than a state remembers. Its proposal on the old state is no
/// attempt.
#[test]
fn far_lagging_proposer_is_not_in_doubt() -> Result<(), String> {
    for absent in [true, false] {
        let mut world = world(false);
        let neighbour = world.neighbour.clone();
        world.write(0, Ask::Append("a"));
        for owner in [0, 1, 0, 1, 0, 1] {
            world.append(owner, "b");
            world.flow(|m| m.among(&[0, 1]));
            world.lose_all();
            world.calm();
        }
        // The others' ballot numbers are known from another key.
        world.write_key(0, &neighbour, Ask::Append("a"));
        world.sees(2, 1, !absent);
        let tag = world.append(2, "c");
        world.flow(|m| m.among(&[0, 2]) || !absent);
        claim(world.reply(tag) == Some(Reply::Integer(8)), &format!("{:?}", world.value_of(tag)))?;
        world.sees(2, 1, true);
        world.finish_with("vabbbbbbc")?;
    }
    Ok(())
}

/// A proposer loses its memory while its first proposal is under way, takes part in another's of a
/// lower ballot, and then finds itself unanswered.
pub(super) fn a_first_proposal_repeated_after_a_loss() -> Result<(), String> {
    let mut world = world(false);
    let key = world.key.clone();
    world.write(0, Ask::Append("a"));
    world.append(2, "c");
    world.lose_all();
    world.forget_anew(2, &key);
    world.flow(|_| true);
    claim(!world.nodes[2].is_recovering(), "it has recovered")?;
    let tag = world.append(1, "b");
    world.flow(|m| m.among(&[1, 2]));
    claim(!world.is_open(tag), "two have decided")?;
    world.lose_all();
    world.pass_at(2, Nanos::from_millis(100));
    world.flow(|m| m.among(&[0, 2]));
    world.finish_with("vabc")
}

#[test]
fn promise_from_before_a_loss_is_not_repeated() -> Result<(), String> {
    a_first_proposal_repeated_after_a_loss()
}

#[test]
fn silent_member_is_waited_for_briefly() -> Result<(), String> {
    let (mut world, _) = one_lags()?;
    world.pass_at(2, Nanos::from_millis(50));
    world.flow(|m| m.among(&[0, 2]));
    claim(!world.bag.iter().any(|m| m.is(Kind::Prepare)), "the other may hold the same")?;
    world.lose_all();
    lose_patience(&mut world, 2);
    world.flow(|m| m.among(&[0, 2]));
    claim(world.held(2).is_some_and(|it| it.accepted.ballot().node().0 == 3), "it went on")?;
    world.finish_with("vabc")
}

#[test]
fn refusal_and_other_base_end_it_at_once() -> Result<(), String> {
    for refused_first in [false, true] {
        let (mut world, mut first) = one_lags()?;
        // A2 has a higher promise meanwhile.
        world.start(1, Ask::Delete);
        world.lose_all();
        if refused_first {
            first.reverse();
        }
        world.deliver_all(first);
        world.flow(|m| m.is(Kind::NeedFull) || m.is(Kind::Other));
        claim(world.combined_is_over(2), "no member can complete it")?;
        world.finish()?;
    }
    Ok(())
}

/// A1 has taken the first proposal, which A3 cannot, and its acknowledgement is lost.
#[test]
fn first_proposal_given_up_happens_once() -> Result<(), String> {
    for seen in [0, 2] {
        let mut world = world(false);
        world.append(0, "a");
        world.flow(|m| m.among(&[0, 1]));
        world.lose_all();
        world.calm();
        let tag = world.append(1, "b");
        let late = world.take(|m| m.goes(Kind::Combined, 1, 0));
        world.deliver_all(late.clone());
        world.lose(|m| m.is(Kind::Accepted));
        world.flow(|m| m.is(Kind::NeedFull) || m.is(Kind::Combined));
        world.sees(1, 2 - seen, false);
        lose_patience(&mut world, 1);
        world.flow(|m| m.among(&[1, seen]));
        world.sees(1, 2 - seen, true);
        world.deliver_all(late);
        world.finish_with("vab")?;
        claim(world.reply(tag) == Some(Reply::Integer(2)), "once")?;
    }
    Ok(())
}

/// Two nodes propose on the same state at the same time. Their messages arrive in every order at
/// every acceptor.
#[test]
fn racing_first_proposals_keep_one_history() -> Result<(), String> {
    for order in 0..8_usize {
        for lost in 0..4_usize {
            let mut world = world(false);
            world.write(0, Ask::Append("a"));
            world.append(1, "b");
            world.append(2, "c");
            for acceptor in 0..3 {
                let mut first = world.take(|m| m.is(Kind::Combined) && m.receiver() == acceptor);
                if order >> acceptor & 1 == 1 {
                    first.reverse();
                }
                world.deliver_all(first);
            }
            world.lose(|m| m.is(Kind::Accepted) && m.sender() == lost);
            world.finish().map_err(|fault| format!("order {order}, lost {lost}: {fault}"))?;
        }
    }
    Ok(())
}

/// A proposer with a promise in flight loses power. The message arrives after another proposer's
/// lower ballot.
#[test]
fn combined_promise_outlives_a_power_loss() -> Result<(), String> {
    let mut world = world(true);
    world.write(0, Ask::Append("a"));
    world.append(2, "c");
    while world.flush(2) {}
    let late = world.take(|m| m.goes(Kind::Combined, 2, 0));
    claim(late.len() == 1, "it is told once it is durable")?;
    world.lose_all();
    world.crash(2, 0);
    world.append(1, "b");
    world.flow(|m| m.among(&[1, 2]));
    world.deliver_all(late);
    world.finish()
}
