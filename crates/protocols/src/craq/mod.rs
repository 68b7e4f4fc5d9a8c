//! Chain replication with apportioned queries. Writes go down a chain of members, and any member
//! answers reads.
//!
//! Sources: van Renesse and Schneider, "Chain Replication for Supporting High Throughput and
//! Availability", OSDI 2004. Terrace and Freedman, "Object Storage on CRAQ", USENIX ATC 2009.
//!
//! The head orders the writes of a key. A version goes *down* from member to member, and each
//! stores it durably before it hands it on. The last one acknowledges it, and that goes *up*: every
//! member holds it, so it is clean. A read of a clean key is answered from memory under the lease.
//! A member with a dirty key asks the last full member for the committed version.
//!
//! | message | asks or tells |
//! |---|---|
//! | `Steer` -> `Done` | to the head: run this command once |
//! | `Down` -> `Up` | hold this version; every member holds it |
//! | `Down` -> `Have` | I hold it already, and wait for those behind |
//! | `Again` -> `Up`, `Have` | to a member that holds this version: do all others? |
//! | `AskTail` -> `Tail` | the committed version |
//! | `Nudge` -> `Up`, `Down` | to the head: is this version at every member? |
//! | `Spent` -> `Bury` | to the head: may the register of a deleted key go? |
//!
//! Invariants:
//! 1. A clean version, or a newer one, is durable at every member of this epoch and all later ones.
//! 2. A version is committed in its own epoch or never. Only the head of that epoch chose it.
//! 3. The head runs commands on a clean value only: a version descends from all committed ones.
//! 4. A register names the last steered command of each member that its value includes.
//! 5. A member at which a version is dirty never says that it is committed.
//!
//! **No streams.** Each key is a chain of its own, with one version on its way at a time. A version
//! names its place by itself. So messages may be lost, repeated and reordered, and members may run
//! different numbers of workers. Commands that wait meanwhile become the next version together.
//!
//! **Epochs.** The head sends a dirty value of another epoch as a new version of its own. It does
//! so once a command, a read or another member needs it. Any dirty version elsewhere is older.
//! Origins steer unanswered commands again under the same number. The register finds those that
//! had their effect, since its value and their names are one record.
//!
//! **Uncommitted reads** take the newest value that a full member holds, clean or dirty. They need
//! no lease, and go on between epochs. A value seen so may never be committed.
//!
//! **Shadows** are the end of the chain: a version is committed once they hold it too. The last
//! *full* member answers for the committed version, and knows it by the acknowledgement of the
//! shadows. A copy may hold a dirty version that other members lack. No rule relies on the
//! opposite: the new version of the head replaces it.
//!
//! Departures: the new tail never commits by itself, it asks the head. The head waits instead of
//! asking the tail. A dirty version of an earlier epoch is renamed.
//!
//! **Times to live** are counted by each member. A member at which one is over asks the head, which
//! deletes the key once its own count is over. So the key ends by a version like any other.
//!
//! **Deleted keys** leave a tombstone for a while (`collection.rs`).
//!
//! Start reading at `Craq::on`.

mod chain;
mod collection;
mod head;
mod lane;
pub mod message;
mod origin;
pub mod register;
mod renewals;
mod streams;
mod upkeep;
pub mod version;

use std::collections::{BTreeMap, BTreeSet};

use base::{Millis, Nanos, checksum};
use bytes::Bytes;
use types::explain::Record as Explained;
use types::{Key, NodeId, Reply, Shard, Ticket};

use lane::{Lane, Origin, Pend};
use message::Body;
pub use message::Message;
pub use register::Register;
use renewals::Renewals;
use streams::Streams;
#[cfg(test)]
pub(crate) use streams::tests::late_command;
pub use version::Version;

use crate::configured::{Configured, Inside, Member, MemberEvent, given_up};
use crate::effects::{TimerId, Violation};
use crate::mutation::{self, Mutation};
use crate::peers::Member as Peer;
use crate::protocol::{Consistency, Context, Env, Properties, Request, Stats};
use crate::register_cache::{CachedRegister, RegisterCache, Weight};
use crate::toolkit::content::{Content, Effect};
use crate::toolkit::ends::Ends;
use crate::toolkit::lanes::Lanes;
use crate::toolkit::no_meta::NoMeta;
use crate::toolkit::stalls::Stalls;
use crate::toolkit::sweep::Sweep;
use crate::uptime::Uptime;

/// A value of more bytes is acknowledged to the member before it, ahead of the chain.
const LONG: usize = 64 << 10;
/// Keys with work in progress, and steered requests.
const REQUESTS_MAX: usize = 65_536;
const TICK: TimerId = TimerId(0);
const ENDS: TimerId = TimerId(1);
const SWEEP: TimerId = TimerId(2);

/// One instance of craq.
#[derive(Debug)]
pub struct Craq {
    env: Env,
    /// Keys with a request or a write in progress here.
    lanes: Lanes<Lane>,
    /// The number of the last steered command or question.
    next_seq: u64,
    /// Steered commands of this worker without an outcome.
    open: BTreeSet<u64>,
    streams: Streams,
    /// Versions that came here again, since when, and whether the next member holds them.
    stalled: BTreeMap<Key, (Nanos, bool)>,
    stalls: Stalls,
    renewals: Renewals,
    /// When times to live are over.
    ends: Ends,
    sweep: Sweep,
    /// Numbers of this epoch up to which all versions of a shard are committed.
    floors: BTreeMap<Shard, u64>,
}

type Cx<'c, 'a> = Inside<'c, 'a, Craq>;

impl Member for Craq {
    const NAME: &'static str = "craq";
    const PROPERTIES: Properties = Properties {
        consistency: Consistency::Linearizable,
        read_modify_write: true,
        total_order: false,
        needs_config: true,
        needs_lease: true,
        locks: false,
        keeps_log: false,
        uncommitted_reads: true,
    };

    type Message = Message;
    type Record = Register;
    type Meta = NoMeta;

    fn open(env: Env) -> Craq {
        Craq {
            env,
            lanes: Lanes::new(TICK),
            next_seq: 0,
            open: BTreeSet::new(),
            streams: Streams::default(),
            stalled: BTreeMap::new(),
            stalls: Stalls::default(),
            renewals: Renewals::default(),
            ends: Ends::new(ENDS),
            sweep: Sweep::new(SWEEP),
            floors: BTreeMap::new(),
        }
    }

    fn on(&mut self, cx: &mut Cx<'_, '_>, event: MemberEvent<Craq>) {
        match event {
            MemberEvent::Request(request) => self.on_request(cx, request),
            MemberEvent::Message { from, message } => self.on_message(cx, from, message),
            MemberEvent::Timer(ENDS) => self.on_ends(cx),
            MemberEvent::Timer(SWEEP) => self.on_sweep(cx),
            MemberEvent::Timer(_) => self.on_tick(cx),
            MemberEvent::Copied { key } => self.watch(cx, &key),
            MemberEvent::Scanned(scanned) => self.on_scanned(cx, scanned),
            // Timers resend unanswered messages.
            MemberEvent::PeerReset { .. } | MemberEvent::PeerUp { .. } | MemberEvent::Turn => {}
        }
        self.lanes.arm(cx.fx);
        self.ends.arm(cx.fx);
        self.sweep.plan_if_short(&mut **cx, &mut self.ends);
    }

    /// Answers and acknowledgements of the last epoch are void.
    fn install(&mut self, cx: &mut Cx<'_, '_>) {
        self.streams.clear();
        self.stalled.clear();
        self.stalls.begin(cx.now);
        self.renewals.clear();
        self.floors.clear();
        for key in self.lanes.keys() {
            self.on_epoch(cx, &key);
        }
        // Those of the time between epochs are lost.
        self.lanes.lose_timers();
        self.ends.lose_timers();
        self.sweep.begin(&mut **cx, &self.env);
        self.lanes.arm(cx.fx);
        self.ends.arm(cx.fx);
    }

    fn expire(&mut self, cx: &mut Context<'_, Configured<Craq>>) {
        for key in self.lanes.keys() {
            self.expire_lane(cx, &key);
        }
    }

    fn leave(&mut self, cx: &mut Context<'_, Configured<Craq>>) -> Vec<Request> {
        let mut untried = Vec::new();
        for lane in self.lanes.take_all(cx.cache).into_values() {
            for (origin, _) in lane.pend.into_iter().flat_map(|pend| pend.origins) {
                if let Origin::Own(waiting) = origin {
                    cx.fx.reply(waiting.request.tag, given_up(&waiting.request));
                }
            }
            for waiting in lane.waiting {
                match waiting.seq {
                    Some(_) => cx.fx.reply(waiting.request.tag, given_up(&waiting.request)),
                    None => untried.push(waiting.request),
                }
            }
        }
        self.open.clear();
        self.streams.clear();
        self.stalled.clear();
        self.renewals.clear();
        self.floors.clear();
        self.ends = Ends::new(ENDS);
        self.sweep.stop();
        untried
    }

    fn lend(register: Register, uptime: &dyn Uptime, unix: Millis) -> Register {
        Register { content: register.content.with_rest(uptime, unix), ..register }
    }

    fn merge(held: Option<&Register>, copied: Register, uptime: &dyn Uptime) -> Option<Register> {
        let copied = copied.arrive(held, uptime);
        match held {
            Some(held) if held.version > copied.version => None,
            // Every member holds it, whichever of the two copies says so.
            Some(held) if held.version == copied.version && held.is_clean => None,
            _ => Some(copied),
        }
    }

    fn read_uncommitted(
        cx: &mut Context<'_, Configured<Craq>>,
        key: &Key,
        command: &Bytes,
    ) -> Option<Reply> {
        let content = match cx.cache.get(key) {
            CachedRegister::Present(register) => register.content.clone(),
            CachedRegister::Absent => Content::DELETED,
            CachedRegister::Lost => return None,
        };
        match content.run(cx, Version::NONE, command) {
            Effect::Changed { reply, .. } | Effect::Unchanged { reply } => Some(reply),
        }
    }

    fn is_live(register: &Register, uptime: &dyn Uptime, unix: Millis) -> Option<bool> {
        let is_decided = register.is_clean && !register.content.is_over(uptime, unix);
        is_decided.then(|| !register.content.is_empty())
    }

    fn explain(register: &Register, uptime: &dyn Uptime, unix: Millis) -> Explained {
        let Version { epoch, number } = register.version;
        let bytes: &[u8] = register.content.value.as_deref().unwrap_or_default();
        Explained {
            round: format!("{}.{number}", epoch.0),
            version: number,
            is_tombstone: register.content.is_empty(),
            value_len: bytes.len(),
            checksum: checksum::hash(bytes),
            rest: register.content.countdown(uptime, unix).rest(),
        }
    }

    fn weight(key: &Key, register: &Register) -> Weight {
        let weight = register.content.weight(key);
        let replies = register.ran.iter().filter_map(|ran| ran.reply.as_ref());
        let replies: usize = replies.map(Reply::len).sum();
        match weight.is_key() {
            true => Weight::of_key(weight.bytes() as usize + replies, weight.expires()),
            false => weight,
        }
    }

    fn check(&self, cache: &RegisterCache<Register>) -> Result<(), Violation> {
        for (key, lane) in self.lanes.iter() {
            let Some(pend) = &lane.pend else { continue };
            match cache.get(key) {
                CachedRegister::Present(held) if held.version == pend.version && !held.is_clean => {
                }
                found => {
                    return Err(Violation(format!("craq: {key:?} pends {pend:?} on {found:?}")));
                }
            }
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.lanes.is_empty() && self.sweep.is_idle()
    }

    fn stats(&self, stats: &mut Stats) {
        let pends = self.lanes.iter().filter(|(_, lane)| lane.pend.is_some()).count();
        let waiting: usize = self.lanes.iter().map(|(_, lane)| lane.waiting.len()).sum();
        stats.add("operations_in_progress", pends as u64);
        stats.add("operations_waiting", waiting as u64);
    }
}

/// Epochs.
impl Craq {
    fn on_epoch(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        lane.steered.clear();
        lane.askers.clear();
        lane.is_steering = false;
        lane.asking = None;
        if let Some(Pend { origins, .. }) = lane.pend.take() {
            let own = origins.into_iter().filter(|(origin, _)| matches!(origin, Origin::Own(_)));
            match chain::is_head(cx) && !matches!(held(cx, key), Held::Lost) {
                true => {
                    let register = register_of(cx, key);
                    self.start(cx, key, register, own.collect());
                }
                false => own.for_each(|(origin, _)| {
                    if let Origin::Own(waiting) = origin {
                        cx.fx.reply(waiting.request.tag, given_up(&waiting.request));
                    }
                }),
            }
        }
        self.advance(cx, key);
    }
}

/// Messages.
impl Craq {
    fn on_message(&mut self, cx: &mut Cx<'_, '_>, from: NodeId, message: Message) {
        let Message { key, body } = message;
        match body {
            Body::Steer(steer) => self.on_steer(cx, from, &key, steer),
            Body::Done { seq, reply } => self.on_done(cx, &key, seq, reply),
            Body::Down { register } => self.on_down(cx, from, &key, register),
            Body::Up { version } => self.on_up(cx, from, &key, version),
            Body::Have { version } => self.on_have(cx, from, &key, version),
            Body::Again { version } => self.on_again(cx, from, &key, version),
            Body::Nudge { version, is_read } => {
                self.on_nudge(cx, from, &key, (version, is_read));
            }
            Body::AskTail { id, version } => self.on_ask_tail(cx, from, &key, (id, version)),
            Body::Tail { id, version, content } => {
                self.on_tail(cx, &key, id, (version, content));
            }
            Body::Look if from == cx.replicas.me() => self.on_look(cx, &key),
            Body::Look => {}
            Body::Expire => self.on_expire(cx, &key),
            Body::Spent { version, worker, low } => {
                if let Some(member) = cx.configuration.member(from) {
                    self.streams.stream(member.serial, worker, low);
                }
                self.on_spent(cx, from, &key, version);
            }
            Body::Bury { version, floor } => self.on_bury(cx, from, &key, (version, floor)),
        }
    }

    fn on_down(&mut self, cx: &mut Cx<'_, '_>, from: NodeId, key: &Key, register: Register) {
        if chain::previous(cx) != Some(from) {
            return;
        }
        let version = register.version;
        match held(cx, key) {
            Held::Lost => return,
            _ if self.is_buried(cx, key, version) && !mutation::is(Mutation::NoFloor) => return,
            Held::Clean(held) | Held::Dirty(held) if held < version => {
                let is_long = register.content.value.as_ref().is_some_and(|it| it.len() > LONG);
                let held = match cx.cache.get(key) {
                    CachedRegister::Present(held) => Some(held),
                    CachedRegister::Absent | CachedRegister::Lost => None,
                };
                let here = register.clone().arrive(held, cx.uptime);
                self.store(cx, key, Register { is_clean: false, ..here });
                self.stalled.remove(key);
                // The chain needs a while for it: this member holds it, and is not to get it again.
                if is_long && chain::next(cx).is_some() {
                    let ticket = cx.cache.ticket(key);
                    let message = Message { key: key.clone(), body: Body::Have { version } };
                    cx.send(from, message, ticket);
                }
            }
            Held::Clean(_) => return self.answer_clean(cx, from, key, version),
            Held::Dirty(_) if mutation::is(Mutation::UpForCopy) => {
                return send(cx, from, key, Body::Up { version });
            }
            Held::Dirty(_) => {
                let has_next = self.on_down_again(cx, from, key, version);
                return hand_on_again(cx, key, register, has_next);
            }
        }
        hand_on(cx, key, register);
    }

    fn on_again(&mut self, cx: &mut Cx<'_, '_>, from: NodeId, key: &Key, version: Version) {
        if chain::previous(cx) != Some(from) {
            return;
        }
        match held(cx, key) {
            Held::Clean(held) if held >= version => self.answer_clean(cx, from, key, version),
            Held::Dirty(held) if held == version => {
                let has_next = self.on_down_again(cx, from, key, version);
                let register = register_of(cx, key);
                hand_on_again(cx, key, register, has_next);
            }
            // A newer one is on its way.
            Held::Clean(_) | Held::Dirty(_) | Held::Lost => {}
        }
    }

    /// The version is clean here. Members behind may not know that, if an acknowledgement was lost.
    fn answer_clean(&self, cx: &mut Cx<'_, '_>, from: NodeId, key: &Key, version: Version) {
        send(cx, from, key, Body::Up { version });
        if let Some(next) = chain::next(cx).filter(|_| !mutation::is(Mutation::CleanEndsHere)) {
            send(cx, next, key, Body::Again { version });
        }
    }

    /// Members behind have not acknowledged it since it came first. True if the next one holds it.
    fn on_down_again(
        &mut self,
        cx: &mut Cx<'_, '_>,
        from: NodeId,
        key: &Key,
        version: Version,
    ) -> bool {
        let ticket = cx.cache.ticket(key);
        let message = Message { key: key.clone(), body: Body::Have { version } };
        cx.send(from, message, ticket);
        if chain::next(cx).is_none() || self.stalled.len() >= REQUESTS_MAX {
            return false;
        }
        let &mut (since, has_next) = self.stalled.entry(key.clone()).or_insert((cx.now, false));
        if !has_next {
            self.look_stalled(cx, since);
        }
        has_next
    }

    /// Reports a next member that holds versions up.
    fn look_stalled(&mut self, cx: &mut Cx<'_, '_>, since: Nanos) {
        let Some(next) = chain::next(cx) else { return };
        if self.stalls.is_due(next, since, stall(cx), cx.now) {
            cx.fx.suspect(next);
        }
    }

    fn on_have(&mut self, cx: &mut Cx<'_, '_>, from: NodeId, key: &Key, version: Version) {
        if chain::next(cx) != Some(from) {
            return;
        }
        self.stalls.hear(from, cx.now);
        let is_held = matches!(held(cx, key), Held::Dirty(held) if held == version);
        if is_held && (self.stalled.len() < REQUESTS_MAX || self.stalled.contains_key(key)) {
            self.stalled.entry(key.clone()).or_insert((cx.now, true)).1 = true;
        }
        let pend = self.lanes.get_mut(key).and_then(|lane| lane.pend.as_mut());
        if let Some(pend) = pend.filter(|pend| pend.version == version) {
            pend.has_next = true;
        }
    }

    fn on_up(&mut self, cx: &mut Cx<'_, '_>, from: NodeId, key: &Key, version: Version) {
        match held(cx, key) {
            Held::Lost => return,
            _ if self.is_buried(cx, key, version) => return,
            Held::Clean(held) | Held::Dirty(held) if held < version => {
                let text = format!("craq: {version:?} of {key:?} is committed over {held:?} here");
                return cx.fx.fail(Violation(text));
            }
            Held::Clean(_) | Held::Dirty(_) => {}
        }
        if chain::next(cx) == Some(from) {
            self.stalls.hear(from, cx.now);
        }
        self.note_clean(cx, key, version);
        self.stalled.remove(key);
        if !chain::is_before(cx, from)
            && let Some(previous) = chain::previous(cx)
        {
            send(cx, previous, key, Body::Up { version });
        }
        let pend = self.lanes.get(key).and_then(|lane| lane.pend.as_ref());
        if pend.is_some_and(|pend| pend.version <= version) {
            self.end_pend(cx, key);
        }
        self.advance(cx, key);
    }
}

/// How long a version may wait for a member before the membership service hears of it.
fn stall(cx: &Cx<'_, '_>) -> Nanos {
    Nanos(cx.configuration.lease.0 / 4 * 5)
}

/// The state of a register here.
enum Held {
    Lost,
    Clean(Version),
    Dirty(Version),
}

fn held(cx: &Cx<'_, '_>, key: &Key) -> Held {
    match cx.cache.get(key) {
        CachedRegister::Present(register) if register.is_clean => Held::Clean(register.version),
        CachedRegister::Present(register) => Held::Dirty(register.version),
        CachedRegister::Absent => Held::Clean(Version::NONE),
        CachedRegister::Lost => Held::Lost,
    }
}

fn register_of(cx: &Cx<'_, '_>, key: &Key) -> Register {
    match cx.cache.get(key) {
        CachedRegister::Present(register) => register.clone(),
        CachedRegister::Absent | CachedRegister::Lost => Register::ABSENT,
    }
}

/// Hands a version to the next member once this one holds it durably. The last one says that all
/// do.
fn hand_on(cx: &mut Cx<'_, '_>, key: &Key, register: Register) {
    let ticket = match mutation::is(Mutation::HandOnBeforeDurable) {
        true => Ticket::DURABLE,
        false => cx.cache.ticket(key),
    };
    let next = match mutation::is(Mutation::ShadowsAreNoEnd) && chain::is_tail(cx) {
        true => None,
        false => chain::next(cx),
    };
    let (to, body) = match next {
        Some(next) => (next, Body::Down { register: Register { is_clean: false, ..register } }),
        None => (cx.replicas.me(), Body::Up { version: register.version }),
    };
    cx.send(to, Message { key: key.clone(), body }, ticket);
}

/// The same for a version that was handed on before, perhaps in vain.
fn hand_on_again(cx: &mut Cx<'_, '_>, key: &Key, register: Register, has_next: bool) {
    match chain::next(cx) {
        Some(next) if has_next => {
            send(cx, next, key, Body::Again { version: register.version });
        }
        // It waits in front of the link still.
        Some(next) if !is_steady(cx, next) => {}
        _ => hand_on(cx, key, register),
    }
}

/// True if a message reaches it soon, as far as this node knows.
fn is_steady(cx: &Cx<'_, '_>, node: NodeId) -> bool {
    cx.replicas.peers.get(node).is_some_and(Peer::is_steady)
}

/// Sends a message without a claim that a crash could refute.
fn send(cx: &mut Cx<'_, '_>, to: NodeId, key: &Key, body: Body) {
    cx.send_now(to, Message { key: key.clone(), body });
}

/// Time.
impl Craq {
    fn on_tick(&mut self, cx: &mut Cx<'_, '_>) {
        for key in self.lanes.take_due(cx.now) {
            self.on_due(cx, &key);
        }
    }
}
