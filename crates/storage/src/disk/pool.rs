//! Memory of batches that are done with, for later ones.
//!
//! A batch is in memory as long as one of its entries is in the ring. After a rest the system would
//! have all of it back, and getting it again page by page would cost a third of a turn.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Lengths that are kept. Shorter ones share pages; longer ones are not copied and need no pool.
const LENGTHS: RangeInclusive<usize> = 4096..=LEN_MAX;
pub(super) const LEN_MAX: usize = 64 * 1024;

/// Buffers that are kept, as long as they and those of such lengths that are lent take no more than so many bytes.
#[derive(Debug)]
pub(super) struct Pool {
    len_max: usize,
    spare: Mutex<Spare>,
}

#[derive(Default, Debug)]
struct Spare {
    /// Sum of the capacities.
    len: usize,
    /// The same of lent memory.
    lent_len: usize,
    by_capacity: BTreeMap<usize, Vec<Vec<u8>>>,
}

/// True for memory that is worth to be kept.
pub(super) fn takes(memory: &Vec<u8>) -> bool {
    LENGTHS.contains(&memory.capacity())
}

impl Pool {
    pub(super) fn new(len_max: usize) -> Arc<Pool> {
        Arc::new(Pool { len_max, spare: Mutex::default() })
    }

    /// Empty memory for so many bytes and not many more.
    pub(super) fn take(&self, len: usize) -> Vec<u8> {
        if !LENGTHS.contains(&len) {
            return Vec::with_capacity(len);
        }
        let found = self.lock().take(len..=len + len / 8);
        found.unwrap_or_else(|| Vec::with_capacity(len))
    }

    /// Bytes whose memory comes back once the last reference is gone.
    pub(super) fn lend(self: &Arc<Pool>, bytes: Vec<u8>) -> Bytes {
        if !takes(&bytes) {
            return Bytes::from(bytes);
        }
        let mut spare = self.lock();
        spare.lent_len += bytes.capacity();
        // Memory that no batch has asked for makes room for memory in use, which will come back.
        let mut unwanted = Vec::new();
        while spare.len + spare.lent_len > self.len_max
            && let Some(memory) = spare.take(0..=usize::MAX)
        {
            unwanted.push(memory);
        }
        drop(spare);
        Bytes::from_owner(Lent { bytes, pool: Arc::clone(self) })
    }

    /// Keeps memory if it is worth it and there is room.
    pub(super) fn put(&self, memory: Vec<u8>) {
        self.keep(memory, self.lock());
    }

    fn keep(&self, memory: Vec<u8>, mut spare: MutexGuard<'_, Spare>) {
        let len = spare.len + spare.lent_len + memory.capacity();
        if takes(&memory) && len <= self.len_max {
            spare.put(memory);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spare {
    fn put(&mut self, mut memory: Vec<u8>) {
        memory.clear();
        self.len += memory.capacity();
        self.by_capacity.entry(memory.capacity()).or_default().push(memory);
    }

    fn take(&mut self, capacities: RangeInclusive<usize>) -> Option<Vec<u8>> {
        let (&capacity, list) = self.by_capacity.range_mut(capacities).next()?;
        let memory = list.pop();
        if list.is_empty() {
            self.by_capacity.remove(&capacity);
        }
        self.len -= capacity;
        memory
    }
}

struct Lent {
    bytes: Vec<u8>,
    pool: Arc<Pool>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut spare = self.pool.lock();
        spare.lent_len -= bytes.capacity();
        self.pool.keep(bytes, spare);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare_len(pool: &Pool) -> usize {
        let spare = pool.lock();
        let sum = spare.by_capacity.values().flatten().map(Vec::capacity).sum();
        assert_eq!(spare.len, sum);
        assert!(sum + spare.lent_len <= pool.len_max.max(spare.lent_len));
        sum
    }

    #[test]
    fn memory_comes_back_when_the_last_part_of_it_is_let_go() {
        let pool = Pool::new(100_000);
        let mut bytes = pool.take(10_000);
        bytes.resize(10_000, 7);
        let at = bytes.as_ptr();
        let whole = pool.lend(bytes);
        let part = whole.slice(5..8);
        drop(whole);
        assert_eq!((spare_len(&pool), &part[..]), (0, &[7; 3][..]));
        drop(part);
        assert_eq!(spare_len(&pool), 10_000);
        let again = pool.take(9_500);
        assert_eq!((again.as_ptr(), again.len(), spare_len(&pool)), (at, 0, 0));
    }

    #[test]
    fn what_is_given_has_little_more_than_was_asked_for() {
        let pool = Pool::new(60_000);
        for capacity in [20_000, 10_000, 30_000] {
            drop(pool.lend(Vec::with_capacity(capacity)));
        }
        assert_eq!(pool.take(19_000).capacity(), 20_000);
        assert_eq!(pool.take(19_000).capacity(), 19_000, "nothing is left that fits");
        assert_eq!(pool.take(100).capacity(), 100);
        assert_eq!(spare_len(&pool), 40_000);
    }

    #[test]
    fn no_more_is_kept_than_was_agreed() {
        let pool = Pool::new(25_000);
        let lent: Vec<Bytes> = (0..10).map(|_| pool.lend(vec![1; 10_000])).collect();
        drop(lent);
        assert_eq!((spare_len(&pool), pool.lock().lent_len), (20_000, 0));
        // Lent memory counts, and drives out kept memory.
        let lent = pool.lend(vec![1; 4_500]);
        assert_eq!(spare_len(&pool), 20_000);
        let more = pool.lend(vec![1; 12_000]);
        assert_eq!(
            spare_len(&pool),
            0,
            "both are gone: the two that are lent leave room for less than one"
        );
        drop(pool.lend(vec![1; 10_000]));
        assert_eq!(spare_len(&pool), 0);
        drop((lent, more));
        assert_eq!((spare_len(&pool), pool.lock().lent_len), (16_500, 0));
        for len in [4_000, LEN_MAX + 1] {
            let pool = Pool::new(100_000);
            drop(pool.lend(vec![1; len]));
            assert_eq!(spare_len(&pool), 0, "{len} bytes are the allocator's");
        }
    }
}
