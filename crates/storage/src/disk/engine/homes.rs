//! A write-back is written: records that go to extents, and a flush; images of all changed pages to the spare, and a
//! flush; then the pages in place, and a flush; then the second copy of the superblock, so that no loss of power tears
//! both.
//!
//! The superblock is among the images, with the tail as the *previous* write-back left it: so whatever happens to this
//! one, the ring still holds all of it.

use std::vec::IntoIter;

use super::Engine;
use super::write_back::{Work, WriteBack};
use crate::disk::index::WARMED;
use crate::disk::io::{File, Files, Io, Write};
use crate::disk::place::{PAGE, PagePlace, map_place, primary_place, units_for};
use crate::disk::spare::{self, HOMES};
use crate::disk::superblock::Superblock;
use crate::mutation::{self, Mutation};

/// Contents that share a flush: whoever writes a stripe meanwhile does not wait behind more.
const CONTENTS_AT_ONCE: usize = 128;

/// The write-back that is being written.
#[derive(Debug)]
pub(super) struct Writing {
    io: u64,
    step: Step,
    /// Its buckets are in order.
    work: Work,
    /// Where the ring begins once it is in place.
    tail: u64,
}

#[derive(Debug)]
enum Step {
    /// Contents go to extents that no page in place refers to, after them the rest; then the images go to the spare.
    Contents { rest: IntoIter<Write>, images: Vec<Write>, homes: Vec<Write> },
    /// The images go to the spare; then these go home.
    Spare { homes: Vec<Write> },
    /// Pages are written in place; this last one after them.
    Homes { last: Option<Write> },
}

impl Engine {
    pub(super) fn is_write_back(&self, io: u64) -> bool {
        let writing = self.writing.as_ref().map(|writing| writing.io);
        writing == Some(io) || self.write_back.io() == Some(io)
    }

    /// True for a bucket whose pages may not be in place yet.
    pub(super) fn is_being_written(&self, bucket: u64) -> bool {
        self.writing
            .as_ref()
            .is_some_and(|writing| writing.work.buckets.binary_search(&bucket).is_ok())
    }

    /// How many buckets the superblock counts that is being written.
    pub(super) fn buckets_written(&self) -> Option<u64> {
        self.writing.as_ref().map(|writing| writing.work.bucket_count)
    }

    /// Sends the images of everything that has changed to the spare.
    pub(super) fn send_images(&mut self, mut work: Work) {
        let mut maps: Vec<(PagePlace, Vec<u8>)> = Vec::new();
        // Groups may have been added while this waited. The first write-back is of superblocks alone.
        let room = match self.is_numbered {
            true => (self.spare as usize).saturating_sub(work.pages),
            false => 0,
        };
        let (dirty, groups) = self.extents.take_dirty(room);
        work.freed.extend(self.extents.take_cleared());
        for group in dirty {
            let map = self.extents.map(group).expect("a map that was changed is known");
            maps.push((map_place(group), map.write(group, self.batch, self.binding)));
        }
        self.scrub.is_torn = false;
        work.buckets.sort_unstable();
        work.bucket_count = self.directory.buckets();
        let tail = self.ring.next_tail();
        let superblock = Superblock { groups, ..self.superblock(tail) };
        let superblocks = [0, 1].map(|copy| {
            let place = PagePlace { file: File::Slots, offset: copy * PAGE as u64 };
            (place, superblock.write(copy))
        });
        let pages = work.buckets.iter().flat_map(|&number| {
            let bucket = self.cache.peek(number).expect("a rewritten bucket is pinned");
            bucket.images(primary_place(number))
        });
        fn whole((place, page): &(PagePlace, Vec<u8>)) -> (PagePlace, &[u8]) {
            (*place, page)
        }
        let mut images: Vec<(PagePlace, &[u8])> = pages.chain(maps.iter().map(whole)).collect();
        // Neighbours go home together; the superblock's second copy comes last.
        images.sort_unstable_by_key(|&(place, _)| place);
        images.extend(superblocks.iter().map(whole));
        if images.len() as u64 > self.spare {
            let count = images.len();
            return self.fail(&format!("a write-back of {count} pages exceeds the spare"));
        }
        let count = images.len();
        let (bytes, homes) = spare::assemble(self.binding, self.batch, images.into_iter());
        let images = spare::writes(&bytes, count);
        let contents = std::mem::take(&mut work.contents).into_iter();
        self.store_contents(contents, images, homes, (work, tail));
    }

    /// The superblock that the newest write-back writes.
    pub(super) fn superblock(&self, tail: u64) -> Superblock {
        Superblock {
            binding: self.binding,
            batch: self.batch,
            directory: self.directory,
            ring: self.ring.sectors,
            spare: self.spare,
            tail,
            floor: self.floor,
            used: self.used,
            groups: self.extents.groups(),
            flags: self.flags_durable.clone(),
        }
    }

    /// What a write-back has asked of the device is done.
    pub(super) fn write_back_done(&mut self, io: u64) {
        match self.writing.take_if(|writing| writing.io == io) {
            Some(Writing { step: Step::Contents { rest, images, homes }, work, tail, .. }) => {
                self.store_contents(rest, images, homes, (work, tail));
            }
            Some(Writing { step: Step::Spare { mut homes }, work, tail, .. }) => {
                let last = homes.pop();
                self.store_homes(homes, last, (work, tail));
            }
            Some(Writing { step: Step::Homes { last: Some(last) }, work, tail, .. }) => {
                self.store_homes(vec![last], None, (work, tail));
            }
            Some(Writing { work, tail, .. }) => self.homes_done(work, tail),
            None => self.redone(),
        }
    }

    /// A step of putting the last process's write-back in place is done.
    fn redone(&mut self) {
        let WriteBack::Redone { images, last, tail, .. } = std::mem::take(&mut self.write_back)
        else {
            unreachable!("nothing else waits for the device");
        };
        match last {
            Some(last) => {
                let id = self.take_io_id();
                self.ios.push(Io::Store { id, writes: vec![last], flush: HOMES });
                self.write_back = WriteBack::Redone { io: Some(id), images, last: None, tail };
            }
            None => {
                // What it moved may leave the ring.
                self.ring.tail = tail;
            }
        }
    }

    fn store_contents(
        &mut self,
        mut rest: IntoIter<Write>,
        images: Vec<Write>,
        homes: Vec<Write>,
        (work, tail): (Work, u64),
    ) {
        let writes: Vec<Write> = rest.by_ref().take(CONTENTS_AT_ONCE).collect();
        if writes.is_empty() {
            return self.store_images(images, homes, (work, tail));
        }
        let io = self.take_io_id();
        let flush = match mutation::is(Mutation::ExtentsUnflushed) {
            true => Files::default(),
            false => Files::of(File::Extents),
        };
        self.ios.push(Io::Store { id: io, writes, flush });
        self.writing =
            Some(Writing { io, step: Step::Contents { rest, images, homes }, work, tail });
    }

    fn store_images(&mut self, writes: Vec<Write>, homes: Vec<Write>, (work, tail): (Work, u64)) {
        let io = self.take_io_id();
        let flush = match mutation::is(Mutation::SpareUnflushed) {
            true => Files::default(),
            false => Files::of(File::Spare),
        };
        self.ios.push(Io::Store { id: io, writes, flush });
        self.writing = Some(Writing { io, step: Step::Spare { homes }, work, tail });
    }

    fn store_homes(&mut self, writes: Vec<Write>, last: Option<Write>, (work, tail): (Work, u64)) {
        let io = self.take_io_id();
        let flush = match mutation::is(Mutation::HomesUnflushed) {
            true => Files::default(),
            false => writes.iter().fold(Files::default(), |files, write| files.with(write.file)),
        };
        self.ios.push(Io::Store { id: io, writes, flush });
        self.writing = Some(Writing { io, step: Step::Homes { last }, work, tail });
    }

    /// The pages are in place: what they hold leaves the ring.
    fn homes_done(&mut self, work: Work, tail: u64) {
        for homed in work.home.chunks(WARMED) {
            self.index.warm(homed.iter().map(|&((hash, _), _)| hash));
            for &(at, stripe) in homed {
                let Some(slot) = self.index.remove(at, stripe) else { continue };
                if let Some(reference) = slot.entry().reference() {
                    self.extents.release(reference.unit, units_for(reference.content_len()));
                }
                self.ring.discharge(stripe);
            }
        }
        for (unit, count) in work.freed {
            self.extents.release(unit, count);
        }
        for bucket in work.buckets {
            self.cache.unpin(bucket);
            if self.repairs.remove(&bucket).is_some() {
                self.cache.unpin(bucket);
            }
        }
        self.ring.tail = tail;
        self.batch_in_place = work.batch;
        self.is_numbered = true;
        self.marked = work.marked;
        self.surplus.call();
        self.note_counted(work.bucket_count);
        self.trim();
    }
}
