//! The head's side: it gives commands their order, one version of a key after the other.
//!
//! All commands of a key that wait while a version is on its way become the next version together.

use std::collections::VecDeque;

use types::{Access, Key, NodeId, Outcome, Reply, Serial};

use super::lane::{From, Lane, Origin, Pend, Steered, Waiting};
use super::message::{Body, Steer};
use super::origin::outcome_of;
use super::register::{self, Ran, Register};
use super::streams::{Admission, Progress};
use super::version::Version;
use super::{Craq, Cx, Held, REQUESTS_MAX, chain, held, send};
use crate::configured::too_long;
use crate::mutation::{self, Mutation};
use crate::toolkit::content::Effect;

/// Commands that become one version.
const BATCH_MAX: usize = 256;
/// Bytes of their replies; the last one may be longer.
const REPLIES_LEN_MAX: usize = 1 << 20;

/// The next version while commands are added to it.
struct Batch {
    register: Register,
    next: Version,
    origins: Vec<(Origin, Reply)>,
    /// Bytes of the replies.
    len: usize,
    serial: Serial,
}

impl Batch {
    fn run(&self, cx: &mut Cx<'_, '_>, command: &[u8]) -> Effect<Version> {
        self.register.content.run(&mut **cx, self.next, command)
    }

    /// Runs a command of another member. It has no effect if its reply cannot be sent.
    fn run_steered(&self, cx: &mut Cx<'_, '_>, command: &[u8]) -> Effect<Version> {
        let effect = self.run(cx, command);
        let (Effect::Changed { reply, .. } | Effect::Unchanged { reply }) = &effect;
        match too_long("reply", reply.len()) {
            Some(refusal) => Effect::Unchanged { reply: refusal },
            None => effect,
        }
    }

    fn add(&mut self, origin: Origin, reply: Reply) {
        self.len += reply.len();
        self.origins.push((origin, reply));
    }

    fn is_full(&self) -> bool {
        self.origins.len() >= BATCH_MAX || self.len >= REPLIES_LEN_MAX
    }
}

impl Craq {
    pub(super) fn on_steer(&mut self, cx: &mut Cx<'_, '_>, node: NodeId, key: &Key, steer: Steer) {
        let Some(member) = cx.configuration.member(node) else { return };
        if !chain::is_head(cx) || self.lanes.len() >= REQUESTS_MAX {
            return;
        }
        let Steer { worker, seq, low, is_again, command } = steer;
        let from = From { node, serial: member.serial, worker, seq };
        match self.streams.admit(from, low, key) {
            Admission::New => {}
            Admission::Copy(Progress::Ended(reply)) => {
                return send(cx, node, key, Body::Done { seq, reply });
            }
            Admission::Copy(Progress::Running) | Admission::Old => return,
        }
        // A worker has one command on a key at a time: it has given earlier ones up.
        let is_of_it = |it: &Steered| (it.from.serial, it.from.worker) == (from.serial, worker);
        let steered = &mut self.lane(cx, key).steered;
        steered.retain(|it| !is_of_it(it));
        steered.push_back(Steered { from, is_again, command });
        self.advance(cx, key);
    }

    /// A member holds a version that it does not know to be everywhere.
    pub(super) fn on_nudge(
        &mut self,
        cx: &mut Cx<'_, '_>,
        from: NodeId,
        key: &Key,
        (version, is_read): (Version, bool),
    ) {
        if !chain::is_head(cx) {
            return;
        }
        match held(cx, key) {
            Held::Lost => {}
            Held::Clean(version_here) if version <= version_here => {
                send(cx, from, key, Body::Up { version: version_here });
            }
            held => {
                let may_wait = matches!(held, Held::Dirty(_)) && !is_read;
                let is_full =
                    self.lanes.len() >= REQUESTS_MAX || (may_wait && self.renewals.is_full());
                if is_full {
                    // The head's own sweep comes to it.
                    if from == cx.replicas.me() {
                        self.ends.look_again(key, cx.now);
                    }
                    return;
                }
                if self.lane(cx, key).pend.is_none() {
                    let len = super::register_of(cx, key).content.value.map_or(0, |it| it.len());
                    self.renewals.begin(key, len);
                    self.inject(cx, key);
                }
                self.lanes.plan(cx.cache, key);
            }
        }
    }

    /// True if a head of an earlier epoch may have run a command that waits, and this epoch has no
    /// version yet.
    ///
    /// A version with the command may still be dirty elsewhere, and become the value of a later
    /// head. A version of this epoch replaces it before the command is answered without effect.
    pub(super) fn may_have_run(&self, cx: &Cx<'_, '_>, key: &Key, version: Version) -> bool {
        let epoch = cx.configuration.epoch;
        let is_old = version.epoch < epoch && !mutation::is(Mutation::RepeatsUnseen);
        let Some(lane) = self.lanes.get(key).filter(|_| is_old) else { return false };
        let is_again = |it: &Waiting| it.seq.is_some() && it.numbered_in < epoch;
        lane.steered.iter().any(|it| it.is_again) || lane.waiting.iter().any(is_again)
    }

    /// Sends the head's own value down the chain, unless a version is on its way. A version of
    /// another epoch goes as a new one, so each version is committed in its own epoch or never.
    pub(super) fn inject(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        if self.lanes.get(key).is_none_or(|lane| lane.pend.is_some()) {
            return;
        }
        let register = match held(cx, key) {
            Held::Lost => return,
            Held::Clean(_) | Held::Dirty(_) => super::register_of(cx, key),
        };
        self.start(cx, key, register, Vec::new());
    }

    /// True if its member has no answer yet.
    pub(super) fn may_come_again(&self, cx: &Cx<'_, '_>, ran: &Ran) -> bool {
        cx.configuration.has_serial(ran.origin)
            && !self.streams.has_ended(ran.origin, ran.worker, ran.seq)
    }

    /// Makes the register's value the next version.
    pub(super) fn start(
        &mut self,
        cx: &mut Cx<'_, '_>,
        key: &Key,
        register: Register,
        origins: Vec<(Origin, Reply)>,
    ) {
        let version = self.next_version(cx, key, register.version);
        let mut register = Register { version, is_clean: false, ..register };
        register.ran.retain(|ran| self.may_come_again(cx, ran));
        self.store(cx, key, register);
        let lane = self.lane(cx, key);
        lane.pend = Some(Pend { version, since: cx.now, has_next: false, origins });
        lane.wait(cx.now);
        let register = super::register_of(cx, key);
        super::hand_on(cx, key, register);
    }

    /// Sends the version on its way again.
    pub(super) fn push_again(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let Some(Lane { pend: Some(pend), .. }) = self.lanes.get(key) else { return };
        let &Pend { since, has_next, .. } = pend;
        let register = super::register_of(cx, key);
        super::hand_on_again(cx, key, register, has_next);
        // It may have fallen silent since.
        let stall = super::stall(cx);
        let is_silent = |next| self.stalls.is_silent(next, stall, cx.now);
        if !has_next || chain::next(cx).is_some_and(is_silent) {
            self.look_stalled(cx, since);
        }
    }

    /// The version on its way is at every member.
    pub(super) fn end_pend(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let Some(pend) = self.lanes.get_mut(key).and_then(|lane| lane.pend.take()) else { return };
        self.renewals.end(key);
        for (origin, reply) in pend.origins {
            match origin {
                Origin::Own(waiting) => {
                    cx.fx.reply(waiting.request.tag, Outcome::Reply(reply));
                }
                Origin::Steered(from) => self.end_steered(cx, key, from, Some(reply)),
            }
        }
    }

    fn end_steered(&mut self, cx: &mut Cx<'_, '_>, key: &Key, from: From, reply: Option<Reply>) {
        self.streams.end(from, reply.as_ref().and_then(register::brief));
        send(cx, from.node, key, Body::Done { seq: from.seq, reply });
    }

    /// Runs the waiting commands on the clean value.
    pub(super) fn run_batch(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        let mut steered = std::mem::take(&mut lane.steered);
        let mut waiting = std::mem::take(&mut lane.waiting);
        let register = super::register_of(cx, key);
        let serial = cx.me().serial;
        let next = self.next_version(cx, key, register.version);
        let mut batch = Batch { register, next, origins: Vec::new(), len: 0, serial };
        self.add_steered(cx, key, &mut batch, &mut steered);
        self.add_own(cx, &mut batch, &mut waiting);
        let lane = self.lane(cx, key);
        lane.steered = steered;
        lane.waiting = waiting;
        // No lease covers the first one, perhaps.
        lane.look_again(cx.now);
        if !batch.origins.is_empty() {
            self.start(cx, key, batch.register, batch.origins);
        }
    }

    fn add_steered(
        &mut self,
        cx: &mut Cx<'_, '_>,
        key: &Key,
        batch: &mut Batch,
        steered: &mut VecDeque<Steered>,
    ) {
        while !batch.is_full()
            && let Some(next) = steered.pop_front()
        {
            let From { serial, worker, seq, .. } = next.from;
            if self.streams.has_ended(serial, worker, seq) {
                continue;
            }
            if !mutation::is(Mutation::NoTable)
                && let Some(ran) = batch.register.find(serial, seq)
            {
                let reply = ran.reply.clone();
                self.end_steered(cx, key, next.from, reply);
                continue;
            }
            match batch.run_steered(cx, &next.command) {
                Effect::Changed { content, reply } => {
                    batch.register.content = content;
                    let brief = register::brief(&reply);
                    if brief.is_some() || !mutation::is(Mutation::ForgetsLong) {
                        batch.register.note(Ran { origin: serial, worker, seq, reply: brief });
                    }
                    batch.add(Origin::Steered(next.from), reply);
                }
                // It is a read: of a value that is not committed yet, it has to wait.
                Effect::Unchanged { reply } if batch.origins.is_empty() && cx.is_covered() => {
                    self.end_steered(cx, key, next.from, Some(reply));
                }
                Effect::Unchanged { .. } => {
                    steered.push_front(next);
                    break;
                }
            }
        }
    }

    fn add_own(&mut self, cx: &mut Cx<'_, '_>, batch: &mut Batch, waiting: &mut VecDeque<Waiting>) {
        while !batch.is_full()
            && let Some(next) = {
                // A read of a key whose time is over leaves a deletion behind.
                let is_over = batch.register.content.is_over(cx.uptime, cx.unix);
                waiting.pop_front_if(|it| is_over || it.request.command.access != Access::Read)
            }
        {
            let tag = next.request.tag;
            let ran = next.seq.and_then(|seq| batch.register.find(batch.serial, seq));
            if let Some(ran) = ran {
                cx.fx.reply(tag, outcome_of(&next.request, ran.reply.clone()));
                self.forget(&next);
                continue;
            }
            match batch.run(cx, &next.request.command.body) {
                Effect::Changed { content, reply } => {
                    batch.register.content = content;
                    self.forget(&next);
                    batch.add(Origin::Own(next), reply);
                }
                Effect::Unchanged { reply }
                    if batch.origins.is_empty() && cx.reply_read(tag, reply.clone()) =>
                {
                    self.forget(&next);
                }
                Effect::Unchanged { .. } => {
                    waiting.push_front(next);
                    break;
                }
            }
        }
    }
}
