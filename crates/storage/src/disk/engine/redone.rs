//! The last process's write-back, which a start found in the double-write buffer and has not put in
//! place.
//!
//! It is put in place before its images are overwritten. Until then they stand in for their pages.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::disk::device::Device;
use crate::disk::io::{File, Write};
use crate::disk::place::PagePlace;
use crate::disk::spare::HOMES;

#[derive(Debug)]
pub(super) struct Redone {
    io: Option<u64>,
    /// The contents of pages by file and offset, whatever the device has.
    images: BTreeMap<(File, u64), Bytes>,
    /// Written after the others were flushed.
    last: Option<Write>,
    /// Where the ring begins once all is in place.
    tail: u64,
}

impl Redone {
    pub(super) fn new(mut images: Vec<Write>, tail: u64) -> Redone {
        let last = images.pop();
        let images = images.into_iter().map(|image| ((image.file, image.offset), image.bytes));
        Redone { io: None, images: images.collect(), last, tail }
    }

    /// The content of a page that may not be in place.
    pub(super) fn image(&self, place: PagePlace) -> Option<&Bytes> {
        self.images.get(&(place.file, place.offset))
    }

    /// Begins to put the pages in place, once.
    pub(super) fn step(&mut self, device: &mut Device) {
        if self.io.is_none() {
            let write = |(&(file, offset), bytes): (&(File, u64), &Bytes)| {
                let bytes = bytes.clone();
                Write { file, offset, bytes }
            };
            self.io = Some(device.store(self.images.iter().map(write).collect(), HOMES));
        }
    }

    pub(super) fn is_its(&self, io: u64) -> bool {
        self.io == Some(io)
    }

    /// Its request is done. The new tail of the ring, once all is in place.
    pub(super) fn done(&mut self, device: &mut Device) -> Option<u64> {
        let Some(last) = self.last.take() else { return Some(self.tail) };
        self.io = Some(device.store(vec![last], HOMES));
        None
    }
}
