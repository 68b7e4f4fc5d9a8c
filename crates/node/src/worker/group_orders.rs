//! Orders of the membership service on their way to a protocol.
//!
//! A seal tells that the image is whole as far as this worker knows. So it waits until the protocol
//! knows of all shards that were found forgotten, and orders behind it wait as well.

use protocols::{Event, GroupEvent, Protocol};

use super::effects::QueuedEffect;
use super::worker_state::WorkerState;
use crate::engine::EngineOf;

impl<P: Protocol> EngineOf<P> {
    pub(crate) fn take_group_order(&mut self, shared: &mut WorkerState, event: GroupEvent) {
        let is_early = matches!(event, GroupEvent::Wedge { .. }) && self.hides_a_loss();
        if is_early || !self.group_waiting.is_empty() {
            self.group_waiting.push_back(event);
        } else {
            self.run_group_order(shared, event);
        }
    }

    /// The protocol knows of forgotten shards: it may answer the service.
    pub(crate) fn run_waiting_orders(&mut self, shared: &mut WorkerState) {
        while !self.hides_a_loss()
            && let Some(event) = self.group_waiting.pop_front()
        {
            self.run_group_order(shared, event);
        }
    }

    /// True while the protocol has not stepped over every loss that this worker found. A shard that
    /// may be shown still waits for its fields to load.
    fn hides_a_loss(&self) -> bool {
        !self.forgotten.is_empty() || self.losses_on_the_way > 0
    }

    fn run_group_order(&mut self, shared: &mut WorkerState, event: GroupEvent) {
        if matches!(event, GroupEvent::Wedge { .. }) {
            let stays = |effect: &QueuedEffect<P::Message>| match effect {
                QueuedEffect::Send { message, .. } => P::outlives_epoch(message),
                QueuedEffect::Reply(..) => true,
            };
            self.durability_queue.retain(stays);
        }
        self.step(shared, Event::Group(event));
    }
}
