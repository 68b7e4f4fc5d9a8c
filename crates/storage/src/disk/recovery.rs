//! Finds what the staging ring held when the process ended: which stripes were written whole, where the next one
//! goes, and whether anything that had been acknowledged is damaged.
//!
//! The argument. At most one stripe is under way at a time, and it is acknowledged only when a flush has put all
//! its sectors on the medium. So
//! 1. a stripe with a whole sector *of an earlier lap* in it was never acknowledged: it ends the ring, unless
//! 2. a sector of a still later stripe exists, which was written only after this one's flush: then a write that the
//!    medium had confirmed is missing, which is damage;
//! 3. a stripe without such a sector was written completely. Parity restores one damaged sector of a class; with
//!    more than one, records that may have been acknowledged are gone, and nobody knows which: damage.
//! 4. Where not even the length of the last stripe can be read, it had at least two sectors: a damaged sector
//!    followed by one of an earlier lap is case 1, by another damaged one is case 3.
//!
//! Damage means that every record which is not found *after* it may be older than one that was lost.

use std::ops::Range;

use base::checksum::Seeded;
use bytes::Bytes;

use super::arena::Arena;
use super::said::Said;
use super::stripe::{PAYLOAD, SECTOR, STRIPE_SECTORS_MIN, Seen, data_sectors, payload, seal, see};

/// Sectors that are read at once where all of a ring is.
pub(super) const CHUNK: u64 = 1024;

/// A stripe that was found whole.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) position: u64,
    pub(super) payload: Bytes,
    pub(super) said: Said,
}

/// A sector as it was, and where.
#[derive(Debug)]
pub(super) struct Restored {
    pub(super) position: u64,
    pub(super) sector: Bytes,
}

/// What the ring held.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    /// Whole stripes in order; after damage, those behind the last of it.
    pub(super) stripes: Vec<Found>,
    /// Where the next stripe goes.
    pub(super) head: u64,
    /// Something acknowledged may be lost.
    pub(super) damaged: bool,
    /// Sectors ahead of the head that an unfinished stripe may have left; they must be blanked before the head passes them.
    pub(super) unfinished: Vec<u64>,
    /// Sectors of whole stripes that are damaged and whose content parity gave back.
    pub(super) restored: Vec<Restored>,
}

/// Reads a run of sectors of the ring file, given the first one and how many.
pub(super) type ReadSectors<'a> = dyn FnMut(u64, u64) -> Result<Bytes, String> + 'a;

/// The ring as it is on the medium, read in chunks when touched.
pub(super) struct RingImage<'a> {
    binding: u64,
    ring: u64,
    stripe_max: u64,
    chunk: u64,
    read: &'a mut ReadSectors<'a>,
    chunks: Vec<Option<Bytes>>,
    /// Places of sectors that could not be read, and why; they stand in `chunks` as damaged ones.
    unread: Vec<(u64, String)>,
}

/// A stripe whose payload has been put into the arena.
struct Placed {
    position: u64,
    sectors: u64,
    payload: Range<usize>,
}

enum At {
    Whole(Placed),
    End,
    Damaged,
}

impl Recovered {
    /// What was found so far is of no use.
    fn damage(&mut self, stripes: &mut Vec<(Placed, Said)>) {
        self.damaged = true;
        self.restored.clear();
        stripes.clear();
    }

    /// What is whole behind damage may fill a ring of this length, so that not even a stripe of so many sectors fits that tells
    /// what was lost. Then it gives way, as lost as the rest.
    pub(super) fn make_room_for(&mut self, sectors: u64, ring: u64) {
        let tail = self.stripes.first().map_or(self.head, |found| found.position);
        if self.head + sectors > tail + ring {
            self.stripes.clear();
        }
    }
}

impl Placed {
    fn found(self, said: Said, payloads: &Bytes) -> Found {
        Found { position: self.position, payload: payloads.slice(self.payload), said }
    }
}

impl<'a> RingImage<'a> {
    /// `ring`, `stripe_max` and `chunk`, which is read at once, in sectors.
    pub(super) fn new(
        binding: u64,
        ring: u64,
        stripe_max: u64,
        chunk: u64,
        read: &'a mut ReadSectors<'a>,
    ) -> RingImage<'a> {
        let chunks = vec![None; ring.div_ceil(chunk) as usize];
        RingImage { binding, ring, stripe_max, chunk, read, chunks, unread: Vec::new() }
    }

    /// Walks the stripes from `tail` on, which end somewhere before `end`.
    pub(super) fn walk(&mut self, tail: u64, end: u64) -> Result<Recovered, String> {
        let mut recovered = Recovered { head: tail, ..Recovered::default() };
        let mut stripes: Vec<(Placed, Said)> = Vec::new();
        // Sectors are looked at in order and none twice: their payloads have room.
        let mut arena = Arena::new(self.ring as usize * PAYLOAD)?;
        while recovered.head < end {
            let at = match self.intact_at(recovered.head, end, &mut arena)? {
                Some(placed) => At::Whole(placed),
                None => self.stripe_at(recovered.head, end, &mut arena, &mut recovered.restored)?,
            };
            match at {
                At::Whole(placed) => {
                    self.let_go(recovered.head, placed.sectors);
                    let position = recovered.head;
                    recovered.head += placed.sectors;
                    match Said::read(arena.get(placed.payload.clone()), self.binding) {
                        Some(said) => stripes.push((placed, said)),
                        None => {
                            self.need(position, recovered.head)?;
                            recovered.damage(&mut stripes);
                        }
                    }
                }
                At::End if recovered.damaged && stripes.is_empty() => {
                    // What was not finished may be all that shows the damage. The word that something is lost goes behind it:
                    // written over it, a sector of each could look like a stripe, with the parity of the other.
                    (_, recovered.head) = self.behind(recovered.head, end)?;
                    break;
                }
                At::End => {
                    recovered.unfinished = self.unfinished_at(recovered.head, end)?;
                    break;
                }
                At::Damaged => {
                    recovered.damage(&mut stripes);
                    let (next, head) = self.behind(recovered.head, end)?;
                    self.need(recovered.head, next.unwrap_or(head))?;
                    recovered.head = next.unwrap_or(head);
                    if next.is_none() {
                        break;
                    }
                }
            }
        }
        let payloads = arena.into_bytes();
        recovered.stripes =
            stripes.into_iter().map(|(placed, said)| placed.found(said, &payloads)).collect();
        Ok(recovered)
    }

    /// Positions of sectors that are damaged, and from `head` on also of those that are left over.
    pub(super) fn unusable(&mut self, from: u64, head: u64, end: u64) -> Result<Vec<u64>, String> {
        let mut positions = Vec::new();
        for position in from..end {
            match self.look(position)? {
                Seen::Old => {}
                Seen::Current { .. } if position < head => {}
                Seen::Current { .. } | Seen::Bad => positions.push(position),
            }
        }
        Ok(positions)
    }

    /// The stripe that starts here, if none of its sectors is anything else than it should be: what nearly all are,
    /// looked at once. `None` says nothing.
    fn intact_at(
        &mut self,
        position: u64,
        end: u64,
        arena: &mut Arena,
    ) -> Result<Option<Placed>, String> {
        let Seen::Current { index: 0, count } = self.look(position)? else { return Ok(None) };
        if position + count > end {
            return Ok(None);
        }
        let (binding, ring) = (self.binding, self.ring);
        let (start, data) = (arena.len(), data_sectors(count));
        for index in 0..count {
            let sector = self.sector(position + index)?;
            // The first one has been seen.
            let seen = (index > 0).then(|| see(sector, binding, position + index, ring));
            if seen.is_some_and(|seen| seen != Seen::Current { index, count }) {
                arena.truncate(start);
                return Ok(None);
            }
            if index < data {
                arena.push(&sector[..PAYLOAD]);
            }
        }
        Ok(Some(Placed { position, sectors: count, payload: start..arena.len() }))
    }

    /// Forgets what has been read of the chunks that this stripe ends.
    fn let_go(&mut self, position: u64, sectors: u64) {
        for at in position..position + sectors {
            if at % self.ring % self.chunk == self.chunk - 1 {
                self.chunks[(at % self.ring / self.chunk) as usize] = None;
            }
        }
    }

    /// The stripe that starts here, as far as parity gives it back.
    fn stripe_at(
        &mut self,
        position: u64,
        end: u64,
        arena: &mut Arena,
        restored: &mut Vec<Restored>,
    ) -> Result<At, String> {
        let Some(count) = self.count_at(position)? else {
            return self.end_or_damage(position, end);
        };
        if position + count > end {
            return Ok(At::Damaged);
        }
        let mut sectors = Vec::with_capacity(count as usize * SECTOR);
        let mut is_good = Vec::with_capacity(count as usize);
        for index in 0..count {
            match self.look(position + index)? {
                Seen::Old => return self.end_or_damage(position, end),
                Seen::Current { index: i, count: c } if (i, c) == (index, count) => {
                    sectors.extend_from_slice(self.sector(position + index)?);
                    is_good.push(true);
                }
                Seen::Current { .. } | Seen::Bad => {
                    sectors.resize(sectors.len() + SECTOR, 0);
                    is_good.push(false);
                }
            }
        }
        let Some(payload) = payload(&mut sectors, &is_good) else { return Ok(At::Damaged) };
        let sums = Seeded::new(self.binding);
        for (index, sector) in sectors.chunks_exact_mut(SECTOR).enumerate() {
            if !is_good[index] {
                let position = position + index as u64;
                seal(sector, &sums, position, index as u16, count as u16);
                restored.push(Restored { position, sector: Bytes::copy_from_slice(sector) });
            }
        }
        let start = arena.len();
        arena.push(&payload);
        Ok(At::Whole(Placed { position, sectors: count, payload: start..arena.len() }))
    }

    /// Sectors of the stripe that starts here; `None` where none was begun or nothing of it can be read.
    fn count_at(&mut self, position: u64) -> Result<Option<u64>, String> {
        for ahead in 0..self.stripe_max {
            match self.look(position + ahead)? {
                Seen::Current { index, count } => return Ok((index == ahead).then_some(count)),
                Seen::Old => return Ok(None),
                Seen::Bad => {}
            }
        }
        Ok(None)
    }

    /// A stripe that cannot be read whole: unfinished, or damaged?
    fn end_or_damage(&mut self, position: u64, end: u64) -> Result<At, String> {
        if position + STRIPE_SECTORS_MIN > end {
            return Ok(At::End); // no stripe fits here
        }
        let mut has_old = false;
        let reach = self.count_at(position)?.unwrap_or(STRIPE_SECTORS_MIN);
        for at in position..(position + reach).min(end) {
            has_old |= self.look(at)? == Seen::Old;
        }
        let is_last = !self.is_followed(position, end)?;
        Ok(if has_old && is_last { At::End } else { At::Damaged })
    }

    /// True if a sector of a later stripe exists, not only the first one of the next.
    fn is_followed(&mut self, position: u64, end: u64) -> Result<bool, String> {
        for at in position..(position + self.stripe_max + STRIPE_SECTORS_MIN).min(end) {
            if let Seen::Current { index, .. } = self.look(at)?
                && at.checked_sub(index) != Some(position)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn unfinished_at(&mut self, position: u64, end: u64) -> Result<Vec<u64>, String> {
        let mut positions = Vec::new();
        for at in position..(position + self.stripe_max).min(end) {
            // One that cannot be read may be readable another time.
            if self.look(at)? != Seen::Old {
                positions.push(at);
            }
            self.let_go(at, 1);
        }
        Ok(positions)
    }

    /// Behind damage: the start of the next stripe, and the end of everything that was written, of what is damaged too:
    /// nothing else shows that, until a superblock moves the tail past it.
    fn behind(&mut self, position: u64, end: u64) -> Result<(Option<u64>, u64), String> {
        let mut next = None;
        let mut head = match self.count_at(position)? {
            Some(count) => end.min(position + count),
            None => position,
        };
        while head < end && self.look(head)? == Seen::Bad {
            head += 1;
        }
        for at in position + 1..end {
            if let Seen::Current { index, .. } = self.look(at)? {
                // The first sector of a stripe may be the one that parity gives back.
                let first = at.checked_sub(index).filter(|&first| first > position);
                next = next.or(first);
                head = head.max(at + 1);
            }
        }
        Ok((next, head))
    }

    /// What is damaged from `first` up to `end` is damaged for good.
    ///
    /// # Errors
    /// Where a sector of it could not be read: it may be read another time, and is missing only where nothing depends on it.
    fn need(&self, first: u64, end: u64) -> Result<(), String> {
        let within = |place: u64| (place + self.ring - first % self.ring) % self.ring < end - first;
        let missing = self.unread.iter().find(|(place, _)| within(*place));
        missing.map_or(Ok(()), |(_, reason)| Err(reason.clone()))
    }

    pub(super) fn look(&mut self, position: u64) -> Result<Seen, String> {
        let (binding, ring) = (self.binding, self.ring);
        Ok(see(self.sector(position)?, binding, position, ring))
    }

    fn sector(&mut self, position: u64) -> Result<&[u8], String> {
        let place = position % self.ring;
        let (number, len) = (place / self.chunk, self.chunk);
        let chunk = &mut self.chunks[number as usize];
        let bytes = match chunk {
            Some(bytes) => bytes,
            None => {
                let count = len.min(self.ring - number * len);
                let read = match (self.read)(number * len, count) {
                    Ok(bytes) => bytes,
                    Err(_) => read_each(self.read, number * len, count, &mut self.unread),
                };
                chunk.insert(read)
            }
        };
        let at = (place % len) as usize * SECTOR;
        Ok(&bytes[at..at + SECTOR])
    }
}

/// Sectors that cannot be read together, one by one. One that is missing verifies as nothing; it is added to `missing`, by its
/// place, with the reason.
fn read_each(
    read: &mut ReadSectors<'_>,
    first: u64,
    count: u64,
    missing: &mut Vec<(u64, String)>,
) -> Bytes {
    let mut bytes = vec![0xff; count as usize * SECTOR];
    for (place, into) in (first..).zip(bytes.chunks_exact_mut(SECTOR)) {
        match read(place, 1) {
            Ok(sector) => into.copy_from_slice(&sector),
            Err(reason) => missing.push((place, reason)),
        }
    }
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Entry, Kind, Mark, entry_checksum};
    use super::super::stripe::{StripeWriter, blank, sectors_for};
    use super::*;

    const RING: u64 = 64;
    const STRIPE_MAX: u64 = 16;

    struct World {
        sectors: Vec<Vec<u8>>,
        head: u64,
    }

    impl World {
        fn new() -> World {
            World { sectors: (0..RING).map(|p| blank(1, p).to_vec()).collect(), head: RING }
        }

        /// Appends a stripe of five sectors; returns its position.
        fn append(&mut self, fill: u8) -> u64 {
            self.append_entries(fill, 1)
        }

        fn append_entries(&mut self, fill: u8, binding: u64) -> u64 {
            let mut writer = StripeWriter::new();
            for number in 0..2 {
                let (kind, body) = (Kind::CELL, [fill; 926]);
                let checksum = entry_checksum(binding, number, 0, kind, &body);
                let mut raw = Vec::new();
                Entry { hash: number, checksum, kind, database: 0, key_len: 1, body: &body }
                    .append_to(&mut raw);
                writer.push(&raw);
            }
            self.write(writer)
        }

        fn write(&mut self, writer: StripeWriter) -> u64 {
            let position = self.head;
            for sector in writer.finish(1, position).chunks(SECTOR) {
                self.sectors[(self.head % RING) as usize] = sector.to_vec();
                self.head += 1;
            }
            position
        }

        fn rot(&mut self, position: u64) {
            self.sectors[(position % RING) as usize][100] ^= 0x40;
        }

        fn forget(&mut self, position: u64) {
            self.sectors[(position % RING) as usize] = blank(1, position - RING).to_vec();
        }

        fn walk(&self, tail: u64) -> Recovered {
            self.walk_without(tail, None)
        }

        /// The same where one sector cannot be read.
        fn walk_without(&self, tail: u64, unreadable: Option<u64>) -> Recovered {
            self.try_walk(tail, unreadable).expect("all that is needed can be read")
        }

        fn try_walk(&self, tail: u64, unreadable: Option<u64>) -> Result<Recovered, String> {
            let mut read = |first: u64, count: u64| {
                let bad = unreadable.map(|position| position % RING);
                if bad.is_some_and(|bad| (first..first + count).contains(&bad)) {
                    return Err("input/output error".to_owned());
                }
                Ok(Bytes::from(self.sectors[first as usize..(first + count) as usize].concat()))
            };
            RingImage::new(1, RING, STRIPE_MAX, CHUNK, &mut read).walk(tail, tail + RING)
        }
    }

    fn positions(recovered: &Recovered) -> Vec<u64> {
        recovered.stripes.iter().map(|found| found.position).collect()
    }

    #[test]
    fn whole_stripes_are_found_across_the_wrap() {
        let mut world = World::new();
        let all: Vec<u64> = (0..20).map(|i| world.append(i)).collect();
        let recovered = world.walk(all[10]);
        assert_eq!(positions(&recovered), all[10..]);
        assert_eq!((recovered.head, recovered.damaged), (world.head, false));
    }

    #[test]
    fn an_entry_that_does_not_verify_is_damage_whatever_its_sectors_say() {
        let mut world = World::new();
        world.append(0);
        world.append_entries(1, 2);
        let rest: Vec<u64> = (2..4).map(|i| world.append(i)).collect();
        let recovered = world.walk(RING);
        assert!(recovered.damaged);
        assert_eq!((positions(&recovered), recovered.head), (rest, world.head));
    }

    #[test]
    fn what_fills_the_ring_behind_damage_gives_way_to_the_word_that_it_is_damaged() {
        let mut world = World::new();
        let all: Vec<u64> = (0..12).map(|i| world.append(i)).collect();
        world.rot(all[0]);
        world.rot(all[0] + 1);
        let room = all[1] + RING - world.head;
        for (sectors, kept) in [(room, 11), (room + 1, 0)] {
            let mut recovered = world.walk(all[0]);
            assert!(recovered.damaged);
            recovered.make_room_for(sectors, RING);
            assert_eq!((positions(&recovered).len(), recovered.head), (kept, world.head));
        }
    }

    #[test]
    fn any_one_rotten_sector_costs_nothing_and_alarms_nobody() {
        for bad in RING..RING + 20 {
            let mut world = World::new();
            let all: Vec<u64> = (0..3).map(|i| world.append(i)).collect();
            world.rot(bad);
            let recovered = world.walk(RING);
            assert_eq!(positions(&recovered), all);
            assert!(!recovered.damaged);
        }
    }

    #[test]
    fn a_stripe_that_lacks_a_sector_ends_the_ring() {
        for missing in 0..5 {
            let mut world = World::new();
            let all: Vec<u64> = (0..3).map(|i| world.append(i)).collect();
            world.forget(all[2] + missing);
            let recovered = world.walk(RING);
            assert_eq!(positions(&recovered), all[..2]);
            assert!(!recovered.damaged);
            assert_eq!(recovered.head, all[2]);
            assert_eq!(recovered.unfinished.len(), 4);
        }
    }

    #[test]
    fn what_cannot_be_read_of_an_unfinished_stripe_is_not_left_to_be_read_another_time() {
        for (missing, unreadable) in [(0, 3), (2, 1), (4, 0)] {
            let mut world = World::new();
            let all: Vec<u64> = (0..3).map(|i| world.append(i)).collect();
            world.forget(all[2] + missing);
            let recovered = world.walk_without(RING, Some(all[2] + unreadable));
            assert_eq!((recovered.head, recovered.damaged), (all[2], false));
            let not_blank: Vec<u64> =
                (all[2]..all[2] + 5).filter(|at| *at != all[2] + missing).collect();
            assert_eq!(recovered.unfinished, not_blank);
        }
    }

    #[test]
    fn a_sector_that_could_not_be_read_is_restored_as_it_was() {
        for lacks in 0..5 {
            let mut world = World::new();
            let all: Vec<u64> = (0..3).map(|i| world.append(i)).collect();
            // It never was written, and an earlier lap would show.
            let position = all[2] + lacks;
            let whole = world.sectors[(position % RING) as usize].clone();
            world.forget(position);
            let recovered = world.walk_without(RING, Some(position));
            assert_eq!((positions(&recovered), recovered.damaged), (all, false));
            let [Restored { position: at, sector }] = &recovered.restored[..] else { panic!() };
            assert_eq!((*at, &sector[..]), (position, &whole[..]));
        }
    }

    #[test]
    fn one_rotten_sector_where_no_stripe_fits_alarms_nobody() {
        let mut world = World::new();
        let mut all: Vec<u64> = (0..12).map(|i| world.append(i)).collect();
        let mut mark = Vec::new();
        Mark::FORGET_ALL.append_to(1, &mut mark);
        let mut writer = StripeWriter::new();
        (0..20).for_each(|_| writer.push(&mark));
        all.push(world.write(writer));
        assert_eq!(world.head, 2 * RING - 1, "one sector is left");
        world.rot(world.head);
        let recovered = world.walk(RING);
        assert_eq!((positions(&recovered), recovered.damaged), (all, false));
        assert_eq!(recovered.unfinished, [world.head]);
    }

    #[test]
    fn what_cannot_be_read_matters_only_where_what_is_damaged_depends_on_it() {
        for unreadable in RING..2 * RING {
            let mut world = World::new();
            let all: Vec<u64> = (0..7).map(|i| world.append(i)).collect();
            world.rot(all[3]);
            world.rot(all[3] + 1);
            let recovered = world.try_walk(RING, Some(unreadable));
            if (all[3]..all[4]).contains(&unreadable) {
                assert!(recovered.is_err(), "{unreadable}");
                continue;
            }
            let recovered = recovered.expect("it is of no use");
            assert!(recovered.damaged, "{unreadable}");
            assert_eq!((positions(&recovered), recovered.head), (all[4..].to_vec(), world.head));
        }
    }

    #[test]
    fn a_confirmed_stripe_that_lacks_a_sector_is_damage() {
        for missing in 0..5 {
            let mut world = World::new();
            let all: Vec<u64> = (0..3).map(|i| world.append(i)).collect();
            world.forget(all[1] + missing);
            let recovered = world.walk(RING);
            assert!(recovered.damaged);
            assert_eq!(positions(&recovered), all[2..], "what is behind the damage is good");
        }
    }

    #[test]
    fn more_than_its_first_sector_shows_that_a_stripe_follows_the_longest() {
        let mut world = World::new();
        let mut writer = StripeWriter::new();
        let mut raw = Vec::new();
        Mark::FORGET_ALL.append_to(1, &mut raw);
        while sectors_for(writer.payload_len() + raw.len()) <= STRIPE_MAX {
            writer.push(&raw);
        }
        let longest = world.write(writer);
        let next = world.append(1);
        assert_eq!(next - longest, STRIPE_MAX);
        world.forget(longest + 3);
        world.rot(next);
        assert!(world.walk(RING).damaged);
    }

    #[test]
    fn two_rotten_sectors_are_damage_even_in_the_newest_stripe() {
        for (a, b) in [(0, 1), (1, 3), (0, 4)] {
            for stripe in 0..3 {
                let mut world = World::new();
                let all: Vec<u64> = (0..3).map(|i| world.append(i)).collect();
                world.rot(all[stripe] + a);
                world.rot(all[stripe] + b);
                let recovered = world.walk(RING);
                assert!(recovered.damaged, "sectors {a} and {b} of stripe {stripe}");
                assert_eq!(positions(&recovered), all[stripe + 1..]);
                assert!(recovered.head >= *all.last().expect("three"));
            }
        }
    }
}
