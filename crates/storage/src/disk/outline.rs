//! What a start learns of a ring without reading all of it: where it ends, and of which hashes it may have entries.
//!
//! Digests ([`super::digest`]) cover the ring from its tail up to some position; from there on its stripes are read and
//! judged as all are ([`super::recovery`]). The newest of them is enough for that. Where anything is not as nearly always,
//! there is no outline, and the ring is read before the store serves.

use super::digest::Digest;
use super::recovery::{CHUNK, Found, ReadSectors, Recovered, Restored, RingImage};
use super::stripe::Seen;

/// Sectors that are read to look at one.
const PROBE: u64 = 8;
/// Sectors that are read at once of the last stripes.
const PART: u64 = 512;
/// Where digests cover no more than this part of a ring, all is read at once.
const LEAST: u64 = 16;

/// Where a ring is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) binding: u64,
    /// Its sectors.
    pub(super) ring: u64,
    /// Sectors of its longest stripe.
    pub(super) stripe_max: u64,
    /// Position of the oldest stripe that is needed.
    pub(super) tail: u64,
}

/// What is known of a ring.
#[derive(Debug)]
pub(super) struct Outline {
    /// Where the next stripe goes.
    pub(super) head: u64,
    /// See [`Recovered::unfinished`].
    pub(super) unfinished: Vec<u64>,
    /// Of the last stripes.
    pub(super) restored: Vec<Restored>,
    /// The last digest.
    pub(super) newest: Digest,
    /// The stripes behind it.
    pub(super) last: Vec<Found>,
}

impl Extent {
    pub(super) fn image<'a>(&self, part: u64, read: &'a mut ReadSectors<'a>) -> RingImage<'a> {
        RingImage::new(self.binding, self.ring, self.stripe_max, part, read)
    }

    /// Reads the ring up to a head that is known.
    pub(super) fn read(&self, head: u64, read: &mut ReadSectors<'_>) -> Result<Recovered, String> {
        self.image(CHUNK, read).walk_all(self.tail, head)
    }

    pub(super) fn end(&self) -> u64 {
        self.tail + self.ring
    }

    /// False where so little of the ring is in use that all of it is read first.
    pub(super) fn is_long(&self, read: &mut ReadSectors<'_>) -> Result<bool, String> {
        let seen = self.image(PROBE, read).look(self.least())?;
        Ok(matches!(seen, Seen::Current { .. }))
    }

    /// A position that digests have to reach.
    fn least(&self) -> u64 {
        self.tail + self.ring / LEAST
    }

    /// `None` where all of the ring has to be read first.
    pub(super) fn outline(
        &self,
        newest: Digest,
        read: &mut ReadSectors<'_>,
    ) -> Result<Option<Outline>, String> {
        if newest.end <= self.least() || newest.marks_end > self.tail {
            return Ok(None);
        }
        let mut image = self.image(PART, read);
        // A digest of a ring that went on differently would not end where a stripe does.
        match image.look(newest.end - 1)? {
            Seen::Current { index, count } if index + 1 == count => {}
            _ => return Ok(None),
        }
        let found = image.walk(newest.end, self.end())?;
        if found.damaged || found.stripes.iter().any(|found| found.said.has_marks()) {
            return Ok(None);
        }
        let Recovered { stripes: last, head, unfinished, restored, .. } = found;
        Ok(Some(Outline { head, unfinished, restored, newest, last }))
    }
}
