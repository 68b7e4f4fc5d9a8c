//! What the medium asks of memory: stores, write-backs, fences.
//!
//! Small on purpose, so that a test can model a cache that loses any subset of what was not fenced (see
//! `modelled`). Everything is made of aligned 8-byte words that are stored whole: the unit that persistent
//! memory keeps whole as well.

use std::io;

/// Memory whose contents outlive the process, shared by all workers.
///
/// Offsets of words are multiples of 8. Two workers never store to one word at a time: shards belong to one
/// worker each, and what they share is behind the allocator's lock.
pub trait Memory: Send + Sync + 'static {
    /// Bytes there are; a multiple of 4096. Only grows.
    fn len(&self) -> u64;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes it `len` bytes long; new bytes are zero. Nothing moves: what others read meanwhile stays in place.
    ///
    /// # Errors
    /// When there is no space; nothing has changed then.
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

    /// Stores `bytes` as `write` does and starts writing them back. Whole lines are fastest: nothing of what was there
    /// has to be kept.
    fn put(&self, at: u64, bytes: &[u8]) {
        self.write(at, bytes);
        self.write_back(at, bytes.len() as u64);
    }

    /// Everything written back before is persistent before anything stored after.
    fn fence(&self);

    /// Makes persistent whatever a process that has ended stored, written back or not. Called once, before anything
    /// is read.
    ///
    /// # Errors
    /// What the system says; nothing may be believed then.
    fn settle(&self) -> io::Result<()>;
}

/// The little-endian word of up to 8 bytes.
#[inline]
#[must_use]
pub fn word_of(chunk: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..chunk.len()].copy_from_slice(chunk);
    u64::from_le_bytes(word)
}
