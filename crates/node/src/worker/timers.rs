//! Timers of all engines of a worker, soonest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::Nanos;
use protocols::TimerId;

/// A heap of `(at, engine, id)`. Equal times fire in the order of engine and id, so a run can be
/// repeated.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Nanos, u8, TimerId)>>,
}

impl Timers {
    pub(crate) fn push(&mut self, at: Nanos, engine: usize, id: TimerId) {
        let engine = u8::try_from(engine).expect("a worker has one engine per database");
        self.heap.push(Reverse((at, engine, id)));
    }

    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<(usize, TimerId)> {
        let &Reverse((at, engine, id)) = self.heap.peek()?;
        if at > now {
            return None;
        }
        self.heap.pop();
        Some((usize::from(engine), id))
    }

    pub(crate) fn next(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_timers_come_soonest_first_and_others_stay() {
        let mut timers = Timers::default();
        timers.push(Nanos(30), 0, TimerId(1));
        timers.push(Nanos(10), 1, TimerId(2));
        timers.push(Nanos(10), 0, TimerId(3));
        assert_eq!(timers.next(), Some(Nanos(10)));
        assert_eq!(timers.pop_due(Nanos(9)), None);
        assert_eq!(timers.pop_due(Nanos(10)), Some((0, TimerId(3))));
        assert_eq!(timers.pop_due(Nanos(10)), Some((1, TimerId(2))));
        assert_eq!(timers.pop_due(Nanos(29)), None);
        assert_eq!((timers.next(), timers.len()), (Some(Nanos(30)), 1));
    }
}
