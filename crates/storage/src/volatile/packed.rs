//! A key and its record in one piece of memory behind one thin pointer: the whole cost of an unused
//! register.
//!
//! A boxed slice would be safe and would cost twice as much in a table that is half empty. It
//! cannot be shared or changed: its owner owns the memory until it is dropped.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Where the bytes begin: behind the length of the key and that of the record.
const HEAD_LEN: usize = size_of::<Lens>();

type Lens = [u32; 2];

#[derive(Debug)]
pub(super) struct Packed(NonNull<Lens>);

// SAFETY: it owns the memory it points to, like a box, and never changes it.
unsafe impl Send for Packed {}
// SAFETY: as above.
unsafe impl Sync for Packed {}

fn layout(key_len: usize, record_len: usize) -> Layout {
    Layout::from_size_align(HEAD_LEN + key_len + record_len, align_of::<Lens>())
        .expect("two lengths below four billion add up to less than an address space")
}

impl Packed {
    pub(super) fn new(key: &[u8], record: &[u8]) -> Packed {
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("records are far below 4 GiB");
        let lens = [len(key), len(record)];
        let layout = layout(key.len(), record.len());
        // SAFETY: the layout is not empty, the lengths are in it.
        let Some(at) = NonNull::new(unsafe { alloc(layout) }.cast::<Lens>()) else {
            handle_alloc_error(layout)
        };
        // SAFETY: the new memory is aligned for the lengths, which are followed by room for both,
        // and no other code knows of it.
        unsafe {
            at.write(lens);
            let bytes = at.add(1).cast::<u8>();
            bytes.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
            let bytes = bytes.add(key.len());
            bytes.copy_from_nonoverlapping(NonNull::from(record).cast(), record.len());
        }
        Packed(at)
    }

    /// The key and the record.
    pub(super) fn parts(&self) -> (&[u8], &[u8]) {
        let (key_len, record_len) = self.lens();
        // SAFETY: `new` has written so many bytes behind the lengths, and they stay as they are while this lives.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.0.add(1).cast::<u8>().as_ptr(), key_len + record_len)
        };
        bytes.split_at(key_len)
    }

    fn lens(&self) -> (usize, usize) {
        // SAFETY: `new` has written them.
        let [key, record] = unsafe { self.0.read() };
        (key as usize, record as usize)
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        let (key_len, record_len) = self.lens();
        // SAFETY: it was allocated with this layout, and is not used any more.
        unsafe { dealloc(self.0.as_ptr().cast(), layout(key_len, record_len)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_there_whatever_its_lengths() {
        for (key, record) in [(0, 0), (1, 0), (0, 1), (16, 67), (300, 5), (3, 70_000)] {
            let (key, record) = (vec![1; key], vec![2; record]);
            let packed = Packed::new(&key, &record);
            assert_eq!(packed.parts(), (&key[..], &record[..]));
        }
        assert_eq!(size_of::<Option<Packed>>(), 8);
    }
}
