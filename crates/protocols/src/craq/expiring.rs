//! The end of a key whose time to live is over.

use types::{Key, NodeId};

use super::message::Body;
use super::register::Register;
use super::{Craq, Cx, Held, chain, held, send};
use crate::register_cache::CachedRegister;
use crate::toolkit::content::Content;

impl Craq {
    /// Replaces the register.
    pub(super) fn store(&mut self, cx: &mut Cx<'_, '_>, key: &Key, register: Register) {
        cx.cache.put(key, register);
        cx.cache.persist(key);
        self.watch(cx, key);
    }

    /// Notes the end of a register that is new here.
    pub(super) fn watch(&mut self, cx: &Cx<'_, '_>, key: &Key) {
        if let CachedRegister::Present(register) = cx.cache.get(key) {
            register.content.watch(&**cx, &mut self.ends, key);
        }
    }

    /// Looks at keys whose time to live seems to be over.
    pub(super) fn on_ends(&mut self, cx: &mut Cx<'_, '_>) {
        for key in self.ends.take(cx.now) {
            send(cx, cx.replicas.me(), &key, Body::Expire);
        }
    }

    pub(super) fn on_expire(&mut self, cx: &mut Cx<'_, '_>, from: NodeId, key: &Key) {
        let CachedRegister::Present(register) = cx.cache.get(key) else { return };
        if !register.content.is_over(cx.uptime, cx.unix) {
            return self.watch(cx, key);
        }
        let is_own = from == cx.replicas.me();
        match chain::head(cx) {
            Some(head) if head != cx.replicas.me() => {
                if is_own {
                    send(cx, head, key, Body::Expire);
                }
            }
            // A command that waits deletes it.
            Some(_) if !self.lanes.contains_key(key) => {
                if let Held::Clean(_) = held(cx, key) {
                    let register = super::register_of(cx, key);
                    let register = Register { content: Content::DELETED, ..register };
                    self.start(cx, key, register, Vec::new());
                    self.plan(cx, key);
                }
            }
            Some(_) | None => {}
        }
    }
}
