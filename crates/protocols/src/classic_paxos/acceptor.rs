//! Messages: those to this replica's acceptor are answered here, the others find their phase.

use types::{Key, NodeId, Ticket};

use super::explain::held;
use super::machine::{Cx, Machine, is_lost};
use super::message::{Body, Message};
use super::register::{Register, Verdict};
use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::register_cache::CachedRegister;
use crate::toolkit::countdown::Countdown;
use crate::toolkit::state::{Base, State};
use std::sync::Arc;

impl Machine {
    pub(super) fn on_message(&mut self, cx: &mut Cx<'_>, from: Peer, message: Message) {
        match message {
            Message::About { id, key, body } => self.on_body(cx, from, id, &key, body),
            Message::Paging(message) => self.pager.on_message(cx, from, message),
        }
    }

    fn on_body(&mut self, cx: &mut Cx<'_>, from: Peer, id: u64, key: &Key, body: Body) {
        let is_own = from.node == cx.replicas.me();
        match body {
            Body::Read | Body::Propose { .. } | Body::Accept { .. } => {
                self.on_question(cx, from.node, id, key, body);
            }
            Body::Commit { state, answer } => {
                self.learn(cx, key, &state);
                self.on_committed_here(cx, from.node, id, key, answer);
            }
            Body::CommitThin { slot, ballot, answer } => {
                let uptime = cx.uptime;
                let commit = |it: &mut Register| it.commit_accepted(slot, ballot, uptime);
                if cx.cache.get_mut(key).is_some_and(commit) {
                    // After a crash the vote is still there.
                    cx.cache.persist_before_eviction(key);
                }
                self.on_committed_here(cx, from.node, id, key, answer);
            }
            Body::State(report) => {
                if !self.explainer.on_explained(cx, from, id, || held(&report)) {
                    self.with_phase(cx, key, id, |it, cx, active| {
                        it.on_state(cx, active, from, report);
                    });
                }
            }
            Body::Promise { accepted, countdown } => {
                self.with_phase(cx, key, id, |it, cx, active| {
                    it.on_promise(cx, active, from, accepted, countdown);
                });
            }
            Body::Accepted => {
                self.with_phase(cx, key, id, |it, cx, active| it.on_accepted(cx, active, from));
            }
            Body::HigherSeen { promised } => {
                self.with_phase(cx, key, id, |it, cx, active| {
                    it.on_higher_seen(cx, active, from, promised);
                });
            }
            Body::SlotLow { state } => {
                self.with_phase(cx, key, id, |it, cx, active| it.on_slot_low(cx, active, state));
            }
            Body::SlotHigh => {
                self.with_phase(cx, key, id, |_, cx, active| {
                    super::proposer::ask(cx, active, from.node, true);
                });
            }
            Body::Committed => {
                self.with_phase(cx, key, id, |it, cx, active| it.on_committed(cx, active, from));
            }
            Body::Recover { found } if is_own => self.on_recover(cx, id, key, found),
            Body::Expire if is_own => self.on_expire(cx, key),
            Body::Recover { .. } | Body::Expire => {}
        }
    }

    /// A question to the acceptor.
    fn on_question(&mut self, cx: &mut Cx<'_>, to: NodeId, id: u64, key: &Key, body: Body) {
        if !cx.replicas.set.has_me() {
            return;
        }
        if is_lost(cx, key) {
            return self.recover(cx, key);
        }
        let answer = match body {
            Body::Propose { slot, ballot, base } => {
                self.learn_base(cx, key, &base);
                let verdict = change(cx, key, |it, _| it.propose(slot, ballot));
                answer(cx, key, verdict)
            }
            Body::Accept { ballot, state, base } => {
                self.learn_base(cx, key, &base);
                match change(cx, key, |it, cx| it.accept(ballot, &state, cx.uptime)) {
                    Verdict::Yes => Body::Accepted,
                    verdict => answer(cx, key, verdict),
                }
            }
            _ => Body::State(report(cx, key)),
        };
        let is_vote = matches!(answer, Body::Accepted | Body::Promise { .. });
        let after = match (is_vote, mutation::is(Mutation::ReplyBeforeStored)) {
            (true, true) => Ticket::DURABLE,
            (false, _) if mutation::is(Mutation::ExposeUnflushed) => Ticket::DURABLE,
            _ => cx.cache.ticket(key),
        };
        cx.fx.send(to, Message::About { id, key: key.clone(), body: answer }, after);
    }

    fn learn_base(&mut self, cx: &mut Cx<'_>, key: &Key, base: &Base) {
        if let Some(state) = base {
            self.learn(cx, key, state);
        }
    }

    /// A state is decided.
    pub(super) fn learn(&mut self, cx: &mut Cx<'_>, key: &Key, state: &Arc<State>) {
        if !cx.replicas.set.has_me() || is_lost(cx, key) {
            return;
        }
        let uptime = cx.uptime;
        let is_new = cx.cache.with(key, |it| {
            let is_known = it.as_ref().is_some_and(|it| it.slot() >= state.slot);
            !is_known && it.get_or_insert_default().commit(state, uptime)
        });
        if is_new {
            cx.cache.persist(key);
        }
    }

    /// This replica may have committed. A proposer that pauses goes on.
    fn on_committed_here(&mut self, cx: &mut Cx<'_>, to: NodeId, id: u64, key: &Key, answer: bool) {
        if self.actives.get(key).is_some_and(|it| matches!(it.phase, super::active::Phase::Pausing))
        {
            self.ready.insert(key.clone());
        }
        if answer && cx.replicas.set.has_me() && !is_lost(cx, key) {
            let committed = Message::About { id, key: key.clone(), body: Body::Committed };
            cx.fx.send(to, committed, cx.cache.ticket(key));
        }
    }
}

/// Changes the register, and stores it if the acceptor took part.
fn change(
    cx: &mut Cx<'_>,
    key: &Key,
    step: impl FnOnce(&mut Register, &mut Cx<'_>) -> Verdict,
) -> Verdict {
    let mut register = match cx.cache.get(key) {
        CachedRegister::Present(register) => register.clone(),
        CachedRegister::Absent | CachedRegister::Lost => Register::default(),
    };
    let verdict = step(&mut register, cx);
    if verdict == Verdict::Yes {
        cx.cache.put(key, register);
        cx.cache.persist(key);
    }
    verdict
}

fn answer(cx: &Cx<'_>, key: &Key, verdict: Verdict) -> Body {
    let report = report(cx, key);
    match (verdict, report.committed) {
        (Verdict::HigherSeen(promised), _) => Body::HigherSeen { promised },
        (Verdict::SlotLow, Some(state)) => Body::SlotLow { state },
        (Verdict::SlotLow | Verdict::SlotHigh, _) => Body::SlotHigh,
        (Verdict::Yes, committed) => {
            let accepted = report.accepted.map(|(ballot, state, _)| (ballot, state));
            let countdown = if committed.is_some() { report.countdown } else { Countdown::None };
            Body::Promise { accepted, countdown }
        }
    }
}

/// The register of this replica.
pub(super) fn report(cx: &Cx<'_>, key: &Key) -> super::register::Report {
    match cx.cache.get(key) {
        CachedRegister::Present(register) => register.report(cx.uptime, cx.unix),
        CachedRegister::Absent | CachedRegister::Lost => super::register::Report::ABSENT,
    }
}
