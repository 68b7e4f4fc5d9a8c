//! The end of a key whose time to live is over.

use types::{Key, Role};

use super::coordinator::is_valid;
use super::register::Register;
use super::{Cx, Hermes, Message, TURN};
use crate::register_cache::CachedRegister;
use crate::toolkit::content::Content;

impl Hermes {
    /// Notes the end of a register that is new here.
    pub(super) fn watch(&mut self, cx: &Cx<'_, '_>, key: &Key) {
        if let CachedRegister::Present(register) = cx.cache.get(key) {
            register.content.watch(&**cx, &mut self.ends, key);
        }
    }

    /// Looks at keys whose time to live seems to be over.
    pub(super) fn on_ends(&mut self, cx: &mut Cx<'_, '_>) {
        for key in self.ends.take(cx.now) {
            cx.send_now(cx.replicas.me(), Message::Expire { key });
        }
    }

    pub(super) fn on_expire(&mut self, cx: &mut Cx<'_, '_>, key: &Key) {
        let CachedRegister::Present(Register { version, content, .. }) = cx.cache.get(key) else {
            return;
        };
        if !content.is_over(cx.uptime, cx.unix) {
            return content.watch(&**cx, &mut self.ends, key);
        }
        if self.lanes.contains_key(key) || !is_valid(cx, key) || cx.me().role != Role::Full {
            // A request does it, another member, or this one later.
            return self.ends.set(key.clone(), cx.now + TURN);
        }
        let version = version.next(cx.me().serial, true);
        let register = Register { version, content: Content::DELETED, is_valid: false };
        self.store(cx, key, register.clone());
        self.replay_if_idle(cx, key);
    }
}
