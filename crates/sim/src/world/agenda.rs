//! Future events, ordered by time, then by the order of planning.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events of kind `E`, each at its time. Sorting moves only their times.
pub(super) struct Agenda<E> {
    /// Time, number, slot.
    order: BinaryHeap<Reverse<(u64, u64, u32)>>,
    slots: Vec<Option<E>>,
    free: Vec<u32>,
    planned: u64,
}

impl<E> Agenda<E> {
    pub(super) fn new() -> Agenda<E> {
        Agenda { order: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), planned: 0 }
    }

    pub(super) fn plan(&mut self, at: u64, event: E) {
        self.planned += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some(event);
        self.order.push(Reverse((at, self.planned, slot)));
    }

    /// The first event, and its time.
    pub(super) fn next(&mut self) -> Option<(u64, E)> {
        let Reverse((at, _, slot)) = self.order.pop()?;
        self.free.push(slot);
        let event = self.slots[slot as usize].take().expect("a planned event is in its slot");
        Some((at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_plan_order() {
        let mut agenda = Agenda::new();
        for (at, event) in [(3, 'c'), (1, 'a'), (3, 'd'), (2, 'b')] {
            agenda.plan(at, event);
        }
        assert_eq!(agenda.next(), Some((1, 'a')));
        agenda.plan(3, 'e');
        let rest: String = std::iter::from_fn(|| agenda.next()).map(|(_, event)| event).collect();
        assert_eq!(rest, "bcde");
        assert!(agenda.slots.len() <= 4, "slots are used again");
    }
}
