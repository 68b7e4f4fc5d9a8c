//! Merges what the ring holds for a bucket into its pages, and divides the bucket if it is to be split, or joins it with the
//! last one.

use std::collections::BTreeSet;

use super::Engine;
use super::write_back::{How, Shape, Work};
use crate::disk::entry::{Entry, Reference};
use crate::disk::extents::{Extents, PAGE_DOUBTED, content_write};
use crate::disk::index::{Index, Slot};
use crate::disk::merge::Rows;
use crate::disk::page::{Bucket, PAGE_ROOM, Packed, Packer};
use crate::disk::place::{PAGE_UNITS, primary_place, units_for};

impl Engine {
    pub(super) fn rebuild(&mut self, number: u64, work: &mut Work, how: How) {
        let olds = self.take_old(number, how.shape);
        let (first, last) = self.directory.interval(number);
        self.index.warm_range(first, last);
        // Out of the engine while its entries are merged, because the rest of the engine changes with them.
        let index = std::mem::replace(&mut self.index, Index::nothing());
        let used = olds.iter().map(Bucket::used).sum();
        self.used = self.used.saturating_sub(used);
        let mut rows = Rows::of(olds.iter().flat_map(Bucket::entries));
        let mut free: Vec<u64> = olds.iter().flat_map(|old| &old.overflow).copied().collect();
        let had = free.len();
        // A damaged page may be so because something else stands there now.
        free.retain(|&unit| !self.extents.was_doubtful((unit, PAGE_DOUBTED)));
        let doubtful = had - free.len();
        let homes: usize = rows.homes().map(Entry::len).sum();
        let mut bytes = homes;
        // What is still needed of the spare, at most: a page is at least half full but for the last one of each half. One
        // that is new may change a map, as may an old one that is given up.
        let half_full = |bytes: usize| bytes.div_ceil(PAGE_ROOM / 2);
        let images =
            |bytes: usize| half_full(bytes).max(had) + half_full(bytes - homes) + doubtful + 4;
        let staged = || index.range(first, last).filter(|_| how.merge);
        // What stands in a page for a record that is too long for one.
        let mut stand_ins: Vec<Vec<u8>> = staged().map(|_| Vec::new()).collect();
        for ((at, slot), stand_in) in staged().zip(&mut stand_ins) {
            let Some(slot) = slot.durable(self.ring.durable) else { continue };
            // An entry may change two maps itself.
            if (work.pages + self.extents.dirty() + images(bytes) + 4) as u64 > self.spare {
                self.sweep.mark(number);
                break;
            }
            let entry = match slot.entry().outgrows_page() {
                true => self.give_extent(slot, stand_in, work),
                false => slot.entry(),
            };
            bytes += entry.len();
            note_replaced(rows.put(entry), entry, &mut self.extents, &mut work.freed);
            work.home.push((at, slot.stripe));
        }
        let entries: Vec<Entry<'_>> = rows.into_entries().collect();
        for old in &olds {
            self.drop_garbage(old, &index, (first, last), images(bytes), work);
        }
        work.has_reshaped |= how.shape != Shape::Same;
        if how.shape == Shape::Split {
            let (low, high) = self.directory.grow();
            self.note_split(high);
            let middle = self.directory.interval(high).0;
            // What the ring still holds of it may be of either half.
            if self.sweep.has(low) {
                self.sweep.mark(high);
            }
            let (left, right) = entries.into_iter().partition(|entry| entry.hash < middle);
            self.place(low, pack(left), &mut free, work);
            self.place(high, pack(right), &mut free, work);
            self.cache.pin(high);
        } else {
            self.place(number, pack(entries), &mut free, work);
        }
        for unit in free {
            unhome(&mut self.extents, (unit, PAGE_UNITS), &mut work.freed);
        }
        self.index = index;
    }

    /// Takes a bucket out to be rewritten, and the one that it is joined with, which is gone.
    fn take_old(&mut self, number: u64, shape: Shape) -> Vec<Bucket> {
        assert!(number < self.directory.buckets(), "bucket {number} is gone");
        let Shape::Joined(high) = shape else { return vec![self.cache.take(number)] };
        assert!(!self.repairs.contains_key(&high), "bucket {high} is to be repaired");
        // The survey may have looked at the other one already, and will not come to this one.
        self.survey_bucket(high);
        let halves = self.directory.shrink();
        assert_eq!(halves, (number, high), "the last bucket goes first");
        self.sweep.join(number, high);
        let olds = vec![self.cache.take(number), self.cache.take(high)];
        self.cache.unpin(high);
        olds
    }

    /// Gives a record of the ring an extent. What stands in its page from now on is made in `body`.
    fn give_extent<'b>(
        &mut self,
        slot: &Slot,
        body: &'b mut Vec<u8>,
        work: &mut Work,
    ) -> Entry<'b> {
        base::sometimes!("disk: a record of the ring goes home to an extent");
        let content = slot.body();
        let count = units_for(content.len());
        let unit = self.extents.allocate_home(count);
        self.note_placed(unit, count);
        work.contents.push(content_write(unit, content));
        slot.entry().in_extent(unit, self.binding, body)
    }

    /// Gives the pages of a bucket their places: overflow pages go where old ones were, as far as there were any.
    pub(super) fn place(
        &mut self,
        number: u64,
        packed: Packed,
        free: &mut Vec<u64>,
        work: &mut Work,
    ) {
        let mut overflow = Vec::new();
        for _ in 1..packed.pages() {
            overflow.push(match free.pop() {
                Some(unit) => {
                    self.extents.keep_home(unit, PAGE_UNITS);
                    unit
                }
                None => self.extents.allocate_home(PAGE_UNITS),
            });
        }
        work.pages += packed.pages();
        work.buckets.push(number);
        let head = (number, self.directory.local_level(number), self.batch);
        let bucket = packed.finish(head, primary_place(number), overflow, self.binding);
        self.used += bucket.used();
        self.cache.put(number, bucket);
    }

    /// Frees the extents of records that were dropped, while there is room for their maps beside these images. A record
    /// that had gone home may be in the ring as well after a crash, and then still counts.
    fn drop_garbage(
        &mut self,
        old: &Bucket,
        index: &Index,
        (first, last): (u64, u64),
        images: usize,
        work: &mut Work,
    ) {
        if old.garbage.is_empty() {
            return;
        }
        let versions = index.range(first, last).flat_map(|(_, slot)| slot.versions());
        let counted: BTreeSet<u64> =
            versions.filter_map(|slot| slot.entry().reference()).map(|it| it.unit).collect();
        for &run in old.garbage.iter().filter(|(unit, _)| !counted.contains(unit)) {
            if ((work.pages + self.extents.dirty() + images) as u64) < self.spare {
                unhome(&mut self.extents, run, &mut work.freed);
            }
        }
    }
}

fn pack(entries: Vec<Entry<'_>>) -> Packed {
    let mut packer = Packer::default();
    entries.into_iter().for_each(|entry| packer.push(entry));
    packer.pack()
}

/// An entry of the ring takes the place of a record, or is new: so do their extents.
fn note_replaced(
    replaced: Option<Entry<'_>>,
    entry: Entry<'_>,
    extents: &mut Extents,
    freed: &mut Vec<(u64, u64)>,
) {
    let old_reference = replaced.and_then(|old| old.reference());
    let reference = if entry.kind.is_remove() { None } else { entry.reference() };
    // After a crash an entry may go home twice: then its extent stays where it is.
    if old_reference.map(run) != reference.map(run) {
        if let Some(old) = old_reference {
            if extents.was_doubtful((old.unit, old.checksum)) {
                base::sometimes!("disk: units of damaged content are left to a survey");
            } else {
                unhome(extents, run(old), freed);
            }
        }
        if let Some(new) = reference {
            let (unit, count) = run(new);
            extents.set_home(unit, count, true);
        }
    } else if let Some(same) = reference {
        // Its map may be older than the page, where the image of it rotted.
        let (unit, count) = run(same);
        extents.keep_home(unit, count);
    }
}

fn run(reference: Reference) -> (u64, u64) {
    (reference.unit, units_for(reference.content_len()))
}

/// Notes that pages no longer refer to these units; they are used again once the write-back is in place.
pub(super) fn unhome(
    extents: &mut Extents,
    (unit, count): (u64, u64),
    freed: &mut Vec<(u64, u64)>,
) {
    extents.set_home(unit, count, false);
    extents.hold(unit, count);
    freed.push((unit, count));
}
