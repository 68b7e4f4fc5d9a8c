//! What a start learns of a ring without reading all of it: where it ends, and of which hashes it may have entries.
//!
//! Digests ([`super::digest`]) cover the ring from its tail up to some position; from there on its stripes are read and
//! judged as all are ([`super::recovery`]). Where anything is not as nearly always, there is no outline, and the ring is
//! read before the store serves.

use super::digest::Digest;
use super::metas::Metas;
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
    /// Among the entries between tail and head.
    pub(super) metas: Metas,
    /// What speaks of all but the last stripes, in order.
    pub(super) digests: Vec<Digest>,
    /// The stripes that no digest speaks of.
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

    /// `None` where all of the ring has to be read first. Digests are read in the order of their positions, some at a
    /// time, as long as they are asked for.
    pub(super) fn outline(
        &self,
        digests: impl Iterator<Item = Vec<Digest>>,
        read: &mut ReadSectors<'_>,
    ) -> Result<Option<Outline>, String> {
        let least = self.tail + self.ring / LEAST;
        if !matches!(self.image(PROBE, read).look(least)?, Seen::Current { .. }) {
            return Ok(None);
        }
        let (mut metas, mut speaking) = (Metas::default(), Vec::new());
        let mut covered = self.tail;
        for digests in digests {
            let before = covered;
            for digest in digests.into_iter().filter(|digest| digest.end <= self.end()) {
                if digest.first > covered || digest.end <= covered {
                    continue;
                }
                if digest.has_marks {
                    return Ok(None);
                }
                metas.add_all(&digest.metas);
                covered = digest.end;
                speaking.push(digest);
            }
            if covered == before {
                break; // what is missing comes no more
            }
        }
        if covered <= least {
            return Ok(None);
        }
        let mut image = self.image(PART, read);
        // A digest of a ring that went on differently would not end where a stripe does.
        match image.look(covered - 1)? {
            Seen::Current { index, count } if index + 1 == count => {}
            _ => return Ok(None),
        }
        let found = image.walk(covered, self.end())?;
        if found.damaged || found.stripes.iter().any(|found| found.said.has_marks()) {
            return Ok(None);
        }
        let Recovered { stripes: last, head, unfinished, restored, .. } = found;
        last.iter().for_each(|found| metas.add_all(&found.said.metas));
        let digests = speaking;
        Ok(Some(Outline { head, unfinished, restored, metas, digests, last }))
    }
}
