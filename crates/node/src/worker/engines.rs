//! A worker's engines, and the set of those that are awake.
//!
//! Most databases of a node are idle at most times. A turn visits only awake engines, so idle ones
//! do not add to its cost.

use types::limits::SPACES;

use super::worker_state::WorkerState;
use crate::engine::Engine;

const _: () = assert!(SPACES <= u64::BITS as usize, "an engine is a bit of a word");

/// The engines of a worker, by index.
#[derive(Default)]
pub(super) struct Engines {
    all: Vec<Box<dyn Engine>>,
    /// A bit for each engine.
    awake: u64,
    /// The same for those that [pack](Engine::packs).
    packing: u64,
    /// Bytes of memory of those that are not awake.
    resting_memory: usize,
}

impl Engines {
    pub(super) fn push(&mut self, engine: Box<dyn Engine>) {
        let bit = 1 << self.all.len();
        self.awake |= bit;
        if engine.packs() {
            self.packing |= bit;
        }
        self.all.push(engine);
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// All engines, for inspection.
    pub(super) fn all(&self) -> &[Box<dyn Engine>] {
        &self.all
    }

    /// Engines with volatile storage.
    pub(super) fn packing(&self) -> impl Iterator<Item = usize> + use<> {
        bits(self.packing)
    }

    /// Wakes an engine for work.
    pub(super) fn wake(&mut self, index: usize, shared: &WorkerState) -> &mut dyn Engine {
        let is_awake = self.awake >> index & 1 == 1;
        let engine = &mut *self.all[index];
        if !is_awake {
            self.awake |= 1 << index;
            self.resting_memory -= engine.memory();
            engine.set_open_ticket(shared.stores[engine.store()].open);
        }
        engine
    }

    /// Awake engines.
    pub(super) fn awake(&self) -> impl Iterator<Item = &Box<dyn Engine>> {
        bits(self.awake).map(|index| &self.all[index])
    }

    pub(super) fn awake_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Engine>> {
        let (mut left, mut from) = (&mut self.all[..], 0);
        bits(self.awake).map(move |index| {
            let from_here = &mut std::mem::take(&mut left)[index - from..];
            let (engine, others) = from_here.split_first_mut().expect("a bit is an engine's");
            (left, from) = (others, index + 1);
            engine
        })
    }

    /// Puts idle engines to rest until the next call that wakes them.
    pub(super) fn rest(&mut self, absent_kept: usize) {
        for index in bits(self.awake) {
            let engine = &self.all[index];
            if engine.may_rest(absent_kept) {
                self.awake &= !(1 << index);
                self.resting_memory += engine.memory();
            }
        }
    }

    /// Bytes of memory that their registers take, about.
    pub(super) fn memory(&self) -> usize {
        self.resting_memory + self.awake().map(|engine| engine.memory()).sum::<usize>()
    }
}

/// The set bits, the lowest first.
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        lowest
    })
}
