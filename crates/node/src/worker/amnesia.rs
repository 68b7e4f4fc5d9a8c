//! Amnesia found at run time: the worker is silent until the node's amnesia count is durably
//! raised.
//!
//! Acknowledgements from before an amnesia are void once the amnesia count is known (the
//! crash vector). A worker that finds records forgotten asks for a higher amnesia count. Until that
//! is durable it holds back its frames and replies, and hides the finding from its engines.
//! Messages made meanwhile still carry the old amnesia count.

use base::sometimes;
use types::{AmnesiaCount, Incarnation, NodeId};

use super::Worker;
use super::worker_state::WorkerState;
use crate::engine::Signal;

/// Whether this worker waits for an amnesia count to be raised.
#[derive(Debug, Default)]
pub(crate) struct AmnesiaHold {
    /// The amnesia count to wait for.
    needed: Option<AmnesiaCount>,
    /// Found or repeated in this turn: to be asked for.
    asks: bool,
}

impl AmnesiaHold {
    /// Notes that something was found forgotten while messages carried `current`.
    pub(crate) fn discover(&mut self, current: AmnesiaCount) {
        let needed = AmnesiaCount(current.0 + 1);
        assert!(needed <= AmnesiaCount::MAX, "{current:?} cannot be raised");
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

    /// True when `raised` ends the wait. An amnesia count that does not suffice is asked for again.
    fn on_raised(&mut self, raised: AmnesiaCount) -> bool {
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

impl WorkerState {
    pub(crate) fn discover_amnesia(&mut self) {
        self.hold.discover(self.me().amnesia);
    }

    /// Notes the counters of a member. True when an amnesia count grew.
    pub(crate) fn learn(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        amnesia: AmnesiaCount,
    ) -> bool {
        // Messages made under the old amnesia count must not carry the new one.
        if node == self.peers.me() && amnesia > self.me().amnesia {
            self.outbox.seal_all(self.sets.epoch(), &self.peers);
        }
        self.peers.learn(node, incarnation, amnesia)
    }
}

impl Worker {
    /// This node's amnesia count was durably raised.
    pub(super) fn on_amnesia(&mut self, amnesia: AmnesiaCount) {
        let me = self.shared.me();
        if self.shared.learn(me.node, me.incarnation, amnesia) {
            self.shared.counters.amnesias_raised += 1;
            for engine in 0..self.engines.len() {
                self.engines.wake(engine, &self.shared).drop_queued_sends();
            }
            self.signal_all(Signal::ViewChanged);
        }
        if self.shared.hold.on_raised(amnesia) {
            sometimes!("a worker speaks again after amnesia");
            for engine in 0..self.engines.len() {
                self.engines.wake(engine, &self.shared).on_amnesia_raised(&mut self.shared);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_ends_with_count_above_every_message_sent() {
        let mut hold = AmnesiaHold::default();
        hold.discover(AmnesiaCount(1));
        assert!(hold.take_asks());
        hold.discover(AmnesiaCount(1));
        assert!(!hold.take_asks(), "asked for once");
        hold.discover(AmnesiaCount(2));
        assert!(hold.take_asks());
        assert!(!hold.on_raised(AmnesiaCount(2)));
        assert!(hold.is_on() && hold.take_asks(), "asked for again");
        assert!(hold.on_raised(AmnesiaCount(3)));
        assert!(!hold.is_on() && !hold.take_asks());
    }
}
