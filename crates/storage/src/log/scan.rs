//! Walking the ring from its tail: which stripes are whole, where the log ends, and which records
//! are lost.
//!
//! Each sector is by itself of this lap, of an earlier one, or damaged. One stripe is stored at a
//! time, so only the newest can be unfinished. One that has a successor was durable, and so was one
//! without a sector of an earlier lap.

use bytes::Bytes;

use super::batch::{self, Batch};
use super::device::{Device, offset_of, stripe_max};
use super::superblock::Superblock;
use crate::disk::stripe::{
    SECTOR, STRIPE_SECTORS_MIN, Seen, StripeWriter, blank, entries, payload, see,
};

/// Sectors that are read at once.
const CHUNK: u64 = 512;

/// A stripe that is whole, or was restored.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) position: u64,
    pub(super) sectors: u64,
    pub(super) first: u64,
    pub(super) batches: Vec<Batch>,
    /// Its bytes, where some of them were restored by parity, and which sectors were.
    pub(super) restored: Option<(Bytes, Vec<u64>)>,
}

/// The stripe or the end at a position.
#[derive(Debug)]
pub(super) enum Next {
    Stripe(Found),
    /// The log ends here; these sectors are unused and must be blank before the head passes them.
    End {
        stale: Vec<u64>,
    },
    /// Acknowledged records from here on cannot be read.
    Damaged,
}

/// Reads a ring.
pub(super) struct Scan<'d, D> {
    device: &'d mut D,
    binding: u64,
    ring: u64,
    tail: u64,
    // Of consecutive places, from the one of `chunk_at` on.
    chunk: Vec<u8>,
    chunk_at: u64,
}

impl<'d, D: Device> Scan<'d, D> {
    pub(super) fn new(device: &'d mut D, binding: u64, superblock: &Superblock) -> Scan<'d, D> {
        let Superblock { ring, tail, .. } = *superblock;
        Scan { device, binding, ring, tail, chunk: Vec::new(), chunk_at: 0 }
    }

    /// The sector in the place of a position.
    pub(super) fn sector(&mut self, position: u64) -> Result<&[u8], String> {
        let place = position % self.ring;
        let in_chunk = (self.chunk.len() / SECTOR) as u64;
        if place < self.chunk_at || place >= self.chunk_at + in_chunk {
            let sectors = CHUNK.min(self.ring - place);
            self.chunk.resize(sectors as usize * SECTOR, 0);
            self.chunk_at = place;
            if let Err(error) = self.device.read(offset_of(place, self.ring), &mut self.chunk) {
                self.chunk.clear();
                return Err(error);
            }
        }
        let at = (place - self.chunk_at) as usize * SECTOR;
        Ok(&self.chunk[at..at + SECTOR])
    }

    pub(super) fn see(&mut self, position: u64) -> Result<Seen, String> {
        let (binding, ring) = (self.binding, self.ring);
        Ok(see(self.sector(position)?, binding, position, ring))
    }

    /// The stripe or the end at `position`, which follows a stripe or begins the ring.
    pub(super) fn next(&mut self, position: u64) -> Result<Next, String> {
        let room = self.tail + self.ring - position;
        let max = stripe_max(self.ring);
        let mut count = None;
        let mut has_later = false;
        let mut stale = Vec::new();
        let mut seen = Vec::new();
        for offset in 0..room.min(2 * max) {
            let sector = self.see(position + offset)?;
            seen.push(sector);
            if sector != Seen::Old {
                stale.push(position + offset);
            }
            let Seen::Current { index, count: own } = sector else { continue };
            match index.cmp(&offset) {
                // Of this stripe; its sectors agree.
                std::cmp::Ordering::Equal if count.is_none_or(|count| count == own) => {
                    count = Some(own);
                }
                // Of one behind it.
                std::cmp::Ordering::Less => has_later = true,
                // Of no stripe that can be here.
                _ => return Ok(Next::Damaged),
            }
            // The common case, decided at once.
            if Some(offset + 1) == count && is_whole(&seen) {
                break;
            }
        }
        match count {
            Some(count) if count <= room.min(max) => {
                let own = &seen[..count as usize];
                if own.contains(&Seen::Old) && !has_later {
                    return Ok(Next::End { stale });
                }
                self.stripe(position, own)
            }
            Some(_) => Ok(Next::Damaged),
            // A stripe has two sectors at least: one of an earlier lap says that there is none.
            None => {
                let first = &seen[..seen.len().min(STRIPE_SECTORS_MIN as usize)];
                let is_end = first.is_empty() || first.contains(&Seen::Old);
                let is_end = is_end || (first.len() as u64) < STRIPE_SECTORS_MIN;
                Ok(if is_end && !has_later { Next::End { stale } } else { Next::Damaged })
            }
        }
    }

    fn stripe(&mut self, position: u64, seen: &[Seen]) -> Result<Next, String> {
        let is_good: Vec<bool> =
            seen.iter().map(|seen| matches!(seen, Seen::Current { .. })).collect();
        let mut bytes = Vec::with_capacity(seen.len() * SECTOR);
        for offset in 0..seen.len() as u64 {
            bytes.extend_from_slice(self.sector(position + offset)?);
        }
        let Some(payload) = payload(&mut bytes, &is_good) else { return Ok(Next::Damaged) };
        let Some((content, _)) = entries(&payload) else { return Ok(Next::Damaged) };
        let content = Bytes::copy_from_slice(content);
        let Some((first, batches)) = batch::decode(&content) else { return Ok(Next::Damaged) };
        let bad = (position..).zip(&is_good).filter(|(_, is_good)| !**is_good);
        let bad: Vec<u64> = bad.map(|(position, _)| position).collect();
        let restored = (!bad.is_empty()).then(|| {
            let mut writer = StripeWriter::new();
            writer.push(&content);
            (writer.finish(self.binding, position), bad)
        });
        let sectors = seen.len() as u64;
        Ok(Next::Stripe(Found { position, sectors, first, batches, restored }))
    }

    /// A sector that belongs to no stripe.
    pub(super) fn blank(&self, position: u64) -> Vec<u8> {
        blank(self.binding, position - self.ring).to_vec()
    }
}

fn is_whole(seen: &[Seen]) -> bool {
    seen.iter().all(|seen| matches!(seen, Seen::Current { .. }))
}
