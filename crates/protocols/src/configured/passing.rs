//! Requests at nodes that are no full members: a full member runs them.
//!
//! A request is passed on to one process. It is passed on again only if that process said that it
//! did not run it, or if it changes no state. One request of a session on a key is under way at a
//! time, so they keep their order.

use base::{Nanos, sometimes};
use types::{Access, Command, NodeId, Outcome, SessionId, Tag};

use super::envelope::{Answer, Pass};
use super::state::parked::place;
use super::state::passing::{Asker, SERVED, SESSION_SHIFT, Sent, WORKER_SHIFT, WORKERS_MASK};
use super::{Configured, Cx, Envelope, Member, PASSED_DUE, too_long};
use crate::mutation::{self, Mutation};
use crate::protocol::{Peer, Request};

/// Requests of other nodes that this one runs; more are refused.
const SERVED_MAX: usize = 1 << 16;

/// At the node that was asked.
impl<P: Member> Configured<P> {
    pub(super) fn pass_on(&mut self, cx: &mut Cx<'_, P>, request: Request) {
        let Some(to) = self.full_member(cx, request.key.hash()) else {
            return self.park_for_now(cx, request);
        };
        let id = self.passing.next_id();
        let low = self.passing.sent.keys().next().copied().unwrap_or(id);
        let pass = Pass {
            id,
            low,
            session: request.session,
            key: request.key.clone(),
            access: request.command.access,
            body: request.command.body.clone(),
        };
        cx.fx.send_now(to, Envelope::Pass(pass));
        let deadline = request.asked_at + self.env.request_timeout;
        self.parked.send(&request);
        self.passing.sent.insert(id, Sent { request, to });
        self.plan_passed(cx, deadline);
    }

    /// A full member that is connected, the same one for the same hash if all are.
    pub(super) fn full_member(&self, cx: &Cx<'_, P>, hash: u64) -> Option<NodeId> {
        let configuration = &self.installed.as_ref()?.configuration;
        let is_up = |node| cx.replicas.peers.get(node).is_some_and(|peer| peer.up);
        let me = cx.replicas.me();
        let nodes = configuration.full().map(|member| member.node);
        let nodes: Vec<NodeId> = nodes.filter(|&node| node != me && is_up(node)).collect();
        nodes.get(hash as usize % nodes.len().max(1)).copied()
    }

    pub(super) fn plan_passed(&mut self, cx: &mut Cx<'_, P>, at: Nanos) {
        if self.passing.due.is_none_or(|due| at < due) {
            self.passing.due = Some(at);
            cx.fx.timer(PASSED_DUE, at);
        }
    }

    pub(super) fn on_passed(&mut self, cx: &mut Cx<'_, P>, from: Peer, id: u64, answer: Answer) {
        let is_from_asked = |sent: &Sent| sent.to == from.node;
        if !self.passing.sent.get(&id).is_some_and(is_from_asked) {
            return;
        }
        match answer {
            Answer::NotServing => self.end_passed(cx, id, None),
            Answer::Ended(Outcome::Unsupported(_)) => {
                self.end_passed(cx, id, Some(Outcome::Unsupported(P::NAME)));
            }
            Answer::Ended(outcome) => self.end_passed(cx, id, Some(outcome)),
        }
    }

    /// Ends a request that is under way, or tries it anew.
    fn end_passed(&mut self, cx: &mut Cx<'_, P>, id: u64, outcome: Option<Outcome>) {
        let Some(Sent { request, .. }) = self.passing.sent.remove(&id) else { return };
        if let Some(outcome) = outcome {
            cx.fx.reply(request.tag, outcome);
            self.end_turn(cx, request.tag, &place(&request));
        } else {
            self.park_for_now(cx, request);
        }
    }

    /// Answers of this node are lost.
    pub(super) fn on_passed_reset(&mut self, cx: &mut Cx<'_, P>, node: NodeId) {
        let lost = self.passing.sent.iter().filter(|(_, sent)| sent.to == node);
        let lost: Vec<(u64, Access)> =
            lost.map(|(&id, sent)| (id, sent.request.command.access)).collect();
        for (id, access) in lost {
            let outcome = (!access.is_read()).then_some(Outcome::Unknown);
            self.end_passed(cx, id, outcome);
        }
        self.on_list_reset(cx, node);
    }

    pub(super) fn on_passed_due(&mut self, cx: &mut Cx<'_, P>) {
        if self.passing.due.is_none_or(|due| due > cx.now) {
            return;
        }
        self.passing.due = None;
        let (now, timeout) = (cx.now, self.env.request_timeout);
        let is_over = |sent: &Sent| sent.request.asked_at + timeout <= now;
        let over: Vec<(u64, Access)> = self
            .passing
            .sent
            .iter()
            .filter(|(_, sent)| is_over(sent))
            .map(|(&id, sent)| (id, sent.request.command.access))
            .collect();
        for (id, access) in over {
            let outcome = if access.is_read() { Outcome::NoQuorum } else { Outcome::Unknown };
            self.end_passed(cx, id, Some(outcome));
        }
        self.expire_lists(cx);
        let next = self.passing.sent.values().map(|sent| sent.request.asked_at + timeout).min();
        if let Some(at) = next.into_iter().chain(self.listings.next_deadline()).min() {
            self.plan_passed(cx, at);
        }
    }
}

/// At the member that runs it.
impl<P: Member> Configured<P> {
    pub(super) fn on_pass(&mut self, cx: &mut Cx<'_, P>, from: Peer, pass: Pass) {
        let Pass { id, low, session, key, access, body } = pass;
        let worker = id >> WORKER_SHIFT & WORKERS_MASK;
        let stream = self.passing.streams.entry((from.node, worker)).or_default();
        if !stream.admit(id, low, (session, key.clone())) && !mutation::is(Mutation::RunsCopies) {
            sometimes!("a copy of a passed request comes");
            return;
        }
        let asker = Asker { node: from.node, shard: key.shard(), id, access };
        if self.passing.served.len() >= SERVED_MAX {
            let (node, passed) = asker.answer(Answer::NotServing);
            return cx.fx.send_now(node, passed);
        }
        self.passing.next_served += 1;
        let tag = Tag(SERVED | self.passing.next_served);
        self.passing.served.insert(tag, asker);
        let session = SessionId(session.0 | (u64::from(from.node.0) + 1) << SESSION_SHIFT);
        let command = Command::new(access, body);
        self.on_request(cx, Request { tag, session, key, command, asked_at: cx.now });
    }

    pub(super) fn refuse_passed(&mut self, cx: &mut Cx<'_, P>, tag: Tag) {
        if let Some(asker) = self.passing.served.remove(&tag) {
            let (node, passed) = asker.answer(Answer::NotServing);
            cx.fx.send_now(node, passed);
        }
    }

    /// Sends the outcomes of other nodes' requests back to them.
    pub(super) fn answer_passed(&mut self, cx: &mut Cx<'_, P>) {
        if self.passing.served.is_empty() {
            return;
        }
        let served = &mut self.passing.served;
        let ended = cx.fx.outcomes.extract_if(.., |(tag, _, _)| served.contains_key(tag));
        let ended: Vec<_> = ended.collect();
        for (tag, mut outcome, after) in ended {
            if let Some(asker) = served.remove(&tag) {
                if let Outcome::Reply(reply) = &outcome
                    && let Some(refusal) = too_long("reply", reply.len())
                {
                    outcome = match asker.access.is_read() {
                        true => Outcome::Reply(refusal),
                        false => Outcome::Unknown,
                    };
                }
                let (node, passed) = asker.answer(Answer::Ended(outcome));
                cx.fx.send(node, passed, after);
            }
        }
    }
}
