//! Contents of large records: those that wait for the device, and those that are being read.

use std::collections::BTreeMap;

use bytes::Bytes;
use hashbrown::HashMap;

use crate::disk::cache::ByNumber;
use crate::disk::entry::Reference;
use crate::disk::extents::{Extents, content_write};
use crate::disk::io::Write;
use crate::disk::place::{UNIT, units_for};

#[derive(Default, Debug)]
pub(super) struct Contents {
    /// By their first unit.
    unwritten: BTreeMap<u64, Bytes>,
    unwritten_len: usize,
    reads: HashMap<u64, Read, ByNumber>,
}

/// A read, from its request until its bytes are judged.
#[derive(Debug)]
struct Read {
    reference: Reference,
    /// Its units were given to another record since, or to the same one again.
    is_stale: bool,
}

impl Contents {
    /// Bytes that wait for the device.
    pub(super) fn len(&self) -> usize {
        self.unwritten_len
    }

    /// Gives a content its units and keeps it until it is written; returns the first unit, and the
    /// write.
    pub(super) fn place(&mut self, content: Bytes, extents: &mut Extents) -> (u64, Write) {
        let count = units_for(content.len());
        let unit = extents.allocate(count);
        self.note_placed(unit, count);
        self.unwritten_len += content.len();
        self.unwritten.insert(unit, content.clone());
        (unit, content_write(unit, content))
    }

    /// These writes are durable.
    pub(super) fn written(&mut self, offsets: &[u64]) {
        for offset in offsets {
            let content = self.unwritten.remove(&(offset / UNIT));
            self.unwritten_len -= content.expect("it was unwritten until now").len();
        }
    }

    /// The content that a reference names, if it waits for the device.
    pub(super) fn unwritten(&self, reference: Reference) -> Option<&Bytes> {
        self.unwritten.get(&reference.unit)
    }

    /// A read of a content begins; `is_stale` if a write to its units may be under way.
    pub(super) fn begin_read(&mut self, io: u64, reference: Reference, is_stale: bool) {
        self.reads.insert(io, Read { reference, is_stale });
    }

    /// The bytes of a read are about to be judged: true if they may be the content of its
    /// reference.
    pub(super) fn end_read(&mut self, io: u64) -> bool {
        !self.reads.remove(&io).expect("it has begun").is_stale
    }

    /// Units were given to a record: earlier reads of them do not count.
    pub(super) fn note_placed(&mut self, unit: u64, count: u64) {
        for Read { reference, is_stale } in self.reads.values_mut() {
            let end = reference.unit + units_for(reference.content_len());
            *is_stale |= reference.unit < unit + count && unit < end;
        }
    }
}
