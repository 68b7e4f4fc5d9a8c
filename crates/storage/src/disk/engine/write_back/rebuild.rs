//! Rewrites buckets in memory: merges the entries of the ring into their pages, divides a bucket,
//! or joins it with the last one.

use std::collections::BTreeSet;

use super::slots::Slots;
use super::work::{How, Shape, Work};
use crate::disk::engine::buckets::Buckets;
use crate::disk::engine::contents::Contents;
use crate::disk::engine::records::Records;
use crate::disk::entry::{Entry, Reference};
use crate::disk::extents::{Extents, PAGE_DOUBTED, content_write};
use crate::disk::index::{At, Index, Slot};
use crate::disk::merge::Rows;
use crate::disk::page::{Bucket, PAGE_ROOM, Packed, Packer};
use crate::disk::place::{PAGE_UNITS, units_for};

/// Most bytes of a bucket that takes in its entries of the ring when it is divided, though there
/// are far too few buckets.
const HALVES_LEN_MAX: usize = 8 * PAGE_ROOM;

/// Most bytes of a bucket, with its entries in the ring, that is packed before its images are
/// counted.
const MERGED_LEN_MAX: usize = 4 * PAGE_ROOM;

/// Rewrites buckets for a write-back.
pub(super) struct Rebuild<'b> {
    pub(super) records: &'b mut Records,
    pub(super) slots: &'b mut Slots,
    pub(super) work: &'b mut Work,
    /// Most images of a write-back.
    pub(super) images_max: u64,
}

impl Rebuild<'_> {
    /// Rewrites a bucket if there is room for its images and its marks are durable; else a later
    /// write-back will.
    pub(super) fn bucket(&mut self, bucket: u64, how: How) {
        if how.is_merge() && self.merge(bucket) {
            return;
        }
        let other = if let Shape::Joined(high) = how.shape { Some(high) } else { None };
        let both = || [Some(bucket), other].into_iter().flatten();
        let records = &*self.records;
        let homes = |bucket| records.buckets.pinned(bucket);
        let old: usize = both().map(|bucket| homes(bucket).pages()).sum();
        let overflow: usize = both().map(|bucket| homes(bucket).overflow.len()).sum();
        // Two halves, each with a page that the division leaves partly empty; or, if they are
        // empty, the maps of the old pages.
        let need = self.work.pages + records.extents.dirty() + overflow.max(2 * old) + 4;
        let has_to_wait = both().any(|bucket| records.awaits_mark(bucket));
        let changes = how.merge || how.shape != Shape::Same;
        if !has_to_wait && need as u64 <= self.images_max && changes {
            return self.rebuild(bucket, how);
        }
        for bucket in both() {
            if how.merge {
                self.records.clock.mark(bucket);
            }
            self.records.buckets.cache_mut().unpin(bucket);
        }
    }

    /// Merges a bucket without extents, if there is room for just its images.
    fn merge(&mut self, number: u64) -> bool {
        let Records { binding, staged, buckets, extents, losses, .. } = &mut *self.records;
        let (index, durable) = (staged.index(), staged.ring().durable);
        if losses.is_repaired_later(number) {
            return false;
        }
        let old = buckets.pinned(number).clone();
        let interval = buckets.directory().interval(number);
        let Some((packed, home)) = merge_plain(&old, index, interval, durable) else {
            return false;
        };
        // An overflow page may change a map, whether it is new, kept or given up.
        let (pages, overflow) = (packed.pages(), old.overflow.len());
        let need = self.work.pages + extents.dirty() + pages + overflow.max(pages - 1) + 4;
        if need as u64 > self.images_max {
            return false;
        }
        buckets.replaced(&old);
        let mut free = old.overflow;
        place_bucket(number, packed, &mut free, *binding, (buckets, extents), self.work);
        give_up(free, extents, self.work);
        self.work.home.extend(home);
        true
    }

    fn rebuild(&mut self, number: u64, how: How) {
        let olds = self.take_old(number, how.shape);
        let Rebuild { records, slots, work, images_max } = self;
        let Records { binding, staged, buckets, extents, contents, clock, .. } = &mut **records;
        let (first, last) = buckets.directory().interval(number);
        let (index, durable) = (staged.index(), staged.ring().durable);
        index.warm_range(first, last);
        let mut rows = Rows::of(olds.iter().flat_map(Bucket::entries));
        let mut free: Vec<u64> = olds.iter().flat_map(|old| &old.overflow).copied().collect();
        let had = free.len();
        // A damaged page may be so because its units were given to another record.
        free.retain(|&unit| !extents.was_doubtful((unit, PAGE_DOUBTED)));
        let doubtful = had - free.len();
        let homes: usize = rows.homes().map(Entry::len).sum();
        let mut bytes = homes;
        // The most images that are still needed: a page is at least half full but for the last one
        // of each half. A new one may change a map, as may an old one that is given up.
        let half_full = |bytes: usize| bytes.div_ceil(PAGE_ROOM / 2);
        let images =
            |bytes: usize| half_full(bytes).max(had) + half_full(bytes - homes) + doubtful + 4;
        let staged = || index.range(first, last).filter(|_| how.merge);
        // Bodies of the entries that stand in a page for records that are too long for one.
        let mut stand_ins: Vec<Vec<u8>> = staged().map(|_| Vec::new()).collect();
        for ((at, slot), stand_in) in staged().zip(&mut stand_ins) {
            let Some(slot) = slot.durable(durable) else { continue };
            // An entry may change two maps itself.
            if (work.pages + extents.dirty() + images(bytes) + 4) as u64 > *images_max {
                clock.mark(number);
                break;
            }
            let entry = match slot.entry().outgrows_page() {
                true => give_extent(slot, stand_in, *binding, (extents, contents), work),
                false => slot.entry(),
            };
            bytes += entry.len();
            note_replaced(rows.put(entry), entry, extents, &mut work.freed);
            work.home.push((at, slot.stripe));
        }
        let entries: Vec<Entry<'_>> = rows.into_entries().collect();
        for old in olds.iter().filter(|old| !old.garbage.is_empty()) {
            let counted = referred(index, (first, last));
            for &run in old.garbage.iter().filter(|(unit, _)| !counted.contains(unit)) {
                if ((work.pages + extents.dirty() + images(bytes)) as u64) < *images_max {
                    unhome(extents, run, &mut work.freed);
                }
            }
        }
        work.has_reshaped |= how.shape != Shape::Same;
        let mut place = |number: u64, packed: Packed, buckets: &mut Buckets| {
            place_bucket(number, packed, &mut free, *binding, (buckets, extents), work);
        };
        if how.shape == Shape::Split {
            let (low, high) = buckets.split();
            slots.note_added(high);
            let middle = buckets.directory().interval(high).0;
            // The rest of its entries in the ring may be of either half.
            if clock.has(low) {
                clock.mark(high);
            }
            let (left, right) = entries.into_iter().partition(|entry| entry.hash < middle);
            place(low, pack(left), buckets);
            place(high, pack(right), buckets);
            buckets.cache_mut().pin(high);
        } else {
            place(number, pack(entries), buckets);
        }
        give_up(free, extents, work);
    }

    /// Takes a bucket out to be rewritten, and the one that it is joined with, which is gone.
    fn take_old(&mut self, number: u64, shape: Shape) -> Vec<Bucket> {
        let Records { buckets, extents, losses, clock, .. } = &mut *self.records;
        assert!(number < buckets.count(), "bucket {number} is gone");
        let Shape::Joined(high) = shape else { return vec![buckets.take(number)] };
        assert!(!losses.is_repaired_later(high), "bucket {high} is to be repaired");
        // The survey may have looked at the other one already, and will not come to this one.
        extents.survey_bucket(buckets.pinned(high), false);
        let halves = buckets.join();
        assert_eq!(halves, (number, high), "the last bucket goes first");
        clock.join(number, high);
        let olds = vec![buckets.take(number), buckets.take(high)];
        buckets.cache_mut().unpin(high);
        olds
    }

    /// True unless both halves of a bucket, with its entries in the ring, would make long chains.
    pub(super) fn halves_have_room(&self, bucket: u64) -> bool {
        let Records { staged, buckets, .. } = &*self.records;
        let (first, last) = buckets.directory().interval(bucket);
        let homes = buckets.pinned(bucket).used() as usize;
        let staged = staged.index().range(first, last).map(|(_, slot)| slot.entry().home_len());
        let mut sums = staged.scan(homes, |sum, len| {
            *sum += len;
            Some(*sum)
        });
        sums.all(|sum| sum <= HALVES_LEN_MAX)
    }
}

/// The pages of a bucket with its durable entries of the ring, and where those are. `None` if a
/// record is in an extent, goes to one, or all may be too long for the double-write buffer.
fn merge_plain(
    old: &Bucket,
    index: &Index,
    (first, last): (u64, u64),
    durable: u64,
) -> Option<(Packed, Vec<(At, u64)>)> {
    let slots = index.range(first, last);
    let slots: Vec<(At, &Slot)> =
        slots.filter_map(|(at, slot)| Some((at, slot.durable(durable)?))).collect();
    let entries = || slots.iter().map(|(_, slot)| slot.entry());
    let len = old.used() as usize + entries().map(|entry| entry.len()).sum::<usize>();
    let has_extent = |entry: Entry<'_>| entry.kind.is_in_extent() || entry.outgrows_page();
    if !old.is_plain() || len > MERGED_LEN_MAX || entries().any(has_extent) {
        return None;
    }
    let packed = old.replacing(entries()).unwrap_or_else(|| {
        let mut rows = Rows::of(old.entries());
        for entry in entries() {
            rows.put(entry);
        }
        pack(rows.into_entries().collect())
    });
    Some((packed, slots.iter().map(|(at, slot)| (*at, slot.stripe)).collect()))
}

fn pack(entries: Vec<Entry<'_>>) -> Packed {
    let mut packer = Packer::default();
    entries.into_iter().for_each(|entry| packer.push(entry));
    packer.pack()
}

/// Units that entries of the ring refer to. A record that had gone home may be in the ring as well
/// after a crash, and then still counts.
fn referred(index: &Index, (first, last): (u64, u64)) -> BTreeSet<u64> {
    let versions = index.range(first, last).flat_map(|(_, slot)| slot.versions());
    versions.filter_map(|slot| slot.entry().reference()).map(|it| it.unit).collect()
}

/// Gives the pages of a bucket their places: overflow pages go where old ones were, as far as there
/// are any.
fn place_bucket(
    number: u64,
    packed: Packed,
    free: &mut Vec<u64>,
    binding: u64,
    (buckets, extents): (&mut Buckets, &mut Extents),
    work: &mut Work,
) {
    let mut overflow = Vec::new();
    for _ in 1..packed.pages() {
        overflow.push(match free.pop() {
            Some(unit) => {
                extents.keep_home(unit, PAGE_UNITS);
                unit
            }
            None => extents.allocate_home(PAGE_UNITS),
        });
    }
    work.pages += packed.pages();
    work.buckets.push(number);
    buckets.place(number, packed, overflow, (work.batch, binding));
}

/// Gives up the overflow pages that are left.
fn give_up(free: Vec<u64>, extents: &mut Extents, work: &mut Work) {
    for unit in free {
        unhome(extents, (unit, PAGE_UNITS), &mut work.freed);
    }
}

/// Gives a record of the ring an extent. The entry for its page is made in `body`.
fn give_extent<'b>(
    slot: &Slot,
    body: &'b mut Vec<u8>,
    binding: u64,
    (extents, contents): (&mut Extents, &mut Contents),
    work: &mut Work,
) -> Entry<'b> {
    base::sometimes!("disk: a record of the ring goes home to an extent");
    let content = slot.body();
    let count = units_for(content.len());
    let unit = extents.allocate_home(count);
    contents.note_placed(unit, count);
    work.contents.push(content_write(unit, content));
    slot.entry().in_extent(unit, binding, body)
}

/// An entry of the ring takes the place of a record, or is new: so do their extents.
fn note_replaced(
    replaced: Option<Entry<'_>>,
    entry: Entry<'_>,
    extents: &mut Extents,
    freed: &mut Vec<(u64, u64)>,
) {
    let run = |reference: Reference| (reference.unit, units_for(reference.content_len()));
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
        // Its map may be older than the page, if the image of the map rotted.
        let (unit, count) = run(same);
        extents.keep_home(unit, count);
    }
}

/// Notes that pages no longer refer to these units; they are used again once the write-back is in
/// place.
fn unhome(extents: &mut Extents, (unit, count): (u64, u64), freed: &mut Vec<(u64, u64)>) {
    extents.set_home(unit, count, false);
    extents.hold(unit, count);
    freed.push((unit, count));
}
