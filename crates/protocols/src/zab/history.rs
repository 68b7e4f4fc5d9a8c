//! A node's copy of the total order: the kept part of its log, in memory.

use std::collections::VecDeque;

use types::{LogImage, Wire};

use super::epoch::{Epoch, Zxid};
use super::txn::Entry;

/// Ends of epochs told to a leader. A history of more than these has to be copied.
const ENDS_MAX: usize = 64;

/// Entries without a gap. The first one of a history that was cut is never cut off, so that the
/// last one is always known.
#[derive(Debug)]
pub struct History {
    /// The index of the first kept entry.
    first: u64,
    entries: VecDeque<Entry>,
    bytes: u64,
}

impl History {
    /// The history that a start finds. `None` if it is none.
    pub fn open(image: &LogImage) -> Option<History> {
        let mut history = History { first: image.first, entries: VecDeque::new(), bytes: 0 };
        for record in &image.records {
            let entry = Entry::from_bytes(record).ok()?;
            if entry.txn.is_none() {
                // The state that was copied then includes those before. A crash brought them back.
                let first = history.last() + 1;
                history = History { first, entries: VecDeque::new(), bytes: 0 };
            }
            history.push(entry);
        }
        // Only the history of a new node has no entry.
        (history.first == 1 || !history.entries.is_empty()).then_some(history)
    }

    pub fn new() -> History {
        History { first: 1, entries: VecDeque::new(), bytes: 0 }
    }

    /// The history behind a copied state.
    pub fn after(base: Zxid) -> History {
        let mut history = History { first: base.index, entries: VecDeque::new(), bytes: 0 };
        history.push(Entry { epoch: base.epoch, txn: None });
        history
    }

    /// The history of a node whose log begins here and has no entry.
    pub fn lost(first: u64) -> History {
        History { first, entries: VecDeque::new(), bytes: 0 }
    }

    /// It begins with the first write of all.
    fn is_whole(&self) -> bool {
        self.first == 1 && self.entries.front().is_none_or(|entry| entry.txn.is_some())
    }

    pub fn first(&self) -> u64 {
        self.first
    }

    /// The index of the last entry.
    pub fn last(&self) -> u64 {
        self.first + self.entries.len() as u64 - 1
    }

    pub fn last_zxid(&self) -> Zxid {
        self.zxid(self.last()).unwrap_or_default()
    }

    pub fn zxid(&self, index: u64) -> Option<Zxid> {
        self.get(index).map(|entry| Zxid { epoch: entry.epoch, index })
    }

    /// Bytes of the kept entries, about.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn get(&self, index: u64) -> Option<&Entry> {
        let at = index.checked_sub(self.first)?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    pub fn push(&mut self, entry: Entry) {
        self.bytes += size(&entry);
        self.entries.push_back(entry);
    }

    /// Drops everything behind `keep`. True if there was anything.
    pub fn truncate(&mut self, keep: u64) -> bool {
        let before = self.entries.len();
        while self.last() > keep
            && let Some(entry) = self.entries.pop_back()
        {
            self.bytes -= size(&entry);
        }
        self.entries.len() < before
    }

    /// Cuts off applied entries from the front, until the rest takes at most so many bytes. Returns
    /// the first index that is kept.
    pub fn cut(&mut self, applied: u64, bytes_max: u64) -> u64 {
        while self.bytes > bytes_max
            && self.first < applied
            && let Some(entry) = self.entries.pop_front()
        {
            self.bytes -= size(&entry);
            self.first += 1;
        }
        self.first
    }

    /// Entries from `first` on, up to so many and so many bytes, at least one.
    pub fn page(&self, first: u64, entries_max: usize, bytes_max: u64) -> Vec<Entry> {
        let Some(at) = first.checked_sub(self.first) else { return Vec::new() };
        let mut bytes = 0;
        let page = self.entries.iter().skip(at as usize).take(entries_max);
        let fits = |entry: &&Entry| {
            let is_first = bytes == 0;
            bytes += size(entry);
            is_first || bytes <= bytes_max
        };
        page.take_while(fits).cloned().collect()
    }

    /// The last entry of each epoch, oldest first; the newest of many epochs.
    pub fn ends(&self) -> Vec<Zxid> {
        let ends = self.all_ends();
        ends[ends.len().saturating_sub(ENDS_MAX)..].to_vec()
    }

    fn all_ends(&self) -> Vec<Zxid> {
        let mut ends: Vec<Zxid> = Vec::new();
        for (index, entry) in (self.first..).zip(&self.entries) {
            match ends.last_mut() {
                Some(last) if last.epoch == entry.epoch => last.index = index,
                _ => ends.push(Zxid { epoch: entry.epoch, index }),
            }
        }
        ends
    }

    /// The last entry that this history shares with one of these ends. `None` if it is not kept
    /// here, or not told there.
    ///
    /// Entries of one index and epoch came from one leader, so all before them are the same, too.
    pub fn shared_with(&self, ends: &[Zxid]) -> Option<u64> {
        if ends.is_empty() {
            return self.is_whole().then_some(0);
        }
        let own = self.all_ends();
        let end_here = |epoch: Epoch| own.iter().find(|end| end.epoch == epoch).map(|it| it.index);
        let shared = ends.iter().rev().find_map(|end| Some(end_here(end.epoch)?.min(end.index)));
        match shared {
            // The other may have cut its entries of that epoch off below.
            Some(index) if index >= self.first => Some(index),
            Some(_) => None,
            None => (self.is_whole() && ends.len() < ENDS_MAX).then_some(0),
        }
    }
}

fn size(entry: &Entry) -> u64 {
    entry.size() as u64 + types::log::LOG_RECORD_OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::super::txn::tests::txn;
    use super::*;

    fn epoch(counter: u64) -> Epoch {
        Epoch { counter, node: 1 }
    }

    fn history(counters: &[u64]) -> History {
        let mut history = History::new();
        for &counter in counters {
            history.push(Entry { epoch: epoch(counter), txn: Some(txn(1, 1)) });
        }
        history
    }

    #[test]
    fn histories_meet_at_their_last_shared_entry() {
        let leader = history(&[1, 1, 1, 3, 3]);
        for (other, shared) in [
            (&[][..], 0),
            (&[1], 1),
            (&[1, 1, 1, 1], 3),
            (&[1, 1, 2, 2], 2),
            (&[1, 1, 1, 3], 4),
            (&[2, 2], 0),
        ] {
            assert_eq!(leader.shared_with(&history(other).ends()), Some(shared), "{other:?}");
        }
    }

    #[test]
    fn cut_history_shares_no_entry_that_it_dropped() {
        let mut leader = history(&[1, 1, 1, 3, 3]);
        assert_eq!(leader.cut(4, 0), 4);
        assert_eq!((leader.first(), leader.last()), (4, 5));
        assert_eq!(leader.shared_with(&history(&[1, 1, 1]).ends()), None);
        assert_eq!(leader.shared_with(&[]), None);
        assert_eq!(leader.shared_with(&history(&[1, 1, 1, 3]).ends()), Some(4));
    }

    /// Its first entry stands for a copied state. A new node needs that, and not the entry.
    #[test]
    fn history_behind_a_copy_of_the_first_write_is_not_whole() {
        let base = Zxid { epoch: epoch(1), index: 1 };
        assert_eq!(history(&[1]).shared_with(&[]), Some(0));
        assert_eq!(History::after(base).shared_with(&[]), None);
        assert_eq!(History::after(base).shared_with(&history(&[1]).ends()), Some(1));
    }

    #[test]
    fn entries_before_a_copied_state_are_void() {
        let record = |counter| {
            let bytes = Entry { epoch: epoch(counter), txn: None }.to_bytes();
            bytes::Bytes::from(bytes)
        };
        let image =
            LogImage { first: 3, records: vec![record(1), record(2)], ..LogImage::default() };
        let history = History::open(&image).expect("a history");
        assert_eq!((history.first(), history.last()), (4, 4));
    }

    #[test]
    fn last_entry_is_never_cut_off() {
        let mut one = history(&[1, 1]);
        one.cut(2, 0);
        assert_eq!((one.first(), one.last(), one.last_zxid().epoch), (2, 2, epoch(1)));
        assert!(!one.truncate(2) && one.truncate(1));
    }

    #[test]
    fn pages_are_cut_by_number_and_bytes() {
        let many = history(&[1; 9]);
        assert_eq!(many.page(3, 4, u64::MAX).len(), 4);
        assert_eq!(many.page(3, 4, 1).len(), 1);
        assert_eq!(many.page(9, 4, u64::MAX).len(), 1);
        assert!(many.page(10, 4, u64::MAX).is_empty());
    }
}
