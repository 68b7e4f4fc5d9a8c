//! Times to live of keys that no client touches.
//!
//! Each replica watches the deadlines that it stores. When its own countdown is over, it asks a
//! quorum. The replica whose node set the deadline does so first, and the others in turn: as a
//! rule they hear of the end before.

use base::{Millis, Nanos};
use types::{Key, NodeId};

use super::active::Active;
use super::machine::{Cx, Machine, Rules};
use crate::protocol::{Scanned, ScannedRegister};
use crate::register_cache::CachedRegister;
use crate::toolkit::message::{About, Message};
use crate::toolkit::report::Report;
use crate::toolkit::state::{Expiry, ExpiryId, State};

/// How long a replica waits for each one that comes before it to end a key.
const TURN: Nanos = Nanos::from_secs(2);
/// When to ask again for votes that no quorum gave in time.
const RETRY: Nanos = Nanos::from_secs(1);
/// The least time before another look: some replica has to store the deadline first, or to count.
const LEAST_REST: Millis = Millis(100);

impl<R: Rules> Machine<R> {
    /// Notes the deadline in the register of this replica, which is new here.
    pub fn watch(&mut self, cx: &Cx<'_, R>, key: &Key) {
        if let CachedRegister::Present(register) = cx.cache.get(key) {
            self.watch_register(cx, key, register);
        }
    }

    fn watch_register(
        &mut self,
        cx: &Cx<'_, R>,
        key: &Key,
        register: &<R::Report as Report>::Record,
    ) {
        match countdown::<R>(cx, register) {
            Some((expiry, rest)) => {
                let turn = Nanos(TURN.0 * turn::<R>(cx, expiry.id.op.node));
                self.ends.watch_for(key, cx.now, rest, turn);
            }
            None => self.ends.forget(key),
        }
    }

    pub(super) fn on_ends(&mut self, cx: &mut Cx<'_, R>) {
        for key in self.ends.take(cx.now) {
            let expire = Message::About { id: 0, key, body: About::Expire };
            cx.fx.send_now(cx.replicas.me(), expire);
        }
    }

    /// The time of this key may be over.
    pub(super) fn on_expire(&mut self, cx: &mut Cx<'_, R>, key: &Key) {
        let found = match cx.cache.get(key) {
            CachedRegister::Present(register) => countdown::<R>(cx, register),
            // A recovery notes the deadline.
            CachedRegister::Absent | CachedRegister::Lost => None,
        };
        match found {
            None => self.ends.forget(key),
            Some((_, Millis(0))) => {
                let until = cx.now + self.env.request_timeout;
                self.with(cx, key, |_, _, active| active.look_until = Some(until));
            }
            Some((_, rest)) => self.ends.watch_for(key, cx.now, rest, Nanos::ZERO),
        }
    }

    /// Votes of a quorum do not end this time to live.
    pub fn end_look(
        &mut self,
        cx: &Cx<'_, R>,
        active: &mut Active<R>,
        (id, rest): (Option<ExpiryId>, Option<Millis>),
    ) {
        if active.look_until.take().is_none() {
            return;
        }
        match id {
            None => self.ends.forget(&active.key),
            Some(_) => {
                let rest = rest.unwrap_or_default().max(LEAST_REST);
                self.ends.watch_for(&active.key, cx.now, rest, Nanos::ZERO);
            }
        }
    }

    /// No quorum has voted in time.
    pub(super) fn give_up_look(&mut self, cx: &Cx<'_, R>, active: &mut Active<R>) {
        (active.look_until, active.voted) = (None, None);
        self.ends.look(&active.key, cx.now + RETRY);
    }

    /// A sweep has come to these registers.
    pub(super) fn on_swept(
        &mut self,
        cx: &mut Cx<'_, R>,
        scanned: Scanned<<R::Report as Report>::Record>,
    ) {
        for (key, found) in scanned.records {
            if let ScannedRegister::Present(register) = found {
                cx.about(key.shard());
                self.watch_register(cx, &key, &register);
            }
        }
    }
}

/// This node's attempt is done. A look at an earlier deadline is over, unless the state has that.
pub fn settle_look<R: Rules>(active: &mut Active<R>, state: &State) {
    if state.expiry.is_none_or(|expiry| expiry.id.op == state.op) {
        active.look_until = None;
    }
}

/// The deadline of the newest state, and the rest of it by the countdown of this replica.
fn countdown<R: Rules>(
    cx: &Cx<'_, R>,
    register: &<R::Report as Report>::Record,
) -> Option<(Expiry, Millis)> {
    let expiry = R::Report::latest(register)?.expiry?;
    let report = R::Report::of(register, cx.uptime, cx.unix);
    let rest = report.countdown_of(expiry.id).rest()?;
    cx.replicas.set.has_me().then_some((expiry, rest))
}

/// How many replicas come before this one.
fn turn<R: Rules>(cx: &Cx<'_, R>, set_by: NodeId) -> u64 {
    let (set, count) = (cx.replicas.set, cx.replicas.members().count());
    let place = |node| set.index(node).unwrap_or(0);
    ((place(cx.replicas.me()) + count - place(set_by)) % count.max(1)) as u64
}
