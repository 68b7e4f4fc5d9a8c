//! Schedules of forwarding, expiry, duels, and of the rules that override the specification.
//! [spec 11, S46, S47, S49; corrections F1, F6 to F8, F10, B1, B2]

use base::{Millis, Nanos};
use types::{Key, Outcome, Reply, Tag, Wire};

use super::steps::{Kind, claim};
use super::strings::Ask;
use super::world::{Envelope, World};
use crate::rmwpaxos::Message;
use crate::rmwpaxos::message::Verdict;

fn volatile() -> World {
    World::new(3, false, 1)
}

/// Node 1 owns the key and is busy; node 0 forwards an operation to it.
fn forwarded(world: &mut World) -> Tag {
    for text in ["a", "", ""] {
        world.append(1, text);
        world.flow(|_| true);
    }
    let tag = world.append(0, "b");
    assert!(world.bag.iter().any(|m| m.is(Kind::Forward)), "it is forwarded");
    tag
}

/// S46: an owner applies a forwarded operation and dies before it answers.
#[test]
fn forward_to_a_dead_owner_ends_unknown() -> Result<(), String> {
    let mut world = volatile();
    let tag = forwarded(&mut world);
    world.flow(|m| !m.is(Kind::Forwarded));
    world.lose_all();
    world.crash(1, 0);
    world.finish_with("vab")?;
    claim(world.value_of(tag) == Some(&Outcome::Unknown), "no node can tell")
}

/// F6: a copy of a forward arrives after it was executed, answered and acknowledged.
#[test]
fn second_copy_of_a_forward_has_no_effect() -> Result<(), String> {
    let mut world = volatile();
    forwarded(&mut world);
    let copy = world.bag.iter().find(|m| m.is(Kind::Forward)).cloned();
    world.flow(|_| true);
    world.append(0, "c");
    world.flow(|_| true);
    world.deliver_all(copy.into_iter().collect());
    world.finish_with("vabc")
}

/// A forward and its replies fit a frame many times.
#[test]
fn few_large_commands_are_forwarded_together() -> Result<(), String> {
    let mut world = volatile();
    forwarded(&mut world);
    let large: &'static str = "x".repeat(300 << 10).leak();
    let tags: Vec<Tag> = (0..25).map(|_| world.append(0, large)).collect();
    let mut longest = 0;
    while tags.iter().any(|&tag| world.is_open(tag)) {
        while !world.bag.is_empty() {
            let envelope = world.bag.remove(0);
            if envelope.is(Kind::Forward) || envelope.is(Kind::Forwarded) {
                longest = longest.max(envelope.message.to_bytes().len());
            }
            world.deliver(envelope);
        }
        world.pass(Nanos::from_millis(5));
    }
    claim(longest > 1 << 19, "several went together")?;
    claim(longest < 5 << 20, "not all of them")?;
    claim(tags.iter().all(|&tag| world.value_of(tag).is_some()), "all were answered")
}

/// Replies may be longer than the origin could know. Those beyond one frame are answered as
/// unknown. Of long replies the owner remembers only that it gave them.
#[test]
fn owner_answers_at_most_one_frame() -> Result<(), String> {
    let mut world = volatile();
    let tag = forwarded(&mut world);
    let mut sent = world.take(|m| m.is(Kind::Forward));
    let large: &'static str = "x".repeat(1 << 20).leak();
    world.append(1, large);
    world.flow(|_| true);
    let Message::Forward { forward, .. } = &mut sent[0].message else { unreachable!("taken so") };
    let session = forward.commands[0].0;
    forward.commands.extend((0..80).map(|_| (session, Ask::Get.command())));
    let copy = sent.clone();
    world.deliver_all(sent);
    world.flow(|m| !m.is(Kind::Forwarded));
    let answers = world.take(|m| m.is(Kind::Forwarded));
    let Message::Forwarded { verdict: Verdict::Done { outcomes, .. }, .. } = &answers[0].message
    else {
        return Err("it is answered".to_owned());
    };
    let replies = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Reply(_))).count();
    claim(outcomes.len() == 81, "each command is answered")?;
    claim((20..40).contains(&replies), &format!("half a frame of replies, and here {replies}"))?;
    claim(world.nodes[1].protocol.parts.forwarding.remembered_len() == 0, "none of it is kept")?;
    world.deliver_all(copy);
    let again = world.take(|m| m.is(Kind::Forwarded));
    claim(again.len() == 1, "a copy is answered")?;
    claim(again[0].message.to_bytes().len() < 1_000, "and runs no command")?;
    world.deliver_all(answers);
    world.flow(|_| true);
    claim(
        world.reply(tag).is_some_and(|reply| matches!(reply, Reply::Integer(_))),
        "the first answer counts",
    )
}

/// F7: a forward arrives at a later start of its owner.
pub(super) fn a_forward_to_a_later_start() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    let tag = forwarded(&mut world);
    let late = world.take(|m| m.is(Kind::Forward));
    world.crash(1, 9);
    world.deliver_all(late);
    world.finish_with("va")?;
    claim(world.value_of(tag) == Some(&Outcome::Unknown), "the other one may have run it")
}

#[test]
fn another_incarnation_refuses_a_forward() -> Result<(), String> {
    a_forward_to_a_later_start()
}

/// F8: a forwarded command never ends with the claim that it had no effect.
#[test]
fn a_forward_that_is_given_up_ends_unknown() -> Result<(), String> {
    let mut world = volatile();
    let tag = forwarded(&mut world);
    let late = world.take(|m| m.is(Kind::Forward));
    for _ in 0..100 {
        world.pass(Nanos::from_millis(20));
        world.lose(|m| m.is(Kind::Forward));
    }
    let told = world.value_of(tag).cloned();
    claim(told == Some(Outcome::Unknown), &format!("it may still be run, told {told:?}"))?;
    world.deliver_all(late);
    world.finish()
}

/// An answer to a forward of an earlier start arrives in a later one.
pub(super) fn an_answer_to_an_earlier_forward() -> Result<(), String> {
    let mut world = volatile();
    forwarded(&mut world);
    world.flow(|m| !m.is(Kind::Forwarded));
    let late = world.take(|m| m.is(Kind::Forwarded));
    claim(late.len() == 1, "the answer is late")?;
    world.crash(0, 0);
    world.flow(|_| true);
    for text in ["c", "", ""] {
        world.append(1, text);
        world.flow(|_| true);
    }
    let tag = world.append(0, "d");
    claim(!world.take(|m| m.is(Kind::Forward)).is_empty(), "it is forwarded, and lost")?;
    world.deliver_all(late);
    claim(world.is_open(tag), "another forward was answered")?;
    world.finish()
}

#[test]
fn answer_to_an_earlier_forward_is_ignored() -> Result<(), String> {
    an_answer_to_an_earlier_forward()
}

/// A node that was cut off for long forwards at last. Its phase 1 was resent as often as unwanted
/// work would be.
#[test]
fn a_forward_after_a_long_silence_is_answered() -> Result<(), String> {
    let mut world = volatile();
    world.write(1, Ask::Append("a"));
    let first = world.append(0, "b");
    for _ in 0..50 {
        world.lose_all();
        world.pass_at(0, Nanos::from_millis(100));
    }
    for _ in 0..100 {
        if world.bag.iter().any(|m| m.is(Kind::Prepare)) {
            break;
        }
        world.pass_at(0, Nanos::from_millis(10));
    }
    let late = world.take(|m| m.is(Kind::Prepare) && m.receiver() > 0);
    claim(late.len() == 2, "it still asks")?;
    world.lose_all();
    world.append(2, "c");
    world.flow(|m| m.among(&[1, 2]));
    world.lose_all();
    world.append(2, "");
    world.flow(|_| true);
    world.deliver_all(late);
    world.flow(|m| m.is(Kind::Other));
    world.pass_at(0, Nanos::from_millis(1));
    claim(world.bag.iter().any(|m| m.is(Kind::Forward)), "it is forwarded")?;
    world.lose_all();
    world.pass_at(0, Nanos::from_millis(10));
    world.lose_all();
    world.append(2, "");
    world.flow(|_| true);
    let second = world.append(0, "d");
    world.finish()?;
    claim(!world.is_open(first) && !world.is_open(second), "both are answered")
}

/// S47: two nodes read an expiring key in turn; one's clocks have jumped ahead.
pub(super) fn clocks_that_jump() -> Result<(), String> {
    let mut world = volatile();
    world.start(1, Ask::Expiring { value: b'v', millis: 60 });
    world.flow(|_| true);
    world.nodes[0].ahead = Millis(3_600_000);
    for turn in 0..12 {
        let read = world.start(turn % 2, Ask::Get);
        world.flow(|_| true);
        let is_early = world.now < Nanos::from_millis(1_060);
        claim(!is_early || world.reply(read) == Some(Reply::bulk("v")), "its time is not over")?;
        world.pass(Nanos::from_millis(10));
    }
    world.finish_with("-")
}

#[test]
fn jumping_clock_alone_expires_no_key() -> Result<(), String> {
    clocks_that_jump()
}

/// F10: a deadline set anew counts from then.
pub(super) fn a_deadline_set_anew() -> Result<(), String> {
    let mut world = volatile();
    world.start(1, Ask::Expiring { value: b'v', millis: 60 });
    world.flow(|_| true);
    world.pass(Nanos::from_millis(50));
    world.start(1, Ask::Expiring { value: b'w', millis: 60 });
    world.flow(|_| true);
    world.pass(Nanos::from_millis(20));
    let read = world.start(2, Ask::Get);
    world.flow(|_| true);
    claim(world.reply(read) == Some(Reply::bulk("w")), "its time is not over")?;
    world.pass(Nanos::from_millis(100));
    world.finish_with("-")
}

#[test]
fn a_deadline_set_anew_counts_from_then() -> Result<(), String> {
    a_deadline_set_anew()
}

/// F10: every write but one that sets it leaves the deadline where it is.
#[test]
fn a_busy_key_expires_in_time() -> Result<(), String> {
    let mut world = volatile();
    world.start(1, Ask::Expiring { value: b'v', millis: 60 });
    for _ in 0..5 {
        world.flow(|_| true);
        world.pass(Nanos::from_millis(10));
        world.append(1, "w");
    }
    world.flow(|_| true);
    world.pass(Nanos::from_millis(30));
    let read = world.start(2, Ask::Get);
    claim(world.settle(), "a read ends")?;
    claim(world.reply(read) == Some(Reply::Null), "it is gone though it was written")?;
    world.finish()
}

/// F10: the command that made the owner ask for votes ends before they come. They expire the key
/// though no client touches it again.
#[test]
fn late_votes_expire_a_key() -> Result<(), String> {
    let mut world = volatile();
    world.start(1, Ask::Expiring { value: b'v', millis: 60 });
    world.flow(|_| true);
    world.pass(Nanos::from_millis(65));
    world.nodes[1].protocol.core.env_mut().request_timeout = Nanos::from_millis(30);
    let write = world.append(1, "w");
    world.flow(|m| m.among(&[1]));
    let asked = world.take(|m| m.is(Kind::Read));
    claim(!asked.is_empty(), "it asks for votes")?;
    while world.is_open(write) {
        world.pass_at(1, Nanos::from_millis(10));
        world.lose_all();
    }
    world.deliver_all(asked);
    world.flow(|_| true);
    claim(world.settle(), "work ends")?;
    let value = |node: usize| {
        world.held(node).and_then(|register| register.state.as_ref()?.value().map(<[u8]>::to_vec))
    };
    claim((0..3).all(|node| value(node).is_none()), "it is expired")?;
    world.finish_with("-")
}

/// F10: all nodes crash, and their clocks resume from saved values: before the start, or behind it.
#[test]
fn countdown_lags_as_its_clock_after_a_crash() -> Result<(), String> {
    for (ran, behind) in [(20, 5), (20, 20), (5, 30)] {
        let mut world = World::new(3, true, 1);
        let set = world.start(1, Ask::Expiring { value: b'v', millis: 60 });
        world.flow(|_| true);
        claim(!world.is_open(set), "all have accepted it, durably")?;
        world.pass(Nanos::from_millis(ran));
        for node in 0..3 {
            world.crash(node, 0);
            world.nodes[node].behind = Millis(behind);
        }
        world.pass(Nanos::from_millis(60 + behind - ran - 2));
        let early = world.start(2, Ask::Get);
        world.flow(|_| true);
        claim(world.reply(early) == Some(Reply::bulk("v")), "it counts no moment twice")?;
        world.pass(Nanos::from_millis(10));
        let late = world.start(0, Ask::Get);
        claim(world.settle(), "a read ends")?;
        claim(world.reply(late) == Some(Reply::Null), "it loses no more than its clock")?;
        world.finish()?;
    }
    Ok(())
}

/// S49: all write at once, again and again.
#[test]
fn a_duel_of_all_ends() -> Result<(), String> {
    let mut world = World::new(5, false, 1);
    let tags: Vec<Tag> = (0..20).map(|n| world.append(n % 5, "x")).collect();
    let start = world.now;
    claim(world.settle(), "work ends")?;
    claim(world.now.since(start) < Nanos::from_secs(2), "and soon")?;
    claim(tags.iter().all(|&tag| world.reply(tag).is_some()), "everybody succeeds")?;
    world.finish()
}

/// S49: all nodes hear a node that hears none of them.
#[test]
fn a_deaf_node_does_not_stop_the_others() -> Result<(), String> {
    let mut world = volatile();
    world.append(0, "deaf");
    let mut tags = Vec::new();
    for round in 0..40 {
        if round % 4 == 0 {
            tags.push(world.append(1 + round / 4 % 2, "x"));
        }
        world.flow(|m| m.receiver() != 0 || m.sender() == 0);
        world.lose_all();
        world.pass(Nanos::from_millis(20));
    }
    claim(tags.iter().all(|&tag| !world.is_open(tag)), "the others go on")?;
    world.finish()
}

/// F1: an operation with an attempt at a minority fails its condition on a consistent quorum below
/// the attempt.
pub(super) fn a_refusal_below_an_attempt() -> Result<(), String> {
    let mut world = volatile();
    world.write(1, Ask::Append("z"));
    world.append(1, "a");
    world.flow(|m| m.goes(Kind::Accept, 1, 2));
    world.lose_all();
    world.calm();
    let tag = world.start(2, Ask::SetIfEqual(b"za".to_vec(), b'b'));
    world.prepared(&[0, 2]);
    let refused = world.take(|m| m.is(Kind::Accept) && m.receiver() < 2);
    claim(refused.len() == 2, "it is proposed")?;
    world.flow(|m| m.goes(Kind::Accept, 2, 2));
    world.lose_all();
    world.append(0, "q");
    world.flow(|m| m.is(Kind::Prepare) && m.receiver() < 2);
    world.lose_all();
    world.deliver_all(refused);
    world.flow(|m| m.is(Kind::Other));
    world.pass_at(2, Nanos::from_millis(2));
    let is_phase_one = |m: &Envelope| m.is(Kind::Prepare) || m.is(Kind::Promise);
    world.flow(|m| is_phase_one(m) && !m.among(&[2]));
    claim(world.bag.iter().any(|m| m.goes(Kind::Accept, 2, 0)), "a higher round is proposed")?;
    world.lose_all();
    claim(world.is_open(tag), "its attempt may yet take effect")?;
    world.finish()
}

#[test]
fn a_refusal_waits_until_all_attempts_are_excluded() -> Result<(), String> {
    a_refusal_below_an_attempt()
}

/// B1: acknowledgements of a higher ballot of the same node, that of a recovery, arrive late.
pub(super) fn acknowledgements_of_a_higher_ballot() -> Result<(), String> {
    let mut world = volatile();
    world.append(1, "x");
    world.prepared(&[0, 1, 2]);
    world.flow(|m| m.goes(Kind::Accept, 1, 1));
    world.lose_all();
    world.calm();
    world.crash(0, 0);
    world.lose_all();
    let tag = world.append(0, "c");
    world.flow(|m| m.is(Kind::Prepare) || m.is(Kind::Other));
    world.pass_at(0, Nanos::from_millis(2));
    world.prepared(&[0, 1, 2]);
    let mine = world.take(|m| m.is(Kind::Accept));
    claim(mine.len() == 3, "the client's operation is proposed")?;
    world.flow(|m| {
        m.is(Kind::Recover) || m.is(Kind::Recovered) || m.is(Kind::Prepare) || m.is(Kind::Promise)
    });
    let decided = world.take(|m| m.is(Kind::Accept));
    world.deliver_all(decided);
    let acks = world.take(|m| m.is(Kind::Accepted));
    claim(acks.len() == 2, "the recovery's proposal is acknowledged")?;
    world.deliver_all(acks.clone());
    claim(!world.is_open(tag) || world.held(0).is_some(), "the register is recovered")?;
    world.deliver_all(acks);
    claim(world.is_open(tag), "this one has no acknowledgement")?;
    world.finish()
}

#[test]
fn only_an_acknowledgement_of_this_ballot_counts() -> Result<(), String> {
    acknowledgements_of_a_higher_ballot()
}

/// B2: a refused accept shows that a round is chosen, but not the one accepted here.
#[test]
fn refused_accept_marks_no_round_chosen() -> Result<(), String> {
    let mut world = volatile();
    world.append(0, "a");
    world.flow(|_| true);
    world.append(0, "b");
    let late = world.take(|m| m.goes(Kind::Accept, 0, 1));
    let tells = |m: &Message| matches!(m, Message::Accept { chosen_k: 1, .. });
    claim(late.iter().all(|m| tells(&m.message)), "it tells that the first is chosen")?;
    world.lose_all();
    world.calm();
    world.append(2, "c");
    world.prepared(&[1, 2]);
    world.flow(|m| m.goes(Kind::Accept, 2, 1));
    world.deliver_all(late);
    claim(world.held(1).is_some_and(|register| !register.chosen), "another ballot is meant")?;
    world.finish()
}

/// S7: recovery and a client's operation of one node mint at the same time, for keys of one shard.
pub(super) fn two_users_of_one_generator() -> Result<(), String> {
    let mut world = volatile();
    world.append(1, "x");
    world.prepared(&[0, 1, 2]);
    world.flow(|m| m.goes(Kind::Accept, 1, 1));
    world.lose_all();
    world.calm();
    world.crash(0, 0);
    world.lose_all();
    let key: Key = world.key.clone();
    world.ask(0, &key, Ask::Append("c"));
    world.flow(|m| m.is(Kind::Recover) || m.is(Kind::Recovered));
    world.flow(|m| m.is(Kind::Prepare) || m.is(Kind::Promise));
    world.finish()
}

#[test]
fn all_ballots_of_a_node_differ() -> Result<(), String> {
    two_users_of_one_generator()
}
