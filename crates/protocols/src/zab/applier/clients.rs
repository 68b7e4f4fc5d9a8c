//! Requests of this node's clients.

use std::collections::VecDeque;

use types::{Access, Key, Outcome, Reply, Tag};

use super::super::context::{Cx, tell};
use super::super::epoch::Zxid;
use super::super::message::ToSequencer;
use super::super::reads::Read;
use super::super::register::Register;
use super::state::{Listing, Scanning};
use super::{Applier, content_of};
use crate::effects::Scan;
use crate::mutation::{self, Mutation};
use crate::protocol::{Request, Scanned, ScannedRegister};
use crate::toolkit::content::Content;

/// Writes repeated at a time.
const AGAIN_MAX: usize = 64;
/// Listings that wait for the node.
const LISTINGS_MAX: usize = 1_024;

impl Applier {
    pub fn on_request(&mut self, cx: &mut Cx<'_>, request: Request) {
        if !self.requests.has_room_for(&request) {
            return cx.fx.reply(request.tag, Outcome::NoQuorum);
        }
        if request.command.access == Access::Read {
            let waits = self.requests.has_write(request.session)
                && !mutation::is(Mutation::ReadPastOwnWrites);
            let needs = self.exposed();
            if waits || !self.may_read(needs) {
                let deadline = request.asked_at + self.env.request_timeout;
                cx.cache.pin(&request.key);
                self.requests.park(request, deadline, needs);
            } else {
                let ordered = self.read(cx, request, false);
                ordered.into_iter().for_each(|request| self.order(request, Vec::new()));
            }
        } else {
            self.write(request);
        }
    }

    fn write(&mut self, request: Request) {
        let deadline = request.asked_at + self.env.request_timeout;
        self.requests.add_write(request, deadline);
    }

    /// Everything up to `needs` is applied: some client at this node saw it.
    fn may_read(&self, needs: u64) -> bool {
        let is_behind = self.progress.visible < needs;
        self.is_serving() && (!is_behind || mutation::is(Mutation::ZabReadsBehind))
    }

    /// Answers from this node's applied state. `is_passed`: later writes of the session wait.
    /// Returns a read that has to take a place in the order.
    fn read(&mut self, cx: &mut Cx<'_>, request: Request, is_passed: bool) -> Option<Request> {
        let Some((index, content)) = content_of(cx, &request.key) else {
            cx.fx.reply(request.tag, Outcome::NoQuorum);
            self.lose(cx);
            return None;
        };
        // The end of a key is an entry like any other: the leader decides. A read that came before
        // other writes takes no place behind them, and sees the key until its end is applied.
        let is_over = content.is_over(cx.uptime, cx.unix);
        if is_over && mutation::is(Mutation::ZabEndsAlone) {
            let reply =
                Content::<Zxid>::DELETED.read(cx, &request.command.body).unwrap_or(Reply::Null);
            cx.fx.reply(request.tag, Outcome::Reply(reply));
            return None;
        }
        if is_over && !is_passed {
            return Some(request);
        }
        match content.read(cx, &request.command.body) {
            Some(reply) => {
                // The entry that removed a register is not known.
                self.expose(if content.is_empty() { self.progress.visible } else { index });
                cx.fx.reply(request.tag, Outcome::Reply(reply));
                None
            }
            // Its command changes the state although its access says otherwise.
            None if is_passed => {
                cx.fx.reply(request.tag, Outcome::NoQuorum);
                None
            }
            None => Some(request),
        }
    }

    /// Gives a read a place among the writes, and those that came with it later places.
    fn order(&mut self, request: Request, came: Vec<Read>) {
        let deadline = request.asked_at + self.env.request_timeout;
        self.requests.add_read(request, deadline, came);
    }

    /// Answers reads and begins listings that may go on.
    pub(super) fn run_requests(&mut self, cx: &mut Cx<'_>) {
        if !self.is_serving() {
            return;
        }
        let visible = self.progress.visible;
        let reads = self.requests.take_reads(visible);
        self.answer(cx, reads);
        let may_go_on = |listing: &mut Listing| listing.needs <= visible;
        for listing in self.listings.extract_if(.., may_go_on).collect::<Vec<_>>() {
            self.list(cx, listing);
        }
    }

    pub(super) fn answer(&mut self, cx: &mut Cx<'_>, reads: Vec<Read>) {
        let mut reads = VecDeque::from(reads);
        while let Some(read) = reads.pop_front() {
            let key = read.request.key.clone();
            let is_passed = self.requests.is_passed(&read);
            if let Some(request) = self.read(cx, read.request, is_passed) {
                let session = request.session;
                let is_of_it = |read: &Read| read.request.session == session;
                let (came, others): (Vec<_>, Vec<_>) = reads.into_iter().partition(is_of_it);
                reads = others.into();
                self.order(request, came);
            }
            cx.cache.unpin(&key);
        }
    }

    /// Ends reads that had no effect: a later write of the session may come first now.
    pub(super) fn refuse(&mut self, cx: &mut Cx<'_>, reads: Vec<Read>) {
        for read in reads {
            cx.cache.unpin(&read.request.key);
            cx.fx.reply(read.request.tag, Outcome::NoQuorum);
        }
    }

    /// Sends the writes that are new, and those without an outcome again.
    pub(super) fn send_writes(&mut self, cx: &mut Cx<'_>) {
        let Some(leader) = self.view.leader else { return };
        // The leaders before may have taken some of them: those are applied by then.
        let has_history = self.progress.visible >= self.view.upto;
        if !self.is_serving() || !(has_history || mutation::is(Mutation::ZabSendsEarly)) {
            return;
        }
        let (epoch, stream) = (self.view.epoch, self.stream);
        for write in self.requests.take_due(epoch, cx.now, AGAIN_MAX) {
            let (number, key, command) = (write.number, write.key, write.command);
            tell(cx, leader, ToSequencer::Write { epoch, stream, number, key, command });
        }
        self.run_requests(cx);
    }

    pub(super) fn expire(&mut self, cx: &mut Cx<'_>) {
        let (ended, reads) = self.requests.expire(cx.now);
        for (tag, outcome) in ended {
            cx.fx.reply(tag, outcome);
        }
        for read in reads {
            cx.cache.unpin(&read.key);
            cx.fx.reply(read.tag, Outcome::NoQuorum);
        }
        let now = cx.now;
        for listing in self.listings.extract_if(.., |listing| listing.deadline <= now) {
            cx.fx.reply(listing.tag, Outcome::NoQuorum);
        }
    }

    pub fn on_list(&mut self, cx: &mut Cx<'_>, tag: Tag, from_hash: u64, limit: usize) {
        let deadline = cx.now + self.env.request_timeout;
        let listing = Listing { tag, from_hash, limit, deadline, needs: self.exposed() };
        if self.may_read(listing.needs) {
            self.list(cx, listing);
        } else if self.listings.len() < LISTINGS_MAX {
            self.listings.push(listing);
        } else {
            cx.fx.reply(tag, Outcome::NoQuorum);
        }
    }

    fn list(&mut self, cx: &mut Cx<'_>, listing: Listing) {
        let id = self.scan(Scanning::List(listing));
        cx.fx.scan(Scan { id, from_hash: listing.from_hash, limit: listing.limit });
    }

    pub(super) fn scan(&mut self, purpose: Scanning) -> u64 {
        self.next_scan += 1;
        self.scans.insert(self.next_scan, purpose);
        self.next_scan
    }

    pub fn on_scanned(&mut self, cx: &mut Cx<'_>, scanned: Scanned<Register>) {
        if self.sweep.on_scanned(cx, &scanned) {
            return self.on_swept(cx, scanned);
        }
        match self.scans.remove(&scanned.id) {
            Some(Scanning::List(listing)) => self.on_listed(cx, listing, scanned),
            Some(Scanning::Erase) => self.on_erasable(cx, scanned),
            Some(Scanning::Donate) => self.on_donated(cx, scanned),
            None => {}
        }
    }

    fn on_listed(&mut self, cx: &mut Cx<'_>, listing: Listing, scanned: Scanned<Register>) {
        let is_lost = scanned.records.iter().any(|(_, it)| matches!(it, ScannedRegister::Lost));
        if is_lost || !self.may_read(listing.needs) {
            return cx.fx.reply(listing.tag, Outcome::NoQuorum);
        }
        self.expose(self.progress.visible);
        let (mut keys, mut undecided): (Vec<Key>, Vec<Key>) = (Vec::new(), Vec::new());
        for (key, found) in scanned.records {
            let ScannedRegister::Present(register) = found else { continue };
            if register.content.is_over(cx.uptime, cx.unix) {
                undecided.push(key);
            } else if !register.content.is_empty() {
                keys.push(key);
            }
        }
        let next_hash = scanned.next_hash;
        cx.fx.reply(listing.tag, Outcome::Listed { keys, undecided, next_hash });
    }
}
