//! Reads: a majority reports its registers, and none is changed.

use base::Nanos;
use types::Key;

use super::active::{Active, Phase};
use super::machine::{Cx, Machine, is_lost};
use super::message::{Body, Message};
use super::proposer::ask_missing;
use super::register::{Register, Report};
use super::reports::Decision;
use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::register_cache::CachedRegister;
use crate::toolkit::back_off::Resend;
use crate::toolkit::countdown::Started;
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::Base;

/// How long a read waits for the remaining replicas before it proposes.
const PATIENCE: Nanos = Nanos::from_millis(2);

impl Machine {
    pub(super) fn read(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        active.since = self.next_step();
        active.id = self.next_id();
        active.phase = Phase::Reading(Box::default());
        active.resend = Resend::default();
        active.wake_at = active.resend.next(cx.now);
        ask_missing(cx, active);
    }

    pub(super) fn on_state(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        from: Peer,
        report: Report,
    ) {
        let Phase::Reading(reports) = &mut active.phase else { return };
        reports.add(cx.replicas, (from.node, from.amnesia), report);
        match reports.decide(cx.replicas) {
            Decision::Wait => {}
            Decision::Decided { base, promised } => self.settle_read(cx, active, base, promised),
            Decision::Undecided { base } if cx.replicas.is_all(&reports.tally) => {
                need_help(active, base);
            }
            Decision::Undecided { .. } => active.wake_at = active.wake_at.min(cx.now + PATIENCE),
        }
    }

    /// The phase waited long enough for the remaining replicas.
    pub(super) fn on_reading_due(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let Phase::Reading(reports) = &active.phase else { return };
        match reports.decide(cx.replicas) {
            Decision::Decided { base, promised } => self.settle_read(cx, active, base, promised),
            Decision::Undecided { base } => need_help(active, base),
            Decision::Wait => {
                active.wake_at = active.resend.next(cx.now);
                ask_missing(cx, active);
            }
        }
    }

    fn settle_read(&mut self, cx: &mut Cx<'_>, active: &mut Active, base: Base, promised: Stamp) {
        let phase = std::mem::take(&mut active.phase);
        let Phase::Reading(reports) = phase else { return };
        active.base = Some(base.clone());
        self.recovered(cx, active, &base, promised);
        if let Some(state) = &base {
            // They count the time to live from now on.
            for node in reports.lagging(cx.replicas, state) {
                let body = Body::Commit { state: state.clone(), answer: false };
                cx.fx.send_now(node, Message::About { id: 0, key: active.key.clone(), body });
            }
        }
        let id = base.as_ref().and_then(|state| state.expiry_id());
        let (over, rest) = id.map_or((0, None), |id| reports.votes(cx.replicas, id));
        let is_over = cx.replicas.set.is_quorum_of(over)
            || (over != 0 && mutation::is(Mutation::ExpireByOne));
        if is_over {
            // The reads wait for the tombstone.
            active.voted = id;
            active.look_until = Some(cx.now + self.env.request_timeout);
            return;
        }
        if active.look_until.take().is_some() {
            self.expire_later(cx, &active.key, rest);
        }
        self.answer_reads(cx, active, &base, rest);
    }

    /// The own register, if it was forgotten before the phase began, is this state, with a promise
    /// for the slot behind.
    pub(super) fn recovered(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        base: &Base,
        promised: Stamp,
    ) {
        if active.recover.is_some_and(|step| step < active.since) {
            active.recover = None;
            self.recovering.remove(&active.key);
            adopt(cx, &active.key, base, promised);
            self.pager.on_recovered_key(cx, &active.key);
        }
    }
}

/// Only a proposal behind this committed state decides.
fn need_help(active: &mut Active, base: Base) {
    active.base = Some(base);
    active.help = true;
    active.phase = Phase::Idle;
}

/// Takes the recovered content of a forgotten register.
pub(super) fn adopt(cx: &mut Cx<'_>, key: &Key, base: &Base, promised: Stamp) {
    if !is_lost(cx, key) && !matches!(cx.cache.get(key), CachedRegister::Lost) {
        return;
    }
    if base.is_none() && promised == Stamp::NONE && !cx.cache.is_forgotten(key.shard()) {
        cx.cache.remove(key);
        return;
    }
    // In a forgotten shard an empty register marks a key that was never written.
    let ttl = base.as_ref().and_then(|state| state.ttl());
    let started = Started::anew(ttl, cx.uptime);
    let register = Register { committed: base.clone(), started, promised, accepted: None };
    cx.cache.put(key, register);
    cx.cache.persist(key);
}
