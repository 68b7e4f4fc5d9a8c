//! Client requests: from the first query to the reply, in the order of each session.

use base::{Millis, Nanos, sometimes};
use bytes::Bytes;
use types::{
    Access, Change, Clock, Command, ExpiryChange, Incarnation, Key, NodeId, Outcome, Reply,
    SessionId, TimeToLive,
};

use super::message::Message;
use super::operation::{Kind, Operation, Phase, Verdict};
use super::register::{Register, Version};
use super::reports::Answers;
use super::{Abd, Cx};
use crate::mutation::{self, Mutation};
use crate::peers::Pace;
use crate::protocol::{Protocol, Request};
use crate::quorum::Tally;
use crate::toolkit::asks::{Ask, Stream};
use crate::toolkit::content::Content;
use crate::toolkit::stamp::Stamp;

/// Requests in progress or waiting for an earlier one of their session.
const REQUESTS_MAX: usize = 65_536;
/// A slow link may have lost a message: every so many resends take it, too.
const SLOW_RESENDS: u32 = 5;

/// Requests.
impl Abd {
    pub(super) fn on_request(&mut self, cx: &mut Cx<'_>, request: Request) {
        if request.command.access == Access::Update {
            return cx.fx.reply(request.tag, Outcome::Unsupported(Abd::NAME));
        }
        if self.ops.clients() + self.behind.waiting() >= REQUESTS_MAX {
            return cx.fx.reply(request.tag, Outcome::NoQuorum);
        }
        let place = (request.session, request.key.clone());
        if let Some(request) = self.behind.wait(&place, request)
            && self.begin(cx, request)
        {
            self.behind.begin(place);
        }
    }

    /// False when the request was answered at once.
    pub(super) fn begin(&mut self, cx: &mut Cx<'_>, request: Request) -> bool {
        let Request { tag, session, key, command, asked_at } = request;
        let deadline = asked_at + self.env.request_timeout;
        if deadline <= cx.now {
            cx.fx.reply(tag, Outcome::NoQuorum);
            return false;
        }
        let kind = match command.access {
            Access::Read | Access::OrderedRead | Access::UncommittedRead => {
                Kind::Read { tag, session, body: command.body }
            }
            Access::Write | Access::Update | Access::Delete => match plain(cx, &command) {
                Plain::Store { value, ttl, reply } => {
                    Kind::Write { tag, session, value, ttl, reply }
                }
                Plain::Delete { was_there, was_absent } => {
                    Kind::Delete { tag, session, was_there, was_absent }
                }
                Plain::Answer(outcome) => {
                    cx.fx.reply(tag, outcome);
                    return false;
                }
            },
        };
        self.start(cx, key, kind, deadline);
        true
    }

    pub(super) fn start(&mut self, cx: &mut Cx<'_>, key: Key, kind: Kind, deadline: Nanos) -> u64 {
        self.start_in(cx, key, kind, Phase::Query, deadline)
    }

    /// Starts an operation in a phase.
    pub(super) fn start_in(
        &mut self,
        cx: &mut Cx<'_>,
        key: Key,
        kind: Kind,
        phase: Phase,
        deadline: Nanos,
    ) -> u64 {
        let is_patient = matches!(kind, Kind::Read { .. });
        let op = Operation {
            era: cx.metas.get(key.shard()).now,
            key,
            kind,
            phase,
            answers: Answers::default(),
            deadline,
            resend_at: Nanos::MAX,
            resend_after: Nanos::MAX,
            resends: 0,
            is_patient,
            over: None,
        };
        let id = self.next_id();
        self.ops.insert(id, op);
        self.begin_phase(cx, id);
        id
    }

    /// Asks all replicas whose answers the phase needs.
    fn begin_phase(&mut self, cx: &mut Cx<'_>, id: u64) {
        let Some(op) = self.ops.get_mut(id) else { return };
        op.expect_answers(cx.now);
        self.due.set(id, op.resend_at.min(op.deadline));
        ask(cx, self.stream, id, op);
    }

    /// Asks anew, with a number of its own. `over` is a version that a quorum has counted down.
    pub(super) fn ask_again(&mut self, cx: &mut Cx<'_>, id: u64, over: Option<Version>) {
        let Some(op) = self.remove(id) else { return };
        let era = cx.metas.get(op.key.shard()).now;
        let (phase, answers) = (Phase::Query, Answers::default());
        let op = Operation { era, over, phase, answers, ..op };
        let id = self.next_id();
        if matches!(op.kind, Kind::Recover) {
            self.recovering.insert(op.key.clone(), id);
        }
        self.ops.insert(id, op);
        self.begin_phase(cx, id);
    }

    pub(super) fn next_id(&mut self) -> u64 {
        let id = self.next_op;
        self.next_op += 1;
        id
    }

    /// Acts on the verdict of an operation.
    pub(super) fn settle(&mut self, cx: &mut Cx<'_>, id: u64) {
        let Some(op) = self.ops.get_mut(id) else { return };
        match op.verdict(cx.replicas) {
            Verdict::Wait => {}
            Verdict::Mint { above } => {
                // Also above all versions of this process, since an earlier write may still be in
                // flight.
                self.minted = self.minted.max(above.stamp.number) + 1;
                let incarnation = match mutation::is(Mutation::NoIncarnation) {
                    true => Incarnation(0),
                    false => self.env.incarnation,
                };
                let writer = match mutation::is(Mutation::BareNumber) {
                    true => NodeId(0),
                    false => self.env.me,
                };
                let stamp = Stamp { number: self.minted, writer, incarnation };
                let content = match &op.kind {
                    Kind::Write { value, ttl, .. } => {
                        Content::written(value.clone(), *ttl, stamp, cx.unix)
                    }
                    _ => Content::DELETED,
                };
                let era = match mutation::is(Mutation::MintBelowEra) {
                    true => above.era,
                    false => op.era.max(above.era),
                };
                let register = Register { version: Version::of(era, stamp), content };
                op.phase = Phase::Store { register, acks: Tally::default() };
                self.begin_phase(cx, id);
            }
            Verdict::WriteBack => self.write_back(cx, id),
            Verdict::Confirm => {
                let over = Some(op.answers.newest().version);
                self.ask_again(cx, id, over);
            }
            Verdict::End => {
                op.answers.end();
                if mutation::is(Mutation::EndUnstored) {
                    let ended = op.answers.newest().clone();
                    return self.finish(cx, id, ended);
                }
                self.write_back(cx, id);
            }
            Verdict::Settled(register) => self.finish(cx, id, register),
        }
    }

    /// Makes a majority hold the newest register.
    fn write_back(&mut self, cx: &mut Cx<'_>, id: u64) {
        let Some(op) = self.ops.get_mut(id) else { return };
        let acks = op.answers.holders(cx.replicas);
        op.phase = Phase::Store { register: op.answers.newest().clone(), acks };
        op.is_patient = false;
        self.begin_phase(cx, id);
    }

    pub(super) fn finish(&mut self, cx: &mut Cx<'_>, id: u64, register: Register) {
        let Some(op) = self.ops.get(id) else { return };
        match &op.kind {
            Kind::Read { tag, session, body } => {
                let found = register.content.view(op.answers.rest(cx.replicas));
                let applied = cx.update.apply(found, body, clock(cx.unix, cx.rng.next_u64()));
                cx.fx.reply(*tag, Outcome::Reply(applied.reply));
                self.next_of_lane(cx, id, *session);
            }
            Kind::Write { tag, session, reply, .. } => {
                cx.fx.reply(*tag, Outcome::Reply(reply.clone()));
                self.next_of_lane(cx, id, *session);
            }
            Kind::Delete { tag, session, was_there, was_absent } => {
                let reply = if op.answers.is_present() { was_there } else { was_absent };
                cx.fx.reply(*tag, Outcome::Reply(reply.clone()));
                self.next_of_lane(cx, id, *session);
            }
            Kind::Recover => {
                let key = op.key.clone();
                self.adopt(cx, &key, register);
            }
            Kind::End => self.on_end_looked(cx, id, &register),
            Kind::Bury => {
                if let Some(op) = self.remove(id) {
                    self.on_verified(cx, &op, true);
                }
            }
        }
    }

    /// Ends an operation and starts the next one of its lane.
    pub(super) fn next_of_lane(&mut self, cx: &mut Cx<'_>, id: u64, session: SessionId) {
        let Some(op) = self.remove(id) else { return };
        let place = (session, op.key);
        while let Some(request) = self.behind.next(&place)
            && !self.begin(cx, request)
        {}
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Operation> {
        let op = self.ops.remove(id)?;
        self.due.clear(&id);
        Some(op)
    }

    pub(super) fn on_op_due(&mut self, cx: &mut Cx<'_>, id: u64) {
        let stream = self.stream;
        let Some(op) = self.ops.get_mut(id) else { return };
        cx.about(op.key.shard());
        if op.deadline <= cx.now {
            let (tag, session, outcome) = match (&op.kind, &op.phase) {
                (
                    Kind::Write { tag, session, .. } | Kind::Delete { tag, session, .. },
                    Phase::Store { .. },
                ) => (*tag, *session, Outcome::Unknown),
                (
                    Kind::Write { tag, session, .. }
                    | Kind::Delete { tag, session, .. }
                    | Kind::Read { tag, session, .. },
                    _,
                ) => (*tag, *session, Outcome::NoQuorum),
                (Kind::End, _) => {
                    let key = op.key.clone();
                    self.remove(id);
                    return self.ends.look_again(&key, cx.now);
                }
                (Kind::Bury, _) => return self.end_burial(cx, id),
                (Kind::Recover, _) => return,
            };
            let lacking = cx.replicas.others().filter(|&node| op.lacks(cx.replicas, node));
            cx.fx.suspects.extend(lacking);
            cx.fx.reply(tag, outcome);
            return self.next_of_lane(cx, id, session);
        }
        if std::mem::replace(&mut op.is_patient, false) {
            op.expect_answers(cx.now);
        } else {
            op.expect_resent(cx.now);
            ask(cx, stream, id, op);
        }
        self.due.set(id, op.resend_at.min(op.deadline));
        self.settle(cx, id);
    }
}

/// Sends the phase's request to every replica whose answer is missing, this node included.
fn ask(cx: &mut Cx<'_>, stream: Stream, id: u64, op: &Operation) {
    // A start that forgot the era would begin operations in an earlier one.
    let after = cx.metas.ticket(op.key.shard());
    for node in cx.replicas.all().filter(|&node| op.lacks(cx.replicas, node)) {
        // The message of before most likely still waits in its link's queue.
        if is_slow(cx, node) && !op.resends.is_multiple_of(SLOW_RESENDS) {
            sometimes!("no message of abd is sent again to a slow replica");
            continue;
        }
        let key = op.key.clone();
        let message = match &op.phase {
            Phase::Query => {
                Message::Query { op: id, key, era: Some(op.era), want_value: op.wants_value() }
            }
            Phase::Store { register, .. } => {
                let ask = Ask { stream, number: id };
                Message::Store { ask, key, era: op.era, register: register.clone() }
            }
        };
        cx.fx.send(node, message, after);
    }
}

fn is_slow(cx: &Cx<'_>, node: NodeId) -> bool {
    cx.replicas.member(node).is_some_and(|member| member.pace == Pace::Slow)
}

/// The effect of a command that runs on any state alike.
enum Plain {
    Store { value: Option<Bytes>, ttl: TimeToLive, reply: Reply },
    Delete { was_there: Reply, was_absent: Reply },
    Answer(Outcome),
}

fn plain(cx: &mut Cx<'_>, command: &Command) -> Plain {
    let clock = clock(cx.unix, cx.rng.next_u64());
    let run = |value| {
        let found = types::View { value, ttl: TimeToLive::Never, ends: None };
        cx.update.apply(found, &command.body, clock)
    };
    let applied = run(None);
    let reply = applied.reply;
    if command.access == Access::Delete {
        let removed = run(Some(b""));
        return match removed.change {
            Change::Delete => Plain::Delete { was_there: removed.reply, was_absent: reply },
            _ => Plain::Answer(Outcome::Unsupported(Abd::NAME)),
        };
    }
    match applied.change {
        Change::Put { value, expiry: ExpiryChange::Set(ttl) } => {
            Plain::Store { value: Some(value), ttl, reply }
        }
        Change::Delete => Plain::Store { value: None, ttl: TimeToLive::Never, reply },
        Change::None => Plain::Answer(Outcome::Reply(reply)),
        // These depend on the time to live that the key has.
        Change::Put { expiry: ExpiryChange::Keep, .. } | Change::Expire(_) => {
            Plain::Answer(Outcome::Unsupported(Abd::NAME))
        }
    }
}

fn clock(unix: Millis, seed: u64) -> Clock {
    Clock { unix, seed }
}
