//! Explanations of keys in progress: each asks all replicas of a key for their reports.

use std::collections::BTreeMap;

use base::Nanos;
use types::explain::Held;
use types::{Key, Outcome, Tag};

use super::back_off::RESEND_FIRST;
use super::due::Due;
use crate::effects::TimerId;
use crate::explaining::{EXPLANATIONS_MAX, Explaining};
use crate::protocol::{Env, Peer, Scope};

/// The timer of an explainer.
pub const EXPLAINER_TICK: TimerId = TimerId(2);
/// Sets the numbers of explanations apart from those of phases.
const APART: u64 = 1 << 39;

/// `M` are the protocol's messages, `read` the one that asks a replica for its report.
#[derive(Debug)]
pub struct Explainer<M> {
    next_id: u64,
    timeout: Nanos,
    due: Due<u64>,
    rounds: BTreeMap<u64, Explaining>,
    read: fn(u64, Key) -> M,
}

impl<M> Explainer<M> {
    #[must_use]
    pub fn new(env: &Env, read: fn(u64, Key) -> M) -> Explainer<M> {
        Explainer {
            next_id: (u64::from(env.incarnation.0) << 40) + APART,
            timeout: env.request_timeout,
            due: Due::new(EXPLAINER_TICK),
            rounds: BTreeMap::new(),
            read,
        }
    }

    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.rounds.is_empty()
    }

    pub fn arm<R, S>(&mut self, cx: &mut Scope<'_, R, S, M>) {
        self.due.arm(cx.fx);
    }

    pub fn on_explain<R, S>(&mut self, cx: &mut Scope<'_, R, S, M>, tag: Tag, key: Key) {
        if self.rounds.len() >= EXPLANATIONS_MAX {
            return cx.fx.reply(tag, Outcome::NoQuorum);
        }
        self.next_id += 1;
        let round = Explaining::new(tag, key, cx.now, self.timeout);
        self.ask(cx, self.next_id, round);
    }

    /// Takes the answer of one member. False if no explanation has this id.
    pub fn on_explained<R, S>(
        &mut self,
        cx: &mut Scope<'_, R, S, M>,
        from: Peer,
        id: u64,
        held: impl FnOnce() -> Held,
    ) -> bool {
        let Some(round) = self.rounds.get_mut(&id) else { return false };
        round.add(cx.replicas, from.node, held());
        if round.missing(cx.replicas).is_empty() {
            self.end(cx, id);
        }
        true
    }

    pub fn on_tick<R, S>(&mut self, cx: &mut Scope<'_, R, S, M>) {
        for id in self.due.take(cx.now) {
            let Some(round) = self.rounds.get(&id) else { continue };
            cx.about(round.key.shard());
            if cx.now >= round.deadline {
                self.end(cx, id);
            } else if let Some(round) = self.rounds.remove(&id) {
                self.ask(cx, id, round);
            }
        }
    }

    fn ask<R, S>(&mut self, cx: &mut Scope<'_, R, S, M>, id: u64, round: Explaining) {
        for node in round.missing(cx.replicas) {
            cx.fx.send_now(node, (self.read)(id, round.key.clone()));
        }
        self.due.set(id, (cx.now + RESEND_FIRST).min(round.deadline));
        self.rounds.insert(id, round);
    }

    fn end<R, S>(&mut self, cx: &mut Scope<'_, R, S, M>, id: u64) {
        if let Some(round) = self.rounds.remove(&id) {
            self.due.clear(&id);
            let (tag, outcome) = round.end(cx.replicas);
            cx.fx.reply(tag, outcome);
        }
    }
}
