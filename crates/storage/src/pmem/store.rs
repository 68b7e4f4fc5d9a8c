//! One worker's handle: loads straight from the memory, changes by turns.
//!
//! How a batch becomes durable is in `turn`. Damage first makes its shard durably forgotten and is then cleared away;
//! the worker learns of it with the next poll, and only then of the records that are lost.

mod scan;
mod scrub;
mod shards;
mod turn;

use types::{Database, Positions, Shard, Ticket};

pub use self::shards::PmemStore;
use super::batch::Changed;
use super::layout::{ROOT_STATE, STATE_KNOWN, ShardId};
use super::memory::Memory;
use crate::store::{Completion, Load, Place, ScrubScope, Share, Store};

impl<M: Memory> Store for PmemStore<M> {
    fn set_positions(&mut self, positions: &Positions) {
        self.shared.set_positions(positions);
    }

    fn load(&mut self, place: &Place) -> Load {
        let changed = match place {
            Place::Cell(database, key) => Changed::Cell(ShardId::of(*database, key), key.clone()),
            Place::Meta(database, shard) => {
                Changed::Meta(ShardId { database: *database, shard: *shard })
            }
        };
        let shard = changed.shard();
        let load = self.find(place, changed);
        if self.failure.is_some() {
            // The next poll says why.
            return Load::Pending;
        }
        if load == Load::Lost && self.damaged.contains(&shard) {
            self.lost.push(place.clone());
            return Load::Pending;
        }
        load
    }

    fn put(&mut self, place: &Place, record: &[u8]) {
        self.batch.set(place, Some(record));
    }

    fn remove(&mut self, place: &Place) {
        self.batch.set(place, None);
    }

    fn set_forgotten(&mut self, database: Database, shard: Shard, forgotten: bool) {
        let shard = ShardId { database, shard };
        // A worker that has not heard of the damage cannot have recovered from it.
        let forgotten = forgotten || self.damaged.contains(&shard);
        self.batch.forgets.insert(shard, forgotten);
    }

    fn is_forgotten(&self, database: Database, shard: Shard) -> bool {
        let shard = ShardId { database, shard };
        let state = self.shared.geometry.root_at(shard) + ROOT_STATE;
        let open = self.batch.forgets.get(&shard).copied();
        open.unwrap_or_else(|| self.shared.word(state) != Some(STATE_KNOWN))
    }

    fn scan(&mut self, id: u64, database: Database, from_hash: u64, limit: usize) {
        let shard = ShardId { database, shard: Shard((from_hash >> 56) as u8) };
        let (mut records, next_hash) = self.list(shard, from_hash, limit);
        let is_listed = |hash| hash >= from_hash && next_hash.is_none_or(|next| hash < next);
        self.overlay(shard, is_listed, &mut records);
        records.sort_unstable_by(|(one, _), (two, _)| one.cmp(two));
        self.scanned.push(Completion::Scanned { id, records, next_hash });
    }

    fn ticket(&self) -> Ticket {
        Ticket(self.ticket)
    }

    fn submit(&mut self) {
        if self.batch.is_empty() || self.failure.is_some() {
            return;
        }
        let mut batch = std::mem::take(&mut self.batch);
        // Damage that is found on the way takes back the batch's marks of a shard.
        self.batch.forgets = std::mem::take(&mut batch.forgets);
        match self.apply(&batch) {
            Ok(()) => {
                self.ticket += 1;
                self.has_stored = true;
            }
            Err(error) => {
                self.failure.get_or_insert(format!("pmem: {error}"));
            }
        }
        batch.clear();
        self.batch = batch;
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        let damaged = std::mem::take(&mut self.damaged).into_iter();
        completions.extend(
            damaged.map(|shard| Completion::Forgotten {
                database: shard.database,
                shard: shard.shard,
            }),
        );
        if std::mem::take(&mut self.has_stored) {
            completions.push(Completion::Stored(Ticket(self.ticket - 1)));
        }
        let loaded = |place| Completion::Loaded { place, load: Load::Lost };
        completions.extend(self.lost.drain(..).map(loaded));
        completions.append(&mut self.scanned);
        if let Some(failure) = self.failure.as_ref().filter(|_| !self.has_told_failure) {
            completions.push(Completion::Failed(failure.clone()));
            self.has_told_failure = true;
        }
    }

    fn outlives_process(&self) -> bool {
        true
    }

    fn scrub_scope(&self) -> ScrubScope {
        ScrubScope::Shards
    }

    fn scrub(&mut self, share: Share, bytes: u64) {
        if self.failure.is_none() {
            let scrubbed = self.scrub_step(share, bytes);
            self.scanned.push(Completion::Scrubbed(scrubbed));
        }
    }
}
