//! The answers of this replica to proposers, and theirs to this one.

use std::sync::Arc;

use types::{Key, Ticket};

use super::message::{About, Body, Message};
use super::register::{Refusal, Register};
use super::rounds::{Cx, Machine};
use crate::protocol::Peer;
use crate::toolkit::countdown::Countdown;
use crate::toolkit::proposers::{change, is_lost, report};
use crate::toolkit::state::{Base, State};
use crate::uptime::Uptime;

/// Bytes of a replaced value that may stay in storage until the register is stored again.
const REPLACED_LEN_MAX: usize = 512;

/// A message of the protocol.
pub(super) fn on_body(
    machine: &mut Machine,
    cx: &mut Cx<'_>,
    from: Peer,
    (id, key): (u64, &Key),
    body: Body,
) {
    match body {
        Body::Propose { slot, ballot, base } => {
            machine.answer(cx, from.node, (id, key), |it, cx| {
                learn_base(cx, key, &base);
                if base.is_some() {
                    it.watch(cx, key);
                }
                let propose = |it: &mut Register, _: &dyn Uptime| it.propose(slot, ballot);
                match change(cx, key, propose) {
                    Ok(()) => (About::Own(promise(cx, key)), true),
                    Err(refusal) => (About::Own(refuse(cx, key, refusal)), false),
                }
            });
        }
        Body::Accept { ballot, state, base } => {
            machine.answer(cx, from.node, (id, key), |it, cx| {
                learn_base(cx, key, &base);
                let accept =
                    |it: &mut Register, uptime: &dyn Uptime| it.accept(ballot, &state, uptime);
                let vote = change(cx, key, accept);
                it.watch(cx, key);
                match vote {
                    Ok(()) => (About::Own(Body::Accepted), true),
                    Err(refusal) => (About::Own(refuse(cx, key, refusal)), false),
                }
            });
        }
        Body::Commit { state, answer } => {
            learn(cx, key, &state);
            machine.watch(cx, key);
            let after = cx.cache.ticket(key);
            committed(machine, cx, from, (id, key), (answer, after));
        }
        Body::CommitThin { slot, ballot, answer } => {
            let uptime = cx.uptime;
            // After a crash the vote is still there.
            let after = cx.cache.ticket(key);
            let replaced_len = cx.cache.get_mut(key).and_then(|register| {
                let len = register.committed.as_ref().map_or(0, |state| state.value_len());
                register.commit_accepted(slot, ballot, uptime).then_some(len)
            });
            match replaced_len {
                None => {}
                Some(len) if len > REPLACED_LEN_MAX => _ = cx.cache.persist(key),
                Some(_) => cx.cache.persist_before_eviction(key),
            }
            committed(machine, cx, from, (id, key), (answer, after));
        }
        Body::Promise { accepted, countdown } => {
            machine.with_phase(cx, key, id, |it, cx, active| {
                it.on_promise(cx, active, from, accepted, countdown);
            });
        }
        Body::Accepted => {
            machine.with_phase(cx, key, id, |it, cx, active| it.on_accepted(cx, active, from));
        }
        Body::HigherSeen { promised } => machine.with_phase(cx, key, id, |it, cx, active| {
            it.on_refused(cx, active, from, promised);
        }),
        Body::SlotLow { state } => {
            machine.with_phase(cx, key, id, |it, cx, active| it.on_slot_low(cx, active, state));
        }
        Body::SlotHigh => machine.with_phase(cx, key, id, |it, cx, active| {
            it.ask_with_base(cx, active, from.node);
        }),
        Body::Committed => {
            machine.with_phase(cx, key, id, |it, cx, active| it.on_committed(cx, active, from));
        }
    }
}

fn promise(cx: &Cx<'_>, key: &Key) -> Body {
    let report = report(cx, key);
    let accepted = report.accepted.map(|(ballot, state, _)| (ballot, state));
    let is_committed = report.committed.is_some();
    let countdown = if is_committed { report.countdown } else { Countdown::None };
    Body::Promise { accepted, countdown }
}

fn refuse(cx: &Cx<'_>, key: &Key, refusal: Refusal) -> Body {
    match (refusal, report(cx, key).committed) {
        (Refusal::HigherSeen(promised), _) => Body::HigherSeen { promised },
        (Refusal::SlotLow, Some(state)) => Body::SlotLow { state },
        (Refusal::SlotLow | Refusal::SlotHigh, _) => Body::SlotHigh,
    }
}

fn learn_base(cx: &mut Cx<'_>, key: &Key, base: &Base) {
    if let Some(state) = base {
        learn(cx, key, state);
    }
}

/// A state is decided.
pub(super) fn learn(cx: &mut Cx<'_>, key: &Key, state: &Arc<State>) {
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
fn committed(
    machine: &mut Machine,
    cx: &mut Cx<'_>,
    from: Peer,
    (id, key): (u64, &Key),
    (answer, after): (bool, Ticket),
) {
    machine.end_pause(key);
    if answer && cx.replicas.set.has_me() && !is_lost(cx, key) {
        let body = About::Own(Body::Committed);
        let committed = Message::About { id, key: key.clone(), body };
        cx.fx.send(from.node, committed, after);
    }
}
