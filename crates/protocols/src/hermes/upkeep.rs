//! Work on keys for which no request waits: times to live that are over, and invalid keys.

use types::{Key, Role};

use super::coordinator::is_valid;
use super::register::Register;
use super::version::Version;
use super::{Cx, Hermes, Message};
use crate::protocol::{Scanned, ScannedRegister};
use crate::register_cache::CachedRegister;
use crate::toolkit::content::Content;

impl Hermes {
    /// Notes the end of a register that is new here.
    pub(super) fn watch(&mut self, cx: &Cx<'_, '_>, key: &Key) {
        if let CachedRegister::Present(register) = cx.cache.get(key) {
            self.note(cx, key, &register.content);
        }
    }

    /// Watches the end of a value, or notes a tombstone.
    pub(super) fn note(&mut self, cx: &Cx<'_, '_>, key: &Key, content: &Content<Version>) {
        self.ends.watch(&**cx, key, content);
        if content.is_empty() {
            self.burials.note(key, cx.set, cx.now);
        }
    }

    /// Looks at keys whose time to live seems to be over.
    pub(super) fn on_ends(&mut self, cx: &mut Cx<'_, '_>) {
        for key in self.ends.take(cx.now) {
            cx.send_now(cx.replicas.me(), Message::Look { key });
        }
    }

    /// A sweep has come to these registers.
    pub(super) fn on_scanned(&mut self, cx: &mut Cx<'_, '_>, scanned: Scanned<Register>) {
        if !self.sweep.on_scanned(&mut **cx, &scanned) {
            return;
        }
        for (key, found) in scanned.records {
            let ScannedRegister::Present(register) = found else { continue };
            self.note(cx, &key, &register.content);
            if !register.is_valid {
                cx.send_now(cx.replicas.me(), Message::Look { key });
            }
        }
    }

    pub(super) fn on_look(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        self.looks.end(key);
        let CachedRegister::Present(Register { version, content, .. }) = cx.cache.get(key) else {
            return self.ends.forget(key);
        };
        let version = *version;
        let is_over = self.ends.is_over(&**cx, key, content);
        let is_idle = !self.lanes.has(key) && cx.me().role == Role::Full;
        let is_tombstone = content.is_empty();
        if is_idle && !is_valid(cx, key) {
            self.finish_change(cx, key);
        }
        if is_tombstone {
            return self.on_tombstone(cx, key, is_idle);
        }
        if !is_over {
            return;
        }
        if !is_idle || !is_valid(cx, key) {
            // A request does it, another member, or this one later.
            return self.ends.look_again(key, cx.now);
        }
        let version = version.next(cx.me().serial, true);
        let register = Register { version, content: Content::DELETED, is_valid: false };
        self.store(cx, key, register.clone());
        self.replay_if_idle(cx, key);
    }

    /// Finds the end of an invalid key's change: its coordinator knows it, or is gone.
    fn finish_change(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let CachedRegister::Present(register) = cx.cache.get(key) else { return };
        let version = register.version;
        let members = &cx.configuration.members;
        match members.iter().find(|member| member.serial == version.coordinator()) {
            Some(alive) if alive.node != cx.replicas.me() => {
                cx.send_now(alive.node, Message::Nudge { key: key.clone(), version });
            }
            _ => self.replay_if_idle(cx, key),
        }
    }
}
