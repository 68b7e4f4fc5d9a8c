//! Buckets that a write-back takes home without extents are merged outside of the engine ([`crate::disk::merge`]), while
//! it serves. Until what was made of them is put in their place, they stay as they were; and so does what the ring holds
//! for them, or something newer.

use super::Engine;
use super::rebuild::unhome;
use super::write_back::{How, Shape, WriteBack};
use crate::disk::index::At;
use crate::disk::merge::{Merged, Merging};
use crate::disk::page::PAGE_ROOM;
use crate::disk::place::PAGE_UNITS;

/// Bytes of a bucket and of what the ring holds for it, at most: what is longer may need more of the spare than there is.
const MERGED_LEN_MAX: usize = 4 * PAGE_ROOM;

/// A bucket that is being merged.
#[derive(Debug)]
pub(super) struct Lent {
    bucket: u64,
    /// What it takes in, and the stripe each was in.
    home: Vec<(At, u64)>,
}

impl Engine {
    /// Takes what somebody else is to merge, whose outcome [`Engine::merged`] waits for.
    pub fn take_merging(&mut self) -> Option<Merging> {
        let WriteBack::Build(build) = &mut self.write_back else { return None };
        build.merging.take_if(|_| self.failure.is_none())
    }

    /// True if there is something to be taken.
    #[must_use]
    pub fn has_merging(&self) -> bool {
        let WriteBack::Build(build) = &self.write_back else { return false };
        self.failure.is_none() && build.merging.is_some()
    }

    /// Adds a bucket to what is merged outside, if it is a plain one.
    pub(super) fn lend(&mut self, bucket: u64, merging: &mut Merging) -> Option<Lent> {
        let homes = self.cache.peek(bucket).expect("a target is pinned");
        let is_plain = !homes.has_references() && homes.garbage.is_empty();
        if !is_plain || self.repairs.contains_key(&bucket) {
            return None;
        }
        let (first, last) = self.directory.interval(bucket);
        self.index.warm_range(first, last);
        let durable = self.ring.durable;
        let homes = self.cache.peek(bucket).expect("a target is pinned");
        let staged = || {
            let slots = self.index.range(first, last);
            slots.filter_map(|(at, slot)| slot.durable(durable).map(|slot| (at, slot)))
        };
        let mut len = homes.used() as usize;
        for (_, slot) in staged() {
            let entry = slot.entry();
            len += entry.len();
            if entry.kind.is_in_extent() || entry.outgrows_page() || len > MERGED_LEN_MAX {
                return None;
            }
        }
        let home = staged().map(|(at, slot)| (at, slot.stripe)).collect();
        merging.add(homes.clone(), staged().map(|(_, slot)| slot.entry()));
        Some(Lent { bucket, home })
    }

    /// Goes on with what has been merged; an error poisons the store.
    ///
    /// # Panics
    /// If it is not the outcome of what was taken last.
    pub fn merged(&mut self, merged: Result<Merged, String>) {
        if self.failure.is_some() {
            return;
        }
        let Merged(merged) = match merged {
            Ok(merged) => merged,
            Err(reason) => return self.fail(&reason),
        };
        let WriteBack::Build(mut build) = std::mem::take(&mut self.write_back) else {
            unreachable!("only a build has buckets merged");
        };
        let (lent, work) = (std::mem::take(&mut build.lent), &mut build.work);
        assert_eq!(lent.len(), merged.len(), "what was lent comes back");
        for (Lent { bucket, home }, (old, packed)) in lent.into_iter().zip(merged) {
            let homes = self.cache.peek(bucket).expect("a target is pinned");
            assert!(homes.is_same(&old), "bucket {bucket} has changed while it was merged");
            // An overflow page may change a map, whether it is new, kept or given up.
            let (pages, overflow) = (packed.pages(), old.overflow.len());
            let need = work.pages + self.extents.dirty() + pages + overflow.max(pages - 1) + 4;
            if self.repairs.contains_key(&bucket) || need as u64 > self.spare {
                let how = How { shape: Shape::Same, merge: true };
                self.rebuild_target(bucket, work, how);
                continue;
            }
            self.used = self.used.saturating_sub(old.used());
            let mut free = old.overflow;
            self.place(bucket, packed, &mut free, work);
            for unit in free {
                unhome(&mut self.extents, (unit, PAGE_UNITS), &mut work.freed);
            }
            work.home.extend(home);
        }
        self.go_on(build);
    }
}
