//! A node's copy of the total order: its transactions, and which are committed and applied.

use std::collections::BTreeMap;

use super::message::Txn;

/// Transactions kept beyond the applied ones. Those further ahead are dropped and sent again later.
pub(super) const WINDOW: u64 = 16_384;

/// Indexes count from one. `applied <= committed`, and `1..=last` never had a gap.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Transactions that may still be needed, and those ahead of a gap.
    txns: BTreeMap<u64, Txn>,
    last: u64,
    committed: u64,
    /// Handed to the worker.
    emitted: u64,
    applied: u64,
}

impl History {
    /// The end of the part without a gap.
    pub fn last(&self) -> u64 {
        self.last
    }

    pub fn committed(&self) -> u64 {
        self.committed
    }

    pub fn applied(&self) -> u64 {
        self.applied
    }

    pub fn is_full(&self) -> bool {
        self.last >= self.applied + WINDOW || self.txns.len() as u64 >= WINDOW
    }

    /// Takes a transaction at its place. True when it is new.
    pub fn insert(&mut self, index: u64, txn: Txn) -> bool {
        if index <= self.last || index > self.applied + WINDOW || self.txns.contains_key(&index) {
            return false;
        }
        self.txns.insert(index, txn);
        while self.txns.contains_key(&(self.last + 1)) {
            self.last += 1;
        }
        true
    }

    /// The newest transaction, even behind a gap.
    pub fn newest(&self) -> u64 {
        self.txns.last_key_value().map_or(self.last, |(index, _)| *index)
    }

    pub fn get(&self, index: u64) -> Option<&Txn> {
        self.txns.get(&index)
    }

    /// At most `limit` transactions from `first` on.
    pub fn range(&self, first: u64, limit: usize) -> Vec<Txn> {
        self.txns
            .range(first..=self.last.max(first))
            .take(limit)
            .map(|(_, txn)| txn.clone())
            .collect()
    }

    /// Notes that a majority has everything up to here. True if that is new.
    pub fn commit(&mut self, upto: u64) -> bool {
        let is_news = upto > self.committed;
        self.committed = self.committed.max(upto);
        is_news
    }

    /// The next index to be handed to the worker, up to `limit`.
    pub fn emit(&mut self, limit: u64) -> Option<u64> {
        if self.emitted >= limit.min(self.last) {
            return None;
        }
        self.emitted += 1;
        Some(self.emitted)
    }

    /// Notes that `index` was applied. False when it is not the next one.
    pub fn apply(&mut self, index: u64) -> bool {
        let is_next = index == self.applied + 1;
        if is_next {
            self.applied = index;
        }
        is_next
    }

    /// Drops transactions up to here that no member needs any more.
    pub fn forget(&mut self, upto: u64) {
        while let Some(entry) = self.txns.first_entry()
            && *entry.key() <= upto.min(self.applied)
        {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use base::Millis;
    use bytes::Bytes;
    use types::{Access, Clock, Command, Key, NodeId};

    use super::*;

    fn txn(number: u64) -> Txn {
        Txn {
            origin: NodeId(1),
            number,
            key: Key::new(b"k"),
            command: Command::new(Access::Write, Bytes::new()),
            clock: Clock { unix: Millis(0), seed: 0 },
        }
    }

    #[test]
    fn entries_behind_a_gap_wait() {
        let mut history = History::default();
        assert!(history.insert(2, txn(2)) && history.insert(3, txn(3)));
        history.commit(3);
        assert_eq!((history.last(), history.emit(3)), (0, None));
        assert!(history.insert(1, txn(1)));
        assert!(!history.insert(2, txn(9)));
        assert_eq!(history.last(), 3);
        assert_eq!(
            [history.emit(3), history.emit(3), history.emit(3)],
            [Some(1), Some(2), Some(3)]
        );
        assert_eq!(history.emit(3), None);
    }

    #[test]
    fn entries_apply_in_order_before_they_are_forgotten() {
        let mut history = History::default();
        for index in 1..=3 {
            history.insert(index, txn(index));
        }
        assert!(!history.apply(2) && history.apply(1) && !history.apply(1));
        history.forget(3);
        assert!(history.get(1).is_none() && history.get(2).is_some());
    }

    #[test]
    fn entries_beyond_the_window_are_dropped() {
        let mut history = History::default();
        assert!(!history.insert(WINDOW + 1, txn(1)));
        assert!(history.insert(WINDOW, txn(1)));
    }
}
