//! Write-back: entries go home. It takes the buckets that the clock's hand meets, puts all their
//! entries of the ring into their pages, and frees the ring.
//!
//! It has three steps. Gather brings the buckets and maps in. Build rewrites the buckets in memory,
//! a few at a time, so that commits go on between. Then they are written ([`writer`]). While one
//! write-back is written the next one is gathered and built, of other buckets. Its superblock has
//! the ring's tail as the write-back *before* left it: whatever happens to this one, the ring still
//! holds all of it.

mod rebuild;
mod slots;
mod work;
mod writer;

use std::collections::{BTreeSet, VecDeque};

use self::rebuild::Rebuild;
use self::slots::Slots;
use self::work::{How, Shape, Work};
use self::writer::{Pages, Writer};
use super::clock::is_much;
use super::lookup::Lookups;
use super::records::Records;
use crate::disk::device::Device;
use crate::disk::io::File;
use crate::disk::place::{
    COPIES, GROUP_UNITS, PAGE, PagePlace, map_place, primary_place, units_for,
};
use crate::disk::spare;
use crate::disk::superblock::{Flags, Superblock};

/// Buckets that are rewritten at once: between two lots of them a batch may go to the ring.
const REWRITTEN_MAX: usize = 16;
/// Buckets are joined while there are so many times as many as there should be.
const TOO_MANY: u64 = 2;

/// The next write-back, the one that is written, and their accounts.
#[derive(Debug)]
pub(super) struct WriteBack {
    next: Next,
    writer: Writer,
    slots: Slots,
    /// Most images of a write-back.
    images_max: u64,
    /// Number of the newest write-back.
    batch: u64,
    in_place: u64,
    /// A superblock of this process is in place.
    is_numbered: bool,
    /// The newest durable batch and the news of repairs when a write-back could bring no entry
    /// home.
    fruitless: Option<(u64, u64)>,
    /// A superblock or a map is to be written again.
    is_called: bool,
}

/// The next write-back.
#[derive(Debug, Default)]
enum Next {
    #[default]
    Idle,
    Gather(Gather),
    Build(Build),
    /// Waits until the one before is in place.
    Built(Work),
}

/// Buckets that are being brought in.
#[derive(Debug, Default)]
struct Gather {
    targets: BTreeSet<u64>,
    splits: u64,
    /// Pairs of buckets; the first takes in the second.
    joins: Vec<(u64, u64)>,
    /// There are far too few buckets, so this write-back only adds some. Entries would go home into
    /// long chains that the next ones would divide again.
    is_growing: bool,
    /// Buckets and maps that are being read.
    missing: usize,
    /// Maps that were asked for.
    maps: BTreeSet<u64>,
    /// News of repairs when it began.
    news: u64,
}

/// Buckets that are being rewritten in memory.
#[derive(Debug)]
struct Build {
    /// The buckets that are left, in order of their work.
    rest: VecDeque<(u64, Target)>,
    has_targets: bool,
    news: u64,
    work: Work,
}

/// Why a bucket is rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    /// It is to be split, if it is still its turn.
    Source { merge: bool },
    /// It is to take in this one, if it is still the last.
    Join(u64),
    /// It takes in its entries of the ring.
    Merge,
}

/// The state of write-backs when a read began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since {
    batch: u64,
    is_quiet: bool,
}

impl Since {
    pub(super) fn batch(self) -> u64 {
        self.batch
    }
}

impl WriteBack {
    /// For a store whose newest write-back has this number, and of at most so many images.
    pub(super) fn new(batch: u64, images_max: u64) -> WriteBack {
        WriteBack {
            next: Next::Idle,
            writer: Writer::default(),
            slots: Slots::unknown(),
            images_max,
            batch,
            in_place: batch,
            is_numbered: false,
            fruitless: None,
            is_called: false,
        }
    }

    /// Writes a superblock at least, though no entry goes home.
    pub(super) fn call(&mut self) {
        self.is_called = true;
    }

    /// The newest write-back that is in place.
    pub(super) fn in_place(&self) -> u64 {
        self.in_place
    }

    /// The state of write-backs now.
    pub(super) fn since(&self) -> Since {
        let is_building = matches!(self.next, Next::Build(_) | Next::Built(_));
        Since { batch: self.batch, is_quiet: !is_building && !self.writer.is_busy() }
    }

    /// True if no page can have been rewritten since then.
    pub(super) fn is_still(&self, since: Since) -> bool {
        since.is_quiet && self.since().is_quiet && self.batch == since.batch
    }

    /// True while a write-back can go on without anything from outside.
    pub(super) fn is_building(&self) -> bool {
        matches!(self.next, Next::Build(_))
    }

    /// True if one more map fits beside the images of the next write-back.
    pub(super) fn has_room_for_map(&self, records: &Records) -> bool {
        let images = match &self.next {
            Next::Build(Build { work, .. }) | Next::Built(work) => work.pages as u64,
            _ => COPIES,
        };
        images + (records.extents.dirty() as u64) < self.images_max
    }

    /// Begins every step that has become possible.
    ///
    /// # Errors
    /// If a write-back has more images than the double-write buffer takes: the store is poisoned.
    pub(super) fn step(
        &mut self,
        is_committing: bool,
        records: &mut Records,
        lookups: &mut Lookups,
        device: &mut Device,
    ) -> Result<(), String> {
        if records.clock.is_held(records.staged.ring()) {
            return Ok(());
        }
        if let Some(redone) = &mut records.redone {
            redone.step(device);
        }
        records.clock.end_burst(records.staged.ring());
        let may_begin = matches!(self.next, Next::Idle) && records.redone.is_none();
        if may_begin && self.is_wanted(is_committing, records) {
            self.gather(records, lookups, device);
        }
        if matches!(&self.next, Next::Gather(gather) if gather.missing == 0)
            && let Next::Gather(gather) = std::mem::take(&mut self.next)
        {
            self.start_build(&gather, records);
        }
        if self.is_building()
            && let Next::Build(build) = std::mem::take(&mut self.next)
        {
            self.build(build, records);
        }
        if !self.writer.is_busy()
            && matches!(self.next, Next::Built(_))
            && let Next::Built(work) = std::mem::take(&mut self.next)
        {
            self.send(work, records, device)?;
        }
        Ok(())
    }

    /// Cuts off pages that no bucket needs.
    pub(super) fn step_cut(&mut self, records: &Records, device: &mut Device) {
        self.slots.step(records.buckets.count(), self.writer.bucket_count(), device);
    }

    fn is_fruitful(&self, records: &Records) -> bool {
        self.fruitless != Some((records.staged.ring().durable, records.losses.news()))
    }

    fn is_wanted(&self, is_committing: bool, records: &Records) -> bool {
        let Records { staged, buckets, clock, losses, .. } = records;
        let (ring, is_resting) = (staged.ring(), clock.is_resting());
        let used = ring.used();
        let is_fruitful = self.is_fruitful(records);
        // A batch that waits for room waits for other buckets, too, which the hand has yet to come
        // to.
        let may_try = is_fruitful || !is_resting || is_committing;
        (may_try && (is_much(used, ring.sectors) || clock.is_behind(ring, buckets.count())))
            || (is_resting && is_fruitful && (used > 0 || self.joins_wanted(records) > 0))
            || self.is_called
            || self.has_many_maps(records)
            || (is_fruitful && losses.ready(ring.durable).next().is_some())
    }

    /// True if there is something to write at rest though the ring is empty.
    pub(super) fn has_work_at_rest(&self, records: &Records) -> bool {
        self.is_called || (self.is_fruitful(records) && self.joins_wanted(records) > 0)
    }

    /// How many joins the next write-back is to make, the last buckets first.
    fn joins_wanted(&self, records: &Records) -> u64 {
        let Records { staged, buckets, clock, .. } = records;
        let all = buckets.used() + staged.index().sizes().at_home as u64;
        let least = (buckets.count_for(all) * TOO_MANY).max(buckets.least());
        let most = self.images_max / if clock.is_resting() { 4 } else { 16 };
        buckets.count().saturating_sub(least).min(most)
    }

    fn choose_joins(&self, records: &Records) -> Vec<(u64, u64)> {
        let is_free =
            |bucket: u64| !self.writer.has(bucket) && !records.losses.is_repaired_later(bucket);
        let directory = records.buckets.directory();
        let halves = (0..self.joins_wanted(records)).map_while(|before| directory.halves(before));
        halves.take_while(|&(low, high)| is_free(low) && is_free(high)).collect()
    }

    /// How many buckets to add so that pages are as full as they should be.
    fn splits_wanted(&self, records: &Records) -> u64 {
        let Records { staged, buckets, .. } = records;
        // Half of the ring's entries replace others, half are new: a guess that errs by a ring at
        // most.
        let expected = buckets.used() + staged.index().sizes().at_home as u64 / 2;
        let wanted = buckets.count_for(expected).saturating_sub(buckets.count());
        let directory = buckets.directory();
        let has_to_wait =
            records.awaits_mark(directory.split()) || !self.slots.may_add(buckets.count());
        let most = if has_to_wait { 0 } else { self.images_max * 3 / 8 };
        wanted.min(most).min(directory.splits_of_round())
    }

    /// So many maps are to be written that they go first, with no bucket: else both might not fit.
    fn has_many_maps(&self, records: &Records) -> bool {
        records.extents.dirty() as u64 * 4 > self.images_max
    }

    /// Chooses buckets and asks for those that are not in memory. While the one before is written
    /// these are buckets that it does not hold.
    fn gather(&mut self, records: &mut Records, lookups: &mut Lookups, device: &mut Device) {
        let is_ahead = self.writer.is_busy();
        records.staged.trim();
        // A process that does not get beyond its first write-back must leave no page with a number
        // that the next process takes for its own.
        if !self.is_numbered || self.has_many_maps(records) {
            if !is_ahead {
                self.bring_in(Gather::default(), records, lookups, device);
            }
            return;
        }
        let wanted = self.splits_wanted(records);
        let is_growing =
            wanted >= self.images_max / 16 && records.staged.index().sizes().at_home > 0;
        let first = records.buckets.directory().split();
        let free = (first..first + wanted).take_while(|&bucket| !self.writer.has(bucket));
        let splits = free.count() as u64;
        let targets = if is_growing { BTreeSet::new() } else { self.choose(records) };
        let joins = self.choose_joins(records);
        let mut gather = Gather { targets, splits, joins, is_growing, ..Gather::default() };
        let ring = records.staged.ring();
        let has_news =
            ring.next_tail() > ring.tail || records.staged.has_unwritten_marks() || self.is_called;
        let adds = is_growing && splits > 0;
        let joined = gather.joins.iter().flat_map(|&(low, high)| [low, high]);
        gather.targets.extend(joined);
        if gather.targets.is_empty() && !adds && (is_ahead || !has_news) {
            return;
        }
        if adds || !gather.targets.is_empty() {
            gather.targets.extend(first..first + splits);
        } else {
            gather.splits = 0;
        }
        if is_ahead {
            base::sometimes!("disk: a write-back begins while another is written");
        }
        self.bring_in(gather, records, lookups, device);
    }

    fn choose(&self, records: &mut Records) -> BTreeSet<u64> {
        let max = (self.images_max / 4) as usize;
        let Records { staged, buckets, losses, clock, .. } = records;
        clock.choose(max, |bucket| self.writer.has(bucket), (staged, buckets, losses))
    }

    fn bring_in(
        &mut self,
        mut gather: Gather,
        records: &mut Records,
        lookups: &mut Lookups,
        device: &mut Device,
    ) {
        let targets: Vec<u64> = gather.targets.iter().copied().collect();
        gather.missing = targets.len();
        gather.news = records.losses.news();
        self.next = Next::Gather(gather);
        let cache = records.buckets.cache_mut();
        let (known, unknown): (Vec<u64>, Vec<u64>) =
            targets.into_iter().partition(|&bucket| cache.touch(bucket).is_some());
        lookups.read_targets(&unknown, records, device);
        for bucket in known {
            self.target_known(bucket, records, lookups, device);
        }
    }

    /// A bucket of this write-back is in memory: keeps it there and asks for the maps that it
    /// needs.
    pub(super) fn target_known(
        &mut self,
        bucket: u64,
        records: &mut Records,
        lookups: &mut Lookups,
        device: &mut Device,
    ) {
        let Next::Gather(gather) = &mut self.next else {
            unreachable!("only a gathering write-back asks for buckets");
        };
        gather.missing -= 1;
        records.buckets.cache_mut().pin(bucket);
        for group in groups_of(bucket, records) {
            records.extents.include(group);
            if !records.extents.is_known(group) && gather.maps.insert(group) {
                gather.missing += 1;
                lookups.read_map(group, device);
            }
        }
    }

    /// A map has been read.
    pub(super) fn map_known(&mut self, group: u64) {
        if let Next::Gather(gather) = &mut self.next
            && gather.maps.contains(&group)
        {
            gather.missing -= 1;
        }
    }

    fn start_build(&mut self, gather: &Gather, records: &Records) {
        self.batch += 1;
        let first = records.buckets.directory().split();
        let sources = first..first + gather.splits;
        let source = Target::Source { merge: !gather.is_growing };
        let joined: BTreeSet<u64> =
            gather.joins.iter().flat_map(|&(low, high)| [low, high]).collect();
        let is_other = |bucket: &u64| !sources.contains(bucket) && !joined.contains(bucket);
        let others = gather.targets.iter().copied().filter(is_other);
        let rest = sources.clone().map(|bucket| (bucket, source));
        let rest = rest.chain(gather.joins.iter().map(|&(low, high)| (low, Target::Join(high))));
        let rest: VecDeque<_> = rest.chain(others.map(|bucket| (bucket, Target::Merge))).collect();
        self.next = Next::Build(Build {
            has_targets: !rest.is_empty(),
            rest,
            news: gather.news,
            work: Work::new(self.batch, records.staged.ring().marked()),
        });
    }

    /// Rewrites some of the gathered buckets.
    fn build(&mut self, mut build: Build, records: &mut Records) {
        for _ in 0..REWRITTEN_MAX {
            let Some((bucket, target)) = build.rest.pop_front() else { break };
            let mut rebuild = self.rebuild(&mut build.work, records);
            let directory = *rebuild.records.buckets.directory();
            let how = match target {
                Target::Source { merge } => How {
                    // Splits are in order: once one has to wait, the rest wait too.
                    shape: if directory.split() == bucket { Shape::Split } else { Shape::Same },
                    // Else entries of the upper half would wait for the hand's next lap.
                    merge: merge || rebuild.halves_have_room(bucket),
                },
                // So are joins. A bucket that is to be repaired must not be gone by then.
                Target::Join(high)
                    if directory.halves(0) == Some((bucket, high))
                        && !rebuild.records.losses.is_repaired_later(high) =>
                {
                    How { shape: Shape::Joined(high), merge: true }
                }
                Target::Join(high) => {
                    rebuild.bucket(high, How::MERGE);
                    How::MERGE
                }
                Target::Merge => How::MERGE,
            };
            rebuild.bucket(bucket, how);
        }
        self.go_on(build, records);
    }

    fn rebuild<'b>(&'b mut self, work: &'b mut Work, records: &'b mut Records) -> Rebuild<'b> {
        Rebuild { records, slots: &mut self.slots, work, images_max: self.images_max }
    }

    /// Goes on with the next buckets; the write-back is built after the last ones.
    fn go_on(&mut self, build: Build, records: &Records) {
        if !build.rest.is_empty() {
            self.next = Next::Build(build);
            return;
        }
        let Build { work, has_targets, news, .. } = build;
        let losses = &records.losses;
        // Buckets that are too long for the double-write buffer stay as they are, and there are no
        // others.
        let is_mended = work.buckets.iter().any(|&bucket| losses.is_repaired_later(bucket));
        // A repair that came up meanwhile has not been tried, nor a bucket that found no room
        // beside maps.
        let is_tried = has_targets && losses.news() == news && records.extents.dirty() == 0;
        let is_fruitless = is_tried && !is_mended && !work.is_fruitful();
        self.fruitless = is_fruitless.then_some((records.staged.ring().durable, news));
        self.next = Next::Built(work);
    }

    /// Begins to write a write-back: the images of all changed pages, and superblocks.
    fn send(
        &mut self,
        mut work: Work,
        records: &mut Records,
        device: &mut Device,
    ) -> Result<(), String> {
        // Groups may have been added while this waited. The first write-back is of superblocks
        // alone.
        let room = match self.is_numbered {
            true => (self.images_max as usize).saturating_sub(work.pages),
            false => 0,
        };
        let (dirty, groups) = records.extents.take_dirty(room);
        work.freed.extend(records.extents.take_cleared());
        let map = |group: u64| {
            let map = records.extents.map(group).expect("a map that was changed is known");
            (map_place(group), map.write(group, self.batch, records.binding))
        };
        let maps: Vec<(PagePlace, Vec<u8>)> = dirty.into_iter().map(map).collect();
        self.is_called = false;
        work.buckets.sort_unstable();
        work.bucket_count = records.buckets.count();
        let tail = records.staged.ring().next_tail();
        let superblock = self.superblock(tail, records.losses.durable(), records);
        let superblock = Superblock { groups, ..superblock };
        let superblocks = [0, 1].map(|copy| {
            let place = PagePlace { file: File::Slots, offset: copy * PAGE as u64 };
            (place, superblock.write(copy))
        });
        let pages = work
            .buckets
            .iter()
            .flat_map(|&number| records.buckets.pinned(number).images(primary_place(number)));
        fn whole((place, page): &(PagePlace, Vec<u8>)) -> (PagePlace, &[u8]) {
            (*place, page)
        }
        let mut images: Vec<(PagePlace, &[u8])> = pages.chain(maps.iter().map(whole)).collect();
        // Neighbours go home together; the second superblock comes last.
        images.sort_unstable_by_key(|&(place, _)| place);
        images.extend(superblocks.iter().map(whole));
        let count = images.len();
        if count as u64 > self.images_max {
            return Err(format!("a write-back of {count} pages exceeds the double-write buffer"));
        }
        let (bytes, homes) = spare::assemble(records.binding, self.batch, images.into_iter());
        let images = spare::writes(&bytes, count);
        self.writer.begin(work, Pages { images, homes }, tail, device);
        Ok(())
    }

    /// The superblock of the newest write-back.
    pub(super) fn superblock(&self, tail: u64, flags: &Flags, records: &Records) -> Superblock {
        Superblock {
            binding: records.binding,
            batch: self.batch,
            directory: *records.buckets.directory(),
            ring: records.staged.ring().sectors,
            spare: self.images_max,
            tail,
            floor: records.buckets.floor(),
            used: records.buckets.used(),
            groups: records.extents.groups(),
            flags: flags.clone(),
        }
    }

    /// No page counts any more. To be called before the process has written anything back.
    pub(super) fn void_pages(&mut self, records: &mut Records) {
        assert!(!self.is_numbered, "pages of this process are not void");
        self.batch += 1;
        self.in_place = self.batch;
        records.buckets.void(self.batch);
    }

    /// A request is done; false if it is not a write-back's.
    pub(super) fn done(&mut self, io: u64, records: &mut Records, device: &mut Device) -> bool {
        if self.writer.is_its(io) {
            if let Some((work, tail)) = self.writer.done(device) {
                self.finish(work, tail, records);
            }
            return true;
        }
        if let Some(redone) = records.redone.as_mut().filter(|redone| redone.is_its(io)) {
            if let Some(tail) = redone.done(device) {
                // The entries that it brought home may leave the ring.
                records.staged.ring_mut().tail = tail;
                records.redone = None;
            }
            return true;
        }
        self.slots.done(io)
    }

    /// All pages are in place: their entries leave the ring.
    fn finish(&mut self, work: Work, tail: u64, records: &mut Records) {
        let Records { staged, buckets, extents, losses, .. } = records;
        staged.remove_all(&work.home, work.marked, |reference| {
            extents.release(reference.unit, units_for(reference.content_len()));
        });
        for (unit, count) in work.freed {
            extents.release(unit, count);
        }
        for bucket in work.buckets {
            buckets.cache_mut().unpin(bucket);
            losses.repaired(bucket, buckets);
        }
        staged.ring_mut().tail = tail;
        self.in_place = work.batch;
        self.is_numbered = true;
        extents.call_surplus();
        self.slots.note_counted(work.bucket_count);
        staged.trim();
    }
}

/// Groups whose maps change if a bucket is rewritten.
fn groups_of(bucket: u64, records: &Records) -> BTreeSet<u64> {
    let (first, last) = records.buckets.directory().interval(bucket);
    let (homes, index) = (records.buckets.pinned(bucket), records.staged.index());
    let has_references = index.has_references();
    if has_references {
        index.warm_range(first, last);
    }
    let staged = has_references.then(|| index.range(first, last)).into_iter().flatten();
    let staged = staged.flat_map(|(_, slot)| slot.versions()).map(|version| version.entry());
    let staged = staged.filter_map(|entry| entry.reference()).map(|it| it.unit);
    let runs = homes.content_runs().chain(homes.garbage.iter().copied()).map(|(unit, _)| unit);
    let units = staged.chain(runs).chain(homes.overflow.iter().copied());
    units.map(|unit| unit / GROUP_UNITS).collect()
}
