//! Memory that begins where a device wants it, so that its bytes go there without another copy.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;

/// Addresses in memory must be a multiple of this, on any device.
pub(crate) const ALIGNMENT: usize = 4096;

/// True if these bytes begin where a device takes them.
pub(crate) fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().align_offset(ALIGNMENT) == 0
}

/// Bytes that begin at an aligned address, wherever they are moved when they grow.
#[derive(Debug, Default)]
pub(crate) struct AlignedBuffer {
    memory: Vec<u8>,
    /// Where in `memory` they begin; it is no shorter.
    start: usize,
}

impl AlignedBuffer {
    /// An empty one in memory that was something else.
    pub(crate) fn over(mut memory: Vec<u8>) -> AlignedBuffer {
        memory.clear();
        if memory.capacity() < ALIGNMENT {
            return AlignedBuffer::default();
        }
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        memory.resize(start, 0);
        AlignedBuffer { memory, start }
    }

    /// Makes sure that `more` bytes can be added without a move.
    pub(crate) fn reserve(&mut self, more: usize) {
        if self.memory.capacity() - self.memory.len() >= more {
            return;
        }
        let len = (self.len() + more).max(2 * self.len());
        let mut grown = AlignedBuffer::over(Vec::with_capacity(ALIGNMENT + len));
        grown.memory.extend_from_slice(self);
        *self = grown;
    }

    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.memory.extend_from_slice(bytes);
    }

    /// Adds zeros until there are so many bytes; takes none away.
    pub(crate) fn fill_to(&mut self, len: usize) {
        self.reserve(len.saturating_sub(self.len()));
        self.memory.resize(self.memory.len().max(self.start + len), 0);
    }

    /// Its first `len` bytes, with their earlier content.
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        self.fill_to(len);
        &mut self[..len]
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from(self.memory).slice(self.start..)
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_stays_aligned_and_whole() {
        let mut buffer = AlignedBuffer::default();
        let mut wanted = Vec::new();
        for round in 0..400_usize {
            let part = vec![round as u8; round % 97];
            buffer.extend_from_slice(&part);
            wanted.extend_from_slice(&part);
            if round % 50 == 0 {
                wanted.resize(wanted.len() + 600, 0);
                buffer.fill_to(wanted.len());
                buffer.fill_to(3);
            }
            assert_eq!(buffer[..], wanted);
            assert!(buffer.is_empty() || is_aligned(&buffer));
        }
        let bytes = buffer.into_bytes();
        assert!(is_aligned(&bytes));
        assert_eq!(bytes, wanted);
    }

    #[test]
    fn memory_is_used_again() {
        for capacity in [0, 100, ALIGNMENT, 3 * ALIGNMENT] {
            let mut memory = Vec::with_capacity(capacity);
            memory.resize(capacity / 2, 7);
            let mut buffer = AlignedBuffer::over(memory);
            assert!(buffer.is_empty());
            buffer.room(100).fill(1);
            assert!(is_aligned(&buffer));
            assert_eq!(buffer.room(200), [[1; 100], [0; 100]].concat());
        }
    }
}
