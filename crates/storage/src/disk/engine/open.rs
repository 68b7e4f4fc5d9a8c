//! A store is created, and found again: superblock, spare, ring, in this order; everything else when it is touched.
//!
//! What this reads and writes is bounded by the lengths of ring and spare, whatever the number of keys.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use hashbrown::HashMap;
use types::key::SHARDS;
use types::limits::SPACES;
use types::{Database, Shard};

use super::Engine;
use super::config::{Config, OpenError};
use super::joins::Slots;
use super::loss::SUPERBLOCK_UNUSABLE;
use super::scrub::Scrub;
use super::superblocks::{Superblocks, write_superblocks};
use super::surplus::Surplus;
use super::sweep::{Sweep, burst_len};
use super::write_back::WriteBack;
use crate::disk::cache::{ByNumber, Cache};
use crate::disk::directory::Directory;
use crate::disk::entry::Mark;
use crate::disk::extents::{Extents, Map};
use crate::disk::index::Index;
use crate::disk::io::{Blocking, File, Files, Medium, Write};
use crate::disk::page::Packer;
use crate::disk::place::{COPIES, PAGE, PagePlace, map_place, primary_place, units_for};
use crate::disk::pool::Pool;
use crate::disk::recovery::{CHUNK, Recovered, RingImage};
use crate::disk::ring::{Marked, Ring, ring_writes};
use crate::disk::spare::{self, Images};
use crate::disk::stripe::{SECTOR, StripeWriter, blank};
use crate::disk::superblock::{Flags, Superblock};

/// Sectors written at once while a ring is made.
const BLANK_SECTORS: u64 = 2048;
/// Maps read when a store opens, so that large records find room at once.
const MAPS_AT_START: u64 = 16;
/// Bytes that are kept for batches at most, however long the ring is.
const POOL_LEN_MAX: usize = 28 << 20;

/// Sectors that a store commits after it was opened before it writes back: what is asked first does not wait behind
/// what the process before left over.
fn first_sectors(ring: u64) -> u64 {
    (ring / 1024).max(16)
}

/// Makes an empty store. The superblocks come last: without them there is no store, whatever else is there.
///
/// # Errors
/// [`OpenError::Exists`] where a superblock is found; sizes out of range; what the medium says.
pub fn create(medium: &mut dyn Medium, binding: u64, config: &Config) -> Result<(), OpenError> {
    config.check()?;
    let mut medium = Blocking::new(medium);
    match Superblocks::read(&mut medium)?.newest() {
        Err(OpenError::Missing) => {}
        Ok(_) | Err(_) => return Err(OpenError::Exists),
    }
    let ring = config.ring_bytes / SECTOR as u64;
    for first in (0..ring).step_by(BLANK_SECTORS as usize) {
        let sectors = first..(first + BLANK_SECTORS).min(ring);
        let bytes: Vec<u8> = sectors.flat_map(|position| blank(binding, position)).collect();
        let offset = first * SECTOR as u64;
        medium.store(
            vec![Write { file: File::Ring, offset, bytes: bytes.into() }],
            Files::default(),
        )?;
    }
    // Neither images nor a map, whatever the file held before.
    let zeros = Bytes::from(vec![0; spare::file_len(config.spare_pages) as usize]);
    let no_map = Write { file: File::Extents, offset: 0, bytes: zeros.slice(..PAGE) };
    let mut writes = vec![Write { file: File::Spare, offset: 0, bytes: zeros }, no_map];
    let directory = Directory::new(config.initial_level, 0).expect("the level was checked");
    for bucket in 0..directory.buckets() {
        let place = primary_place(bucket);
        let head = (bucket, directory.local_level(bucket), 0);
        let empty = Packer::default().pack().finish(head, place, Vec::new(), binding);
        writes.extend(empty.images(place).map(|(PagePlace { file, offset }, page)| Write {
            file,
            offset,
            bytes: Bytes::copy_from_slice(page),
        }));
    }
    medium.store(writes, Files::ALL)?;
    let superblock = Superblock {
        binding,
        batch: 0,
        directory,
        ring,
        spare: config.spare_pages,
        tail: ring,
        floor: 0,
        used: 0,
        groups: 0,
        flags: Flags::none(),
    };
    Ok(write_superblocks(&mut medium, &superblock)?)
}

/// A write-back that a start finds in the spare, all of it, and does not put in place before it serves.
struct Redone {
    images: Images,
    superblock: Superblock,
    /// Where the ring begins until the write-back is in place: what it moved is not to leave the ring before.
    tail: u64,
}

impl Redone {
    /// Refuses images where one is damaged: the spare alone may not be enough for the next start.
    /// Then the write-back is put in place at once. `last` is the superblock that is written last,
    /// as it stands in place.
    fn of(images: Images, last: Option<&Superblock>) -> Result<Redone, Images> {
        let image = images.whole.last().filter(|_| images.are_whole());
        let superblock = image.and_then(|image| Superblock::read(&image.bytes, COPIES - 1).ok());
        match (superblock, last) {
            (Some(superblock), Some(last)) if superblock.batch == images.batch => {
                Ok(Redone { images, superblock, tail: last.tail })
            }
            _ => Err(images),
        }
    }

    /// The image of a page, if it has one.
    fn image(&self, place: PagePlace) -> Option<&Bytes> {
        let images = self.images.whole.iter();
        let mut images =
            images.filter(|image| (image.file, image.offset) == (place.file, place.offset));
        images.next().map(|image| &image.bytes)
    }
}

/// What was found before the engine exists.
pub(in crate::disk) struct Opening {
    pub(in crate::disk) superblock: Superblock,
    /// Bytes from the start of the slots file where copies of it stood that were of no use.
    unusable: Vec<u64>,
    pub(in crate::disk) recovered: Recovered,
    /// Positions of the ring's free part that must be made blank after damage.
    not_blank: Vec<u64>,
    redone: Option<Redone>,
    /// Pages may be of a write-back that the superblock says nothing of.
    may_be_older: bool,
}

impl Opening {
    /// Finds superblock and ring, and redoes the last write-back if `redo` is set.
    ///
    /// # Errors
    /// See [`OpenError`]; a foreign store is refused before anything is written.
    pub(in crate::disk) fn find(
        medium: &mut Blocking<'_>,
        binding: Option<u64>,
        redo: bool,
    ) -> Result<Opening, OpenError> {
        if redo {
            // What the process before left in a cache must not be taken for durable: what is said on the strength of
            // it must outlive the next loss of power.
            medium.store(Vec::new(), Files::ALL)?;
        }
        let mut copies = Superblocks::read(medium)?;
        let unusable: Vec<u64> = copies.unusable().collect();
        let mut superblock = copies.newest();
        if let Err(OpenError::Format(_)) = superblock {
            return Err(superblock.expect_err("it is of another format"));
        }
        let found = superblock.as_ref().ok().map(|superblock| superblock.binding);
        if found.is_some() && binding.is_some() && found != binding {
            return Err(OpenError::Foreign);
        }
        let known = superblock.as_ref().ok().map(|superblock| superblock.batch);
        let complete = copies.last().map(|superblock| superblock.batch);
        let mut redone = None;
        if redo
            && superblock != Err(OpenError::Missing)
            && let Some(binding) = binding.or(found)
            && let Some(images) = spare::read(medium, binding, complete)?
            && images.may_be_in_place(medium, binding, known)?
        {
            match Redone::of(images, copies.last()) {
                Ok(found) => {
                    superblock = Ok(found.superblock.clone());
                    redone = Some(found);
                }
                Err(images) => {
                    // A loss of power may have torn one copy while the other was damaged: the images have both.
                    spare::redo(medium, &images)?;
                    copies = Superblocks::read(medium)?;
                    superblock = copies.newest();
                }
            }
        }
        let superblock = superblock?;
        // Before the first write-back of pages there is no head.
        let may_be_older =
            redo && superblock.batch > 0 && !spare::has_head(medium, superblock.binding)?;
        let FoundRing { recovered, mut bad } = find_ring(medium, &superblock, false)?;
        let mut unknown = recovered.stripes.iter().filter_map(|found| found.said.unknown);
        if let Some(record) = unknown.next() {
            return Err(OpenError::Record(record));
        }
        if recovered.damaged
            && let Some(Redone { images, .. }) = redone.take()
        {
            // What comes now replaces both superblocks.
            spare::redo(medium, &images)?;
            copies = Superblocks::read(medium)?;
        }
        if redo && redone.is_none() {
            copies.mend(medium, &superblock)?;
        }
        let mut not_blank = recovered.unfinished.clone();
        not_blank.append(&mut bad);
        Ok(Opening { superblock, unusable, recovered, not_blank, redone, may_be_older })
    }
}

/// Up to so many bytes of batches are kept when they are done with: what a burst may be, and no more than the cache may take.
fn pool_len_max(ring: u64, config: &Config) -> usize {
    (burst_len(ring) as usize * SECTOR).min(config.cache_bytes).min(POOL_LEN_MAX)
}

/// The stripe that says that all shards are forgotten.
fn mark_of_all(binding: u64, head: u64) -> Bytes {
    let mut raw = Vec::new();
    Mark::FORGET_ALL.append_to(binding, &mut raw);
    let mut writer = StripeWriter::new();
    writer.push(&raw);
    writer.finish(binding, head)
}

/// What the ring held, and which of its sectors are bad.
pub(in crate::disk) struct FoundRing {
    pub(in crate::disk) recovered: Recovered,
    /// Positions, where all are asked for. After damage else: what is not blank in front of the head, among it, a lap
    /// later, what is damaged behind the new tail.
    pub(in crate::disk) bad: Vec<u64>,
}

/// Walks the ring; looks at every sector of it if `all` is set or something is damaged.
pub(in crate::disk) fn find_ring(
    medium: &mut Blocking<'_>,
    superblock: &Superblock,
    all: bool,
) -> Result<FoundRing, String> {
    let mut read = |first: u64, count: u64| {
        medium.read(File::Ring, first * SECTOR as u64, count as usize * SECTOR)
    };
    let Superblock { binding, ring, tail, .. } = *superblock;
    let end = tail + ring;
    let mut image = RingImage::new(binding, ring, Ring::stripe_max(ring), CHUNK, &mut read);
    let recovered = image.walk(tail, end)?;
    let head = recovered.head;
    let bad = match (all, recovered.damaged) {
        (true, _) => image.unusable(tail, end, end)?,
        (false, true) => {
            let first = recovered.stripes.first().map_or(head, |found| found.position);
            let mut bad = image.unusable(head, head, end)?;
            let lost = image.unusable(tail, first, first)?;
            bad.extend(lost.into_iter().map(|position| position + ring));
            bad
        }
        (false, false) => Vec::new(),
    };
    Ok(FoundRing { recovered, bad })
}

impl Engine {
    /// Opens a store for so many workers; shard `s` belongs to worker `s % workers`.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Panics
    /// If `workers` is zero.
    pub fn open(
        medium: &mut dyn Medium,
        binding: u64,
        workers: usize,
        config: &Config,
    ) -> Result<Engine, OpenError> {
        assert!(workers > 0, "a store without a worker serves nobody");
        config.check()?;
        let mut medium = Blocking::new(medium);
        let mut opening = Opening::find(&mut medium, Some(binding), true)?;
        if opening.recovered.damaged {
            let mark = mark_of_all(binding, opening.recovered.head);
            let (sectors, ring) = ((mark.len() / SECTOR) as u64, opening.superblock.ring);
            opening.recovered.make_room_for(sectors, ring);
        }
        let is_followed = !opening.recovered.stripes.is_empty();
        let mut engine = Engine::new(&opening, workers, config);
        for &offset in &opening.unusable {
            base::sometimes!("disk: a start finds a superblock that is of no use");
            engine.remark(PagePlace { file: File::Slots, offset }, SUPERBLOCK_UNUSABLE);
        }
        engine.read_maps(&mut medium, opening.redone.as_ref());
        if opening.may_be_older {
            engine.extents.doubt_end();
        }
        engine.ring.head = opening.recovered.head;
        engine.replay(&mut opening.recovered);
        match opening.recovered.damaged {
            true => engine.forget_all(&mut medium, &opening, is_followed)?,
            false => engine.mend(&mut medium, &opening)?,
        }
        if let Some(Redone { images, tail, .. }) = opening.redone.take() {
            let tail = std::mem::replace(&mut engine.ring.tail, tail);
            engine.write_back = WriteBack::redo(images.whole, tail);
        }
        engine.sweep = Sweep::new(engine.ring.sectors, engine.ring.head, engine.ring.used());
        engine.held_until = engine.ring.head + first_sectors(engine.ring.sectors);
        for database in 0..SPACES as u8 {
            for shard in 0..=u8::MAX {
                if engine.flags.has(Database(database), Shard(shard)) {
                    engine.announce_one(Database(database), Shard(shard));
                }
            }
        }
        Ok(engine)
    }

    fn new(opening: &Opening, workers: usize, config: &Config) -> Engine {
        let superblock = &opening.superblock;
        Engine {
            binding: superblock.binding,
            fill_percent: config.fill_percent,
            spare: superblock.spare,
            completions: (0..workers).map(|_| Vec::new()).collect(),
            ios: Vec::new(),
            // Far above the numbers used while opening: a late answer to those means nothing.
            next_io: 1 << 32,
            failure: None,
            ring: Ring::new(superblock.ring, superblock.tail),
            index: Index::default(),
            pool: Pool::new(pool_len_max(superblock.ring, config)),
            commit: None,
            directory: superblock.directory,
            cache: Cache::new(config.cache_bytes),
            extents: Extents::new(superblock.groups, config.first_fit),
            unwritten: BTreeMap::new(),
            unwritten_len: 0,
            loading: HashMap::with_hasher(ByNumber),
            reads: HashMap::with_hasher(ByNumber),
            maps: BTreeSet::new(),
            listings: BTreeMap::new(),
            next_listing: 0,
            write_back: WriteBack::default(),
            writing: None,
            fruitless: None,
            met_repair: false,
            // Pages of a write-back whose images were damaged may be about: of the next number, for the superblock of the
            // one before was in place when they were written; in stores of older versions of the one after that.
            batch: superblock.batch + 2,
            batch_in_place: superblock.batch + 2,
            floor: superblock.floor,
            is_numbered: false,
            used: superblock.used,
            sweep: Sweep::new(superblock.ring, superblock.tail, 0),
            marked: Marked::default(),
            held_until: 0,
            is_resting: false,
            flags: superblock.flags.clone(),
            flags_durable: superblock.flags.clone(),
            losses: vec![0; SPACES * SHARDS],
            scrub: Scrub::default(),
            surplus: Surplus::default(),
            buckets_min: 1 << config.initial_level,
            slots: Slots::unknown(),
            repairs: BTreeMap::new(),
        }
    }

    fn read_maps(&mut self, medium: &mut Blocking<'_>, redone: Option<&Redone>) {
        let binding = self.binding;
        let mut read = |group: u64| {
            let place = map_place(group);
            let page = match redone.and_then(|redone| redone.image(place)) {
                Some(image) => image.clone(),
                None => medium.read(place.file, place.offset, PAGE)?,
            };
            Ok::<_, String>(Map::read(&page, group, binding))
        };
        for _ in 0..MAPS_AT_START {
            let Some(group) = self.extents.unknown().next() else { break };
            // One that cannot be read costs no more than a damaged one.
            let map = read(group).unwrap_or_default();
            self.learn_map(group, map);
        }
        // A superblock that does not count a group which has a map is older than that.
        loop {
            match read(self.extents.groups()) {
                Ok(Some(map)) => {
                    base::sometimes!("disk: a superblock does not count a group");
                    self.extents.find(map);
                }
                Ok(None) => return,
                Err(_) => return self.extents.doubt_end(),
            }
        }
    }

    /// Takes what the ring holds.
    pub(super) fn replay(&mut self, recovered: &mut Recovered) {
        let stripes = std::mem::take(&mut recovered.stripes);
        for mark in stripes.iter().flat_map(|found| &found.said.marks) {
            self.replay_mark(*mark);
        }
        self.remark_restored(&recovered.restored);
        let (places, payloads): (Vec<_>, Vec<_>) =
            stripes.into_iter().map(|found| ((found.position, found.said), found.payload)).unzip();
        let first = self.ring.put_before(places);
        for (number, payload) in (first..).zip(payloads) {
            let ring = &mut self.ring;
            self.index.insert_durable(&payload, number, |replaced| ring.discharge(replaced));
        }
        self.trim();
        for (unit, count) in self.staged_runs() {
            self.extents.hold(unit, count);
        }
    }

    fn replay_mark(&mut self, mark: Mark) {
        for (database, shard) in mark.shards() {
            self.flags.set(database, shard, mark.forgotten);
            self.flags_durable.set(database, shard, mark.forgotten);
        }
    }

    /// Units that only the ring refers to.
    fn staged_runs(&self) -> Vec<(u64, u64)> {
        if !self.index.has_references() {
            return Vec::new();
        }
        let staged = self.index.range(0, u64::MAX).map(|(_, slot)| slot.entry());
        let references = staged.filter_map(|entry| entry.reference());
        references.map(|reference| (reference.unit, units_for(reference.content_len()))).collect()
    }

    /// Sectors of the ring that are not what they should be are, before anybody is served.
    fn mend(&self, medium: &mut Blocking<'_>, opening: &Opening) -> Result<(), String> {
        self.blank(medium, &opening.not_blank)?;
        self.restore(medium, &opening.recovered.restored)
    }

    /// The ring lost records that nobody can name: all shards are forgotten and all pages are void. What the ring
    /// holds behind the damage is newer than what was lost, and stays.
    ///
    /// The mark is in the ring before the superblock moves the tail past the damage: until then every start finds that again
    /// and ends up here.
    ///
    /// Only that something was written later may show that what is damaged had been confirmed. A whole stripe shows it, and
    /// would be taken for lost itself if a start ended up here and left behind the mark what is to be mended. Where it
    /// `is_followed` by none, all that shows it may be what is to be made blank, until the mark does.
    fn forget_all(
        &mut self,
        medium: &mut Blocking<'_>,
        opening: &Opening,
        is_followed: bool,
    ) -> Result<(), OpenError> {
        let head = self.ring.head;
        let bytes = mark_of_all(self.binding, head);
        let sectors = (bytes.len() / SECTOR) as u64;
        let tail = self.ring.next_tail();
        assert!(head + sectors <= tail + self.ring.sectors, "there is room for the mark");
        if is_followed {
            self.mend(medium, opening)?;
        }
        medium.store(ring_writes(bytes, head, self.ring.sectors), Files::of(File::Ring))?;
        let number = self.ring.put_behind(head);
        self.ring.head = head + sectors;
        self.ring.stripe(number).expect("it has just been added").has_marks = true;
        self.replay_mark(Mark::FORGET_ALL);
        self.void_pages();
        if !is_followed {
            self.mend(medium, opening)?;
        }
        let flags = std::mem::replace(&mut self.flags_durable, opening.superblock.flags.clone());
        write_superblocks(medium, &self.superblock(tail))?;
        self.flags_durable = flags;
        self.ring.tail = tail;
        Ok(())
    }
}
