//! The coordinator's side: from a request to its reply, one write at a time per key and node.

use types::{Access, Key, NodeId, Outcome};

use super::collection::goes_on;
use super::lane::{Asked, Lane, Origin, Pend, Waiting};
use super::message::Message;
use super::register::Register;
use super::version::Version;
use super::{Cx, Hermes, PATIENCE, PER_BYTE, RESEND_FIRST, RESEND_MAX, SLOW_SHARE, held_version};
use base::Nanos;

use crate::configured::{Configured, given_up};
use crate::mutation::{self, Mutation};
use crate::peers::Pace;
use crate::protocol::{Context, Request};
use crate::register_cache::CachedRegister;
use crate::replicas::{Places, place};
use crate::toolkit::acks::Numbered;
use crate::toolkit::asks::Outstanding;
use crate::toolkit::content::Effect;

/// Requests in progress or waiting.
const REQUESTS_MAX: usize = 65_536;

/// Requests.
impl Hermes {
    pub(super) fn on_request(&mut self, cx: &mut Cx<'_, '_>, request: Request) {
        if self.lanes.len() + self.waiting_count >= REQUESTS_MAX {
            return cx.fx.reply(request.tag, Outcome::NoQuorum);
        }
        let key = request.key.clone();
        let deadline = request.asked_at + self.env.request_timeout;
        self.lane(cx, &key).waiting.push_back(Waiting { request, deadline, is_tried: false });
        self.waiting_count += 1;
        self.advance(cx, &key);
    }

    fn lane(&mut self, cx: &mut Cx<'_, '_>, key: &Key) -> &mut Lane {
        let now = cx.now;
        self.lanes.open(cx.cache, key, || Lane::new(now + PATIENCE))
    }

    /// Starts queued requests while the key is valid, up to and including the first write.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        while let Some(lane) = self.lanes.get_mut(key)
            && lane.pend.is_none()
            && (is_valid(cx, key) || reads_all_the_same(lane))
            && (lane.yields_until <= cx.now || reads_next(lane))
            && let Some(waiting) = lane.waiting.pop_front()
        {
            self.waiting_count -= 1;
            // The key is valid above any earlier attempt: that one surely had no effect.
            if waiting.deadline <= cx.now {
                cx.fx.reply(waiting.request.tag, Outcome::NoQuorum);
            } else if !self.begin(cx, key, waiting) {
                break;
            }
        }
        self.lanes.plan(cx.cache, key);
    }

    /// Answers a request without a change, or makes it the key's write. False if it has to wait for
    /// the lease. [HERMES 3.2, coordinator]
    fn begin(&mut self, cx: &mut Cx<'_, '_>, key: &Key, waiting: Waiting) -> bool {
        let Request { tag, command, .. } = &waiting.request;
        let (version, found) = self.base(cx, key);
        let is_rmw = command.access != Access::Write;
        let version = version.next(cx.me().serial, is_rmw);
        let (content, reply) = match found.run(&mut **cx, version, &command.body) {
            Effect::Changed { content, reply } => (content, reply),
            Effect::Unchanged { reply } => {
                if cx.reply_read(*tag, reply) {
                    return true;
                }
                let Some(lane) = self.lanes.get_mut(key) else { return false };
                lane.waiting.push_front(Waiting { is_tried: false, ..waiting });
                lane.act_at = cx.now + RESEND_FIRST;
                self.waiting_count += 1;
                return false;
            }
        };
        let register = Register { version, content, is_valid: false };
        self.store(cx, key, register.clone());
        self.start(cx, key, register, Some(Origin { waiting, reply }));
        true
    }

    /// Replaces the register.
    pub(super) fn store(&mut self, cx: &mut Cx<'_, '_>, key: &Key, register: Register) {
        self.forget_tombstone(cx, key);
        self.note(cx, key, &register.content);
        cx.cache.put(key, register);
        cx.cache.persist(key);
    }

    /// Makes all members hold the register's version.
    fn start(
        &mut self,
        cx: &mut Cx<'_, '_>,
        key: &Key,
        register: Register,
        origin: Option<Origin>,
    ) {
        let number = self.asks.add(Asked { key: key.clone(), acks: 0 });
        if Outstanding::<Asked>::ends_batch(number) && !mutation::is(Mutation::CommitsLate) {
            self.send_validated(cx);
        }
        let since = cx.now;
        let pend = Pend {
            register,
            number,
            resend_after: RESEND_FIRST,
            resends: 0,
            has_rival: false,
            since,
            origin,
        };
        self.lane(cx, key).pend = Some(pend);
        self.ask_all(cx, key);
    }

    /// Sends the key's write to all members.
    fn ask_all(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        let Some(pend) = &mut lane.pend else { return };
        pend.resend_after = RESEND_FIRST + on_its_way(&pend.register);
        pend.resends = 0;
        lane.act_at = cx.now + pend.resend_after;
        self.ask(cx, key);
    }

    /// Sends the write to every member without an acknowledgement. This one counts itself once its
    /// own copy is durable.
    fn ask(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let Some(Pend { register, number, resends, .. }) = self.pend(key) else { return };
        let (ask, lacking, me) =
            (self.asks.ask(*number), self.lacking(cx, *number), cx.replicas.me());
        for &node in lacking.iter().filter(|&&node| node != me) {
            if resends % SLOW_SHARE != 0 && is_slow(cx, node) {
                continue;
            }
            let (key, register) = (key.clone(), register.clone());
            cx.send_now(node, Message::Invalidate { ask: Some(ask), key, register });
        }
        if lacking.contains(&me) {
            self.acks.add(me, ask, key.shard(), cx.cache.ticket(key));
        }
    }

    fn pend(&self, key: &Key) -> Option<&Pend> {
        self.lanes.get(key).and_then(|lane| lane.pend.as_ref())
    }

    /// The members without an acknowledgement.
    fn lacking(&self, cx: &Cx<'_, '_>, number: u64) -> Vec<NodeId> {
        let acks = self.asks.get(number).map_or(0, |asked| asked.acks);
        let nodes = cx.set.nodes().iter().enumerate();
        nodes.filter(|&(index, _)| acks & place(index) == 0).map(|(_, &node)| node).collect()
    }

    /// [HERMES 3.2, coordinator on ACK]
    pub(super) fn on_ack(&mut self, cx: &mut Cx<'_, '_>, from: NodeId, acks: &Numbered) {
        if acks.stream != self.asks.stream() {
            return;
        }
        self.validated.note_workers(from, acks);
        for number in acks.numbers.iter() {
            let Some(asked) = self.asks.get_mut(number) else { continue };
            asked.acks |= cx.set.index(from).map_or(0, place);
            if mutation::is(Mutation::AcksWithoutShadows) {
                asked.acks |= shadows(cx);
            }
            let is_held = match mutation::is(Mutation::ValidateByMajority) {
                true => cx.set.is_quorum_of(asked.acks),
                false => cx.set.is_all_of(asked.acks),
            };
            if is_held {
                let key = asked.key.clone();
                self.on_held(cx, &key, number);
            }
        }
    }

    /// Every member holds the key's write, or a newer one.
    fn on_held(&mut self, cx: &mut Cx<'_, '_>, key: &Key, number: u64) {
        let Some(pend) = self.pend(key).filter(|pend| pend.number == number) else { return };
        let version = pend.register.version;
        if let Some(register) = cx.cache.get_mut(key)
            && register.version == version
        {
            register.is_valid = true;
            cx.cache.persist_before_eviction(key);
            for node in cx.others() {
                if self.asks.is_recent(number) {
                    self.validated.add_commit(node, self.asks.ask(number), key.shard());
                } else {
                    cx.send_now(node, Message::Validate { key: key.clone(), version });
                }
            }
        }
        self.close_pend(cx, key);
        if self.lanes.get(key).is_some_and(|lane| !lane.waiting.is_empty()) {
            self.resumed.push(key.clone());
        }
        self.lanes.plan(cx.cache, key);
    }

    /// A member has lost against the key's write here. It goes first, if it tries again soon.
    pub(super) fn note_rival(&mut self, key: &Key, held: Version) {
        let pend = self.lanes.get_mut(key).and_then(|lane| lane.pend.as_mut());
        if let Some(pend) = pend.filter(|pend| pend.register.version == held) {
            pend.has_rival = true;
        }
    }

    /// Ends the key's write, if any, with success. The next one begins.
    pub(super) fn end_pend(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        self.close_pend(cx, key);
        self.advance(cx, key);
    }

    fn close_pend(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        let pend = lane.pend.take();
        lane.act_at = cx.now + PATIENCE;
        if pend.as_ref().is_some_and(|pend| pend.has_rival) {
            lane.yields_until = lane.act_at;
        }
        if let Some(pend) = &pend {
            self.asks.end(pend.number);
        }
        if let Some(Pend { origin: Some(origin), .. }) = pend {
            cx.fx.reply(origin.waiting.request.tag, Outcome::Reply(origin.reply));
        }
    }

    /// A newer version overwrote the register. A plain write continues, ordered just before it. A
    /// read-modify-write is retried once the key is valid, and so is a write of an earlier life. A
    /// repeated write is left to the newer one.
    pub(super) fn on_superseded(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let held = held_version(cx, key);
        let Some(lane) = self.lanes.get_mut(key) else { return };
        lane.yields_until = Nanos::ZERO;
        if lane.pend.as_ref().is_some_and(|pend| goes_on(pend, held)) {
            return;
        }
        lane.act_at = cx.now + PATIENCE;
        if let Some(pend) = lane.pend.take() {
            self.give_back(cx, key, pend);
        }
        self.lanes.plan(cx.cache, key);
    }

    /// A new epoch: acknowledgements of the last one are void.
    pub(super) fn on_epoch(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        lane.act_at = cx.now;
        if let Some(pend) = &mut lane.pend {
            let acks = self.asks.end(pend.number).map_or(0, |asked| asked.acks);
            let acks = if mutation::is(Mutation::AcksOutliveEpoch) { acks } else { 0 };
            pend.number = self.asks.add(Asked { key: key.clone(), acks });
            pend.since = cx.now;
            self.ask_all(cx, key);
        }
        self.lanes.plan(cx.cache, key);
    }
}

/// Time.
impl Hermes {
    pub(super) fn on_due(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        self.expire_lane(cx, key);
        let Some(lane) = self.lanes.get_mut(key) else { return };
        if lane.act_at <= cx.now {
            match &mut lane.pend {
                Some(pend) => {
                    lane.act_at = cx.now + pend.resend_after;
                    let later = Nanos(pend.resend_after.0 * 2).min(RESEND_MAX);
                    pend.resend_after = pend.resend_after.max(later);
                    pend.resends += 1;
                    let (number, since) = (pend.number, pend.since);
                    let stall = stall(cx) + Nanos(4 * on_its_way(&pend.register).0);
                    self.ask(cx, key);
                    for node in self.lacking(cx, number) {
                        self.suspect(cx, node, since, stall);
                    }
                }
                None if lane.waiting.is_empty() => {}
                None => self.look(cx, key),
            }
        }
        self.advance(cx, key);
    }

    /// Answers requests whose time is over.
    pub(super) fn expire_lane(&mut self, cx: &mut Context<'_, Configured<Hermes>>, key: &Key) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        if let Some(pend) = &mut lane.pend
            && let Some(origin) = pend.origin.take_if(|origin| origin.waiting.deadline <= cx.now)
        {
            // The write itself continues, since other members may hold the key invalid because of
            // it.
            cx.fx.reply(origin.waiting.request.tag, given_up(&origin.waiting.request));
        }
        while let Some(waiting) = lane.waiting.pop_front_if(|it| it.deadline <= cx.now) {
            self.waiting_count -= 1;
            let outcome = match waiting.is_tried {
                true => given_up(&waiting.request),
                false => Outcome::NoQuorum,
            };
            cx.fx.reply(waiting.request.tag, outcome);
        }
    }

    /// The key has been invalid for long while requests wait. A validation may have been lost, or
    /// its coordinator is gone.
    fn look(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        lane.act_at = cx.now + PATIENCE;
        let CachedRegister::Present(register) = cx.cache.get(key) else { return };
        if register.is_valid {
            return;
        }
        let register = register.clone();
        let coordinator = register.version.coordinator();
        let members = &cx.configuration.members;
        let alive = members.iter().find(|member| member.serial == coordinator);
        match alive {
            // A replay could make it succeed while its live coordinator believes that it lost.
            // [HERMES 3.3]
            Some(alive)
                if register.version.is_rmw()
                    && alive.node != cx.replicas.me()
                    && !mutation::is(Mutation::ReplayLiveRmw) =>
            {
                let (to, version) = (alive.node, register.version);
                if let Some(first) = lane.waiting.front() {
                    let (since, stall) = (first.request.asked_at, stall(cx));
                    self.suspect(cx, to, since, stall);
                }
                cx.send_now(to, Message::Nudge { key: key.clone(), version });
            }
            _ => self.start(cx, key, register, None),
        }
    }

    /// Reports a member that owes an answer for too long.
    fn suspect(&mut self, cx: &mut Cx<'_, '_>, node: NodeId, since: Nanos, stall: Nanos) {
        if node != cx.replicas.me() && self.stalls.is_due(node, since, stall, cx.now) {
            cx.fx.suspect(node);
        }
    }

    /// Replays the register's write, unless one is in progress on the key.
    pub(super) fn replay_if_idle(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let CachedRegister::Present(register) = cx.cache.get(key) else { return };
        let register = register.clone();
        if self.lane(cx, key).pend.is_none() {
            self.start(cx, key, register, None);
        }
        self.lanes.plan(cx.cache, key);
    }
}

fn reads_next(lane: &Lane) -> bool {
    let is_read = |next: &Waiting| next.request.command.access == Access::Read;
    lane.waiting.front().is_some_and(is_read)
}

fn reads_all_the_same(lane: &Lane) -> bool {
    mutation::is(Mutation::ReadInvalid) && reads_next(lane)
}

/// How long a value of this length may take to a member and to its storage.
fn on_its_way(register: &Register) -> Nanos {
    Nanos(PER_BYTE.0 * register.content.value.as_ref().map_or(0, |it| it.len()) as u64)
}

fn is_slow(cx: &Cx<'_, '_>, node: NodeId) -> bool {
    cx.replicas.member(node).is_some_and(|member| member.pace == Pace::Slow)
}

pub(super) fn is_valid(cx: &Cx<'_, '_>, key: &Key) -> bool {
    match cx.cache.get(key) {
        CachedRegister::Present(register) => register.is_valid,
        CachedRegister::Absent => true,
        CachedRegister::Lost => false,
    }
}

/// How long a member may owe an answer before the membership service hears of it.
fn stall(cx: &Cx<'_, '_>) -> Nanos {
    Nanos(cx.configuration.lease.0 / 4 * 5)
}

/// The places of the shadows.
fn shadows(cx: &Cx<'_, '_>) -> Places {
    let members = cx.configuration.members.iter();
    let shadows = members.filter(|member| member.role == types::Role::Shadow);
    shadows.filter_map(|member| cx.set.index(member.node)).map(place).fold(0, |all, it| all | it)
}
