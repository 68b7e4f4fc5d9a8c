//! A store is created, and found again: superblock, double-write buffer, ring, in this order, and
//! all else when it is touched.
//!
//! The lengths of ring and double-write buffer bound the bytes that a start reads and writes,
//! whatever the number of keys.

use bytes::Bytes;

use super::buckets::Buckets;
use super::clock::{Clock, burst_len};
use super::config::{Config, OpenError};
use super::contents::Contents;
use super::losses::Losses;
use super::mending::{blank_ahead, restore};
use super::records::Records;
use super::redone::Redone as Unplaced;
use super::staged::Staged;
use super::superblocks::{SUPERBLOCK_UNUSABLE, Superblocks, write_superblocks};
use super::write_back::WriteBack;
use crate::disk::cache::Cache;
use crate::disk::directory::Directory;
use crate::disk::entry::Mark;
use crate::disk::extents::{Extents, Map};
use crate::disk::io::{Blocking, File, Files, Medium, Write};
use crate::disk::page::Packer;
use crate::disk::place::{COPIES, PAGE, PagePlace, map_place, primary_place};
use crate::disk::pool::Pool;
use crate::disk::recovery::{CHUNK, Recovered, Restored, RingImage};
use crate::disk::replies::Replies;
use crate::disk::ring::{Ring, ring_writes};
use crate::disk::spare::{self, Images};
use crate::disk::stripe::{SECTOR, StripeWriter, blank};
use crate::disk::superblock::{Flags, Superblock};

/// Sectors written at once while a ring is made.
const BLANK_SECTORS: u64 = 2048;
/// Maps read when a store opens, so that large records find room at once.
const MAPS_AT_START: u64 = 16;
/// Bytes that are kept for batches at most, however long the ring is.
const POOL_LEN_MAX: usize = 28 << 20;

/// Makes an empty store. The superblocks come last: without them there is no store, whatever else
/// is there.
///
/// # Errors
/// [`OpenError::Exists`] if a superblock is found; sizes out of range; the medium's reason.
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

/// A write-back that a start finds in the double-write buffer, all of it, and does not put in place
/// before it serves.
struct Redone {
    images: Images,
    superblock: Superblock,
    /// Where the ring begins until the write-back is in place: its entries must not leave the ring
    /// before.
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

/// The parts of a store that were found.
pub(in crate::disk) struct Opening {
    pub(in crate::disk) superblock: Superblock,
    /// Bytes from the start of the slots file where copies of it stood that were of no use.
    unusable: Vec<u64>,
    pub(in crate::disk) recovered: Recovered,
    /// Positions of the ring's free part that must be made blank after damage.
    not_blank: Vec<u64>,
    redone: Option<Redone>,
    /// Pages may be of a write-back that the superblock does not know.
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
            // Bytes that the process before left in a cache are not durable yet. Answers that rest
            // on them must outlive the next loss of power.
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
                    // A loss of power may have torn one copy while the other was damaged: the
                    // images have both.
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
            // Both superblocks are replaced now.
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

/// Most bytes of batches that are kept for later ones: a burst of them, and no more than the cache
/// may take.
fn pool_len_max(ring: u64, config: &Config) -> usize {
    (burst_len(ring) as usize * SECTOR).min(config.cache_bytes).min(POOL_LEN_MAX)
}

/// The ring batch that says that all shards are forgotten.
fn mark_of_all(binding: u64, head: u64) -> Bytes {
    let mut raw = Vec::new();
    Mark::FORGET_ALL.append_to(binding, &mut raw);
    let mut writer = StripeWriter::new();
    writer.push(&raw);
    writer.finish(binding, head)
}

/// The content of the ring, and its bad sectors.
pub(in crate::disk) struct FoundRing {
    pub(in crate::disk) recovered: Recovered,
    /// Positions of all bad sectors, if all are asked for. Else, after damage, of those that are
    /// not blank in front of the head. Damaged ones behind the new tail stand among them a lap
    /// later.
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

/// The parts of an engine whose store was found.
pub(super) struct Opened {
    pub(super) records: Records,
    pub(super) write_back: WriteBack,
    pub(super) replies: Replies,
}

/// Opens a store for so many workers.
///
/// # Errors
/// See [`OpenError`].
pub(super) fn open(
    medium: &mut dyn Medium,
    binding: u64,
    workers: usize,
    config: &Config,
) -> Result<Opened, OpenError> {
    config.check()?;
    let mut medium = Blocking::new(medium);
    let mut opening = Opening::find(&mut medium, Some(binding), true)?;
    if opening.recovered.damaged {
        let mark = mark_of_all(binding, opening.recovered.head);
        let (sectors, ring) = ((mark.len() / SECTOR) as u64, opening.superblock.ring);
        opening.recovered.make_room_for(sectors, ring);
    }
    let is_followed = !opening.recovered.stripes.is_empty();
    let mut opened = Opened::new(&opening, workers, config);
    let replies = &mut opened.replies;
    for &offset in &opening.unusable {
        base::sometimes!("disk: a start finds a superblock that is of no use");
        replies.warn(PagePlace { file: File::Slots, offset }, SUPERBLOCK_UNUSABLE);
    }
    warn_of_restored(&opening.recovered.restored, opening.superblock.ring, replies);
    read_maps(&mut opened.records, &mut medium, opening.redone.as_ref(), replies);
    if opening.may_be_older {
        opened.records.extents.doubt_end();
    }
    opened.replay(&mut opening.recovered);
    match opening.recovered.damaged {
        true => opened.forget_all(&mut medium, &opening, is_followed)?,
        false => opened.mend(&mut medium, &opening)?,
    }
    let Opened { records, replies, .. } = &mut opened;
    if let Some(Redone { images, tail, .. }) = opening.redone.take() {
        let ring_tail = &mut records.staged.ring_mut().tail;
        records.redone = Some(Unplaced::new(images.whole, std::mem::replace(ring_tail, tail)));
    }
    records.clock = Clock::new(records.staged.ring());
    records.losses.tell_all(replies);
    Ok(opened)
}

impl Opened {
    fn new(opening: &Opening, workers: usize, config: &Config) -> Opened {
        let superblock = &opening.superblock;
        let ring = Ring::new(superblock.ring, superblock.tail);
        // Pages of a write-back whose images were damaged may be about. They have the next number:
        // the superblock of the one before was in place when they were written.
        let write_back = WriteBack::new(superblock.batch + 2, superblock.spare);
        let buckets = Buckets::new(
            superblock.directory,
            Cache::new(config.cache_bytes),
            (superblock.used, superblock.floor),
            (config.fill_percent, 1 << config.initial_level),
        );
        let records = Records {
            binding: superblock.binding,
            clock: Clock::new(&ring),
            staged: Staged::new(ring, Pool::new(pool_len_max(superblock.ring, config))),
            buckets,
            extents: Extents::new(superblock.groups, config.first_fit),
            contents: Contents::default(),
            losses: Losses::new(&superblock.flags),
            redone: None,
        };
        Opened { records, write_back, replies: Replies::new(workers) }
    }

    /// Takes the entries and marks of the ring.
    fn replay(&mut self, recovered: &mut Recovered) {
        let Records { staged, extents, losses, .. } = &mut self.records;
        staged.ring_mut().head = recovered.head;
        let stripes = std::mem::take(&mut recovered.stripes);
        for mark in stripes.iter().flat_map(|found| &found.said.marks) {
            losses.set(*mark);
            losses.set_durable(&[*mark]);
        }
        staged.replay(stripes);
        for (unit, count) in staged.runs() {
            extents.hold(unit, count);
        }
    }

    /// Makes sectors of the ring as they should be before any request is served.
    fn mend(&self, medium: &mut Blocking<'_>, opening: &Opening) -> Result<(), String> {
        let ring = self.records.staged.ring();
        blank_ahead(medium, self.records.binding, ring, &opening.not_blank)?;
        restore(medium, ring, &opening.recovered.restored)
    }

    /// The ring lost records, and their keys are not known: all shards are forgotten and all pages
    /// are void. Batches behind the damage are newer than the lost ones, and stay.
    ///
    /// The mark is in the ring before the superblock moves the tail past the damage. Until then
    /// every start finds the damage again and ends up here.
    ///
    /// Only a later write may show that the damaged sectors had been confirmed. A whole batch shows
    /// it. It would be taken for lost itself if a start left behind the mark sectors that are to be
    /// mended. If no batch follows, the sectors that are to be made blank may be all that shows it,
    /// until the mark does.
    fn forget_all(
        &mut self,
        medium: &mut Blocking<'_>,
        opening: &Opening,
        is_followed: bool,
    ) -> Result<(), OpenError> {
        let ring = self.records.staged.ring();
        let (head, ring_sectors, tail) = (ring.head, ring.sectors, ring.next_tail());
        let bytes = mark_of_all(self.records.binding, head);
        let sectors = (bytes.len() / SECTOR) as u64;
        assert!(head + sectors <= tail + ring_sectors, "there is room for the mark");
        if is_followed {
            self.mend(medium, opening)?;
        }
        medium.store(ring_writes(bytes, head, ring_sectors), Files::of(File::Ring))?;
        let ring = self.records.staged.ring_mut();
        let number = ring.put_behind(head);
        ring.head = head + sectors;
        ring.stripe(number).expect("it has just been added").has_marks = true;
        self.records.losses.set(Mark::FORGET_ALL);
        self.records.losses.set_durable(&[Mark::FORGET_ALL]);
        self.write_back.void_pages(&mut self.records);
        if !is_followed {
            self.mend(medium, opening)?;
        }
        let flags = &opening.superblock.flags;
        write_superblocks(medium, &self.write_back.superblock(tail, flags, &self.records))?;
        self.records.staged.ring_mut().tail = tail;
        Ok(())
    }
}

fn read_maps(
    records: &mut Records,
    medium: &mut Blocking<'_>,
    redone: Option<&Redone>,
    replies: &mut Replies,
) {
    let binding = records.binding;
    let mut read = |group: u64| {
        let place = map_place(group);
        let page = match redone.and_then(|redone| redone.image(place)) {
            Some(image) => image.clone(),
            None => medium.read(place.file, place.offset, PAGE)?,
        };
        Ok::<_, String>(Map::read(&page, group, binding))
    };
    for _ in 0..MAPS_AT_START {
        let Some(group) = records.extents.unknown().next() else { break };
        // One that cannot be read costs no more than a damaged one.
        let map = read(group).unwrap_or_default();
        records.learn_map(group, map, replies);
    }
    // A superblock that does not count a group which has a map is older than that.
    loop {
        match read(records.extents.groups()) {
            Ok(Some(map)) => {
                base::sometimes!("disk: a superblock does not count a group");
                records.extents.find(map);
            }
            Ok(None) => return,
            Err(_) => return records.extents.doubt_end(),
        }
    }
}

/// Sectors of the ring.
fn warn_of_restored(restored: &[Restored], ring: u64, replies: &mut Replies) {
    let Some(Restored { position: first, .. }) = restored.first() else { return };
    base::sometimes!("disk: a start finds sectors that parity restores");
    let offset = first % ring * SECTOR as u64;
    let count = restored.len();
    let text = format!("{count} damaged sectors from here on; they are repaired from parity");
    replies.warn(PagePlace { file: File::Ring, offset }, &text);
}
