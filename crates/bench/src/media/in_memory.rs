//! Patterns over memory: raw loops, the log, and values in place.

use std::collections::HashSet;
use std::marker::PhantomData;
use std::rc::Rc;

use base::checksum::checksum_at;
use storage::pmem::memory::Memory;
use storage::pmem::persist::LINE;

use super::draws::{Draws, KeyDistribution};
use super::pattern::{Name, Pattern};
use super::variants::{Sequence, Slot, SlotContent, Variant, Write};
use crate::{Error, Result};

/// The last writes, which are checked after a slice.
const CHECKED: u64 = 64;

fn wrong(name: Name) -> Error {
    let Name { pattern, how } = name;
    Error::Protocol(format!("{pattern}, {how}: the last written value is missing"))
}

/// Copy, write back, fence: the lower bound for persisting a value.
///
/// The optional checksum over the value is bound to the place and stored in front of it.
pub(super) struct Raw<M> {
    pub memory: M,
    pub draws: Rc<Draws>,
    pub has_checksum: bool,
    pub name: Name,
    /// Writes per fence.
    pub unit: u64,
    pub done: u64,
}

impl<M: Memory> Raw<M> {
    fn at(&self, n: u64) -> u64 {
        let sum_len = if self.has_checksum { 8 } else { 0 };
        let stride = (sum_len + self.draws.value_len as u64).next_multiple_of(LINE);
        u64::from(self.draws.key(KeyDistribution::Zipf, n)) * stride
    }
}

impl<M: Memory> Pattern for Raw<M> {
    fn name(&self) -> Name {
        self.name
    }

    fn unit(&self) -> u64 {
        self.unit
    }

    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, units: u64) -> Result<()> {
        for n in self.done..self.done + units * self.unit {
            let (at, value) = (self.at(n), self.draws.value(n));
            if self.has_checksum {
                self.memory.store(at, checksum_at(at, value));
                self.memory.write(at + 8, value);
                self.memory.write_back(at, 8 + value.len() as u64);
            } else {
                self.memory.write(at, value);
                self.memory.write_back(at, value.len() as u64);
            }
            if (n + 1).is_multiple_of(self.unit) {
                self.memory.fence();
            }
        }
        self.done += units * self.unit;
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        let at = self.at(self.done - 1) + if self.has_checksum { 8 } else { 0 };
        let mut found = vec![0; self.draws.value_len];
        self.memory.read(at, &mut found);
        if found == self.draws.value(self.done - 1) { Ok(()) } else { Err(wrong(self.name)) }
    }
}

/// Append in two steps: the entry, then a header with the log's length. [LOGLESS 6.2]
pub(super) struct AppendLog<M> {
    memory: M,
    draws: Rc<Draws>,
    // The log wraps here.
    len: u64,
    end: u64,
    done: u64,
}

impl<M: Memory> AppendLog<M> {
    pub(super) fn new(memory: M, draws: Rc<Draws>, len: u64) -> AppendLog<M> {
        AppendLog { memory, draws, len, end: LINE, done: 0 }
    }
}

impl<M: Memory> Pattern for AppendLog<M> {
    fn name(&self) -> Name {
        Name { pattern: "log", how: "two-step" }
    }

    fn prepare(&mut self) -> Result<()> {
        self.memory.store(0, self.end);
        Ok(())
    }

    fn write(&mut self, units: u64) -> Result<()> {
        let entry_len = (self.draws.value_len as u64).next_multiple_of(8);
        for n in self.done..self.done + units {
            if self.end + entry_len > self.len {
                self.end = LINE;
            }
            self.memory.write(self.end, self.draws.value(n));
            self.memory.write_back(self.end, entry_len);
            self.memory.fence();
            self.end += entry_len;
            self.memory.store(0, self.end);
            self.memory.write_back(0, 8);
            self.memory.fence();
        }
        self.done += units;
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        let entry_len = (self.draws.value_len as u64).next_multiple_of(8);
        let mut found = vec![0; self.draws.value_len];
        self.memory.read(self.memory.load(0) - entry_len, &mut found);
        if found == self.draws.value(self.done - 1) { Ok(()) } else { Err(wrong(self.name())) }
    }
}

/// Values overwritten in their slots.
pub(super) struct InPlace<V, M> {
    memory: M,
    draws: Rc<Draws>,
    spread: KeyDistribution,
    // The last write of each key.
    last: Vec<Sequence>,
    done: u64,
    variant: PhantomData<V>,
}

impl<V: Variant, M: Memory> InPlace<V, M> {
    pub(super) fn new(memory: &M, draws: &Rc<Draws>, spread: KeyDistribution) -> Self
    where
        M: Clone,
    {
        let (memory, draws) = (memory.clone(), Rc::clone(draws));
        InPlace { memory, draws, spread, last: Vec::new(), done: 0, variant: PhantomData }
    }

    /// Bytes that all slots take.
    pub(super) fn len(draws: &Draws) -> u64 {
        u64::from(draws.keys) * V::slot_len(draws.value_len)
    }

    fn slot(&self, key: u32) -> Slot {
        let capacity = self.draws.value_len;
        Slot { at: u64::from(key) * V::slot_len(capacity), capacity }
    }
}

impl<V: Variant, M: Memory> Pattern for InPlace<V, M> {
    fn name(&self) -> Name {
        let pattern = if self.spread == KeyDistribution::One { "single" } else { "multi" };
        Name { pattern, how: V::NAME }
    }

    fn prepare(&mut self) -> Result<()> {
        let keys = if self.spread == KeyDistribution::One { 1 } else { self.draws.keys };
        (0..keys).for_each(|key| V::clear(&self.memory, self.slot(key)));
        self.memory.fence();
        self.last.clear();
        self.last.resize(keys as usize, Sequence::LAST);
        Ok(())
    }

    fn write(&mut self, units: u64) -> Result<()> {
        for n in self.done..self.done + units {
            let key = self.draws.key(self.spread, n);
            let slot = self.slot(key);
            let last = &mut self.last[key as usize];
            *last = last.next();
            let write = Write { sequence: *last, value: self.draws.value(n) };
            V::write(&self.memory, slot, write);
        }
        self.done += units;
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        let mut value = Vec::new();
        let mut looked_at = HashSet::new();
        for n in (self.done.saturating_sub(CHECKED)..self.done).rev() {
            let key = self.draws.key(self.spread, n);
            if !looked_at.insert(key) {
                continue;
            }
            let found = V::read(&self.memory, self.slot(key), &mut value);
            let expected = SlotContent::Value(self.last[key as usize]);
            if found != expected || value != self.draws.value(n) {
                return Err(wrong(self.name()));
            }
        }
        Ok(())
    }
}
