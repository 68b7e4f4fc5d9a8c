//! Memory for what a start reads, and makes of it: one run of bytes that only grows, behind its beginning on large pages
//! where the system has them.
//!
//! A start touches more memory than the whole of the next second, and most of what that costs is the first touch of
//! each page; a large page is touched once instead of 512 times. But where there is little to put on it that once is
//! dear: a virtual machine may have to get all of it from its host.

use std::ops::Range;

use bytes::Bytes;
use memmap2::{Advice, MmapMut, MmapOptions};

/// What is not on large pages.
const BEGINNING: usize = 2 << 20;

/// Bytes that are added and then shared.
pub(super) struct Arena {
    pages: MmapMut,
    len: usize,
}

impl Arena {
    /// Has room for so many bytes; costs no memory until they come.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn new(room: usize) -> Result<Arena, String> {
        let pages = MmapOptions::new().len(room.max(1)).no_reserve_swap().map_anon();
        let pages = pages.map_err(|error| format!("cannot get so much memory: {error}"))?;
        if room > BEGINNING {
            // Without large pages it only takes longer.
            let _ = pages.advise_range(Advice::HugePage, BEGINNING, room - BEGINNING);
        }
        Ok(Arena { pages, len: 0 })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// # Panics
    /// If there is no room.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.pages[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Adds `len` bytes, to be filled: zeros where nothing was taken back.
    ///
    /// # Panics
    /// If there is no room.
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        self.len += len;
        &mut self.pages[self.len - len..self.len]
    }

    pub(super) fn get(&self, range: Range<usize>) -> &[u8] {
        &self.pages[..self.len][range]
    }

    /// Takes back what was added behind the first `len` bytes.
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub(super) fn into_bytes(self) -> Bytes {
        let len = self.len;
        Bytes::from_owner(self.pages).slice(..len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_and_not_taken_back_is_there() {
        let mut arena = Arena::new(8).expect("eight bytes");
        arena.push(b"abc");
        arena.push(b"xyz");
        arena.truncate(4);
        arena.push(b"defg");
        assert_eq!((arena.len(), &arena.into_bytes()[..]), (8, &b"abcxdefg"[..]));
    }
}
