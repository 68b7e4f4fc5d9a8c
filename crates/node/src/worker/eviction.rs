//! Evicts registers from memory: absent ones soon, others above the memory limit. Volatile storage
//! also takes back idle registers.
//!
//! Each of the last two has a clock hand over the shards. A register used since the last lap stays
//! for another.

use base::Nanos;
use types::Shard;
use types::key::SHARDS;

use super::Worker;
use crate::engine::REGISTER_OVERHEAD;

/// One cache entry in this many may record an absent register. Such an entry saves a load from
/// storage.
const ABSENT_PART: usize = 256;

/// Shards that the evicting hand looks at in one turn, at most, unless they have few registers.
const EVICTED_SHARDS: usize = 16;

/// Registers that it may look at in any case: large ones are few, and come in as fast as small
/// ones.
const EVICTED_REGISTERS: usize = 4096;

/// How many times the part of registers that has to go it looks at: many of them have another
/// chance.
const EVICTED_PARTS: usize = 4;

/// Registers keep at least this fraction of the memory, however much stores hold.
const KEPT_PART: usize = 8;

/// Time in which the packing hand goes round: a register that was not used for so long leaves
/// within as long again. Longer than a busy working set of a million registers needs to be used
/// once.
const PACKING_ROUND: Nanos = Nanos::from_secs(30);

impl Worker {
    /// Drops entries of absent registers beyond the few that are worth keeping.
    pub(super) fn drop_absent(&mut self) {
        let kept = self.absent_kept();
        for engine in self.engines.awake_mut() {
            let dropped = engine.drop_absent(&mut self.shared, kept);
            self.shared.counters.registers_evicted += dropped as u64;
        }
    }

    /// Absent registers that an engine may keep.
    pub(super) fn absent_kept(&self) -> usize {
        self.cache_memory / REGISTER_OVERHEAD / ABSENT_PART
    }

    /// Turns the hand over as many shards as it takes to get below the limit, or as one turn may
    /// spend.
    pub(super) fn evict(&mut self) {
        let (memory, memory_max) = (self.engines.memory(), self.memory_max());
        if memory <= memory_max {
            return;
        }
        for _ in 0..self.evicted_shards(memory, memory - memory_max) {
            let (engine, shard) = self.hand;
            self.evict_at(engine, shard);
            self.advance_hand();
            if self.engines.memory() <= memory_max {
                return;
            }
        }
    }

    /// Shards to look at in this turn: more where they hold few registers, and where much has to
    /// go. Never a register twice: it would not have its other chance.
    fn evicted_shards(&self, memory: usize, excess: usize) -> usize {
        let resident =
            self.engines.all().iter().map(|engine| engine.resident()).filter(|&it| it > 0);
        let (engines, registers) =
            resident.fold((0, 0), |(engines, registers), it| (engines + 1, registers + it));
        let lap = SHARDS.div_ceil(self.shared.workers) * engines;
        let for_registers = EVICTED_REGISTERS * lap / registers.max(1);
        let for_excess = EVICTED_PARTS * excess / (memory / lap.max(1)).max(1);
        EVICTED_SHARDS.max(for_registers).max(for_excess).min(lap)
    }

    /// Memory in bytes that registers may take: the limit less the memory of the stores.
    fn memory_max(&self) -> usize {
        let held: usize = self.shared.stores.iter().map(|state| state.store.memory()).sum();
        self.cache_memory.saturating_sub(held).max(self.cache_memory / KEPT_PART)
    }

    fn evict_at(&mut self, engine: usize, shard: u8) {
        let engine = self.engines.wake(engine, &self.shared);
        let dropped = engine.evict(&mut self.shared, Shard(shard));
        self.shared.counters.registers_evicted += dropped as u64;
    }

    /// To the next shard of this worker, and after the last one to the next engine that has
    /// anything to evict.
    fn advance_hand(&mut self) {
        let (engine, shard) = self.hand;
        if let Some(next) = self.shard_after(shard) {
            self.hand = (engine, next);
            return;
        }
        let count = self.engines.len();
        let next = (1..=count)
            .map(|step| (engine + step) % count)
            .find(|&next| self.engines.all()[next].resident() > 0);
        self.hand = (next.unwrap_or(engine), self.shared.index as u8);
    }

    fn shard_after(&self, shard: u8) -> Option<u8> {
        u8::try_from(usize::from(shard) + self.shared.workers).ok()
    }

    /// Moves the idle registers of the next shard to storage, where they take less memory.
    pub(super) fn pack(&mut self) {
        if self.next_packing().is_none_or(|at| self.shared.now < at) {
            return;
        }
        for engine in self.engines.packing() {
            self.evict_at(engine, self.packing);
        }
        self.packing = self.shard_after(self.packing).unwrap_or(self.shared.index as u8);
        let shards = SHARDS.div_ceil(self.shared.workers) as u64;
        self.packs_at = self.shared.now + Nanos(PACKING_ROUND.0 / shards);
    }

    /// When the packing hand visits its next shard; `None`: no register is idle there.
    pub(super) fn next_packing(&self) -> Option<Nanos> {
        let has_any = |engine: usize| self.engines.all()[engine].resident() > 0;
        self.engines.packing().any(has_any).then_some(self.packs_at)
    }
}
