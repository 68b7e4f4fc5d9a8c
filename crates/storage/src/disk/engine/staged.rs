//! Entries that have not reached their pages: the ring that keeps them and the index that finds
//! them.

use std::sync::Arc;

use crate::disk::entry::{Entry, HEAD_LEN, Kind, Reference};
use crate::disk::index::{At, Index, WARMED};
use crate::disk::place::units_for;
use crate::disk::pool::Pool;
use crate::disk::recovery::Found;
use crate::disk::ring::{Marked, Pending, Ring};

/// The ring and its index change together: every entry of the index keeps a batch in the ring.
#[derive(Debug)]
pub(super) struct Staged {
    ring: Ring,
    index: Index,
    /// Memory of the entries.
    pool: Arc<Pool>,
    /// How far marks stand in the superblock.
    marked: Marked,
}

impl Staged {
    pub(super) fn new(ring: Ring, pool: Arc<Pool>) -> Staged {
        Staged { ring, index: Index::default(), pool, marked: Marked::default() }
    }

    pub(super) fn ring(&self) -> &Ring {
        &self.ring
    }

    pub(super) fn ring_mut(&mut self) -> &mut Ring {
        &mut self.ring
    }

    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Takes the batches that a start has found.
    pub(super) fn replay(&mut self, found: Vec<Found>) {
        let (places, payloads): (Vec<_>, Vec<_>) =
            found.into_iter().map(|it| ((it.position, it.said), it.payload)).unzip();
        let first = self.ring.put_before(places);
        for (number, payload) in (first..).zip(payloads) {
            let ring = &mut self.ring;
            self.index.insert_durable(&payload, number, |replaced| ring.discharge(replaced));
        }
        self.trim();
    }

    /// Units that entries refer to.
    pub(super) fn runs(&self) -> Vec<(u64, u64)> {
        if !self.index.has_references() {
            return Vec::new();
        }
        let entries = self.index.range(0, u64::MAX).map(|(_, slot)| slot.entry());
        let references = entries.filter_map(|entry| entry.reference());
        references.map(|it| (it.unit, units_for(it.content_len()))).collect()
    }

    /// Puts encoded entries, none of them longer than `entry_len_max`, into the open batch and into
    /// the index.
    pub(super) fn add_entries(&mut self, entries: Vec<u8>, entry_len_max: usize) {
        let shared = Arc::new(self.pool.lend(entries));
        let entries = &shared[..];
        let stripe = self.ring.collecting();
        let number = stripe.number;
        let pending = stripe.pending.as_mut().expect("the open batch is pending");
        pending.writer.reserve(entries.len());
        let expected = entries.len() / entry_len_max.max(HEAD_LEN);
        stripe.hashes.reserve(expected);
        pending.superseded.reserve(expected);
        let mut at = 0;
        let (mut taken, mut replaced) = (0, 0);
        let (mut run, mut count) = (0, 0); // where a run of live entries begins
        let mut cold = 0;
        for (raw, entry) in Entry::all(entries) {
            let start = at;
            if cold == 0 {
                cold = WARMED;
                self.index.warm(Entry::hashes(&entries[at..]));
            }
            cold -= 1;
            at += raw.len();
            if entry.kind == Kind::DEAD {
                pending.writer.push_all(&entries[run..start], count);
                (run, count) = (at, 0);
                continue;
            }
            count += 1;
            stripe.hashes.push(entry.hash);
            taken += 1;
            let Some(old) = self.index.insert(&shared, start, number) else { continue };
            if old.stripe == number {
                replaced += 1;
            } else {
                pending.superseded.push(old.at);
            }
            if let Some(reference) = old.reference {
                pending.released.push((reference.unit, units_for(reference.content_len())));
            }
        }
        pending.writer.push_all(&entries[run..at], count);
        assert_eq!(at, entries.len(), "a batch is a whole number of entries");
        self.ring.charge(taken, replaced);
    }

    /// The batch under way is durable: older versions of its entries are no longer needed.
    pub(super) fn settle_next(&mut self) -> Box<Pending> {
        let mut pending = self.ring.settle_next();
        let number = self.ring.durable;
        for superseded in std::mem::take(&mut pending.superseded).chunks(WARMED) {
            self.index.warm(superseded.iter().map(|&(hash, _)| hash));
            for &at in superseded {
                if let Some(stripe) = self.index.settle(at, number) {
                    self.ring.discharge(stripe);
                }
            }
        }
        self.trim();
        pending
    }

    /// Entries have reached their pages, each with the batch that had it; `release` gets their
    /// references.
    pub(super) fn remove_all(
        &mut self,
        home: &[(At, u64)],
        marked: Marked,
        mut release: impl FnMut(Reference),
    ) {
        self.marked = marked;
        for homed in home.chunks(WARMED) {
            self.index.warm(homed.iter().map(|&((hash, _), _)| hash));
            for &(at, stripe) in homed {
                let Some(slot) = self.index.remove(at, stripe) else { continue };
                if let Some(reference) = slot.entry().reference() {
                    release(reference);
                }
                self.ring.discharge(stripe);
            }
        }
    }

    /// Drops batches that are no longer needed.
    pub(super) fn trim(&mut self) {
        self.ring.trim(self.marked);
    }

    /// True if a durable batch has marks that the superblock lacks.
    pub(super) fn has_unwritten_marks(&self) -> bool {
        self.ring.has_marks_beyond(self.marked)
    }
}
