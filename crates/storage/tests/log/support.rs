//! A device in memory that remembers all stores, and the list that a log must be like.

use std::collections::BTreeMap;

use base::Prng;
use bytes::Bytes;
use storage::log::{AppendError, Device, Engine, Log, Store, create};

pub const SECTOR: usize = 512;
pub const BINDING: u64 = 0x5eed_0002;
/// Small, so that a few dozen batches pass its end.
pub const SMALL: u64 = 64;

/// A device: its durable bytes, and every store since it was last asked.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub bytes: Vec<u8>,
    pub stores: Vec<Store>,
    pub fails: bool,
}

impl Memory {
    pub fn with_log(sectors: u64) -> Memory {
        let mut memory = Memory::default();
        create(&mut memory, BINDING, sectors).expect("memory does not fail");
        memory.stores.clear();
        memory
    }

    /// The sectors of a store, each with its offset.
    pub fn sectors(store: &Store) -> Vec<(usize, Bytes)> {
        let mut sectors = Vec::new();
        for write in &store.writes {
            assert!(
                (write.offset as usize).is_multiple_of(SECTOR),
                "{} is in a sector",
                write.offset
            );
            assert!(write.bytes.len().is_multiple_of(SECTOR), "a part of a sector is written");
            for at in (0..write.bytes.len()).step_by(SECTOR) {
                sectors.push((write.offset as usize + at, write.bytes.slice(at..at + SECTOR)));
            }
        }
        sectors
    }

    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset..end].copy_from_slice(bytes);
    }
}

impl Device for &mut Memory {
    fn size(&mut self) -> Result<u64, String> {
        Ok(self.bytes.len() as u64)
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), String> {
        let from = self.bytes.get(offset as usize..offset as usize + into.len());
        into.copy_from_slice(from.ok_or("past the end")?);
        Ok(())
    }

    fn store(&mut self, store: &Store) -> Result<(), String> {
        if self.fails {
            return Err("it was told to fail".to_owned());
        }
        for (offset, bytes) in Memory::sectors(store) {
            self.write(offset, &bytes);
        }
        self.stores.push(store.clone());
        Ok(())
    }
}

impl Device for Memory {
    fn size(&mut self) -> Result<u64, String> {
        Device::size(&mut &mut *self)
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), String> {
        Device::read(&mut &mut *self, offset, into)
    }

    fn store(&mut self, store: &Store) -> Result<(), String> {
        Device::store(&mut &mut *self, store)
    }
}

/// The records that a log must have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Model {
    pub first: u64,
    pub records: Vec<Bytes>,
    /// Records that were cut off the front, which a restart may bring back.
    pub given_up: BTreeMap<u64, Bytes>,
}

impl Default for Model {
    fn default() -> Model {
        Model { first: 1, records: Vec::new(), given_up: BTreeMap::new() }
    }
}

impl Model {
    pub fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    pub fn append(&mut self, from: u64, records: &[Bytes]) {
        self.records.truncate((from - self.first) as usize);
        self.records.extend_from_slice(records);
    }

    pub fn cut_front(&mut self, upto: u64) {
        while self.first <= upto {
            if self.records.is_empty() {
                self.first = upto + 1;
                return;
            }
            self.given_up.insert(self.first, self.records.remove(0));
            self.first += 1;
        }
    }

    /// Why a log that was opened is not this one; records that were cut off the front may be back.
    pub fn difference(&self, engine: &Engine) -> Option<String> {
        let kept: Vec<Bytes> =
            engine.range(self.first..=u64::MAX).map(|(_, record)| record.clone()).collect();
        if kept != self.records {
            return Some(format!("{} records instead of {}", kept.len(), self.records.len()));
        }
        if engine.first() > self.first {
            return Some(format!("it begins at {} instead of {}", engine.first(), self.first));
        }
        if !self.records.is_empty() && engine.next_index() != self.next() {
            return Some(format!("it goes on at {}, not at {}", engine.next_index(), self.next()));
        }
        let mut back = engine.range(1..=self.first - 1);
        let wrong = back.find(|(index, record)| self.given_up.get(index) != Some(record));
        wrong.map(|(index, _)| format!("record {index} was another one"))
    }
}

/// A change of a log.
#[derive(Clone, Debug)]
pub enum Change {
    Append { from: u64, records: Vec<Bytes> },
    CutFront { upto: u64 },
}

/// Draws a change that the model allows; `len_max` is the longest batch.
pub fn draw(prng: &mut Prng, model: &Model, len_max: usize) -> Change {
    let (first, next) = (model.first, model.next());
    match prng.below(10) {
        0..=1 if next > first => Change::CutFront { upto: prng.between(first, next - 1) },
        // A snapshot from elsewhere.
        2 if prng.chance_ppm(50_000) => Change::CutFront { upto: next + prng.below(20) },
        // Cuts off the end only.
        3 => Change::Append { from: prng.between(first, next), records: Vec::new() },
        kind => {
            let from = if kind < 6 { prng.between(first, next) } else { next };
            let mut left = prng.below(len_max as u64 - 16) as usize;
            let mut records = Vec::new();
            while records.len() < 6 && left >= 4 {
                let len = prng.below(left as u64 - 3) as usize;
                let mut record = prng.next_u64().to_le_bytes().to_vec();
                record.resize(len, prng.next_u64() as u8);
                left -= 4 + len;
                records.push(record.into());
            }
            Change::Append { from, records }
        }
    }
}

/// Makes a change in both; a log that is full gives up its front half first.
pub fn apply<D: Device>(log: &mut Log<D>, model: &mut Model, change: &Change) {
    let Change::Append { from, records } = change else {
        let Change::CutFront { upto } = change else { unreachable!("there are two changes") };
        log.engine.cut_front(*upto);
        return model.cut_front(*upto);
    };
    match log.engine.append(*from, records.clone()) {
        Ok(_) => model.append(*from, records),
        Err(AppendError::Full) => {
            log.flush().expect("the device does not fail");
            let upto = model.first + (model.next() - model.first) / 2;
            log.engine.cut_front(upto);
            model.cut_front(upto);
        }
        Err(error) => panic!("{error}: {change:?} of {}..{}", model.first, model.next()),
    }
}
