//! Schedules of one register: proposals, attempts, reads, durability. [spec 11, S1 to S20]

use base::Nanos;
use types::{Outcome, Reply};

use super::steps::{Kind, claim};
use super::strings::Ask;
use super::world::World;

fn volatile() -> World {
    World::new(3, false, 1)
}

fn durable() -> World {
    World::new(3, true, 1)
}

/// S1: every acknowledgement of a chosen proposal is lost.
#[test]
fn a_proposal_whose_acknowledgements_are_lost_happens_once() -> Result<(), String> {
    let mut world = volatile();
    let tag = world.append(0, "a");
    world.flow(|m| !m.is(Kind::Accepted));
    world.lose_all();
    claim(world.is_open(tag), "no node knows that it is chosen")?;
    world.finish_with("va")?;
    claim(world.reply(tag) == Some(Reply::Integer(1)), "the first result is told")
}

/// S2: a proposal reaches one acceptor and its proposer dies.
#[test]
fn minority_proposal_is_never_seen_and_then_gone() -> Result<(), String> {
    let mut world = durable();
    world.append(0, "a");
    world.prepared(&[0, 1, 2]);
    world.flow(|m| m.goes(Kind::Accept, 0, 0));
    world.lose_all();
    world.crash(0, 0);
    world.sees(1, 0, false);
    let old = world.start(1, Ask::Get);
    world.flow(|m| m.among(&[1, 2]));
    claim(world.reply(old) == Some(Reply::Null), "two empty registers agree")?;
    world.sees(1, 0, true);
    world.sees(1, 2, false);
    let either = world.start(1, Ask::Get);
    for _ in 0..20 {
        world.flow(|m| m.among(&[0, 1]));
        world.pass_at(1, Nanos::from_millis(20));
    }
    claim(!world.is_open(either), "two that differ have it decided")?;
    world.sees(1, 2, true);
    world.finish()
}

/// P's proposal is chosen at A1 and A2 without P's knowledge. The others build on it in this order.
fn build_on_unacknowledged(world: &mut World, others: &[usize]) -> types::Tag {
    let tag = world.append(0, "a");
    world.prepared(&[0, 1, 2]);
    world.flow(|m| m.goes(Kind::Accept, 0, 0) || m.goes(Kind::Accept, 0, 1));
    world.lose_all();
    world.calm();
    for &other in others {
        world.append(other, "b");
        world.flow(|m| m.among(&[1, 2]));
        world.lose_all();
        world.calm();
    }
    tag
}

/// S3: an attempt that others have built upon.
#[test]
fn proposer_finds_its_attempt_in_later_states() -> Result<(), String> {
    let mut world = volatile();
    let tag = build_on_unacknowledged(&mut world, &[2]);
    world.finish_with("vab")?;
    claim(world.reply(tag) == Some(Reply::Integer(1)), "the result of the first attempt")
}

/// The same, with many transitions of one owner since.
#[test]
fn busy_owner_hides_no_attempt_in_its_base() -> Result<(), String> {
    let mut world = volatile();
    let tag = build_on_unacknowledged(&mut world, &[2; 7]);
    world.finish_with("vabbbbbbb")?;
    claim(world.reply(tag) == Some(Reply::Integer(1)), "the result of the first attempt")
}

/// S4: the same, with more owners since than the ring remembers.
#[test]
fn an_attempt_beyond_the_ring_ends_unknown() -> Result<(), String> {
    let mut world = volatile();
    let tag = build_on_unacknowledged(&mut world, &[2, 1, 2, 1]);
    world.finish_with("vabbbb")?;
    claim(world.value_of(tag) == Some(&Outcome::Unknown), "no node can tell any more")
}

/// S5: the same value under two rounds on two acceptors, another between them on the third.
pub(super) fn equal_values_under_different_rounds() -> Result<(), String> {
    let mut world = durable();
    world.append(0, "a");
    world.prepared(&[0, 1]);
    world.flow(|m| m.goes(Kind::Accept, 0, 0));
    world.lose_all();
    world.append(2, "b");
    world.prepared(&[1, 2]);
    world.flow(|m| m.goes(Kind::Accept, 2, 2));
    world.lose_all();
    world.calm();
    world.sees(1, 2, false);
    world.start(1, Ask::Get);
    world.flow(|m| m.among(&[0, 1]) && !m.is(Kind::Accept));
    world.flow(|m| m.goes(Kind::Accept, 1, 1));
    world.lose_all();
    let rounds: Vec<_> = (0..3).filter_map(|node| world.held(node)).map(|r| r.accepted).collect();
    claim(rounds.len() == 3, "all hold something")?;
    claim(rounds[0] < rounds[2] && rounds[2] < rounds[1], "r < q < s")?;

    world.crash(0, 9);
    world.lose_all();
    world.start(0, Ask::Get);
    world.flow(|m| m.among(&[0, 1]) && (m.is(Kind::Read) || m.is(Kind::State)));
    world.lose_all();
    // The next one sees A1 and A3 only, without the apparent agreement of A1 and A2.
    world.calm();
    world.sees(2, 1, false);
    world.append(2, "c");
    for _ in 0..20 {
        world.flow(|m| m.among(&[0, 2]) && m.sender() + m.receiver() > 0);
        world.pass_at(2, Nanos::from_millis(20));
    }
    world.sees(2, 1, true);
    world.finish()
}

#[test]
fn equal_values_of_different_rounds_decide_no_read() -> Result<(), String> {
    equal_values_under_different_rounds()
}

/// S6: a proposer restarts with the same number while an earlier accept is in flight.
pub(super) fn restart_with_the_same_number() -> Result<(), String> {
    let mut world = durable();
    world.append(0, "a");
    world.flow(|m| (m.is(Kind::Prepare) && m.receiver() > 0) || m.is(Kind::Promise));
    let old = world.take(|m| m.is(Kind::Accept) && m.receiver() > 0);
    claim(old.len() == 2, "accepts are on their way")?;
    world.lose_all();
    world.crash(0, 0);
    world.append(0, "b");
    world.flow(|m| m.is(Kind::Prepare) || m.is(Kind::Promise));
    world.deliver_all(old);
    world.finish()
}

#[test]
fn ballots_of_two_starts_differ() -> Result<(), String> {
    restart_with_the_same_number()
}

/// S8 and S9: two reports differ, the third decides.
#[test]
fn third_report_decides_without_a_proposal() -> Result<(), String> {
    for (third_has_new, value) in [(false, "a"), (true, "ab")] {
        let mut world = volatile();
        world.write(0, Ask::Append("a"));
        world.append(0, "b");
        world.flow(|m| m.goes(Kind::Accept, 0, 0));
        if third_has_new {
            world.flow(|m| m.goes(Kind::Accept, 0, 2));
        }
        world.lose_all();
        let tag = world.start(1, Ask::Get);
        world.flow(|m| m.is(Kind::Read) && m.receiver() < 2);
        world.flow(|m| m.is(Kind::State));
        claim(world.is_open(tag), "two different reports do not decide")?;
        world.flow(|m| m.is(Kind::Read) || m.is(Kind::State));
        claim(world.reply(tag) == Some(Reply::bulk(value)), "two of three hold it")?;
        claim(!world.bag.iter().any(|m| m.is(Kind::Prepare)), "no owner was disturbed")?;
        world.finish()?;
    }
    Ok(())
}

/// S10: the second proposal of a ballot overtakes the first; both and the prepare are repeated.
#[test]
fn proposals_of_a_ballot_may_overtake_and_repeat() -> Result<(), String> {
    let mut world = volatile();
    let first = world.append(0, "a");
    let prepares: Vec<_> = world.bag.iter().filter(|m| m.receiver() == 1).cloned().collect();
    world.prepared(&[0, 1, 2]);
    let second = world.append(0, "b");
    let mut accepts = world.take(|m| m.goes(Kind::Accept, 0, 1));
    claim(accepts.len() == 2, "two proposals are under way")?;
    world.lose_all();
    accepts.reverse();
    world.deliver_all(accepts.clone());
    accepts.reverse();
    world.deliver_all(accepts);
    world.deliver_all(prepares);
    claim(world.held(1).is_some_and(|r| r.accepted.k() == 2), "the later one stays")?;
    world.finish_with("vab")?;
    claim(world.reply(first) == Some(Reply::Integer(1)), "the first succeeded")?;
    claim(world.reply(second) == Some(Reply::Integer(2)), "the second succeeded")
}

/// S11: acceptors hold different proposals of a dead owner's pipeline.
#[test]
fn acknowledged_proposal_survives_a_broken_pipeline() -> Result<(), String> {
    for (asker, pair) in [(1, [0, 1]), (2, [0, 2]), (2, [1, 2])] {
        let mut world = durable();
        let first = world.append(0, "a");
        world.prepared(&[0, 1, 2]);
        world.append(0, "b");
        let is_k = |m: &super::world::Envelope, wanted: u32| matches!(&m.message, crate::rmwpaxos::Message::Accept { round, .. } if round.k() == wanted);
        world.flow(|m| {
            (is_k(m, 1) && m.receiver() == 0)
                || (is_k(m, 2) && m.receiver() == 1)
                || m.is(Kind::Accepted)
        });
        claim(world.reply(first) == Some(Reply::Integer(1)), "(b,2) acknowledges (b,1)")?;
        world.lose_all();
        world.crash(0, 9);
        world.calm();
        let absent = 3 - pair[0] - pair[1];
        world.sees(asker, absent, false);
        world.append(asker, "c");
        world.flow(|m| m.among(&pair));
        world.sees(asker, absent, true);
        world.finish()?;
    }
    Ok(())
}

/// S12: two proposers with the same number.
#[test]
fn proposers_with_equal_numbers_share_no_round() -> Result<(), String> {
    let mut world = volatile();
    world.append(0, "a");
    world.flow(|m| m.among(&[0, 1]) && !m.is(Kind::Accept));
    world.append(2, "c");
    world.flow(|m| m.goes(Kind::Accept, 0, 0));
    world.start(1, Ask::Get);
    world.flow(|m| m.among(&[1, 2]) && (m.is(Kind::Read) || m.is(Kind::State)));
    world.flow(|m| m.among(&[1, 2]));
    world.finish()
}

/// S13: after losing, a proposer meets its own value on a consistent quorum.
#[test]
fn retry_that_meets_its_value_is_done() -> Result<(), String> {
    let mut world = volatile();
    let tag = world.append(0, "a");
    world.flow(|m| !m.is(Kind::Accepted));
    world.lose_all();
    world.calm();
    world.append(2, "b");
    world.flow(|m| m.is(Kind::Prepare));
    world.lose_all();
    world.finish()?;
    claim(world.reply(tag) == Some(Reply::Integer(1)), "applied once, and told so")
}

/// S14: Q's prepare and P's accept race at each acceptor, and one acknowledgement is lost.
#[test]
fn prepare_and_accept_races_keep_one_history() -> Result<(), String> {
    for order in 0..8_usize {
        for lost in 0..4_usize {
            let mut world = volatile();
            world.append(0, "a");
            world.prepared(&[0, 1, 2]);
            world.calm();
            world.append(2, "b");
            for acceptor in 0..3 {
                let accept = world.take(|m| m.goes(Kind::Accept, 0, acceptor));
                let prepare = world.take(|m| m.goes(Kind::Prepare, 2, acceptor));
                let (first, second) =
                    if order >> acceptor & 1 == 0 { (accept, prepare) } else { (prepare, accept) };
                world.deliver_all(first);
                world.deliver_all(second);
            }
            world.lose(|m| m.is(Kind::Accepted) && m.sender() == lost);
            world.finish().map_err(|fault| format!("order {order}, lost {lost}: {fault}"))?;
        }
    }
    Ok(())
}

/// S15: an operation whose attempt is excluded is given up; then its old accepts arrive everywhere.
#[test]
fn finally_refused_command_never_appears() -> Result<(), String> {
    let mut world = volatile();
    let tag = world.append(0, "a");
    world.prepared(&[0, 1, 2]);
    let old = world.take(|m| m.is(Kind::Accept));
    world.calm();
    world.append(2, "b");
    world.flow(|m| !m.is(Kind::Accepted) || m.receiver() == 2);
    world.deliver_all(old.clone());
    world.flow(|m| !m.is(Kind::Prepare) && !m.is(Kind::Read));
    world.pass_at(0, Nanos::from_millis(2));
    claim(world.bag.iter().any(|m| m.is(Kind::Read)), "it asks for the fate of its attempt")?;
    world.sees(0, 2, false);
    world.flow(|m| m.is(Kind::Read) || m.is(Kind::State));
    world.flow(|m| m.is(Kind::Read) || m.is(Kind::State));
    for _ in 0..1_100 {
        world.lose_all();
        world.pass(Nanos::from_millis(20));
    }
    claim(world.value_of(tag) == Some(&Outcome::NoQuorum), "it surely has no effect")?;
    world.sees(0, 2, true);
    world.deliver_all(old);
    world.finish_with("vb")
}

/// S16: a consistent quorum below an attempt's round does not show it.
pub(super) fn a_quorum_below_an_attempt() -> Result<(), String> {
    let mut world = volatile();
    world.append(1, "z");
    world.flow(|_| true);
    world.sees(0, 1, false);
    world.append(0, "a");
    world.prepared(&[0, 1, 2]);
    let refused = world.take(|m| m.is(Kind::Accept) && m.receiver() < 2);
    world.flow(|m| m.goes(Kind::Accept, 0, 2));
    world.lose_all();
    world.sees(0, 1, true);
    world.append(1, "q");
    world.flow(|m| m.is(Kind::Prepare) && m.receiver() < 2);
    world.lose_all();
    world.deliver_all(refused);
    world.flow(|m| m.is(Kind::Other));
    world.pass_at(0, Nanos::from_millis(2));
    world.flow(|m| m.among(&[0, 1]) && (m.is(Kind::Read) || m.is(Kind::State)));
    world.lose(|m| !m.is(Kind::Forward));
    // Another proposer adopts the attempt after all.
    world.calm();
    world.append(2, "c");
    world.flow(|m| m.among(&[0, 2]));
    world.finish()
}

#[test]
fn quorum_below_an_attempt_excludes_no_attempt() -> Result<(), String> {
    a_quorum_below_an_attempt()
}

/// S17: a condition that fails on the highest of reports that differ.
#[test]
fn failed_condition_waits_for_a_decided_state() -> Result<(), String> {
    let mut world = volatile();
    world.write(0, Ask::Append("z"));
    world.append(1, "x");
    world.prepared(&[0, 1, 2]);
    world.flow(|m| m.goes(Kind::Accept, 1, 1));
    world.lose_all();
    world.calm();
    world.sees(2, 0, false);
    let tag = world.start(2, Ask::SetIfEqual(b"z".to_vec(), b'y'));
    world.flow(|m| m.among(&[1, 2]) && !m.is(Kind::Accept));
    claim(world.is_open(tag), "an undecided value is no answer")?;
    world.lose_all();
    world.sees(2, 0, true);
    world.append(0, "w");
    world.flow(|m| m.among(&[0, 2]));
    world.finish()
}

/// S18: an owner that was cut off and overtaken sends no answer by itself.
#[test]
fn owner_that_is_cut_off_is_silent() -> Result<(), String> {
    let mut world = volatile();
    world.write(0, Ask::Append("a"));
    world.append(1, "b");
    world.flow(|m| m.among(&[1, 2]));
    world.lose_all();
    let read = world.start(0, Ask::Get);
    let condition = world.start(0, Ask::SetIfAbsent(b'c'));
    world.flow(|m| m.among(&[0]));
    for _ in 0..1_200 {
        claim(world.reply(read).is_none() && world.reply(condition).is_none(), "it cannot know")?;
        world.pass(Nanos::from_millis(20));
        world.flow(|m| m.among(&[0]));
        world.lose_all();
    }
    claim(world.value_of(read) == Some(&Outcome::NoQuorum), "there is no quorum")?;
    world.finish_with("vab")
}

/// S19: a power loss takes back an accept that was not flushed.
#[test]
fn no_read_shows_an_unflushed_accept() -> Result<(), String> {
    let mut world = durable();
    world.append(0, "a");
    world.prepared(&[0, 1, 2]);
    for message in world.take(|m| m.is(Kind::Accept) && m.receiver() < 2) {
        world.deliver(message);
    }
    world.lose_all();
    let read = world.start(2, Ask::Get);
    for message in world.take(|m| m.is(Kind::Read) && m.receiver() < 2) {
        world.deliver(message);
    }
    for message in world.take(|m| m.is(Kind::State)) {
        world.deliver(message);
    }
    claim(world.is_open(read), "no report of an unflushed state")?;
    world.crash(0, 0);
    world.crash(1, 0);
    world.finish_with("-")
}

/// S20: a promise is answered, power is lost, an older accept arrives.
pub(super) fn power_loss_after_a_promise() -> Result<(), String> {
    let mut world = durable();
    world.append(0, "a");
    world.prepared(&[0, 1]);
    let older = world.take(|m| m.is(Kind::Accept) && m.receiver() < 2);
    world.lose_all();
    world.append(2, "b");
    world.prepared(&[1, 2]);
    let newer = world.take(|m| m.is(Kind::Accept) && m.receiver() > 0);
    world.lose_all();
    world.crash(1, 0);
    world.lose_all();
    world.deliver_all(older);
    world.flow(|m| m.is(Kind::Accepted));
    world.deliver_all(newer);
    world.flow(|m| m.is(Kind::Accepted));
    world.finish()
}

#[test]
fn a_promise_outlives_a_power_loss() -> Result<(), String> {
    power_loss_after_a_promise()
}

/// B10: a condition fails on this node's state and holds on a quorum's. A read of its session
/// follows it.
#[test]
fn read_does_not_overtake_its_sessions_condition() -> Result<(), String> {
    let mut world = volatile();
    world.write(0, Ask::SetIfAbsent(b'x'));
    world.start(1, Ask::Delete);
    world.flow(|m| m.receiver() != 0);
    world.lose_all();
    world.calm();
    let key = world.key.clone();
    let set = world.start(0, Ask::SetIfAbsent(b'y'));
    let read = world.ask_behind(0, &key, Ask::Get, Some(set));
    world.finish()?;
    let value = world.start(0, Ask::Get);
    world.finish()?;
    claim(world.reply(value).is_some_and(|value| value != Reply::Null), "it is set")?;
    claim(world.reply(read) == world.reply(value), "its session reads its own write")
}

/// B10: the same for two conditions of a session, the second of which holds after the first only.
#[test]
fn condition_does_not_overtake_its_sessions_condition() -> Result<(), String> {
    let mut world = volatile();
    world.write(0, Ask::SetIfAbsent(b'x'));
    world.start(1, Ask::Delete);
    world.flow(|m| m.receiver() != 0);
    world.lose_all();
    world.calm();
    let key = world.key.clone();
    let set = world.start(0, Ask::SetIfAbsent(b'y'));
    let swap = world.ask_behind(0, &key, Ask::SetIfEqual(b"y".to_vec(), b'z'), Some(set));
    world.finish()?;
    let told = (world.reply(set), world.reply(swap));
    claim(told.0.is_some() && told.0 == told.1, &format!("both take effect: {told:?}"))
}

/// B10: a read that is asked behind a slow one of its session does not answer from an older state.
#[test]
fn read_does_not_overtake_its_sessions_slow_read() -> Result<(), String> {
    let mut world = volatile();
    world.write(1, Ask::AppendByte(b'x'));
    let key = world.key.clone();
    let first = world.start(0, Ask::Get);
    world.start(0, Ask::AppendByte(b'y'));
    let second = world.ask_behind(0, &key, Ask::Get, Some(first));
    world.flow(|m| !m.is(Kind::State));
    world.start(1, Ask::AppendByte(b'z'));
    world.flow(|m| !m.is(Kind::State));
    world.lose_all();
    world.finish()?;
    let told = (world.reply(first), world.reply(second));
    claim(
        told == (Some(Reply::bulk("xy")), Some(Reply::bulk("xy"))),
        &format!("in order: {told:?}"),
    )
}
