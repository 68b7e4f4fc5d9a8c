//! Entries go home: write-backs take the buckets that the hand meets ([`super::sweep`]), put everything the ring holds
//! for them into their pages, and free the stripes.
//!
//! In steps: gather (bring the buckets and maps in) and build (rewrite them in memory, a few at a time, so that commits
//! go on between); then they are written ([`super::homes`]). While one write-back is written the next one is gathered and
//! built, of other buckets.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use super::Engine;
use super::merging::Lent;
use crate::disk::index::At;
use crate::disk::io::{File, Io, Write};
use crate::disk::merge::Merging;
use crate::disk::page::PAGE_ROOM;
use crate::disk::place::{COPIES, GROUP_UNITS, PagePlace};
use crate::disk::ring::Marked;
use crate::disk::spare::HOMES;

/// What becomes of the next write-back.
#[derive(Debug, Default)]
pub(super) enum WriteBack {
    #[default]
    Idle,
    /// The last process's, which a start found in the spare: it is put in place before anything overwrites its images,
    /// as every other.
    Redone {
        io: Option<u64>,
        /// By file and offset: what its pages hold, whatever the device says.
        images: BTreeMap<(File, u64), Bytes>,
        last: Option<Write>,
        /// Where the ring begins once it is in place.
        tail: u64,
    },
    Gather(Gather),
    Build(Build),
    /// Waits until the one before is in place.
    Built(Work),
}

/// Buckets that are being brought in.
#[derive(Debug, Default)]
pub(super) struct Gather {
    targets: BTreeSet<u64>,
    splits: u64,
    /// Buckets that are to take in another one, and those.
    joins: Vec<(u64, u64)>,
    /// There are far too few buckets: this write-back only adds some, so that entries do not go home into long
    /// chains that the next ones would divide again.
    is_growing: bool,
    missing: usize,
    maps: BTreeSet<u64>, // asked for
}

/// Buckets that are being rewritten in memory.
#[derive(Debug)]
pub(super) struct Build {
    /// Those that are left, in order of their work.
    rest: VecDeque<(u64, Target)>,
    has_targets: bool,
    pub(super) work: Work,
    /// Those that are being merged outside of the engine; nothing else is done until they come back.
    pub(super) lent: Vec<Lent>,
    /// What is to be merged of them, until somebody takes it.
    pub(super) merging: Option<Merging>,
}

/// Why a bucket is rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    /// It is to be split, if it is still its turn.
    Source { merge: bool },
    /// It is to take in this one, if it is still the last.
    Join(u64),
    /// It takes in what the ring holds for it.
    Merge,
}

/// Bytes of a bucket and of what the ring holds for it up to which it takes that in when it is divided, also where there
/// are far too few buckets.
const HALVES_LEN_MAX: usize = 8 * PAGE_ROOM;

/// Buckets that are rewritten at once: between two lots of them a stripe may go to the ring.
const REWRITTEN_MAX: usize = 16;

/// Buckets that are merged at once outside of the engine.
const LENT_MAX: usize = 128;

/// What becomes of a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) shape: Shape,
    /// Takes in what the ring holds for it.
    pub(super) merge: bool,
}

/// What a bucket is afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    Same,
    Split,
    /// It has taken in the last bucket, which is this one.
    Joined(u64),
}

/// What is done once the pages are in place.
#[derive(Debug)]
pub(super) struct Work {
    /// Its number.
    pub(super) batch: u64,
    pub(super) marked: Marked,
    pub(super) buckets: Vec<u64>,
    /// Entries that are home, and the stripe each was in.
    pub(super) home: Vec<(At, u64)>,
    /// Units that no page refers to any more.
    pub(super) freed: Vec<(u64, u64)>,
    /// Records that must be in their extents before pages refer to them.
    pub(super) contents: Vec<Write>,
    pub(super) pages: usize,
    /// There are more buckets now, or fewer.
    pub(super) has_reshaped: bool,
    /// How many its superblock counts.
    pub(super) bucket_count: u64,
}

impl Work {
    fn brings_something(&self) -> bool {
        !self.home.is_empty() || self.has_reshaped
    }
}

impl WriteBack {
    pub(super) fn io(&self) -> Option<u64> {
        match self {
            WriteBack::Redone { io, .. } => *io,
            _ => None,
        }
    }

    /// The write-back of these images, the last of which is written after the others were flushed.
    pub(super) fn redo(mut images: Vec<Write>, tail: u64) -> WriteBack {
        let last = images.pop();
        let images = images.into_iter().map(|image| ((image.file, image.offset), image.bytes));
        WriteBack::Redone { io: None, images: images.collect(), last, tail }
    }

    /// True while the last process's write-back may not be in place.
    pub(super) fn is_redone(&self) -> bool {
        matches!(self, WriteBack::Redone { .. })
    }

    /// What a page holds that may not be in place.
    pub(super) fn image(&self, place: PagePlace) -> Option<&Bytes> {
        let WriteBack::Redone { images, .. } = self else { return None };
        images.get(&(place.file, place.offset))
    }
}

impl Engine {
    pub(super) fn step_write_back(&mut self) {
        if self.is_held() {
            return;
        }
        if let WriteBack::Redone { io: io @ None, images, .. } = &mut self.write_back {
            self.next_io += 1;
            *io = Some(self.next_io);
            let writes = images.iter().map(|(&(file, offset), bytes)| {
                let bytes = bytes.clone();
                Write { file, offset, bytes }
            });
            let writes = writes.collect();
            self.ios.push(Io::Store { id: self.next_io, writes, flush: HOMES });
        }
        self.end_burst();
        if matches!(self.write_back, WriteBack::Idle) && self.wants_write_back() {
            self.gather();
        }
        if matches!(&self.write_back, WriteBack::Gather(gather) if gather.missing == 0)
            && let WriteBack::Gather(gather) = std::mem::take(&mut self.write_back)
        {
            self.start_build(&gather);
        }
        if let WriteBack::Build(build) = &mut self.write_back
            && build.lent.is_empty()
        {
            self.build();
        }
        if self.writing.is_none()
            && let WriteBack::Built(_) = &self.write_back
            && let WriteBack::Built(work) = std::mem::take(&mut self.write_back)
        {
            self.send_images(work);
        }
    }

    /// True shortly after a start, while the device serves requests first.
    pub(super) fn is_held(&self) -> bool {
        self.ring.head < self.held_until
    }

    /// True while a write-back can go on without anything from outside.
    #[must_use]
    pub fn is_building(&self) -> bool {
        self.failure.is_none()
            && matches!(&self.write_back, WriteBack::Build(build) if build.lent.is_empty())
    }

    fn wants_write_back(&self) -> bool {
        let used = self.ring.used();
        let is_fruitful = self.fruitless != Some(self.ring.durable);
        // Whoever waits for room waits for other buckets, too, which the hand has yet to come to.
        let may_try = is_fruitful || !self.is_resting || self.is_committing();
        (may_try && (self.is_much(used) || self.is_behind()))
            || (self.is_resting && is_fruitful && (used > 0 || self.joins_wanted() > 0))
            || self.scrub.is_torn
            || self.has_many_maps()
            || (is_fruitful && self.repairs.values().any(|&stripe| stripe <= self.ring.durable))
    }

    /// True if buckets will be joined at rest.
    pub(super) fn wants_fewer_buckets(&self) -> bool {
        self.fruitless != Some(self.ring.durable) && self.joins_wanted() > 0
    }

    /// True for a backlog that is to go home whatever its pace was.
    pub(super) fn is_much(&self, sectors: u64) -> bool {
        sectors * 8 > self.ring.sectors * 5
    }

    /// Chooses buckets and asks for those that are not in memory. While the one before is being written these are buckets
    /// that it does not hold, and without any there is nothing to do.
    fn gather(&mut self) {
        let is_ahead = self.writing.is_some();
        self.ring.trim(self.marked);
        if !self.is_numbered {
            // A process that does not get beyond its first write-back leaves no page with a number that the next one
            // takes for its own.
            if !is_ahead {
                self.bring_in(Gather::default());
            }
            return;
        }
        if self.has_many_maps() {
            if !is_ahead {
                self.bring_in(Gather::default());
            }
            return;
        }
        let wanted = self.splits_wanted();
        let is_growing = wanted >= self.spare / 16 && self.index.sizes().at_home > 0;
        let first = self.directory.split();
        let free = (first..first + wanted).take_while(|&bucket| !self.is_being_written(bucket));
        let splits = free.count() as u64;
        let targets = if is_growing { BTreeSet::new() } else { self.choose() };
        let joins = self.choose_joins();
        let mut gather = Gather { targets, splits, joins, is_growing, ..Gather::default() };
        let has_news = self.ring.next_tail() > self.ring.tail
            || self.ring.has_marks_beyond(self.marked)
            || self.scrub.is_torn;
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
        self.bring_in(gather);
    }

    /// So many maps are to be written that they go first, with no bucket: else there might be no room for both.
    fn has_many_maps(&self) -> bool {
        self.extents.dirty() as u64 * 4 > self.spare
    }

    fn bring_in(&mut self, mut gather: Gather) {
        self.met_repair = false;
        let targets: Vec<u64> = gather.targets.iter().copied().collect();
        gather.missing = targets.len();
        self.write_back = WriteBack::Gather(gather);
        let (known, unknown): (Vec<u64>, Vec<u64>) =
            targets.into_iter().partition(|&bucket| self.cache.touch(bucket).is_some());
        self.wait_for_all(&unknown);
        known.into_iter().for_each(|bucket| self.target_known(bucket));
    }

    /// Images of the next write-back so far, but for maps.
    pub(super) fn images_built(&self) -> u64 {
        match &self.write_back {
            WriteBack::Build(Build { work, .. }) | WriteBack::Built(work) => work.pages as u64,
            _ => COPIES,
        }
    }

    /// Most buckets that one write-back takes.
    pub(super) fn targets_max(&self) -> usize {
        (self.spare / 4) as usize
    }

    /// How many buckets to add so that pages are as full as they should be.
    fn splits_wanted(&self) -> u64 {
        // Half of what the ring holds replaces something, half is new: a guess that errs by a ring at most.
        let expected = self.used + self.index.sizes().at_home as u64 / 2;
        let wanted = self.buckets_for(expected).saturating_sub(self.directory.buckets());
        let has_to_wait = self.awaits_mark(self.directory.split()) || !self.may_split();
        let most = if has_to_wait { 0 } else { self.spare * 3 / 8 };
        wanted.min(most).min(self.directory.splits_of_round())
    }

    /// A bucket that write-back asked for is in memory: keeps it there and asks for the maps it needs.
    pub(super) fn target_known(&mut self, bucket: u64) {
        self.cache.pin(bucket);
        let (first, last) = self.directory.interval(bucket);
        let homes = self.cache.peek(bucket).expect("it has just come in");
        let mut groups: BTreeSet<u64> = BTreeSet::new();
        let has_references = self.index.has_references();
        if has_references {
            self.index.warm_range(first, last);
        }
        let staged = has_references.then(|| self.index.range(first, last)).into_iter().flatten();
        let staged = staged.flat_map(|(_, slot)| slot.versions()).map(|version| version.entry());
        let homed = homes.has_references().then(|| homes.entries()).into_iter().flatten();
        for reference in homed.chain(staged).filter_map(|entry| entry.reference()) {
            groups.insert(reference.unit / GROUP_UNITS);
        }
        groups.extend(homes.overflow.iter().map(|unit| unit / GROUP_UNITS));
        groups.extend(homes.garbage.iter().map(|(unit, _)| unit / GROUP_UNITS));
        let WriteBack::Gather(gather) = &mut self.write_back else {
            unreachable!("only a gathering write-back asks for buckets");
        };
        gather.missing -= 1;
        let mut wanted = Vec::new();
        for group in groups {
            self.extents.include(group);
            if !self.extents.is_known(group) && gather.maps.insert(group) {
                gather.missing += 1;
                wanted.push(group);
            }
        }
        for group in wanted {
            self.read_map(group);
        }
    }

    /// A map has been read.
    pub(super) fn map_known(&mut self, group: u64) {
        if let WriteBack::Gather(gather) = &mut self.write_back
            && gather.maps.contains(&group)
        {
            gather.missing -= 1;
        }
    }

    fn start_build(&mut self, gather: &Gather) {
        self.batch += 1;
        let work = Work {
            batch: self.batch,
            marked: self.ring.marked(),
            buckets: Vec::new(),
            home: Vec::new(),
            freed: Vec::new(),
            contents: Vec::new(),
            pages: COPIES as usize,
            has_reshaped: false,
            bucket_count: 0,
        };
        let first = self.directory.split();
        let sources = first..first + gather.splits;
        let source = Target::Source { merge: !gather.is_growing };
        let joined: BTreeSet<u64> =
            gather.joins.iter().flat_map(|&(low, high)| [low, high]).collect();
        let is_other = |bucket: &u64| !sources.contains(bucket) && !joined.contains(bucket);
        let others = gather.targets.iter().copied().filter(is_other);
        let rest = sources.clone().map(|bucket| (bucket, source));
        let rest = rest.chain(gather.joins.iter().map(|&(low, high)| (low, Target::Join(high))));
        let rest: VecDeque<_> = rest.chain(others.map(|bucket| (bucket, Target::Merge))).collect();
        let has_targets = !rest.is_empty();
        self.write_back =
            WriteBack::Build(Build { rest, has_targets, work, lent: Vec::new(), merging: None });
    }

    /// Rewrites some of the gathered buckets, or has them merged.
    fn build(&mut self) {
        let WriteBack::Build(mut build) = std::mem::take(&mut self.write_back) else {
            unreachable!("only a build has buckets to rewrite");
        };
        let work = &mut build.work;
        let mut merging = Merging::default();
        let mut rewritten = 0;
        while rewritten < REWRITTEN_MAX
            && build.lent.len() < LENT_MAX
            && let Some((bucket, target)) = build.rest.pop_front()
        {
            let how = match target {
                Target::Source { merge } => How {
                    // Splits are in order: once one has to wait, the rest wait too.
                    shape: if self.directory.split() == bucket {
                        Shape::Split
                    } else {
                        Shape::Same
                    },
                    // Else entries of the upper half would wait for the hand's next lap and then for it to come there.
                    merge: merge || self.halves_have_room(bucket),
                },
                // So are joins. What is to be repaired would still be afterwards, and nothing of it there.
                Target::Join(high)
                    if self.directory.halves(0) == Some((bucket, high))
                        && !self.repairs.contains_key(&high) =>
                {
                    How { shape: Shape::Joined(high), merge: true }
                }
                Target::Join(high) => {
                    self.rebuild_target(high, work, How { shape: Shape::Same, merge: true });
                    How { shape: Shape::Same, merge: true }
                }
                Target::Merge => {
                    if let Some(lent) = self.lend(bucket, &mut merging) {
                        build.lent.push(lent);
                        continue;
                    }
                    How { shape: Shape::Same, merge: true }
                }
            };
            self.rebuild_target(bucket, work, how);
            rewritten += 1;
        }
        if merging.is_empty() {
            return self.go_on(build);
        }
        build.merging = Some(merging);
        self.write_back = WriteBack::Build(build);
    }

    /// Goes on with the next buckets; after the last ones all images go to the spare.
    pub(super) fn go_on(&mut self, build: Build) {
        if build.rest.is_empty() {
            let Build { work, has_targets, .. } = build;
            // Buckets that are too long for the spare stay as they are, and there is nothing else.
            let is_mended = work.buckets.iter().any(|bucket| self.repairs.contains_key(bucket));
            // A repair that came up meanwhile has not been tried, nor what found no room beside maps, which go now.
            let is_tried = has_targets && !self.met_repair && self.extents.dirty() == 0;
            let is_fruitless = is_tried && !is_mended && !work.brings_something();
            self.fruitless = is_fruitless.then_some(self.ring.durable);
            self.write_back = WriteBack::Built(work);
            return;
        }
        self.write_back = WriteBack::Build(build);
    }

    /// True unless both halves of a bucket, with what the ring holds for them, would make long chains.
    fn halves_have_room(&self, bucket: u64) -> bool {
        let (first, last) = self.directory.interval(bucket);
        let homes = self.cache.peek(bucket).expect("a target is pinned").used() as usize;
        let staged = self.index.range(first, last).map(|(_, slot)| slot.entry().home_len());
        let mut sums = staged.scan(homes, |sum, len| {
            *sum += len;
            Some(*sum)
        });
        sums.all(|sum| sum <= HALVES_LEN_MAX)
    }

    pub(super) fn rebuild_target(&mut self, bucket: u64, work: &mut Work, how: How) {
        let other = if let Shape::Joined(high) = how.shape { Some(high) } else { None };
        let both = || [Some(bucket), other].into_iter().flatten();
        let homes = |bucket| self.cache.peek(bucket).expect("a target is pinned");
        let old: usize = both().map(|bucket| homes(bucket).pages()).sum();
        let overflow: usize = both().map(|bucket| homes(bucket).overflow.len()).sum();
        // Two halves, each with a page that the division leaves partly empty; or, where nothing is left in them, the maps
        // of the old pages.
        let need = work.pages + self.extents.dirty() + overflow.max(2 * old) + 4;
        let has_to_wait = both().any(|bucket| self.awaits_mark(bucket));
        let changes = how.merge || how.shape != Shape::Same;
        if has_to_wait || need as u64 > self.spare || !changes {
            for bucket in both() {
                if how.merge {
                    self.sweep.mark(bucket);
                }
                self.cache.unpin(bucket);
            }
            return;
        }
        self.rebuild(bucket, work, how);
    }
}
