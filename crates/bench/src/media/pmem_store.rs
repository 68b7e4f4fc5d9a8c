//! The product's persistent-memory store as a worker drives it: a batch of records, submitted at
//! once.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use storage::pmem::{Pmem, PmemStore};
use storage::volatile::Beginning;
use storage::{Load, Place, Store as _};
use types::{Database, Key};

use super::draws::{Draws, KeyDistribution};
use super::pattern::{Name, Pattern};
use crate::{Error, Result};

/// Writes in a batch.
pub(super) const TURNS: [u64; 3] = [1, 8, 64];
const CHECKED: u64 = 64;
const LOADED_BY: usize = 256;
const BINDING: u64 = 1;

/// A store that holds a value for every key.
pub(super) struct PmemValues {
    store: PmemStore,
    places: Vec<Place>,
    // By key: the number of its last write.
    last: Vec<u32>,
    draws: Rc<Draws>,
    done: u64,
}

impl PmemValues {
    /// Creates a store in a directory and writes every key once.
    pub(super) fn create(dir: &Path, draws: &Rc<Draws>) -> Result<PmemValues> {
        std::fs::create_dir_all(dir).map_err(Error::io(dir.display().to_string()))?;
        let pmem = Pmem::open(dir, BINDING, Beginning::New)
            .map_err(|error| Error::Protocol(error.to_string()))?;
        let place =
            |key: u32| Place::Cell(Database(0), Key::new(format!("key:{key:012}").as_bytes()));
        let places: Vec<Place> = (0..draws.keys).map(place).collect();
        let last = vec![0; places.len()];
        let draws = Rc::clone(draws);
        let mut made = PmemValues { store: pmem.store(0), places, last, draws, done: 0 };
        for places in made.places.chunks(LOADED_BY) {
            places.iter().for_each(|place| made.store.put(place, made.draws.value(0)));
            made.store.submit();
        }
        made.settle()?;
        Ok(made)
    }

    fn settle(&mut self) -> Result<()> {
        let mut completions = Vec::new();
        self.store.poll(&mut completions);
        let failed = completions.into_iter().find_map(|completion| match completion {
            storage::Completion::Failed(why) => Some(why),
            _ => None,
        });
        failed.map_or(Ok(()), |why| Err(Error::Protocol(why)))
    }
}

/// Batches of so many writes.
pub(super) struct PmemBatches {
    pub store: Rc<RefCell<PmemValues>>,
    pub turn: u64,
}

impl Pattern for PmemBatches {
    fn name(&self) -> Name {
        let how = match self.turn {
            1 => "store, turns of 1",
            8 => "store, turns of 8",
            _ => "store, turns of 64",
        };
        Name { pattern: "multi", how }
    }

    fn unit(&self) -> u64 {
        self.turn
    }

    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, units: u64) -> Result<()> {
        let store = &mut *self.store.borrow_mut();
        let mut completions = Vec::new();
        for n in store.done..store.done + units * self.turn {
            let key = store.draws.key(KeyDistribution::Zipf, n) as usize;
            store.last[key] = n as u32;
            store.store.put(&store.places[key], store.draws.value(n));
            if (n + 1 - store.done).is_multiple_of(self.turn) {
                store.store.submit();
                completions.clear();
                store.store.poll(&mut completions);
            }
        }
        store.done += units * self.turn;
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        let store = &mut *self.store.borrow_mut();
        for n in store.done.saturating_sub(CHECKED)..store.done {
            let key = store.draws.key(KeyDistribution::Zipf, n) as usize;
            let expected = store.draws.value(u64::from(store.last[key]));
            match store.store.load(&store.places[key]) {
                Load::Found(found) if found == expected => {}
                other => return Err(Error::Protocol(format!("the store answers {other:?}"))),
            }
        }
        store.settle()
    }
}
