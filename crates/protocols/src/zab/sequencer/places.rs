//! The places of a leader's order that are given to writes and are no entries yet.

use std::collections::VecDeque;

use types::log::LOG_RECORD_OVERHEAD;

use super::super::epoch::Epoch;
use super::super::txn::{Entry, Txn};

/// Writes that run at the same time.
const RUNNING_MAX: usize = 1_024;
/// The length of the first results, before any is known.
const EXPECTED_FIRST: u64 = 64 << 10;
/// Results after which a long one is hardly expected any more.
const EXPECTED_FOR: u64 = 64;

/// Places behind the last entry, without a gap.
#[derive(Debug)]
pub struct Places {
    /// The index of the first open place.
    first: u64,
    open: VecDeque<Place>,
    bytes: u64,
    /// Writes that run.
    running: usize,
    /// The length of results to be expected: the longest of late.
    expected: u64,
}

/// A write that runs, or has run ahead of others.
#[derive(Debug)]
struct Place {
    /// Bytes of its command, or of its entry once that is known.
    bytes: u64,
    txn: Option<Txn>,
}

impl Places {
    /// No place is given behind the last entry.
    pub fn after(last: u64) -> Places {
        let open = VecDeque::new();
        Places { first: last + 1, open, bytes: 0, running: 0, expected: EXPECTED_FIRST }
    }

    /// The last index that was given to a write.
    pub fn last(&self) -> u64 {
        self.first + self.open.len() as u64 - 1
    }

    /// Bytes of the open places' entries, about.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True while so many writes run that their results could be far too long.
    pub fn is_busy(&self) -> bool {
        self.running >= RUNNING_MAX
    }

    /// Gives the next place to a write whose command has this length.
    pub fn give(&mut self, command_len: usize) -> u64 {
        let bytes = self.expected.max(command_len as u64) + LOG_RECORD_OVERHEAD;
        self.bytes += bytes;
        self.running += 1;
        self.open.push_back(Place { bytes, txn: None });
        self.last()
    }

    /// The write of this place has run.
    pub fn fill(&mut self, index: u64, txn: Txn) {
        let at = index.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let Some(place) = at.and_then(|at| self.open.get_mut(at)) else { return };
        let entry = Entry { epoch: Epoch::default(), txn: Some(txn) };
        let len = entry.size() as u64;
        self.expected = len.max(self.expected - self.expected / EXPECTED_FOR);
        self.running -= usize::from(place.txn.is_none());
        self.bytes -= place.bytes;
        place.bytes = len + LOG_RECORD_OVERHEAD;
        self.bytes += place.bytes;
        place.txn = entry.txn;
    }

    /// Takes the first open place once its write has run.
    pub fn take(&mut self) -> Option<Txn> {
        let place = self.open.pop_front_if(|place| place.txn.is_some())?;
        self.first += 1;
        self.bytes -= place.bytes;
        place.txn
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::txn::tests::txn;
    use super::*;

    #[test]
    fn results_are_taken_in_the_order_of_their_places() {
        let mut places = Places::after(7);
        assert_eq!((places.give(1), places.give(1), places.last()), (8, 9, 9));
        places.fill(9, txn(2, 1));
        assert_eq!(places.take(), None);
        places.fill(8, txn(1, 1));
        assert_eq!(places.take(), Some(txn(1, 1)));
        places.fill(8, txn(1, 1));
        assert_eq!(places.take(), Some(txn(2, 1)));
        assert_eq!((places.take(), places.last(), places.bytes()), (None, 9, 0));
    }

    #[test]
    fn short_commands_count_by_their_long_results() {
        let mut places = Places::after(0);
        places.give(5);
        places.fill(1, txn(1, 1_000_000));
        assert!(places.bytes() > 1_000_000);
    }

    /// A queue of short commands with long results must not run all at once.
    #[test]
    fn long_results_are_expected_for_a_while() {
        let mut places = Places::after(0);
        let length_of_next = |places: &mut Places, len| {
            let before = places.bytes();
            let index = places.give(5);
            let given = places.bytes() - before;
            places.fill(index, txn(index, len));
            places.take();
            given
        };
        assert!(length_of_next(&mut places, 1_000_000) > 60_000, "nothing is known yet");
        assert!(length_of_next(&mut places, 10) > 1_000_000);
        for _ in 0..1_000 {
            length_of_next(&mut places, 10);
        }
        assert!(length_of_next(&mut places, 10) < 3_000);
        assert!((0..RUNNING_MAX).all(|_| !places.is_busy() && places.give(5) > 0));
        assert!(places.is_busy());
    }
}
