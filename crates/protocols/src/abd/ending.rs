//! The ends of times to live.
//!
//! Each replica counts from the moment at which it stored the value. Once a majority has counted
//! down, any node may store the [end](super::register::Version) at a majority. It asks again before
//! that: a write that came first is the newest then.
//!
//! An operation that finds a time over does so before it answers. So a key that was seen ended
//! never comes back.

use base::Nanos;
use types::Key;

use super::message::Message;
use super::operation::Kind;
use super::register::Register;
use super::{Abd, Cx};
use crate::mutation::{self, Mutation};
use crate::protocol::{Scanned, ScannedRegister};
use crate::register_cache::CachedRegister;
use crate::toolkit::asks::Ask;
use crate::toolkit::looks::PAUSE;

/// How long a replica waits for each one that comes before it to end a key.
const TURN: Nanos = Nanos::from_millis(100);

impl Abd {
    /// Stores a register if it is newer than the one here.
    pub(super) fn store(&mut self, cx: &mut Cx<'_>, key: &Key, register: Register) {
        let is_newer = match cx.cache.get_mut(key) {
            Some(held) => held.store(register, cx.uptime),
            None => {
                cx.cache.put(key, register.arrive(None, cx.uptime));
                true
            }
        };
        if is_newer {
            cx.cache.persist(key);
            self.watch(cx, key);
        }
    }

    /// Notes the end of a register that is new here. Its writer comes first.
    fn watch(&mut self, cx: &Cx<'_>, key: &Key) {
        let CachedRegister::Present(register) = cx.cache.get(key) else { return };
        // An older tombstone of it may wait for a round.
        self.burials.forget(key);
        if register.content.is_empty() {
            self.ends.forget(key);
            return self.burials.note(key, cx.replicas.set, cx.now);
        }
        let (set, count) = (cx.replicas.set, cx.replicas.members().count());
        let writer = set.index(register.version.stamp.writer).unwrap_or(0);
        let Some(me) = set.index(cx.replicas.me()) else { return };
        let behind = (me + count - writer) % count;
        self.ends.watch_after(cx, key, &register.content, Nanos(TURN.0 * behind as u64));
    }

    /// Looks at keys whose time to live seems to be over.
    pub(super) fn on_ends(&mut self, cx: &mut Cx<'_>) {
        // Many keys may end at the same time.
        let room = self.looks.room(cx.now).saturating_sub(self.ops.ends());
        for key in self.ends.take_some(cx.now, room, PAUSE) {
            self.look(cx, key);
        }
    }

    /// Loads the register of a key.
    pub(super) fn look(&mut self, cx: &mut Cx<'_>, key: Key) {
        self.looks.begin(key.clone(), cx.now);
        cx.fx.send_now(cx.replicas.me(), Message::Look { op: 0, key });
    }

    pub(super) fn on_look(&mut self, cx: &mut Cx<'_>, key: Key) {
        self.looks.end(&key);
        let CachedRegister::Present(register) = cx.cache.get(&key) else { return };
        if register.content.is_empty() {
            let version = register.version;
            return self.on_noted(cx, key, version);
        }
        if self.ends.is_over(cx, &key, &register.content) {
            let deadline = cx.now + self.env.request_timeout;
            self.start(cx, key, Kind::End, deadline);
        }
    }

    /// The key has ended, or not yet.
    pub(super) fn on_end_looked(&mut self, cx: &mut Cx<'_>, id: u64, newest: &Register) {
        let Some(op) = self.remove(id) else { return };
        if newest.content.expiry.is_none() {
            if mutation::is(Mutation::EndMissed) {
                return;
            }
            // This replica may have missed it.
            let (me, register) = (cx.replicas.me(), newest.clone());
            let ask = Ask { stream: self.stream, number: 0 };
            let (key, era) = (op.key, op.era);
            return cx.fx.send_now(me, Message::Store { ask, key, era, register });
        }
        match op.answers.rest_of_quorum(cx.replicas) {
            Some(rest) if rest.0 > 0 => {
                let rest = Nanos(rest.0.saturating_mul(1_000_000));
                self.ends.look(&op.key, Nanos(cx.now.0.saturating_add(rest.0)));
            }
            _ => self.ends.look_again(&op.key, cx.now),
        }
    }

    /// A sweep has come to these registers.
    pub(super) fn on_swept(&mut self, cx: &mut Cx<'_>, scanned: Scanned<Register>) {
        for (key, found) in scanned.records {
            if let ScannedRegister::Present(register) = found {
                match register.content.is_empty() {
                    true => self.burials.note(&key, cx.replicas.set, cx.now),
                    false => self.ends.watch(cx, &key, &register.content),
                }
            }
        }
    }
}
