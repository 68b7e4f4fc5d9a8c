//! The scrub: everything that leads to a worker's registers, and both versions of each, verified
//! again and again.
//!
//! It looks for runs of slabs that have become empty, and gives their pages back. Damage is dealt
//! with as if a load met it. Between two steps only a position is kept: entries that moved in the
//! meantime are looked at in the next pass. Free slots are void and are not looked at.

use std::sync::Arc;

use types::key::SHARDS;
use types::{Database, Shard};

use super::shards::PmemStore;
use crate::mutation::{self, Mutation};
use crate::pmem::batch::Changed;
use crate::pmem::directory::{Damaged, Entry};
use crate::pmem::layout::{Class, FILE, PAGE, ROOT_STATE, STATE_FORGOTTEN, STATE_KNOWN, ShardId};
use crate::pmem::memory::Memory;
use crate::pmem::slab::Lap;
use crate::pmem::slot::Kind;
use crate::pmem::superblock::{Copy, Superblock};
use crate::store::{Completion, Scrubbed, Share};

/// The bytes that a look at a shard's root counts for.
const ROOT_BYTES: u64 = 64;

impl<M: Memory> PmemStore<M> {
    pub(super) fn scrub_step(&mut self, share: Share, bytes: u64) -> Scrubbed {
        let mut done = Scrubbed::default();
        let shards = self.shared.geometry.databases as usize * SHARDS;
        while done.bytes < bytes && self.scrub.shard < shards {
            let shard = Shard((self.scrub.shard % SHARDS) as u8);
            let database = Database((self.scrub.shard / SHARDS) as u8);
            let id = ShardId { database, shard };
            let is_own = usize::from(shard.0) % share.workers == share.worker;
            let is_done = !is_own || self.scrub_shard(id, bytes, &mut done);
            self.scrub.shard += usize::from(is_done);
        }
        if self.scrub.shard == shards {
            if share.worker == 0 {
                self.scrub_superblocks(&mut done);
            }
            self.scrub.shard = 0;
            done.has_ended = true;
        }
        done.damaged = std::mem::take(&mut self.scrub.damaged);
        done
    }

    /// Goes on with a shard; true when all of it has been looked at.
    fn scrub_shard(&mut self, id: ShardId, bytes: u64, done: &mut Scrubbed) -> bool {
        match self.scrub.slab {
            None => {
                self.scrub.from_hash = self.scrub_part(id, bytes, done);
                if self.scrub.from_hash.is_none() {
                    self.scrub.slab = Class::all().next().map(|class| (class, None));
                }
                false
            }
            Some((class, last)) => {
                let buffers = &mut self.scratch.buffers;
                let run = self.slabs.look_at_run(&self.shared, (id, class), last, buffers);
                done.bytes += if run.is_some() { PAGE } else { 0 };
                // Where a run was given back, the one in front of it comes again.
                let other = run.filter(|&run| Some(run) != last);
                let is_again = other.is_some_and(|run| self.scrub.lap.passes_again(run));
                self.scrub.slab = match run.filter(|_| !is_again) {
                    Some(run) => Some((class, Some(run))),
                    None => {
                        self.scrub.lap = Lap::default();
                        Class::all().find(|next| *next > class).map(|next| (next, None))
                    }
                };
                self.scrub.slab.is_none()
            }
        }
    }

    /// Verifies one leaf of a shard, or a part of it; where to go on, if anywhere.
    fn scrub_part(&mut self, id: ShardId, bytes: u64, done: &mut Scrubbed) -> Option<u64> {
        let from = match self.scrub.from_hash {
            Some(hash) => hash,
            None => {
                self.scrub_root(id);
                done.bytes += ROOT_BYTES;
                id.shard.first_hash()
            }
        };
        let mut entries = Vec::new();
        let next = match self.shared.list(id, from, &mut entries) {
            Ok(next) => next,
            Err(damage) => {
                if self.is_blind() {
                    return None;
                }
                entries.clear();
                self.forget_way(id, from, damage);
                // An entry that is still unreadable after that is forgotten, and the shard says so.
                self.shared.list(id, from, &mut entries).unwrap_or(None)
            }
        };
        done.bytes += if entries.is_empty() { 0 } else { PAGE };
        entries.sort_unstable_by_key(|entry| entry.hash);
        let mut last = None;
        for entry in entries {
            // A hash is never divided, and one at least is looked at.
            if done.bytes >= bytes && last.is_some_and(|last| last != entry.hash) {
                return Some(entry.hash);
            }
            last = Some(entry.hash);
            self.scrub_slot(id, &entry, done);
        }
        next
    }

    fn scrub_root(&mut self, id: ShardId) {
        if self.is_blind() {
            return;
        }
        let state = self.shared.word(self.shared.geometry.root_at(id) + ROOT_STATE);
        if !matches!(state, Some(STATE_KNOWN | STATE_FORGOTTEN)) {
            self.forget(id, None, Damaged { entry: None });
        }
        if let Err(damage) = self.locate_meta(id) {
            self.forget(id, Some(&Changed::Meta(id)), damage);
        }
    }

    fn scrub_slot(&mut self, id: ShardId, entry: &Entry, done: &mut Scrubbed) {
        let buffers = &mut self.scratch.buffers;
        let found = self.shared.read_live(entry.slot, id, Kind::Cell, buffers);
        let is_whole = found.as_ref().is_some_and(|(_, reading, content)| {
            let key = reading.key(content, buffers);
            self.shared.positions().of_database(id.database, key) == entry.hash
        });
        done.bytes += found.map_or(PAGE, |(home, _, _)| home.class.slot_len());
        if is_whole {
            done.registers += 1;
        } else if !self.is_blind() {
            base::sometimes!("pmem: a scrub finds damage");
            self.forget_way(id, entry.hash, Damaged { entry: Some(entry.at) });
        }
    }

    /// A copy that is damaged is written again: its twin says the same.
    fn scrub_superblocks(&mut self, done: &mut Scrubbed) {
        let shared = Arc::clone(&self.shared);
        let memory = &shared.memory;
        let copies = [0, 1].map(|copy| Superblock::read(memory, copy));
        done.bytes += 2 * PAGE;
        let whole = copies.iter().find_map(|copy| match copy {
            Copy::Whole(superblock) => Some(*superblock),
            _ => None,
        });
        let Some(superblock) = whole.filter(|_| !self.is_blind()) else { return };
        for copy in (0..2).filter(|&copy| copies[copy as usize] == Copy::Damaged) {
            superblock.write(memory, copy);
            memory.fence();
            self.scrub.damaged += 1;
            self.warn_of_superblock(copy);
        }
    }

    pub(in crate::pmem) fn warn_of_superblock(&mut self, copy: u64) {
        let at = copy * PAGE;
        let text = format!(
            "{FILE} at {at}: one of two superblocks was damaged; the other one is used and repairs it"
        );
        self.scanned.push(Completion::Warning(text));
    }

    fn is_blind(&self) -> bool {
        mutation::is(Mutation::PmemScrubBlind)
    }
}
