//! A worker's registers: entries are applied, commands run for the sequencer, clients answered.

mod clients;
mod copying;
mod donating;
mod executing;
mod state;

use std::collections::{BTreeMap, BTreeSet};

use base::Nanos;
use types::{Incarnation, Key, Outcome, Shard, Ticket};

use self::state::{Applied, Ask, Copying, Donating, Executing, Listing, Progress, Scanning};
use super::context::{Cx, tell_own};
use super::epoch::{Epoch, Zxid};
use super::message::{ToRegister, ToSequencer, ToWorker, View};
use super::register::Register;
use super::requests::Requests;
use super::txn::{Effect, Stream};
use crate::effects::TimerId;
use crate::mutation::{self, Mutation};
use crate::protocol::{Env, Peer, Stats};
use crate::register_cache::CachedRegister;
use crate::toolkit::content::Content;
use crate::toolkit::ends::Ends;
use crate::toolkit::sweep::Sweep;

/// The timer of times to live.
pub const ENDS: TimerId = TimerId(1);
pub const SWEEP: TimerId = TimerId(4);

#[derive(Debug)]
pub struct Applier {
    env: Env,
    stream: Stream,
    view: View,
    requests: Requests,
    listings: Vec<Listing>,
    /// Scans by their numbers.
    scans: BTreeMap<u64, Scanning>,
    next_scan: u64,
    progress: Progress,
    executing: Executing,
    copying: Option<Copying>,
    donating: Donating,
    /// Deletions that stay until the copy is whole.
    tombstones: BTreeSet<Key>,
    /// The last copy that this worker heard of.
    copy: u64,
    /// When the last change is durable.
    changed: Ticket,
    /// When times to live are over.
    ends: Ends,
    sweep: Sweep,
    /// The registers from before this start were not swept yet.
    is_new: bool,
    /// Registers are lost, and the sequencer does not know it yet.
    is_lost: bool,
}

impl Applier {
    pub fn new(env: Env) -> Applier {
        let stream = Stream {
            node: env.me,
            incarnation: env.incarnation,
            worker: env.worker as u64,
            copies: 0,
        };
        // A page for an earlier process may be late.
        let next_scan = u64::from(env.incarnation.0) << 32;
        Applier {
            env,
            stream,
            view: View::default(),
            requests: Requests::default(),
            listings: Vec::new(),
            scans: BTreeMap::new(),
            next_scan,
            progress: Progress::default(),
            executing: Executing::default(),
            copying: None,
            donating: Donating::default(),
            tombstones: BTreeSet::new(),
            copy: 0,
            changed: Ticket::DURABLE,
            ends: Ends::new(ENDS),
            sweep: Sweep::new(SWEEP),
            is_new: true,
            is_lost: false,
        }
    }

    pub fn renew(&mut self, incarnation: Incarnation) {
        self.stream.incarnation = incarnation;
    }

    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
            && self.listings.is_empty()
            && self.scans.is_empty()
            && self.copying.is_none()
            && self.progress.marks.is_empty()
            && self.progress.told == self.progress.visible
            && self.executing.is_idle()
            && self.sweep.is_idle()
    }

    pub fn stats(&self, stats: &mut Stats) {
        stats.add("operations_in_progress", self.requests.len() as u64);
    }

    pub fn on_worker(&mut self, cx: &mut Cx<'_>, from: Peer, body: ToWorker) {
        match body {
            ToWorker::AskPage { id, epoch, base, from_hash } => {
                return self.on_ask_page(cx, from.node, id, (epoch, base), from_hash);
            }
            ToWorker::Page { id, entries, next_hash } => {
                return self.on_page(cx, from.node, id, entries, next_hash);
            }
            _ if from.node != self.env.me => return,
            ToWorker::View { view } => self.on_view(cx, view),
            ToWorker::Upto { copy, place, index } => {
                if copy == self.copy {
                    self.progress.marks.push_back((place, index));
                    self.progress.advance();
                }
            }
            ToWorker::Copy { copy, epoch, donor, base } => {
                self.begin_copy(cx, copy, epoch, donor, base);
            }
            ToWorker::Again { copy } => self.begin_again(cx, copy),
            ToWorker::Whole { copy } => self.end_copy(cx, copy),
            ToWorker::Forget {} => self.lose(cx),
        }
        self.go_on(cx);
    }

    pub fn on_register(&mut self, cx: &mut Cx<'_>, from: Peer, key: Key, body: ToRegister) {
        if from.node != self.env.me {
            return;
        }
        match body {
            ToRegister::Execute { at, stream, number, command } => {
                self.on_execute(cx, Ask { at, stream, number, key, command });
            }
            ToRegister::Apply { copy, place, at, stream, number, effect, reply } => {
                let entry = Applied { copy, at, stream, number, key, effect, reply };
                self.on_apply(cx, place, entry);
            }
            ToRegister::Drop { id } => self.on_drop(cx, &key, id),
            ToRegister::Adopt { id, register } => self.on_adopt(cx, key, id, register),
            ToRegister::End {} => self.on_end(cx, key),
            ToRegister::Explain { .. } | ToRegister::Explained { .. } => {}
        }
    }

    /// Entries are counted anew, and those on their way are void.
    fn begin_again(&mut self, cx: &mut Cx<'_>, copy: u64) {
        self.copy = copy;
        for (_, entry) in std::mem::take(&mut self.progress).ahead {
            cx.cache.unpin(&entry.key);
        }
        self.executing.clear(cx, Epoch::default());
    }

    /// Applies entries in their order, so that a client sees them in it.
    fn on_apply(&mut self, cx: &mut Cx<'_>, place: u64, entry: Applied) {
        if entry.copy != self.copy {
            return;
        }
        if place != self.progress.done + 1 {
            cx.cache.pin(&entry.key);
            self.progress.ahead.insert(place, entry);
            return;
        }
        self.apply_next(cx, entry);
        while let Some(entry) = self.progress.ahead.remove(&(self.progress.done + 1)) {
            let key = entry.key.clone();
            self.apply_next(cx, entry);
            cx.cache.unpin(&key);
        }
    }

    fn apply_next(&mut self, cx: &mut Cx<'_>, entry: Applied) {
        let Applied { at, stream, number, key, effect, reply, .. } = entry;
        let overtaken = match stream == self.stream {
            true => self.requests.take_overtaken(at.epoch, number),
            false => Vec::new(),
        };
        let is_applied = self.apply(cx, &key, at, effect);
        // Not before: their pins may be all that keeps the register in memory.
        self.refuse(cx, overtaken);
        if !is_applied {
            self.progress.done(0);
            return self.lose(cx);
        }
        self.progress.done(at.index);
        if stream == self.stream {
            let visible = self.progress.visible;
            let (tag, reads) = self.requests.on_applied(at.epoch, number, visible);
            if let Some(tag) = tag {
                self.expose(at.index);
                cx.fx.reply(tag, Outcome::Reply(reply));
            }
            if self.is_whole() {
                self.answer(cx, reads);
            } else {
                self.refuse(cx, reads);
            }
        }
        self.go_on(cx);
    }

    /// Brings a register to the state behind an entry. False if it is lost.
    fn apply(&mut self, cx: &mut Cx<'_>, key: &Key, at: Zxid, effect: Effect) -> bool {
        self.executing.on_applied(key, at.index);
        let held = match cx.cache.get(key) {
            CachedRegister::Present(held) => Some(held),
            CachedRegister::Absent => None,
            CachedRegister::Lost if self.copying.is_some() => None,
            CachedRegister::Lost => return false,
        };
        let Effect(Some(content)) = effect else { return true };
        // A register that outlived a restart may be ahead of the entries that are applied again.
        let has_it = held.is_some_and(|held| held.index >= at.index);
        if has_it && !mutation::is(Mutation::ZabAppliesAgain) {
            return true;
        }
        let content = content.arrive(held.map(|held| &held.content), cx.uptime);
        let register = Register { index: at.index, content };
        if self.is_tombstone(key, &register) {
            self.tombstones.insert(key.clone());
        } else {
            self.tombstones.remove(key);
        }
        self.store(cx, key, register);
        true
    }

    /// A deletion that an older copy may still follow.
    fn is_tombstone(&self, key: &Key, register: &Register) -> bool {
        let may_come = self.copying.as_ref().is_some_and(|copying| copying.may_bring(key));
        let forgets = mutation::is(Mutation::ZabForgetsDeletions);
        register.content.is_empty() && may_come && !forgets
    }

    fn store(&mut self, cx: &mut Cx<'_>, key: &Key, register: Register) {
        self.ends.watch(cx, key, &register.content);
        if register.content.is_empty() && !self.is_tombstone(key, &register) {
            self.changed = cx.cache.remove(key);
        } else {
            cx.cache.put(key, register);
            self.changed = cx.cache.persist(key);
        }
    }

    /// A client saw the effect of the entry at this index: none at this node may see less later.
    fn expose(&self, index: u64) {
        self.env.shared.fetch_max(index, std::sync::atomic::Ordering::AcqRel);
    }

    fn exposed(&self) -> u64 {
        self.env.shared.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Something that requests wait for has happened.
    fn go_on(&mut self, cx: &mut Cx<'_>) {
        self.run_executions(cx);
        self.run_requests(cx);
    }

    fn on_view(&mut self, cx: &mut Cx<'_>, view: View) {
        if view.leader.is_some() && view.copies > self.stream.copies {
            self.stream.copies = view.copies;
            let (writes, reads) = match mutation::is(Mutation::ZabResendsCopied) {
                true => (Vec::new(), Vec::new()),
                false => self.requests.end_sent(),
            };
            for tag in writes {
                cx.fx.reply(tag, Outcome::Unknown);
            }
            self.refuse(cx, reads);
        }
        self.expose(view.committed);
        if view.leader != self.view.leader || view.epoch != self.view.epoch {
            self.executing.clear(cx, view.epoch);
            self.requests.send_again();
            // They came before the node knew how much was committed.
            let needs = self.exposed();
            self.requests.raise_needs(needs);
            self.listings.iter_mut().for_each(|listing| listing.needs = listing.needs.max(needs));
        }
        self.view = view;
    }

    /// This node's order has a leader, and the leader's entries from before are applied here.
    fn is_serving(&self) -> bool {
        self.view.leader.is_some() && self.is_whole()
    }

    fn is_whole(&self) -> bool {
        self.copying.is_none() && !self.is_lost
    }

    pub fn on_turn(&mut self, cx: &mut Cx<'_>) {
        self.send_writes(cx);
        if self.progress.told < self.progress.visible {
            self.tell_progress(cx);
        }
        if std::mem::take(&mut self.is_new) {
            self.sweep.begin(cx, &self.env);
        }
        self.sweep.plan_if_short(cx, &mut self.ends);
        self.ends.arm(cx.fx);
    }

    pub fn on_sweep_timer(&mut self, cx: &mut Cx<'_>) {
        self.sweep.on_timer(cx, &self.env);
    }

    fn tell_progress(&mut self, cx: &mut Cx<'_>) {
        let upto = self.progress.visible;
        (self.progress.told, self.progress.told_at) = (upto, cx.now);
        let worker = self.env.worker as u64;
        tell_own(cx, ToSequencer::Kept { copy: self.copy, worker, upto }, self.changed);
    }

    pub fn on_tick(&mut self, cx: &mut Cx<'_>) {
        // An amnesia of another database drops messages that wait for storage.
        if self.progress.visible > 0 && cx.now.since(self.progress.told_at) > Nanos::from_secs(1) {
            self.tell_progress(cx);
        }
        self.expire(cx);
        self.copy_on_tick(cx);
        self.go_on(cx);
    }

    /// Everything here is to be copied anew: a part of it is lost.
    fn lose(&mut self, cx: &mut Cx<'_>) {
        let own = (0..=u8::MAX).map(Shard).filter(|&shard| self.env.owns(shard));
        let known: Vec<Shard> = own.filter(|&shard| !cx.cache.is_forgotten(shard)).collect();
        for shard in known {
            cx.fx.forget(shard);
        }
        self.copying = None;
        if !self.is_lost {
            self.is_lost = true;
            tell_own(cx, ToSequencer::Lost {}, Ticket::DURABLE);
        }
    }

    pub fn on_forgotten(&mut self, cx: &mut Cx<'_>) {
        // Again: a copy may have begun before this shard was forgotten.
        self.is_lost = false;
        self.lose(cx);
    }
}

/// The content of a register; none if it is lost.
fn content_of(cx: &Cx<'_>, key: &Key) -> Option<(u64, Content<Zxid>)> {
    match cx.cache.get(key) {
        CachedRegister::Present(held) => Some((held.index, held.content.clone())),
        CachedRegister::Absent => Some((0, Content::DELETED)),
        CachedRegister::Lost => None,
    }
}
