//! The side of the member that was asked: reads of clean keys are local, writes go to the head.

use types::{Access, Epoch, Key, NodeId, Outcome, Reply};

use super::lane::{Asking, Lane, Origin, Waiting};
use super::message::{Body, Steer};
use super::version::Version;
use super::{Craq, Cx, Held, REQUESTS_MAX, chain, held, is_steady, register_of, send};
use crate::configured::{Configured, given_up};
use crate::mutation::{self, Mutation};
use crate::protocol::{Context, Request};
use crate::register_cache::CachedRegister;
use crate::toolkit::content::{Content, Effect};

/// Reads of other members that wait at the last full one, per key.
const ASKERS_MAX: usize = 1_024;

/// Requests.
impl Craq {
    pub(super) fn on_request(&mut self, cx: &mut Cx<'_, '_>, request: Request) {
        if self.lanes.len() >= REQUESTS_MAX || self.open.len() >= REQUESTS_MAX {
            return cx.fx.reply(request.tag, Outcome::NoQuorum);
        }
        let key = request.key.clone();
        let deadline = request.asked_at + self.env.request_timeout;
        let waiting = Waiting { request, deadline, seq: None, numbered_in: Epoch(0) };
        self.lane(cx, &key).waiting.push_back(waiting);
        self.advance(cx, &key);
    }

    pub(super) fn lane(&mut self, cx: &mut Cx<'_, '_>, key: &Key) -> &mut Lane {
        self.lanes.open(cx.cache, key, Lane::new)
    }

    /// The request has ended, as far as heads are concerned.
    pub(super) fn forget(&mut self, waiting: &Waiting) {
        if let Some(seq) = waiting.seq {
            self.open.remove(&seq);
        }
    }

    /// Does all that the key's state allows.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        if !self.lanes.has(key) {
            return;
        }
        self.answer_askers(cx, key);
        let is_lost = matches!(held(cx, key), Held::Lost);
        if !is_lost && self.read_local(cx, key) {
            match chain::is_head(cx) {
                true => self.go_on_at_head(cx, key),
                false => self.go_on_behind(cx, key),
            }
        }
        self.lanes.plan(cx.cache, key);
    }

    fn go_on_at_head(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let Some(lane) = self.lanes.get(key) else { return };
        if lane.pend.is_some() {
            return;
        }
        match held(cx, key) {
            Held::Lost => {}
            Held::Dirty(_) => self.inject(cx, key),
            Held::Clean(version) if self.may_have_run(cx, key, version) => self.inject(cx, key),
            Held::Clean(_) => self.run_batch(cx, key),
        }
        // Reads behind commands without effect.
        if self.lanes.get(key).is_some_and(|lane| lane.pend.is_none()) {
            self.read_local(cx, key);
        }
    }

    fn go_on_behind(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        let Some(first) = lane.waiting.front() else { return };
        if first.request.command.access != Access::Read || is_over_here(cx, key) {
            if !lane.is_steering {
                lane.is_steering = true;
                lane.wait(cx.now);
                self.steer(cx, key);
            }
        } else if let Held::Dirty(version) = held(cx, key) {
            if chain::is_tail(cx) {
                self.nudge_for_reads(cx, key, version);
            } else if !cx.is_covered() {
                // The answer would be of no use.
                lane.look_again(cx.now);
            } else if lane.asking.is_none() {
                let reads = lane.waiting.iter();
                let reads = reads.take_while(|it| it.request.command.access == Access::Read);
                let count = reads.count();
                let content = register_of(cx, key).content;
                self.next_seq += 1;
                lane.asking = Some(Asking { id: self.next_seq, version, content, count });
                lane.wait(cx.now);
                self.ask_tail(cx, key);
            }
        }
    }

    fn nudge_for_reads(&mut self, cx: &mut Cx<'_, '_>, key: &Key, version: Version) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        lane.look_again(cx.now);
        // A write of this epoch is on its way, most likely.
        if version.epoch < cx.configuration.epoch {
            nudge(cx, key, version, true);
        }
    }

    /// Answers the first waiting requests while they are reads of a clean key. False if no lease
    /// covers them.
    fn read_local(&mut self, cx: &mut Cx<'_, '_>, key: &Key) -> bool {
        let is_readable = match held(cx, key) {
            Held::Clean(_) => true,
            Held::Dirty(_) => mutation::is(Mutation::ReadDirty),
            Held::Lost => false,
        };
        if !is_readable {
            return true;
        }
        let content = register_of(cx, key).content;
        self.read(cx, key, &content, usize::MAX)
    }

    /// Answers up to `count` of the first waiting reads by a committed value.
    fn read(
        &mut self,
        cx: &mut Cx<'_, '_>,
        key: &Key,
        content: &Content<Version>,
        mut count: usize,
    ) -> bool {
        let Some(lane) = self.lanes.get_mut(key) else { return true };
        while count > 0
            && let Some(first) = lane.waiting.front()
            && first.request.command.access == Access::Read
        {
            let tag = first.request.tag;
            let body = first.request.command.body.clone();
            let reply = match content.run(&mut **cx, Version::NONE, &body) {
                Effect::Unchanged { reply } => reply,
                // Its time is over: the head deletes it.
                Effect::Changed { .. } => return true,
            };
            if !cx.reply_read(tag, reply) {
                lane.look_again(cx.now);
                return false;
            }
            // The head may have been asked meanwhile.
            if let Some(seq) = lane.waiting.pop_front().and_then(|read| read.seq) {
                lane.is_steering = false;
                self.open.remove(&seq);
            }
            lane.asking = lane
                .asking
                .take_if(|asking| asking.count > 1)
                .map(|asking| Asking { count: asking.count - 1, ..asking });
            count -= 1;
        }
        true
    }
}

/// Writes.
impl Craq {
    fn steer(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let Some(head) = chain::head(cx) else { return };
        let Some(first) = self.lanes.get_mut(key).and_then(|lane| lane.waiting.front_mut()) else {
            return;
        };
        let epoch = cx.configuration.epoch;
        let seq = *first.seq.get_or_insert_with(|| {
            self.next_seq += 1;
            self.open.insert(self.next_seq);
            first.numbered_in = epoch;
            self.next_seq
        });
        let is_again = first.numbered_in < epoch;
        let command = first.request.command.body.clone();
        let low = self.open.first().copied().unwrap_or(seq);
        let worker = self.env.worker as u64;
        send(cx, head, key, Body::Steer(Steer { worker, seq, low, is_again, command }));
    }

    fn steer_again(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        // Otherwise it waits in front of the link still.
        if chain::head(cx).is_some_and(|head| is_steady(cx, head)) {
            self.steer(cx, key);
        }
    }

    pub(super) fn on_done(
        &mut self,
        cx: &mut Cx<'_, '_>,
        key: &Key,
        seq: u64,
        reply: Option<Reply>,
    ) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        if !lane.is_steering || lane.waiting.front().is_none_or(|first| first.seq != Some(seq)) {
            return;
        }
        let Some(first) = lane.waiting.pop_front() else { return };
        lane.is_steering = false;
        self.forget(&first);
        cx.fx.reply(first.request.tag, outcome_of(&first.request, reply));
        self.advance(cx, key);
    }
}

/// Reads of dirty keys.
impl Craq {
    fn ask_tail(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let Some(Lane { asking: Some(asking), .. }) = self.lanes.get(key) else { return };
        let Some(tail) = chain::tail(cx) else { return };
        send(cx, tail, key, Body::AskTail { id: asking.id, version: asking.version });
    }

    pub(super) fn on_ask_tail(
        &mut self,
        cx: &mut Cx<'_, '_>,
        from: NodeId,
        key: &Key,
        (id, version): (u64, Version),
    ) {
        if !chain::is_tail(cx) {
            return;
        }
        if let Held::Clean(_) = held(cx, key) {
            return answer(cx, key, (from, id, version));
        }
        let lane = self.lane(cx, key);
        if lane.askers.len() < ASKERS_MAX && !lane.askers.contains(&(from, id, version)) {
            lane.askers.push((from, id, version));
        }
        if let Held::Dirty(version) = held(cx, key) {
            self.nudge_for_reads(cx, key, version);
        }
        self.advance(cx, key);
    }

    fn answer_askers(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        if matches!(held(cx, key), Held::Clean(_)) {
            for asker in std::mem::take(&mut lane.askers) {
                answer(cx, key, asker);
            }
        }
    }

    pub(super) fn on_tail(
        &mut self,
        cx: &mut Cx<'_, '_>,
        key: &Key,
        id: u64,
        (version, content): (Version, Option<Content<Version>>),
    ) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        let Some(asking) = lane.asking.take_if(|asking| asking.id == id) else { return };
        let count = match mutation::is(Mutation::LaterReadsJoin) {
            true => usize::MAX,
            false => asking.count,
        };
        match content {
            None => {
                self.note_clean(cx, key, version);
                self.read(cx, key, &asking.content, count);
            }
            Some(content) => {
                let content = content.arrive(None, cx.uptime);
                self.read(cx, key, &content, count);
                if asking.version.epoch < cx.configuration.epoch {
                    nudge(cx, key, asking.version, true);
                }
                // Its deletion is on its way: the tail is asked again after a while.
                if content.is_over(cx.uptime, cx.unix) {
                    if let Some(lane) = self.lanes.get_mut(key) {
                        lane.wait(cx.now);
                    }
                    return self.lanes.plan(cx.cache, key);
                }
            }
        }
        self.advance(cx, key);
    }
}

/// The outcome of a command that ran. The reply may not have been kept.
pub(super) fn outcome_of(request: &Request, reply: Option<Reply>) -> Outcome {
    reply.map_or_else(|| given_up(request), Outcome::Reply)
}

/// True if the register here is clean, and its time to live over.
fn is_over_here(cx: &Cx<'_, '_>, key: &Key) -> bool {
    match cx.cache.get(key) {
        CachedRegister::Present(register) => {
            register.is_clean && register.content.is_over(cx.uptime, cx.unix)
        }
        CachedRegister::Absent | CachedRegister::Lost => false,
    }
}

fn answer(cx: &mut Cx<'_, '_>, key: &Key, (to, id, version): (NodeId, u64, Version)) {
    let register = register_of(cx, key);
    let content =
        (register.version != version).then(|| register.content.with_rest(cx.uptime, cx.unix));
    send(cx, to, key, Body::Tail { id, version: register.version, content });
}

pub(super) fn nudge(cx: &mut Cx<'_, '_>, key: &Key, version: Version, is_read: bool) {
    if let Some(head) = chain::head(cx) {
        send(cx, head, key, Body::Nudge { version, is_read });
    }
}

/// Time.
impl Craq {
    pub(super) fn on_due(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        self.expire_lane(cx, key);
        let Some(lane) = self.lanes.get_mut(key) else { return };
        if lane.act_at <= cx.now {
            lane.act_at = lane.resend.next(cx.now);
            let (is_steering, is_asking) = (lane.is_steering, lane.asking.is_some());
            if lane.pend.is_some() {
                self.push_again(cx, key);
            } else if is_steering {
                self.steer_again(cx, key);
            } else if is_asking {
                self.ask_tail(cx, key);
            } else if let Held::Dirty(version) = held(cx, key)
                && chain::is_tail(cx)
                && !chain::is_head(cx)
            {
                nudge(cx, key, version, true);
            }
        }
        self.advance(cx, key);
    }

    /// Answers requests whose time is over.
    pub(super) fn expire_lane(&mut self, cx: &mut Context<'_, Configured<Craq>>, key: &Key) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        let now = cx.now;
        if let Some(pend) = &mut lane.pend {
            let is_over = |(origin, _): &mut (Origin, Reply)| match origin {
                Origin::Own(waiting) => waiting.deadline <= now,
                Origin::Steered(_) => false,
            };
            for (origin, _) in pend.origins.extract_if(.., is_over) {
                if let Origin::Own(waiting) = origin {
                    cx.fx.reply(waiting.request.tag, given_up(&waiting.request));
                }
            }
        }
        while let Some(waiting) = lane.waiting.pop_front_if(|it| it.deadline <= now) {
            lane.is_steering = false;
            lane.asking = lane
                .asking
                .take_if(|asking| asking.count > 1)
                .map(|asking| Asking { count: asking.count - 1, ..asking });
            let outcome = match waiting.seq {
                Some(_) => given_up(&waiting.request),
                None => Outcome::NoQuorum,
            };
            if let Some(seq) = waiting.seq {
                self.open.remove(&seq);
            }
            cx.fx.reply(waiting.request.tag, outcome);
        }
    }
}
