//! A protocol's log as a start finds it.

use bytes::Bytes;

/// Bytes of a log's records, unless its owner chose others: those of a ring of 64 MiB.
pub const LOG_LEN_DEFAULT: u64 = 64 << 20;

/// The records of a log from the first kept one on, and how much more it takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogImage {
    /// Index of the first record. A crash may bring back records that were cut off the front.
    pub first: u64,
    pub records: Vec<Bytes>,
    /// Bytes that kept records should take at most, each with [`LOG_RECORD_OVERHEAD`]. The log
    /// makes later ones wait until its front is cut off.
    pub capacity: u64,
    /// Bytes of one record at most.
    pub record_len_max: usize,
}

/// A record takes at most this part of its log.
pub const RECORDS_PER_RING: u64 = 32;
/// Bytes that a record takes besides its content, at most: one that is stored alone fills sectors.
pub const LOG_RECORD_OVERHEAD: u64 = 1_024;

impl Default for LogImage {
    fn default() -> LogImage {
        LogImage::empty(LOG_LEN_DEFAULT)
    }
}

impl LogImage {
    /// An empty log in a ring of `len` bytes. Half of it is for replaced records, and for the ends
    /// of ring batches.
    #[must_use]
    pub fn empty(len: u64) -> LogImage {
        LogImage {
            first: 1,
            records: Vec::new(),
            capacity: len / 2,
            record_len_max: (len / RECORDS_PER_RING) as usize,
        }
    }

    /// The index behind the last record.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }
}

/// Changes of a log in one turn. A batch of records replaces everything from its first index on.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct LogChanges {
    /// Everything from this index on is replaced by `records`.
    pub from: Option<u64>,
    pub records: Vec<Bytes>,
    /// Records below this index are cut off: see [`LogChanges::cuts_first`].
    pub below: u64,
}

impl LogChanges {
    /// Appends a record at `index`. Records from there on go.
    ///
    /// # Panics
    /// If it leaves a gap behind the records of this turn.
    pub fn append(&mut self, index: u64, record: Bytes) {
        let end = self.from.map_or(index, |from| from + self.records.len() as u64);
        if end < index && index <= self.below {
            // Everything before is cut off.
            (self.from, self.records) = (Some(index), Vec::new());
        }
        self.truncate(index);
        let from = self.from.expect("a truncation has set it");
        assert_eq!(from + self.records.len() as u64, index, "a log has no gap");
        self.records.push(record);
    }

    /// Drops the records from `index` on.
    pub fn truncate(&mut self, index: u64) {
        match self.from {
            Some(from) if index >= from => self.records.truncate((index - from) as usize),
            _ => {
                self.from = Some(index);
                self.records.clear();
            }
        }
    }

    /// Cuts off the records below `index`.
    pub fn cut(&mut self, below: u64) {
        self.below = self.below.max(below);
    }

    /// True if the front is cut off before the replacement, which may begin behind the end of the
    /// log then. Otherwise the replaced records are cut off, too.
    #[must_use]
    pub fn cuts_first(&self) -> bool {
        self.from.is_none_or(|from| self.below <= from)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.from.is_none() && self.below == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn changes_of_a_turn_become_one_replacement() {
        let mut changes = LogChanges::default();
        assert!(changes.is_empty());
        changes.append(5, record("a"));
        changes.append(6, record("b"));
        changes.append(6, record("c"));
        assert_eq!(
            (changes.from, &changes.records[..]),
            (Some(5), &[record("a"), record("c")][..])
        );
        changes.append(3, record("d"));
        assert_eq!((changes.from, &changes.records[..]), (Some(3), &[record("d")][..]));
        changes.truncate(2);
        changes.cut(2);
        assert_eq!((changes.from, changes.records.len(), changes.below), (Some(2), 0, 2));
    }

    #[test]
    fn log_goes_on_behind_a_cut() {
        let mut changes = LogChanges::default();
        changes.truncate(3);
        changes.cut(9);
        assert!(!changes.cuts_first());
        changes.append(9, record("a"));
        assert!(changes.cuts_first());
        assert_eq!((changes.from, changes.records.len()), (Some(9), 1));
    }

    #[test]
    #[should_panic(expected = "no gap")]
    fn a_gap_is_refused() {
        let mut changes = LogChanges::default();
        changes.append(5, record("a"));
        changes.append(7, record("b"));
    }
}
