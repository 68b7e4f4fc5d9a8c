//! Schedules made for single mutants. Each holds without them.

use std::sync::Arc;

use base::{Millis, Nanos};
use bytes::Bytes;
use types::{Incarnation, Outcome, Role, Tag};

use super::asks::Ask;
use super::letter::Letter;
use super::steps::{A, B, C, D, E, group};
use super::{World, node_id};
use crate::caspaxos::CasPaxos;
use crate::classic_paxos::{ClassicPaxos, Register};
use crate::configured::Configured;
use crate::craq::Craq;
use crate::hermes::Hermes;
use crate::protocol::Protocol;
use crate::register_cache::CachedRegister;
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{OpId, Registry, State};

/// A node that was left out hears of no change, and its lease has ended.
pub(super) fn a_read_at_a_node_left_out<P: Protocol>() -> Result<(), String> {
    let mut world = group::<P>(2, &[A, B], true);
    world.change(&[A]);
    world.lend(A);
    let write = world.ask(A, 0, Ask::Set(1));
    world.done(write);
    world.judge(&[B])
}

/// A process that lost its memory gives copies under the name of the full member before it.
pub(super) fn a_copy_from_an_empty_process<P: Protocol>() -> Result<(), String> {
    let mut world = group::<P>(3, &[A, B], false);
    let write = world.ask(A, 0, Ask::Set(1));
    world.done(write);
    world.change(&[A, B, C]);
    // The shadow's first question is lost, and it has no link to the other donor.
    world.bag.clear();
    world.kill(B, 0, 0);
    world.start(B);
    world.install(B);
    world.nodes[C].peers.set_up(node_id(A), false);
    for _ in 0..8 {
        world.wait(C, 1_000);
        world.drain();
    }
    world.nodes[C].peers.set_up(node_id(A), true);
    for _ in 0..8 {
        world.wait(C, 10_000);
        world.drain();
    }
    world.change(&[A, C]);
    world.lend_all();
    world.judge(&[C])
}

/// A process outside the configuration speaks under the name of a member.
pub(super) fn an_answer_of_another_process<P: Protocol>() -> Result<(), String> {
    let mut world = group::<P>(2, &[A, B], true);
    let write = world.ask(A, 0, Ask::Set(1));
    while world.flush(A) {}
    for letter in world.take(A, B, "") {
        world.deliver(letter);
    }
    while world.flush(B) {}
    let answers = world.take(B, A, "");
    assert!(!answers.is_empty(), "the member answers");
    for letter in answers {
        let from = crate::protocol::Peer { incarnation: Incarnation(9), ..letter.from };
        world.deliver(Letter { from, ..letter });
    }
    match world.is_open(write) {
        true => Ok(()),
        false => Err("a write rests on the answer of a process that is no member".to_owned()),
    }
}

type Group = Configured<Hermes>;
type GroupLetter = Letter<<Group as Protocol>::Message>;

/// Writes of one coordinator on both keys: one on the second key that ended, with a late copy, and
/// one on the first.
fn two_writes_of_one_stream(durable: bool) -> (World<Group>, Vec<GroupLetter>, Tag) {
    let mut world = group::<Group>(2, &[A, B], durable);
    let ended = world.ask(A, 1, Ask::Set(1));
    world.flush(A);
    let at = world.bag.iter().position(|letter| letter.to == B).expect("it is sent");
    world.deliver_copy(at);
    let late = world.take(A, B, "Invalidate");
    world.done(ended);
    world.bag.clear();
    let write = world.ask(A, 0, Ask::Set(2));
    world.flush(A);
    (world, late, write)
}

/// A member gets writes 1 and 3 of a coordinator in one turn, and never write 2.
pub(super) fn hermes_range_with_a_gap() -> Result<(), String> {
    let (mut world, mut letters, write) = two_writes_of_one_stream(false);
    world.take(A, B, "Invalidate");
    let third = world.ask(A, 1, Ask::Set(3));
    letters.extend(world.take(A, B, "Invalidate"));
    world.deliver_together(letters);
    world.carry(B, A, "Ack");
    if world.is_open(third) {
        return Err("it was acknowledged".to_owned());
    }
    if world.is_open(write) { Ok(()) } else { world.judge(&[B]) }
}

/// A member gets a copy of a write that is durable there and a new write in one turn. Then its
/// power fails.
pub(super) fn hermes_range_before_its_flush() -> Result<(), String> {
    let (mut world, mut letters, write) = two_writes_of_one_stream(true);
    letters.extend(world.take(A, B, "Invalidate"));
    world.deliver_together(letters);
    world.carry(B, A, "Ack");
    world.bag.clear();
    world.kill(B, 0, 0);
    world.start(B);
    world.change(&[B]);
    world.lend(B);
    if world.is_open(write) { world.verdict() } else { world.judge(&[B]) }
}

/// A copy of a steered command of the epoch before arrives after its end.
pub(super) fn craq_steered_copy_of_the_epoch_before() -> Result<(), String> {
    let mut world = group::<Configured<Craq>>(2, &[A, B], true);
    let first = world.ask(B, 0, Ask::Append(1));
    let at = world.bag.iter().position(|letter| letter.to == A).expect("it is steered");
    world.deliver_copy(at);
    let late = world.take(B, A, "Steer");
    world.done(first);
    let second = world.ask(B, 0, Ask::Append(2));
    world.done(second);
    world.change(&[A, B]);
    world.lend_all();
    late.into_iter().for_each(|letter| world.deliver(letter));
    world.drain();
    world.judge(&[A, B])
}

/// Two failures: the read-modify-write of a dead member survives at the only one that heard of it,
/// though a higher write reached its coordinator. [HERMES, trap 1]
pub(super) fn hermes_rmw_superseded_at_its_coordinator() -> Result<(), String> {
    let mut world = group::<Configured<Hermes>>(3, &[A, B, C], true);
    world.ask(A, 0, Ask::Append(1));
    world.carry(A, C, "Invalidate");
    world.bag.clear();
    world.ask(B, 0, Ask::Set(2));
    world.carry(B, A, "Invalidate");
    world.bag.clear();
    world.change(&[C]);
    world.lend(C);
    world.judge(&[C])
}

/// A replica replays the read-modify-write of a member that lives and does not hear of it.
pub(super) fn hermes_replay_beside_its_coordinator() -> Result<(), String> {
    let mut world = group::<Configured<Hermes>>(3, &[A, B, C], false);
    let append = world.ask(A, 0, Ask::Append(1));
    world.carry(A, B, "Invalidate");
    world.bag.clear();
    let read = world.ask(B, 0, Ask::Get);
    world.wait(B, 9);
    // A replay, if there is one.
    for (from, to) in [(B, A), (B, C), (A, B), (C, B), (B, C)] {
        for letter in world.take(from, to, "") {
            world.deliver(letter);
        }
    }
    world.take(B, A, "");
    if !world.is_open(read) {
        let write = world.ask(C, 0, Ask::Set(2));
        for letter in world.take(C, A, "Invalidate") {
            world.deliver(letter);
        }
        world.settle(&[write]);
    }
    world.settle(&[append, read]);
    world.judge(&[A])
}

/// The power fails at a member that acknowledged a write, and at its coordinator.
pub(super) fn hermes_acknowledgement_before_its_flush() -> Result<(), String> {
    let mut world = group::<Configured<Hermes>>(2, &[A, B], true);
    let write = world.ask(A, 0, Ask::Set(1));
    world.flush(A);
    world.carry(A, B, "Invalidate");
    for letter in world.take(B, A, "Ack") {
        world.deliver(letter);
    }
    world.bag.clear();
    world.kill(B, 0, 0);
    world.start(B);
    world.change(&[B]);
    world.lend(B);
    match world.is_open(write) {
        true => world.verdict(),
        false => world.judge(&[B]),
    }
}

/// The middle of a chain loses a version that it handed on.
pub(super) fn craq_version_handed_on_before_its_flush() -> Result<(), String> {
    let mut world = group::<Configured<Craq>>(2, &[A, B], true);
    let write = world.ask(A, 0, Ask::Set(1));
    for letter in world.take(A, B, "Down") {
        world.deliver(letter);
    }
    world.flush(B);
    for letter in world.take(B, A, "Up") {
        world.deliver(letter);
    }
    world.bag.clear();
    world.kill(A, 0, 0);
    world.start(A);
    world.change(&[A]);
    world.lend(A);
    match world.is_open(write) {
        true => world.verdict(),
        false => world.judge(&[A]),
    }
}

/// A shadow becomes full without a write that was committed while it copied.
pub(super) fn craq_write_beside_a_copy() -> Result<(), String> {
    let mut world = group::<Configured<Craq>>(2, &[A], false);
    world.change(&[A, B]);
    world.lend(A);
    world.drain();
    let write = world.ask(A, 0, Ask::Set(1));
    let lost = world.take(A, B, "Down");
    drop(lost);
    if world.is_open(write) {
        return world.verdict();
    }
    world.change(&[B]);
    world.lend(B);
    world.judge(&[B])
}

/// A copy of a version arrives after the key was deleted and its registers were removed.
pub(super) fn craq_late_version_of_a_deleted_key() -> Result<(), String> {
    let mut world = group::<Configured<Craq>>(3, &[A, B, C], false);
    let write = world.ask(A, 0, Ask::Set(1));
    let at = world.bag.iter().position(|letter| letter.to == B).expect("it goes down");
    world.deliver_copy(at);
    let late = world.take(A, B, "Down");
    world.done(write);
    let delete = world.ask(A, 0, Ask::Delete);
    world.done(delete);
    for _ in 0..2 {
        [A, B, C].into_iter().for_each(|node| world.wait(node, 150));
        world.drain();
    }
    let key = world.keys[0].clone();
    assert!(matches!(world.nodes[B].cache.get(&key), CachedRegister::Absent));
    late.into_iter().for_each(|letter| world.deliver(letter));
    world.drain();
    world.judge(&[B, C])
}

/// A register is removed while a lower version of another key of the shard is on its way.
pub(super) fn craq_floor_above_a_version_on_its_way() -> Result<(), String> {
    let mut world = group::<Configured<Craq>>(3, &[A, B, C], false);
    for ask in [Ask::Set(1), Ask::Delete] {
        let tag = world.ask(A, 0, ask);
        world.done(tag);
    }
    let write = world.ask(A, 1, Ask::Set(2));
    let slow = world.take(A, B, "Down");
    world.wait(B, 150);
    world.carry(B, A, "Spent");
    for letter in world.take(A, B, "Bury") {
        world.deliver(letter);
    }
    slow.into_iter().for_each(|letter| world.deliver(letter));
    world.settle(&[write]);
    match world.outcomes.get(&write) {
        Some(Outcome::Reply(_)) => world.judge(&[A]),
        outcome => Err(format!("the write ends with {outcome:?}")),
    }
}

/// A shadow runs a read before it has copied the key.
pub(super) fn a_read_at_a_shadow<P: Protocol>() -> Result<(), String> {
    let mut world = group::<P>(2, &[A], true);
    let write = world.ask(A, 0, Ask::Set(1));
    world.done(write);
    world.change(&[A, B]);
    world.lend_all();
    // The copy is lost.
    world.bag.clear();
    let read = world.ask(B, 0, Ask::Get);
    world.settle(&[read]);
    world.verdict()
}

/// The power fails at a member whose copy was complete, and not durable.
pub(super) fn a_copy_that_is_not_durable<P: Protocol>() -> Result<(), String> {
    let mut world = group::<P>(2, &[A], true);
    let write = world.ask(A, 0, Ask::Set(1));
    world.done(write);
    world.drain();
    world.change(&[A, B]);
    for (from, to) in [(B, A), (A, B)] {
        world.take(from, to, "").into_iter().for_each(|letter| world.deliver(letter));
    }
    world.service.tried.0 += 1;
    world.wedge(A);
    world.wedge(B);
    if world.eligible(B) != Some(Role::Full) {
        return world.verdict();
    }
    let members = world.draft();
    world.activate(members);
    world.install(A);
    world.install(B);
    world.kill(B, 0, 0);
    world.start(B);
    world.change(&[B]);
    world.lend(B);
    world.judge(&[B])
}

/// A shadow becomes full without a write that was validated while it copied.
pub(super) fn hermes_write_beside_a_copy() -> Result<(), String> {
    let mut world = group::<Configured<Hermes>>(2, &[A], false);
    world.change(&[A, B]);
    world.lend(A);
    world.drain();
    let write = world.ask(A, 0, Ask::Set(1));
    world.bag.clear();
    if world.is_open(write) {
        return world.verdict();
    }
    world.change(&[B]);
    world.lend(B);
    world.judge(&[B])
}

/// A command without effect comes after its proposer was promised its slot, and after a write
/// that another node has completed.
pub(super) fn classic_paxos_command_after_the_promise() -> Result<(), String> {
    let mut world = World::<ClassicPaxos>::new(3, false, 7);
    let first = world.ask(A, 0, Ask::SetIfAbsent(1));
    world.done(first);
    world.drain();
    let early = world.ask(A, 0, Ask::SetIfAbsent(2));
    world.carry(A, B, "Propose");
    let promises = world.take(B, A, "Promise");
    world.bag.clear();
    let delete = world.ask(C, 0, Ask::Delete);
    for _ in 0..200 {
        world.bag.retain(|letter| letter.to != A);
        if world.bag.is_empty() && !world.is_open(delete) {
            break;
        }
        match world.bag.is_empty() {
            true => world.pass(Nanos::from_millis(1), [B, C].into_iter()),
            false => {
                let letter = world.bag.remove(0);
                world.deliver(letter);
            }
        }
    }
    assert!(!world.is_open(delete), "two of three nodes delete the key");
    let late = world.ask(A, 0, Ask::SetIfAbsent(3));
    promises.into_iter().for_each(|letter| world.deliver(letter));
    world.settle(&[early, late]);
    world.judge(&[A, B, C])
}

/// A minority voted for a proposal. Its proposer is promised another ballot by others, and a third
/// node completes the first proposal.
fn attempt_that_others_complete<P: Protocol>(
    [prepare, promise, refusal]: [&str; 3],
) -> Result<(), String> {
    let mut world = World::<P>::new(5, false, 7);
    world.are_own_late = true;
    let first = world.ask(A, 0, Ask::Append(1));
    world.carry_own(A);
    for node in [B, D] {
        world.carry(A, node, prepare);
        world.carry(node, A, promise);
    }
    world.carry(A, C, "Accept");
    world.bag.clear();
    // Another proposer gets a promise of its own node only.
    let second = world.ask(B, 0, Ask::Append(2));
    world.wait_for(B, C, prepare);
    world.carry_own(B);
    world.bag.clear();
    world.wait_for(A, B, "Accept {");
    world.carry(A, B, "Accept {");
    world.carry(B, A, refusal);
    world.bag.clear();
    world.wait_for(A, B, prepare);
    for node in [B, D, E] {
        world.carry(A, node, prepare);
        world.carry(node, A, promise);
    }
    world.bag.clear();
    let third = world.ask(E, 0, Ask::Append(3));
    world.wait_for(E, C, prepare);
    world.carry_own(E);
    for node in [C, D] {
        world.carry(E, node, prepare);
        world.carry(node, E, promise);
    }
    world.settle(&[first, second, third]);
    world.judge(&[A, B, C, D, E])
}

pub(super) fn classic_paxos_attempt_that_others_complete() -> Result<(), String> {
    attempt_that_others_complete::<ClassicPaxos>(["Propose", "Promise", "HigherSeen"])
}

pub(super) fn caspaxos_attempt_that_others_complete() -> Result<(), String> {
    attempt_that_others_complete::<CasPaxos>(["Prepare", "State", "Refused"])
}

/// A decision under a higher ballot does not name the vote here. Proposers send it to voters of
/// its ballot only, so no world reaches this rule.
pub(super) fn classic_paxos_decision_of_a_higher_ballot() -> Result<(), String> {
    let ballot = |number| Stamp { number, writer: node_id(A), incarnation: Incarnation(1) };
    let state = State {
        slot: 1,
        op: OpId { node: node_id(A), incarnation: Incarnation(1), seq: 1 },
        done: Registry::default(),
        expiry: None,
        value: Some(Bytes::from_static(b"v")),
    };
    let mut register = Register::default();
    assert_eq!(register.accept(ballot(1), &Arc::new(state), &Millis(0)), Ok(()));
    match register.commit_accepted(1, ballot(2), &Millis(0)) {
        false => Ok(()),
        true => Err("a vote counts as decided under a ballot that it was not for".to_owned()),
    }
}

/// A granted ballot was proposed to one replica. Its client gave up, and another one comes.
pub(super) fn caspaxos_grant_of_an_attempt_given_up() -> Result<(), String> {
    let mut world = World::<CasPaxos>::new(3, false, 7);
    world.are_own_late = true;
    let write = world.ask(A, 0, Ask::Set(1));
    world.done(write);
    world.drain();
    let first = world.ask(A, 0, Ask::Append(2));
    world.carry(A, B, "Accept");
    world.nodes[A].own.clear();
    world.bag.clear();
    for _ in 0..400 {
        world.wait(A, 10);
        world.nodes[A].own.clear();
        world.bag.clear();
    }
    assert!(!world.is_open(first), "its client gave up");
    let second = world.ask(A, 0, Ask::Append(3));
    world.settle(&[second]);
    world.judge(&[A, B, C])
}

/// A proposer runs its command on a vote of one replica, and is refused. Then it is promised a
/// higher ballot by replicas without a vote.
pub(super) fn caspaxos_attempt_on_a_vote_that_is_lost() -> Result<(), String> {
    let mut world = World::<CasPaxos>::new(3, false, 7);
    // Ballots of these nodes have higher numbers from now on.
    for (node, value) in [(A, 1), (B, 2), (B, 3), (B, 4), (B, 5)] {
        let other = world.ask(node, 1, Ask::Set(value));
        world.done(other);
    }
    world.drain();
    world.are_own_late = true;
    world.ask(C, 0, Ask::Set(1));
    world.carry_own(C);
    world.carry(C, B, "Prepare");
    world.carry(B, C, "State");
    world.carry_own(C);
    world.bag.clear();
    let second = world.ask(A, 0, Ask::Set(2));
    world.carry_own(A);
    world.carry(A, C, "Prepare");
    let vote = world.take(C, A, "State");
    assert!(!vote.is_empty(), "it promised");
    world.bag.clear();
    let third = world.ask(B, 0, Ask::Delete);
    world.carry_own(B);
    world.carry(B, A, "Prepare");
    world.carry(A, B, "State");
    assert!(!world.is_open(third), "a majority knows of no value");
    world.bag.clear();
    vote.into_iter().for_each(|letter| world.deliver(letter));
    world.carry_own(A);
    world.carry(A, B, "Accept {");
    world.carry(B, A, "Refused");
    world.bag.clear();
    world.wait_for(A, B, "Prepare");
    world.carry_own(A);
    world.carry(A, B, "Prepare");
    world.carry(B, A, "State");
    world.carry_own(A);
    world.carry(A, B, "Accept {");
    world.carry(B, A, "Accepted");
    world.bag.clear();
    world.kill(C, 0, 0);
    world.settle(&[second]);
    world.judge(&[A, B])
}

/// A replica promised a ballot and forgot it. It recovers before the proposer of the ballot goes
/// on, and a proposer with a lower one asks it.
pub(super) fn caspaxos_promise_of_a_replica_that_forgot() -> Result<(), String> {
    let mut world = World::<CasPaxos>::new(3, false, 7);
    // Ballots of this node have higher numbers from now on.
    for value in 1..4 {
        let other = world.ask(C, 1, Ask::Set(value));
        world.done(other);
    }
    world.drain();
    world.are_own_late = true;
    let first = world.ask(C, 0, Ask::Append(1));
    world.carry_own(C);
    world.carry(C, B, "Prepare");
    world.carry(B, C, "State");
    let accepts = world.take(C, B, "Accept {");
    assert!(!accepts.is_empty(), "two of three promised");
    world.bag.clear();
    world.kill(B, 0, 0);
    world.start(B);
    for node in [A, C] {
        world.carry(B, node, "List");
        world.carry(node, B, "Page");
    }
    world.carry_own(B);
    let second = world.ask(A, 0, Ask::Append(2));
    world.carry_own(A);
    world.carry(A, B, "Prepare");
    for answer in world.take(B, A, "") {
        world.deliver(answer);
    }
    world.carry_own(A);
    for accept in world.take(A, B, "Accept {") {
        world.deliver(accept);
    }
    for answer in world.take(B, A, "Accepted") {
        world.deliver(answer);
    }
    world.bag.clear();
    accepts.into_iter().for_each(|letter| world.deliver(letter));
    world.settle(&[first, second]);
    world.judge(&[A, B, C])
}
