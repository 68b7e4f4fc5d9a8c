//! The durability queue: effects that wait for storage, in the order of their tickets.

use std::collections::VecDeque;

use types::Ticket;

/// Effects behind tickets. Those of one ticket keep their order.
///
/// Few tickets are ever in flight (one per batch that storage has accepted), so a short sorted
/// queue of batches beats any tree.
#[derive(Debug)]
pub(crate) struct DurabilityQueue<T> {
    batches: VecDeque<(Ticket, Vec<T>)>,
    spare: Vec<Vec<T>>,
    len: usize,
}

const SPARE_MAX: usize = 4;

impl<T> Default for DurabilityQueue<T> {
    fn default() -> DurabilityQueue<T> {
        DurabilityQueue { batches: VecDeque::new(), spare: Vec::new(), len: 0 }
    }
}

impl<T> DurabilityQueue<T> {
    pub(crate) fn push(&mut self, after: Ticket, item: T) {
        self.len += 1;
        let at = self.batches.iter().rposition(|(ticket, _)| *ticket <= after);
        if let Some(at) = at
            && self.batches[at].0 == after
        {
            self.batches[at].1.push(item);
            return;
        }
        let mut batch = self.spare.pop().unwrap_or_default();
        batch.push(item);
        self.batches.insert(at.map_or(0, |at| at + 1), (after, batch));
    }

    /// Takes the oldest batch that `durable` releases.
    pub(crate) fn pop_durable(&mut self, durable: Ticket) -> Option<Vec<T>> {
        if self.batches.front()?.0 > durable {
            return None;
        }
        let (_, batch) = self.batches.pop_front()?;
        self.len -= batch.len();
        Some(batch)
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for (_, batch) in &mut self.batches {
            batch.retain(&keep);
        }
        self.len = self.batches.iter().map(|(_, batch)| batch.len()).sum();
    }

    /// Keeps the memory of an emptied batch for reuse.
    pub(crate) fn recycle(&mut self, batch: Vec<T>) {
        assert!(batch.is_empty(), "{} effects of a durable batch were not released", batch.len());
        if self.spare.len() < SPARE_MAX {
            self.spare.push(batch);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_leave_in_ticket_order_and_keep_order_within_a_ticket() {
        let mut queue = DurabilityQueue::default();
        for (ticket, item) in [(5, 'a'), (3, 'b'), (5, 'c'), (4, 'd'), (3, 'e')] {
            queue.push(Ticket(ticket), item);
        }
        assert_eq!(queue.pop_durable(Ticket(2)), None);
        assert_eq!(queue.pop_durable(Ticket(4)), Some(vec!['b', 'e']));
        assert_eq!(queue.pop_durable(Ticket(4)), Some(vec!['d']));
        assert_eq!(queue.pop_durable(Ticket(4)), None);
        assert_eq!(queue.len(), 2);
        queue.push(Ticket(7), 'f');
        queue.retain(|item| *item != 'f');
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.pop_durable(Ticket(9)), Some(vec!['a', 'c']));
        assert_eq!(queue.pop_durable(Ticket(9)), Some(vec![]));
        assert_eq!(queue.pop_durable(Ticket(9)), None);
    }
}
