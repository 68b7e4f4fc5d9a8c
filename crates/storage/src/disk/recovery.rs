//! Finds the content of the ring after the process ended: the whole batches, the place of the next
//! one, and whether anything acknowledged is damaged.
//!
//! The argument. At most one batch is under way at a time. It is acknowledged only when a flush has
//! put all its sectors on the medium. So
//! 1. a batch with a whole sector *of an earlier lap* in it was never acknowledged: it ends the
//!    ring, unless
//! 2. a sector of a still later batch exists, which was written only after this one's flush: then a
//!    write that the medium had confirmed is missing, which is damage;
//! 3. a batch without such a sector was written completely. Parity restores one damaged sector of a
//!    class; with more than one, acknowledged records of unknown keys may be gone: damage.
//! 4. If not even the length of the last batch can be read, it had at least two sectors: a damaged
//!    sector followed by one of an earlier lap is case 1, by another damaged one is case 3.
//!
//! Damage means that every record which is not found *after* it may be older than one that was
//! lost.

use std::ops::Range;

use base::checksum::Seeded;
use bytes::Bytes;

use super::said::Said;
use super::stripe::{PAYLOAD, SECTOR, STRIPE_SECTORS_MIN, Seen, data_sectors, payload, seal, see};

/// Sectors that are read at once where all of a ring is.
pub(super) const CHUNK: u64 = 1024;

/// A ring batch that was found whole.
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

/// The content of the ring.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    /// Whole ring batches in order; after damage, those behind the last of it.
    pub(super) stripes: Vec<Found>,
    /// Where the next ring batch goes.
    pub(super) head: u64,
    /// Something acknowledged may be lost.
    pub(super) damaged: bool,
    /// Sectors ahead of the head that an unfinished ring batch may have left; they must be blanked
    /// before the head passes them.
    pub(super) unfinished: Vec<u64>,
    /// Sectors of whole ring batches that are damaged and whose content parity gave back.
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
    /// See [`RingImage::written`].
    written: Option<u64>,
    #[cfg(test)]
    looks: u64,
}

/// A batch whose payload is among those found.
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
    /// The batches that were found so far do not count.
    fn damage(&mut self, stripes: &mut Vec<(Placed, Said)>) {
        self.damaged = true;
        self.restored.clear();
        stripes.clear();
    }

    /// Whole batches behind damage may fill a ring of this length, without room for a mark of so
    /// many sectors. Then they give way, as lost as the rest.
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
        RingImage {
            binding,
            ring,
            stripe_max,
            chunk,
            read,
            chunks,
            unread: Vec::new(),
            written: None,
            #[cfg(test)]
            looks: 0,
        }
    }

    /// Takes the batches from `tail` on, which end before `end`.
    pub(super) fn walk(&mut self, tail: u64, end: u64) -> Result<Recovered, String> {
        let mut recovered = Recovered { head: tail, ..Recovered::default() };
        let mut stripes: Vec<(Placed, Said)> = Vec::new();
        let mut payloads = Vec::new();
        while recovered.head < end {
            let at = match self.intact_at(recovered.head, end, &mut payloads)? {
                Some(placed) => At::Whole(placed),
                None => {
                    self.stripe_at(recovered.head, end, &mut payloads, &mut recovered.restored)?
                }
            };
            match at {
                At::Whole(placed) => {
                    self.let_go(recovered.head, placed.sectors);
                    let position = recovered.head;
                    recovered.head += placed.sectors;
                    match Said::read(&payloads[placed.payload.clone()], self.binding) {
                        Some(said) => stripes.push((placed, said)),
                        None => {
                            self.need(position, recovered.head)?;
                            recovered.damage(&mut stripes);
                        }
                    }
                }
                At::End if recovered.damaged && stripes.is_empty() => {
                    // The unfinished batch may be all that shows the damage. The mark of the loss
                    // goes behind it. Written over it, a sector of each could look like a batch,
                    // with the parity of the other.
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
        let payloads = Bytes::from(payloads);
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

    /// The batch that starts here, if all its sectors are as they should be: the usual case, looked
    /// at once. `None` decides nothing.
    fn intact_at(
        &mut self,
        position: u64,
        end: u64,
        payloads: &mut Vec<u8>,
    ) -> Result<Option<Placed>, String> {
        let Seen::Current { index: 0, count } = self.look(position)? else { return Ok(None) };
        if position + count > end {
            return Ok(None);
        }
        let (binding, ring) = (self.binding, self.ring);
        let (start, data) = (payloads.len(), data_sectors(count));
        for index in 0..count {
            let sector = self.sector(position + index)?;
            // The first one has been seen.
            let seen = (index > 0).then(|| see(sector, binding, position + index, ring));
            if seen.is_some_and(|seen| seen != Seen::Current { index, count }) {
                payloads.truncate(start);
                return Ok(None);
            }
            if index < data {
                payloads.extend_from_slice(&sector[..PAYLOAD]);
            }
        }
        Ok(Some(Placed { position, sectors: count, payload: start..payloads.len() }))
    }

    /// Drops the chunks of the file that this batch ends.
    fn let_go(&mut self, position: u64, sectors: u64) {
        for at in position..position + sectors {
            if at % self.ring % self.chunk == self.chunk - 1 {
                self.chunks[(at % self.ring / self.chunk) as usize] = None;
            }
        }
    }

    /// The ring batch that starts here, as far as parity gives it back.
    fn stripe_at(
        &mut self,
        position: u64,
        end: u64,
        payloads: &mut Vec<u8>,
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
        let start = payloads.len();
        payloads.extend_from_slice(&payload);
        Ok(At::Whole(Placed { position, sectors: count, payload: start..payloads.len() }))
    }

    /// Sectors of the batch that starts here; `None` if none was begun or all of it is unreadable.
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

    /// A ring batch that cannot be read whole: unfinished, or damaged?
    fn end_or_damage(&mut self, position: u64, end: u64) -> Result<At, String> {
        if position + STRIPE_SECTORS_MIN > end {
            return Ok(At::End); // no ring batch fits here
        }
        let mut has_old = false;
        let reach = self.count_at(position)?.unwrap_or(STRIPE_SECTORS_MIN);
        for at in position..(position + reach).min(end) {
            has_old |= self.look(at)? == Seen::Old;
        }
        let is_last = !self.is_followed(position, end)?;
        Ok(if has_old && is_last { At::End } else { At::Damaged })
    }

    /// True if a sector of a later ring batch exists, not only the first one of the next.
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

    /// Behind damage: the start of the next batch, and the end of all that was written, damaged
    /// sectors included. No other trace of that end is left until a superblock moves the tail past
    /// it.
    fn behind(&mut self, position: u64, end: u64) -> Result<(Option<u64>, u64), String> {
        let written = self.written(position, end)?;
        for at in position + 1..written {
            if let Seen::Current { index, .. } = self.look(at)? {
                // The first sector of a ring batch may be the one that parity gives back.
                if let Some(first) = at.checked_sub(index).filter(|&first| first > position) {
                    return Ok((Some(first), written));
                }
            }
        }
        let mut head = match self.count_at(position)? {
            Some(count) => end.min(position + count),
            None => position,
        };
        while head < end && self.look(head)? == Seen::Bad {
            head += 1;
        }
        Ok((None, head.max(written)))
    }

    /// The end of the last sector of this lap behind a position. It is looked for once: scattered
    /// damage must not make a start look through the ring again and again.
    fn written(&mut self, position: u64, end: u64) -> Result<u64, String> {
        if let Some(written) = self.written {
            return Ok(written);
        }
        let mut written = end;
        while written > position + 1 && !matches!(self.look(written - 1)?, Seen::Current { .. }) {
            written -= 1;
        }
        if written == position + 1 {
            written = position;
        }
        self.written = Some(written);
        Ok(written)
    }

    /// The sectors from `first` up to `end` are damaged for good.
    ///
    /// # Errors
    /// If one of them could not be read: it may be read another time, and counts as missing only if
    /// no record depends on it.
    fn need(&self, first: u64, end: u64) -> Result<(), String> {
        let within = |place: u64| (place + self.ring - first % self.ring) % self.ring < end - first;
        let missing = self.unread.iter().find(|(place, _)| within(*place));
        missing.map_or(Ok(()), |(_, reason)| Err(reason.clone()))
    }

    pub(super) fn look(&mut self, position: u64) -> Result<Seen, String> {
        #[cfg(test)]
        {
            self.looks += 1;
        }
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

/// Reads sectors one by one that cannot be read together. A missing one does not verify; its place
/// and the reason are added to `missing`.
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
mod tests;
