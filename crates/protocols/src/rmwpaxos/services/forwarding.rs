//! Forwarding to the owner of a contended key [spec 9.6, corrections F6 to F8]: instead of duelling with it.
//!
//! A forward names the incarnation that may run it and is never run locally afterwards. The owner remembers what
//! became of each until its origin says that no copy can follow. One forward of a key is under way at a time, so
//! the commands of a session keep their order.
//!
//! Nothing tells an owner how long a forward was on its way: the network or a stopped machine may have held it up. So
//! what is safe to repeat for a while is never forwarded.

use std::collections::BTreeMap;

use base::Nanos;
use types::{Incarnation, Key, NodeId, Outcome, SessionId, Shard};

use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::rmwpaxos::Cx;
use crate::rmwpaxos::RmwPaxos;
use crate::rmwpaxos::core::operation::{
    Active, ForwardKey, Operation, OutstandingForward, Phase, Source,
};
use crate::rmwpaxos::core::reader;
use crate::rmwpaxos::core::replies;
use crate::rmwpaxos::message::{FORWARD_COMMANDS_MAX, Forward, Message, Verdict};

/// A key is contended while another node's proposal for it was accepted within two round trips, or within the first of
/// these and never beyond the second. Short: who forwards depends on the owner, and a paused one is silent.
const CONTENDED_FOR_MIN: Nanos = Nanos::from_millis(3);
const CONTENDED_FOR_MAX: Nanos = Nanos::from_millis(40);
/// Proposals of others in a row, each that recent after the last, that make a key contended.
const CONTENDED_RUN: u8 = 3;
/// A forward whose owner's connection ended is given up after this.
const RECONNECT_WITHIN: Nanos = Nanos::from_millis(25);
/// An owner that is silent on a connection that stands is given up after this, or eight round trips. Long: an answer
/// that only comes late would have been `Unknown`.
const ANSWER_WITHIN: Nanos = Nanos::from_millis(700);
/// How long a node that failed to answer is not forwarded to.
const AVOID_FOR: Nanos = Nanos::from_secs(1);
/// Bytes of commands, and of what they may answer, that go to an owner together; a frame takes many times as much.
const FORWARD_LEN_MAX: usize = 4 << 20;
/// Bytes of replies that go back together; half of what a frame takes. What its origin knew of the key when it forwarded may
/// be little.
const REPLIES_LEN_MAX: usize = 32 << 20;
/// Of replies of more bytes only that they were given is remembered. Asked again where a connection ended, they are unknown.
const REMEMBERED_LEN_MAX: usize = 16 << 10;
/// Forwards of one origin and shard that an owner remembers.
const REMEMBERED_MAX: usize = 4096;
/// Forwards in a row from one node, with none of its own between, after which an owner offers the key.
const TAKE_OVER_AFTER: u16 = 32;

/// Both ends of forwarding.
#[derive(Default, Debug)]
pub(crate) struct Forwarder {
    next_sequence: u64,
    /// Forwards of ours that are not answered, by shard: what lies below the first will never be sent again.
    outstanding: BTreeMap<(Shard, u64), NodeId>,
    avoided_until: BTreeMap<NodeId, Nanos>,
    memory: BTreeMap<(NodeId, Shard), Origin>,
}

/// What an owner remembers of an origin.
#[derive(Default, Debug)]
struct Origin {
    incarnation: Incarnation,
    /// Everything below is finished and acknowledged.
    low: u64,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
enum Entry {
    Running {
        key: Key,
        outcomes: Vec<Option<Outcome>>,
        left: usize,
        replies_len: usize,
        take_over: bool,
    },
    Done {
        outcomes: Vec<Outcome>,
        take_over: bool,
    },
}

impl Forwarder {
    pub(crate) fn starting_at(next_sequence: u64) -> Forwarder {
        Forwarder { next_sequence, ..Forwarder::default() }
    }

    /// Bytes of replies to others that this node remembers.
    #[cfg(test)]
    pub(crate) fn remembered_len(&self) -> usize {
        let entries = self.memory.values().flat_map(|origin| origin.entries.values());
        let len_of = |entry: &Entry| match entry {
            Entry::Running { outcomes, .. } => outcomes.iter().flatten().map(reply_len).sum(),
            Entry::Done { outcomes, .. } => outcomes.iter().map(reply_len).sum::<usize>(),
        };
        entries.map(len_of).sum()
    }
}

impl RmwPaxos {
    /// Forwards the queue if another node is busy with this key; resolves open attempts first.
    pub(crate) fn try_forward(&mut self, cx: &mut Cx<'_>, active: &mut Active) -> bool {
        let Some((owner, incarnation)) = self.busy_owner(cx, active) else { return false };
        if reader::is_resolving(active) || self.try_resolve(cx, active) {
            return true;
        }
        let forwardable = |operation: &Operation| {
            matches!(operation.source, Source::Client(_))
                && operation.attempts.is_empty()
                && operation.once().is_none()
        };
        if !active.queue.iter().all(forwardable) {
            return false;
        }
        base::sometimes!("commands are forwarded to the owner");
        self.counters.forwards += 1;
        self.forwarder.next_sequence += 1;
        let sequence = self.forwarder.next_sequence;
        self.forwarder.outstanding.insert((active.key.shard(), sequence), owner);
        let count = together(cx, active);
        active.forward = Some(OutstandingForward {
            to: owner,
            incarnation,
            sequence,
            operations: active.queue.drain(..count).collect(),
            sent: cx.now,
            resend_at: cx.now + self.round_trip.resend_after(0),
            resends: 0,
        });
        active.phase = Phase::Forwarding;
        self.send_forward(cx, active);
        true
    }

    /// The node whose proposals for this key keep being accepted here, if it is worth asking.
    fn busy_owner(&self, cx: &Cx<'_>, active: &Active) -> Option<(NodeId, Incarnation)> {
        let (promised, is_busy) = match cx.replicas.set.has_me() {
            true => {
                let register = replies::held(cx, &active.key)?;
                let is_recent = self.is_recent(cx, register.foreign_at);
                // One write of another node now and then is no contention; losing to it, or several
                // in a row, is.
                let is_run = active.losses > 0 || register.foreign_run >= CONTENDED_RUN;
                (register.promised, is_recent && is_run)
            }
            // Without an acceptor a node learns of others by losing to them.
            false => {
                let (promised, at) = active.lost_to?;
                (promised, self.is_recent(cx, at))
            }
        };
        let (owner, incarnation) = (promised.node(), promised.incarnation());
        let member = cx.replicas.peers.get(owner)?;
        let is_avoided =
            self.forwarder.avoided_until.get(&owner).is_some_and(|until| cx.now < *until);
        let is_there = owner != self.env.me && member.up && member.incarnation == incarnation;
        (is_busy && is_there && !is_avoided).then_some((owner, incarnation))
    }

    fn is_recent(&self, cx: &Cx<'_>, at: Nanos) -> bool {
        at > Nanos::ZERO && cx.now.since(at) < self.contended_for()
    }

    pub(crate) fn contended_for(&self) -> Nanos {
        self.round_trip.times(2).clamp(CONTENDED_FOR_MIN, CONTENDED_FOR_MAX)
    }

    pub(crate) fn send_forward(&mut self, cx: &mut Cx<'_>, active: &Active) {
        let Some(outstanding) = &active.forward else { return };
        let shard = active.key.shard();
        let acked_below = self
            .forwarder
            .outstanding
            .range((shard, 0)..=(shard, u64::MAX))
            .next()
            .map_or(outstanding.sequence, |((_, sequence), _)| *sequence);
        let commands = outstanding
            .operations
            .iter()
            .map(|operation| (operation.session, operation.command.clone()))
            .collect();
        let forward = Forward {
            target: outstanding.incarnation,
            sequence: outstanding.sequence,
            acked_below,
            commands,
        };
        cx.fx.send_now(outstanding.to, Message::Forward { key: active.key.clone(), forward });
    }

    /// The owner's side: runs each forward once.
    pub(crate) fn on_forward(&mut self, cx: &mut Cx<'_>, from: Peer, key: Key, forward: Forward) {
        let sequence = forward.sequence;
        if forward.target != self.env.incarnation && !mutation::is(Mutation::ForwardAnyIncarnation)
        {
            let verdict = Verdict::WrongIncarnation;
            return cx.fx.send_now(from.node, Message::Forwarded { key, sequence, verdict });
        }
        self.recover_if_lost(cx, &key);
        let take_over = offers_take_over(cx, &key, from.node);
        let origin = self.forwarder.memory.entry((from.node, key.shard())).or_default();
        if from.incarnation < origin.incarnation {
            return;
        }
        if from.incarnation > origin.incarnation {
            *origin = Origin { incarnation: from.incarnation, ..Origin::default() };
        }
        origin.forget_below(forward.acked_below);
        if mutation::is(Mutation::ForgetForwarded) {
            origin.entries.retain(|_, entry| matches!(entry, Entry::Running { .. }));
        } else if sequence < origin.low {
            return;
        }
        match origin.entries.get(&sequence) {
            Some(Entry::Running { .. }) => return,
            Some(Entry::Done { outcomes, take_over }) => {
                let verdict = Verdict::Done { outcomes: outcomes.clone(), take_over: *take_over };
                return cx.fx.send_now(from.node, Message::Forwarded { key, sequence, verdict });
            }
            None if origin.entries.len() >= REMEMBERED_MAX || forward.commands.is_empty() => return,
            None => {}
        }
        let left = forward.commands.len();
        let outcomes = vec![None; left];
        let entry = Entry::Running { key: key.clone(), outcomes, left, replies_len: 0, take_over };
        origin.entries.insert(sequence, entry);
        let deadline = cx.now + self.env.request_timeout;
        for (index, (session, command)) in forward.commands.into_iter().enumerate() {
            let forward = ForwardKey {
                origin: from.node,
                incarnation: from.incarnation,
                shard: key.shard(),
                sequence,
            };
            let source = Source::Forwarded { forward, index };
            // Sessions are numbered by each node on its own.
            let session = SessionId(session.0 ^ u64::from(from.node.0) << 48);
            let operation = Operation::new(source, session, command, deadline, self.step);
            self.enqueue(cx, key.clone(), operation);
        }
    }

    /// A forwarded command ended here: with the last one of its forward the origin is told.
    pub(crate) fn on_forwarded_done(
        &mut self,
        cx: &mut Cx<'_>,
        forward: ForwardKey,
        index: usize,
        outcome: Outcome,
    ) {
        let from = (forward.origin, forward.shard);
        let Some(origin) = self.forwarder.memory.get_mut(&from) else { return };
        if origin.incarnation != forward.incarnation {
            return;
        }
        let Some(entry) = origin.entries.get_mut(&forward.sequence) else { return };
        let Entry::Running { key, outcomes, left, replies_len, take_over } = entry else { return };
        let outcome = match outcome {
            Outcome::Reply(reply) if *replies_len + reply.len() > REPLIES_LEN_MAX => {
                Outcome::Unknown
            }
            outcome => outcome,
        };
        *replies_len += reply_len(&outcome);
        if outcomes[index].replace(outcome).is_none() {
            *left -= 1;
        }
        if *left > 0 {
            return;
        }
        let (key, take_over) = (key.clone(), *take_over);
        let outcomes: Vec<Outcome> = outcomes.drain(..).flatten().collect();
        let remembered = match *replies_len > REMEMBERED_LEN_MAX {
            true => vec![Outcome::Unknown; outcomes.len()],
            false => outcomes.clone(),
        };
        *entry = Entry::Done { outcomes: remembered, take_over };
        let verdict = Verdict::Done { outcomes, take_over };
        let message = Message::Forwarded { key, sequence: forward.sequence, verdict };
        cx.fx.send_now(forward.origin, message);
    }

    /// The origin's side: the addressed incarnation has answered.
    pub(crate) fn on_forwarded(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        key: &Key,
        sequence: u64,
        verdict: Verdict,
    ) {
        let asked = |active: &Active| {
            active
                .forward
                .as_ref()
                .is_some_and(|forward| forward.sequence == sequence && forward.to == from.node)
        };
        if !self.actives.get(key).is_some_and(asked) {
            return;
        }
        let mut active = self.take_active(cx, key);
        match verdict {
            Verdict::Done { outcomes, take_over } => {
                let Some(forward) = self.end_forward(&mut active) else { return };
                let mut outcomes = outcomes.into_iter();
                for operation in forward.operations {
                    let outcome = match outcomes.next().unwrap_or(Outcome::Unknown) {
                        // A read has no effect.
                        Outcome::Unknown if operation.is_read() => Outcome::NoQuorum,
                        outcome => outcome,
                    };
                    self.answer(cx, &operation, outcome);
                }
                if let (true, Some(register)) = (take_over, cx.cells.get_mut(key)) {
                    register.foreign_at = Nanos::ZERO;
                }
            }
            Verdict::WrongIncarnation => self.give_up_forward(cx, &mut active),
        }
        self.put_active(active);
    }

    fn end_forward(&mut self, active: &mut Active) -> Option<OutstandingForward> {
        let forward = active.forward.take()?;
        self.forwarder.outstanding.remove(&(active.key.shard(), forward.sequence));
        active.phase = Phase::Idle;
        Some(forward)
    }

    /// The owner does not answer: what could have run there has an unknown fate; reads go another way.
    pub(crate) fn give_up_forward(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let Some(forward) = self.end_forward(active) else { return };
        self.forwarder.avoided_until.insert(forward.to, cx.now + AVOID_FOR);
        for operation in forward.operations.into_iter().rev() {
            if operation.is_read() {
                active.queue.push_front(operation);
            } else if mutation::is(Mutation::NoQuorumAfterForward) {
                self.answer(cx, &operation, Outcome::NoQuorum);
            } else {
                self.answer(cx, &operation, Outcome::Unknown);
            }
        }
    }

    /// Resends, or gives up, a forward that is not answered.
    pub(crate) fn resend_forward(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let Some(forward) = &mut active.forward else { return };
        let waited = cx.now.since(forward.sent);
        let is_up = cx
            .replicas
            .peers
            .get(forward.to)
            .is_some_and(|member| member.up && member.incarnation == forward.incarnation);
        let patience =
            if is_up { ANSWER_WITHIN.max(self.round_trip.times(8)) } else { RECONNECT_WITHIN };
        if waited > patience {
            return self.give_up_forward(cx, active);
        }
        if cx.now >= forward.resend_at {
            forward.resends += 1;
            forward.resend_at = cx.now + self.round_trip.resend_after(forward.resends);
            self.send_forward(cx, active);
        }
    }
}

impl Origin {
    fn forget_below(&mut self, acked_below: u64) {
        if acked_below > self.low {
            self.low = acked_below;
            self.entries = self.entries.split_off(&acked_below);
        }
    }
}

fn reply_len(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Reply(reply) => reply.len(),
        _ => 0,
    }
}

/// How many commands of a queue go to the owner together: as many that neither their bodies nor their replies, of which
/// hardly one is longer than the state it sees, exceed what one message should be. At least one.
fn together(cx: &Cx<'_>, active: &Active) -> usize {
    let state = replies::held(cx, &active.key).and_then(|register| register.state.as_ref());
    let mut state_len = state.map_or(0, |state| state.bytes().len());
    let mut len = 0;
    let fits = |operation: &&Operation| {
        let body = operation.command.body.len();
        state_len += body;
        len += body + state_len;
        len <= FORWARD_LEN_MAX
    };
    let fitting = active.queue.iter().take(FORWARD_COMMANDS_MAX).take_while(fits).count();
    fitting.max(1)
}

/// Counts forwards in a row from one node; after enough of them it should own the key itself.
fn offers_take_over(cx: &mut Cx<'_>, key: &Key, from: NodeId) -> bool {
    let Some(register) = cx.cells.get_mut(key) else { return false };
    let (node, count) = register.forwards;
    register.forwards = if node == from { (from, count.saturating_add(1)) } else { (from, 1) };
    register.forwards.1 >= TAKE_OVER_AFTER
}
