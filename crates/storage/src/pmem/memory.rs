//! The operations that the medium needs of memory: stores, write-backs, fences.
//!
//! They are few, so that a test can model a cache that loses any subset of unfenced stores (see
//! `modelled`). Everything is made of aligned 8-byte words that are stored whole: the unit that
//! persistent memory keeps whole as well.

use std::io;

use super::persist::LINE;

/// Memory whose contents outlive the process, shared by all workers.
///
/// Offsets of words are multiples of 8. Two workers never store to one word at a time: shards
/// belong to one worker each, and the allocator's lock guards shared words.
pub trait Memory: Send + Sync + 'static {
    /// Bytes there are; a multiple of 4096. Only grows.
    fn len(&self) -> u64;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes it `len` bytes long; new bytes are zero. Bytes that others read meanwhile stay in
    /// place.
    ///
    /// # Errors
    /// When there is no space; the memory is unchanged then.
    fn grow(&self, len: u64) -> io::Result<()>;

    /// The word at `at`.
    ///
    /// # Panics
    /// Beyond the end: offsets are checked before they come here.
    fn load(&self, at: u64) -> u64;

    /// Stores a word, failure-atomically.
    fn store(&self, at: u64, word: u64);

    /// Copies `into.len()` bytes from `at` on.
    fn read(&self, at: u64, into: &mut [u8]) {
        for (index, chunk) in into.chunks_mut(8).enumerate() {
            let word = self.load(at + 8 * index as u64).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// Stores `bytes` from `at` on, word by word in rising order; the last word is filled up with zeros.
    fn write(&self, at: u64, bytes: &[u8]) {
        for (index, chunk) in bytes.chunks(8).enumerate() {
            self.store(at + 8 * index as u64, word_of(chunk));
        }
    }

    /// Starts writing back the lines that `at..at + len` touches; a fence makes it certain.
    fn write_back(&self, at: u64, len: u64);

    /// Stores `bytes` as `write` does and starts writing them back. Whole lines are fastest: no
    /// earlier byte of them has to be kept.
    fn put(&self, at: u64, bytes: &[u8]) {
        self.write(at, bytes);
        self.write_back(at, bytes.len() as u64);
    }

    /// Announces a store of so many bytes at `at`, with a head: its lines may be fetched meanwhile.
    fn expect_put(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// As `put`, of two words and bytes behind them, with a fence to follow soon. `at` is a
    /// multiple of 64, and the lines hold no other data: the rest of the last one is kept or
    /// becomes zeros.
    fn put_headed(&self, at: u64, head: [u64; 2], body: &[u8]) {
        store_headed(self, at, head, body);
        self.write_back(at, 16 + body.len() as u64);
    }

    /// Everything written back before is persistent before anything stored after.
    fn fence(&self);

    /// Makes persistent all stores of a process that has ended, written back or not. Called once,
    /// before anything is read.
    ///
    /// # Errors
    /// The system's reason; then no byte may be believed.
    fn settle(&self) -> io::Result<()>;
}

/// The stores of `Memory::put_headed`, in rising order.
///
/// # Panics
/// Where `at` is not a multiple of 64.
#[inline]
pub fn store_headed<M: Memory + ?Sized>(memory: &M, at: u64, head: [u64; 2], body: &[u8]) {
    assert!(at.is_multiple_of(LINE), "{at} is not where a line begins");
    let [first, second] = head;
    memory.store(at, first);
    memory.store(at + 8, second);
    memory.write(at + 16, body);
}

/// The little-endian word of up to 8 bytes, put together in a register: loading a word of which parts were just stored
/// waits until those are, and they may wait for a fence.
#[inline]
#[must_use]
pub fn word_of(chunk: &[u8]) -> u64 {
    assert!(chunk.len() <= 8, "a word has 8 bytes, not {}", chunk.len());
    match chunk.try_into() {
        Ok(word) => u64::from_le_bytes(word),
        Err(_) => chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}
