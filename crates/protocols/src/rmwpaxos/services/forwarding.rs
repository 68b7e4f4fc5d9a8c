//! Forwarding to the owner of a contended key [spec 9.6, corrections F6 to F8], instead of duelling
//! with it.
//!
//! A forward names the incarnation that may run it, and is never run locally afterwards. The owner
//! remembers each result until its origin says that no copy can follow. One forward of a key is in
//! flight at a time, so the commands of a session keep their order.
//!
//! An owner cannot tell how long a forward was in flight: the network or a stopped machine may have
//! delayed it. So a command that is safe to repeat within a window is never forwarded.

use std::collections::BTreeMap;

use base::Nanos;
use types::{Incarnation, Key, NodeId, Outcome, SessionId, Shard};

use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::rmwpaxos::context::{Cx, held};
use crate::rmwpaxos::core::instance::{Core, first_id};
use crate::rmwpaxos::message::{FORWARD_COMMANDS_MAX, Forward, Message, Verdict};
use crate::rmwpaxos::progress::active::Active;
use crate::rmwpaxos::progress::counters::Figure;
use crate::rmwpaxos::progress::operation::{ForwardKey, Operation, Source};

/// Proposals of others, in quick succession, that make a key contended.
const CONTENDED_RUN: u8 = 3;
/// How long to wait for an owner whose connection ended.
const RECONNECT_WITHIN: Nanos = Nanos::from_millis(25);
/// How long to wait for a silent owner on a standing connection, or eight round trips. Long, since
/// giving up makes a late answer `Unknown`.
const ANSWER_WITHIN: Nanos = Nanos::from_millis(700);
/// How long to forward no command to a node that failed to answer.
const AVOID_FOR: Nanos = Nanos::from_secs(1);
/// Bytes of commands and of their likely replies in one forward. A frame holds many times as much.
const FORWARD_LEN_MAX: usize = 4 << 20;
/// Bytes of replies in one answer: half of a frame. The origin may have estimated less, since it
/// may know little of the key.
const REPLIES_LEN_MAX: usize = 32 << 20;
/// Longer replies are sent but not remembered. A repeated question gets `Unknown`.
const REMEMBERED_LEN_MAX: usize = 16 << 10;
/// Forwards of one origin and shard that an owner remembers.
const REMEMBERED_MAX: usize = 4096;
/// Forwards in a row from one node, without an own command between them, after which the owner
/// offers the key.
const TAKE_OVER_AFTER: u16 = 32;

/// Both ends of forwarding.
#[derive(Debug)]
pub(crate) struct Forwarding {
    next_sequence: u64,
    /// Unanswered forwards of this node, by shard. No number below the first is ever sent again.
    outstanding: BTreeMap<(Shard, u64), Outstanding>,
    avoided_until: BTreeMap<NodeId, Nanos>,
    memory: BTreeMap<(NodeId, Shard), Origin>,
    forwards: Figure,
}

/// A forward that was not answered yet, with its operations.
#[derive(Debug)]
struct Outstanding {
    key: Key,
    to: NodeId,
    incarnation: Incarnation,
    operations: Vec<Operation>,
    sent: Nanos,
    resend_at: Nanos,
    resends: u32,
}

/// An owner's memory of an origin.
#[derive(Default, Debug)]
struct Origin {
    incarnation: Incarnation,
    /// Forwards below are finished and acknowledged.
    low: u64,
    entries: BTreeMap<u64, ForwardEntry>,
}

#[derive(Debug)]
enum ForwardEntry {
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

impl Forwarding {
    pub(crate) fn new(incarnation: Incarnation) -> Forwarding {
        Forwarding {
            next_sequence: first_id(incarnation),
            outstanding: BTreeMap::new(),
            avoided_until: BTreeMap::new(),
            memory: BTreeMap::new(),
            forwards: Figure::default(),
        }
    }

    pub(crate) fn forwards(&self) -> u64 {
        self.forwards.get()
    }

    /// Bytes of replies to others that this node remembers.
    #[cfg(test)]
    pub(crate) fn remembered_len(&self) -> usize {
        let entries = self.memory.values().flat_map(|origin| origin.entries.values());
        let len_of = |entry: &ForwardEntry| match entry {
            ForwardEntry::Running { outcomes, .. } => {
                outcomes.iter().flatten().map(reply_len).sum()
            }
            ForwardEntry::Done { outcomes, .. } => outcomes.iter().map(reply_len).sum::<usize>(),
        };
        entries.map(len_of).sum()
    }
}

impl Forwarding {
    /// Forwards the queue if another node owns this busy key. Resolves open attempts first.
    pub(crate) fn try_forward(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        active: &mut Active,
    ) -> bool {
        let Some((to, incarnation)) = self.busy_owner(core, cx, active) else { return false };
        if core.try_resolve(cx, active) {
            return true;
        }
        let forwardable = |operation: &Operation| {
            matches!(operation.source, Source::Client(_))
                && operation.attempts.is_empty()
                && !operation.command.stays()
        };
        if !active.queue.iter().all(forwardable) {
            return false;
        }
        base::sometimes!("commands are forwarded to the owner");
        self.forwards.add(1);
        self.next_sequence += 1;
        let count = together(cx, active);
        let outstanding = Outstanding {
            key: active.key.clone(),
            to,
            incarnation,
            operations: core.hand_over(active, count),
            sent: cx.now,
            resend_at: cx.now + core.round_trip().resend_after(0),
            resends: 0,
        };
        let at = (active.key.shard(), self.next_sequence);
        self.outstanding.insert(at, outstanding);
        self.send(cx, at);
        true
    }

    /// The node whose proposals for this key keep being accepted here, if it can be asked.
    fn busy_owner(
        &self,
        core: &Core,
        cx: &Cx<'_>,
        active: &Active,
    ) -> Option<(NodeId, Incarnation)> {
        let is_recent = |at: Nanos| at > Nanos::ZERO && cx.now.since(at) < core.contended_for();
        let (promised, is_busy) = match cx.replicas.set.has_me() {
            true => {
                let register = held(cx, &active.key)?;
                // One write of another node is no contention. Losing to it is, and so are several
                // writes in a row.
                let is_run = active.losses > 0 || register.foreign_run >= CONTENDED_RUN;
                (register.promised, is_recent(register.foreign_at) && is_run)
            }
            // Without an acceptor a node learns of others by losing to them.
            false => {
                let (promised, at) = active.lost_to?;
                (promised, is_recent(at))
            }
        };
        let (owner, incarnation) = (promised.node(), promised.incarnation());
        let member = cx.replicas.peers.get(owner)?;
        let is_avoided = self.avoided_until.get(&owner).is_some_and(|until| cx.now < *until);
        let is_there = owner != core.me() && member.up && member.incarnation == incarnation;
        (is_busy && is_there && !is_avoided).then_some((owner, incarnation))
    }

    fn send(&self, cx: &mut Cx<'_>, (shard, sequence): (Shard, u64)) {
        let Some(outstanding) = self.outstanding.get(&(shard, sequence)) else { return };
        let of_shard = self.outstanding.range((shard, 0)..=(shard, u64::MAX));
        let acked_below = of_shard.map(|((_, sequence), _)| *sequence).next().unwrap_or(sequence);
        let commands = outstanding.operations.iter();
        let commands = commands.map(|operation| (operation.session, operation.command.clone()));
        let forward = Forward {
            target: outstanding.incarnation,
            sequence,
            acked_below,
            commands: commands.collect(),
        };
        cx.fx.send_now(outstanding.to, Message::Forward { key: outstanding.key.clone(), forward });
    }

    /// The owner's side: runs each forward once.
    pub(crate) fn on_forward(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        from: Peer,
        (key, forward): (Key, Forward),
    ) {
        let sequence = forward.sequence;
        if forward.target != core.env().incarnation
            && !mutation::is(Mutation::ForwardAnyIncarnation)
        {
            let verdict = Verdict::WrongIncarnation;
            return cx.fx.send_now(from.node, Message::Forwarded { key, sequence, verdict });
        }
        let take_over = core.count_forward(cx, &key, from.node) >= TAKE_OVER_AFTER;
        let origin = self.memory.entry((from.node, key.shard())).or_default();
        if from.incarnation < origin.incarnation {
            return;
        }
        if from.incarnation > origin.incarnation {
            *origin = Origin { incarnation: from.incarnation, ..Origin::default() };
        }
        origin.forget_below(forward.acked_below);
        if mutation::is(Mutation::ForgetForwarded) {
            origin.entries.retain(|_, entry| matches!(entry, ForwardEntry::Running { .. }));
        } else if sequence < origin.low {
            return;
        }
        match origin.entries.get(&sequence) {
            Some(ForwardEntry::Running { .. }) => return,
            Some(ForwardEntry::Done { outcomes, take_over }) => {
                let verdict = Verdict::Done { outcomes: outcomes.clone(), take_over: *take_over };
                return cx.fx.send_now(from.node, Message::Forwarded { key, sequence, verdict });
            }
            None if origin.entries.len() >= REMEMBERED_MAX || forward.commands.is_empty() => return,
            None => {}
        }
        let left = forward.commands.len();
        let outcomes = vec![None; left];
        let entry =
            ForwardEntry::Running { key: key.clone(), outcomes, left, replies_len: 0, take_over };
        origin.entries.insert(sequence, entry);
        let deadline = cx.now + core.env().request_timeout;
        for (index, (session, command)) in forward.commands.into_iter().enumerate() {
            let forward = ForwardKey {
                origin: from.node,
                incarnation: from.incarnation,
                shard: key.shard(),
                sequence,
            };
            let source = Source::Forwarded { forward, index };
            // Each node numbers its own sessions.
            let session = SessionId(session.0 ^ u64::from(from.node.0) << 48);
            let operation = Operation::new(source, session, command, deadline, core.step());
            core.enqueue(cx, &key, operation);
        }
    }

    /// A forwarded command ended here. The last one of its forward sends the answer.
    pub(crate) fn on_done(
        &mut self,
        cx: &mut Cx<'_>,
        forward: ForwardKey,
        index: usize,
        outcome: Outcome,
    ) {
        let from = (forward.origin, forward.shard);
        let Some(origin) = self.memory.get_mut(&from) else { return };
        if origin.incarnation != forward.incarnation {
            return;
        }
        let Some(entry) = origin.entries.get_mut(&forward.sequence) else { return };
        let ForwardEntry::Running { key, outcomes, left, replies_len, take_over } = entry else {
            return;
        };
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
        *entry = ForwardEntry::Done { outcomes: remembered, take_over };
        let verdict = Verdict::Done { outcomes, take_over };
        let message = Message::Forwarded { key, sequence: forward.sequence, verdict };
        cx.fx.send_now(forward.origin, message);
    }

    /// The origin's side: handles the owner's answer.
    pub(crate) fn on_forwarded(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        from: Peer,
        (key, sequence): (&Key, u64),
        verdict: Verdict,
    ) {
        let at = (key.shard(), sequence);
        let is_asked = |it: &Outstanding| it.key == *key && it.to == from.node;
        if !self.outstanding.get(&at).is_some_and(is_asked) {
            return;
        }
        let Some(forward) = self.outstanding.remove(&at) else { return };
        let Verdict::Done { outcomes, take_over } = verdict else {
            return self.give_up(core, cx, forward);
        };
        let mut outcomes = outcomes.into_iter();
        let (mut lock, mut locked_out) = (None, Vec::new());
        for operation in forward.operations {
            let outcome = match outcomes.next().unwrap_or(Outcome::Unknown) {
                Outcome::Locked(locked) => {
                    lock = Some(locked.lock);
                    locked_out.extend((operation.source != Source::Answered).then_some(operation));
                    continue;
                }
                Outcome::Unknown => operation.outcome_in_doubt(),
                outcome => outcome,
            };
            core.answer(cx, &operation, outcome);
        }
        core.take_over(cx, key, lock, locked_out);
        if take_over {
            core.forget_contention(cx, key);
        }
    }

    /// Gives up on a silent owner. A command that may have run there has an unknown fate; a read is
    /// retried here.
    fn give_up(&mut self, core: &mut Core, cx: &mut Cx<'_>, forward: Outstanding) {
        self.avoided_until.insert(forward.to, cx.now + AVOID_FOR);
        let (reads, others): (Vec<_>, Vec<_>) =
            forward.operations.into_iter().partition(Operation::is_read);
        core.take_over(cx, &forward.key, None, reads);
        let outcome = match mutation::is(Mutation::NoQuorumAfterForward) {
            true => Outcome::NoQuorum,
            false => Outcome::Unknown,
        };
        for operation in others {
            core.answer(cx, &operation, outcome.clone());
        }
    }

    /// Answers overdue commands. Resends forwards without an answer, or gives them up.
    pub(crate) fn on_retry(&mut self, core: &mut Core, cx: &mut Cx<'_>) {
        let at: Vec<(Shard, u64)> = self.outstanding.keys().copied().collect();
        for at in at {
            cx.about(at.0);
            let Some(forward) = self.outstanding.get_mut(&at) else { continue };
            for operation in &mut forward.operations {
                if let Some(overdue) = operation.give_up_at(cx.now) {
                    core.answer(cx, &overdue, overdue.outcome_in_doubt());
                }
            }
            let waited = cx.now.since(forward.sent);
            let owner = cx.replicas.peers.get(forward.to);
            let is_up = owner.is_some_and(|it| it.up && it.incarnation == forward.incarnation);
            let round_trip = core.round_trip();
            let patience =
                if is_up { ANSWER_WITHIN.max(round_trip.times(8)) } else { RECONNECT_WITHIN };
            if waited > patience {
                if let Some(forward) = self.outstanding.remove(&at) {
                    self.give_up(core, cx, forward);
                }
            } else if cx.now >= forward.resend_at {
                forward.resends += 1;
                forward.resend_at = cx.now + round_trip.resend_after(forward.resends);
                self.send(cx, at);
            }
        }
    }

    /// Resends forwards that a dead connection to this node may have lost.
    pub(crate) fn on_peer_up(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        for (at, _) in self.outstanding.iter().filter(|(_, forward)| forward.to == node) {
            self.send(cx, *at);
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

/// How many commands of a queue go to the owner together, at least one. Their bodies and expected
/// replies must fit one message. A reply is hardly ever longer than the state that it sees.
fn together(cx: &Cx<'_>, active: &Active) -> usize {
    let state = held(cx, &active.key).and_then(|register| register.state.as_ref());
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
