//! Amnesia found at run time: the worker is silent until the node's loss is durably raised.
//!
//! Acknowledgements from before a loss are void once the loss is known (the crash vector). A worker
//! that finds records forgotten asks for a higher loss. Until that is durable it holds back its
//! frames and replies, and hides the finding from its engines. Messages made meanwhile still carry
//! the old loss.

use base::sometimes;
use types::{Incarnation, Loss, NodeId};

use super::Worker;
use super::shared::Shared;
use crate::engine::Signal;

/// Whether this worker waits for a loss to be raised.
#[derive(Debug, Default)]
pub(crate) struct LossHold {
    /// The loss to wait for.
    needed: Option<Loss>,
    /// Found or repeated in this turn: to be asked for.
    asks: bool,
}

impl LossHold {
    /// Notes that something was found forgotten while messages carried `current`.
    pub(crate) fn discover(&mut self, current: Loss) {
        let needed = Loss(current.0 + 1);
        assert!(needed <= Loss::MAX, "{current:?} cannot be raised");
        if self.needed.is_none_or(|known| known < needed) {
            self.needed = Some(needed);
            self.asks = true;
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.needed.is_some()
    }

    /// True when the next turn has to ask.
    pub(crate) fn asks(&self) -> bool {
        self.asks
    }

    pub(crate) fn take_asks(&mut self) -> bool {
        std::mem::take(&mut self.asks)
    }

    /// True when `raised` ends the wait. A loss that does not suffice is asked for again.
    fn on_raised(&mut self, raised: Loss) -> bool {
        match self.needed {
            Some(needed) if raised >= needed => {
                self.needed = None;
                self.asks = false;
                true
            }
            Some(_) => {
                self.asks = true;
                false
            }
            None => false,
        }
    }
}

impl Shared {
    pub(crate) fn discover_loss(&mut self) {
        self.hold.discover(self.me().loss);
    }

    /// Notes the counters of a member. True when a loss grew.
    pub(crate) fn learn(&mut self, node: NodeId, incarnation: Incarnation, loss: Loss) -> bool {
        // Messages made under the old loss must not carry the new one.
        if node == self.peers.me() && loss > self.me().loss {
            self.outbox.seal_all(self.sets.epoch(), &self.peers);
        }
        self.peers.learn(node, incarnation, loss)
    }
}

impl Worker {
    /// This node's loss was durably raised.
    pub(super) fn on_loss(&mut self, loss: Loss) {
        let me = self.shared.me();
        if self.shared.learn(me.node, me.incarnation, loss) {
            self.shared.counters.losses_raised += 1;
            for engine in 0..self.engines.len() {
                self.engines.wake(engine, &self.shared).drop_queued_sends();
            }
            self.signal_all(Signal::ViewChanged);
        }
        if self.shared.hold.on_raised(loss) {
            sometimes!("a worker speaks again after amnesia");
            for engine in 0..self.engines.len() {
                self.engines.wake(engine, &self.shared).on_loss_raised(&mut self.shared);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_ends_with_a_loss_above_every_message_sent() {
        let mut hold = LossHold::default();
        hold.discover(Loss(1));
        assert!(hold.take_asks());
        hold.discover(Loss(1));
        assert!(!hold.take_asks(), "asked for once");
        hold.discover(Loss(2));
        assert!(hold.take_asks());
        assert!(!hold.on_raised(Loss(2)));
        assert!(hold.is_on() && hold.take_asks(), "asked for again");
        assert!(hold.on_raised(Loss(3)));
        assert!(!hold.is_on() && !hold.take_asks());
    }
}
