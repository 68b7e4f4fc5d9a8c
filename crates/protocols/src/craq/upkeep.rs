//! Work on keys for which no request waits: times to live that are over, and dirty keys of an
//! earlier epoch.

use base::Nanos;
use types::{Key, Role};

use super::collection::is_tombstone;
use super::message::Body;
use super::register::Register;
use super::version::Version;
use super::{Craq, Cx, Held, chain, held, send};
use crate::protocol::{Scanned, ScannedRegister};
use crate::register_cache::CachedRegister;
use crate::toolkit::content::Content;

/// When to ask the head again to end a key.
const RETRY: Nanos = Nanos::from_secs(10);

impl Craq {
    /// Replaces the register.
    pub(super) fn store(&mut self, cx: &mut Cx<'_, '_>, key: &Key, register: Register) {
        cx.cache.put(key, register);
        cx.cache.persist(key);
        self.watch(cx, key);
    }

    /// Every member holds this version.
    pub(super) fn note_clean(&mut self, cx: &mut Cx<'_, '_>, key: &Key, version: Version) {
        if let Some(register) = cx.cache.get_mut(key)
            && register.version == version
            && !register.is_clean
        {
            register.is_clean = true;
            // The others can tell again that it is clean.
            cx.cache.persist_before_eviction(key);
        }
        self.watch(cx, key);
    }

    /// Notes the end of a register that is new here.
    pub(super) fn watch(&mut self, cx: &Cx<'_, '_>, key: &Key) {
        match cx.cache.get(key) {
            CachedRegister::Present(register) if is_tombstone(register) => {
                self.ends.look_again(key, cx.now);
            }
            CachedRegister::Present(register) => {
                self.ends.watch(&**cx, key, &register.content);
            }
            CachedRegister::Absent | CachedRegister::Lost => {}
        }
    }

    /// Looks at keys whose time to live seems to be over.
    pub(super) fn on_ends(&mut self, cx: &mut Cx<'_, '_>) {
        for key in self.ends.take(cx.now) {
            send(cx, cx.replicas.me(), &key, Body::Look);
        }
    }

    /// The sweep goes on, unless too many renewals are in progress.
    pub(super) fn on_sweep(&mut self, cx: &mut Cx<'_, '_>) {
        let is_put_off = self.renewals.is_full() && self.sweep.put_off(&mut **cx);
        if !is_put_off {
            self.sweep.on_timer(&mut **cx, &self.env);
        }
    }

    /// A sweep has come to these registers.
    pub(super) fn on_scanned(&mut self, cx: &mut Cx<'_, '_>, scanned: Scanned<Register>) {
        if !self.sweep.on_scanned(&mut **cx, &scanned) {
            return;
        }
        for (key, found) in scanned.records {
            let ScannedRegister::Present(register) = found else { continue };
            self.ends.watch(&**cx, &key, &register.content);
            let is_old = !register.is_clean && register.version.epoch < cx.configuration.epoch;
            if is_old || is_tombstone(&register) {
                send(cx, cx.replicas.me(), &key, Body::Look);
            }
        }
    }

    pub(super) fn on_look(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let CachedRegister::Present(register) = cx.cache.get(key) else {
            return self.ends.forget(key);
        };
        let (version, is_clean) = (register.version, register.is_clean);
        let is_spent = is_tombstone(register);
        let is_over = self.ends.is_over(&**cx, key, &register.content);
        if cx.me().role != Role::Full {
            return;
        }
        if !is_clean && version.epoch < cx.configuration.epoch {
            super::origin::nudge(cx, key, version, false);
        }
        if is_spent {
            return self.ask_to_bury(cx, key, version);
        }
        if is_over && let Some(head) = chain::head(cx) {
            // The message may be lost, or the head count longer.
            self.ends.look(key, cx.now + RETRY);
            send(cx, head, key, Body::Expire);
        }
    }

    pub(super) fn on_expire(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let CachedRegister::Present(register) = cx.cache.get(key) else { return };
        let is_over = self.ends.is_over(&**cx, key, &register.content);
        if !is_over || !chain::is_head(cx) {
            return;
        }
        let is_busy = self.lanes.len() >= super::REQUESTS_MAX / 2;
        if is_busy || self.lanes.has(key) || !matches!(held(cx, key), Held::Clean(_)) {
            // A command does it, or the head later. Clients go first.
            return self.ends.look_again(key, cx.now);
        }
        let register = super::register_of(cx, key);
        let register = Register { content: Content::DELETED, ..register };
        self.start(cx, key, register, Vec::new());
        self.lanes.plan(cx.cache, key);
    }
}
