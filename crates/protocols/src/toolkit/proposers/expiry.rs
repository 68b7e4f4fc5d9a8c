//! Times to live of keys that no client touches.
//!
//! The node that set a deadline asks a quorum once it should be over. After its start it finds its
//! keys by a sweep, and those of nodes that are down.

use base::{Millis, Nanos};
use types::{Key, NodeId};

use super::machine::{Cx, Machine, Rules};
use crate::protocol::{Scanned, ScannedRegister};
use crate::toolkit::message::{About, Message};
use crate::toolkit::report::Report;
use crate::toolkit::state::State;

/// How much longer a node waits for the deadline of another one, for each place in the replica set.
const STAND_IN: Nanos = Nanos::from_secs(2);

impl<R: Rules> Machine<R> {
    /// This node's attempt is done. If it set a deadline, asks a quorum once that is over.
    pub fn schedule_expiry(&mut self, cx: &Cx<'_, R>, key: &Key, state: &State) {
        match state.expiry {
            None => self.ends.forget(key),
            Some(expiry) if expiry.id.op == state.op => {
                let rest = expiry.ends.0.saturating_sub(cx.unix.0);
                self.expire_later(cx, key, Some(Millis(rest)));
            }
            Some(_) => {}
        }
    }

    /// Asks a quorum after this rest.
    pub(super) fn expire_later(&mut self, cx: &Cx<'_, R>, key: &Key, rest: Option<Millis>) {
        if let Some(rest) = rest {
            self.ends.watch_for(key, cx.now, rest, Nanos::ZERO);
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
        let until = cx.now + self.env.request_timeout;
        self.with(cx, key, |_, _, active| active.look_until = Some(until));
    }

    /// A sweep has come to these registers.
    pub(super) fn on_swept(
        &mut self,
        cx: &mut Cx<'_, R>,
        scanned: Scanned<<R::Report as Report>::Record>,
    ) {
        for (key, found) in scanned.records {
            let ScannedRegister::Present(register) = found else { continue };
            let state = <R::Report as Report>::latest(&register);
            let Some(expiry) = state.and_then(|state| state.expiry) else { continue };
            let Some(later) = self.stands_in(cx, expiry.id.op.node) else { continue };
            let rest = Millis(expiry.ends.0.saturating_sub(cx.unix.0));
            self.ends.watch_for(&key, cx.now, rest, later);
        }
    }

    /// How long after the deadline of that node this one asks. None: the other one will.
    fn stands_in(&self, cx: &Cx<'_, R>, node: NodeId) -> Option<Nanos> {
        if node == self.env.me {
            return Some(Nanos::ZERO);
        }
        let is_up = cx.replicas.peers.get(node).is_some_and(|member| member.up);
        let place = cx.replicas.index(self.env.me)? as u64;
        (!is_up).then_some(Nanos(STAND_IN.0 * (place + 1)))
    }
}
