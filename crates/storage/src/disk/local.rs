//! A store without threads: the engine and a medium behind one lock, driven whenever a worker
//! submits or polls.
//!
//! For simulations and tests, where the medium completes requests when it likes, and for tools.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use types::Database;

use super::cache::ByNumber;
use super::engine::{Config, Engine, OpenError};
use super::handle::{Handle, Link, Terms};
use super::io::{Done, Io, Medium};
use super::page::CheckedPage;
use super::request::Request;
use crate::{Completion, Load, Place, Staging};

/// Polls in a row without work before the engine is told to rest.
const IDLE_POLLS: u32 = 64;
/// Rounds of one drive: a medium that completes at once lets the engine go on at once, but not for
/// ever.
const ROUNDS_MAX: usize = 64;
/// One look of so many for a record finds the engine taken.
const LOOKS_IN_VAIN: u64 = 2;

/// A worker's store without threads.
pub type LocalStore<M> = Handle<LocalLink<M>>;

/// Engine and medium, shared by the workers' stores.
#[derive(Debug)]
struct Shared<M> {
    engine: Engine,
    medium: M,
    under_way: usize,
    idle_polls: u32,
    /// See [`LocalGuard::is_still`].
    is_still: bool,
    done: Vec<Done>,
    looks: u64,
    /// Every other read: its bytes are checked before the engine takes it, as helpers do.
    checked: HashMap<u64, Io, ByNumber>,
    binding: u64,
}

impl<M: Medium> Shared<M> {
    fn drive(&mut self) {
        self.is_still = false;
        for _ in 0..ROUNDS_MAX {
            self.engine.step();
            let mut is_idle = !self.engine.is_building();
            for io in self.engine.take_ios() {
                if let Io::Read { id, .. } = io
                    && id.is_multiple_of(2)
                {
                    self.checked.insert(id, io.clone());
                }
                self.medium.submit(io);
                self.under_way += 1;
                is_idle = false;
            }
            self.medium.poll(&mut self.done);
            self.under_way = self.under_way.saturating_sub(self.done.len());
            for done in std::mem::take(&mut self.done) {
                let io = self.checked.remove(&done.id);
                let pages = io.and_then(|io| CheckedPage::of_read(&io, &done, self.binding));
                self.engine.done_checked(done, pages);
                is_idle = false;
            }
            if is_idle {
                self.is_still = self.under_way == 0;
                return;
            }
            self.idle_polls = 0;
        }
    }
}

/// The way from a [`LocalStore`] to its engine.
#[derive(Debug)]
pub struct LocalLink<M> {
    worker: usize,
    shared: Arc<Mutex<Shared<M>>>,
}

fn lock<M>(shared: &Mutex<Shared<M>>) -> MutexGuard<'_, Shared<M>> {
    // A panic elsewhere has already ended the node; the engine's own state is never half changed by
    // a reader.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Medium> Link for LocalLink<M> {
    fn send(&mut self, requests: &mut Vec<Request>) {
        let mut shared = lock(&self.shared);
        for request in requests.drain(..) {
            shared.engine.request(self.worker, request);
        }
        shared.idle_polls = 0;
        shared.drive();
    }

    fn try_load(&mut self, place: &Place) -> Option<Load> {
        let mut shared = lock(&self.shared);
        shared.looks += 1;
        if shared.looks.is_multiple_of(LOOKS_IN_VAIN) {
            return None;
        }
        shared.engine.try_load(self.worker, place)
    }

    fn receive(&mut self, completions: &mut Vec<Completion>) {
        let mut shared = lock(&self.shared);
        shared.idle_polls += 1;
        shared.drive();
        if shared.idle_polls > IDLE_POLLS && shared.under_way == 0 {
            shared.engine.rest();
            shared.drive();
        }
        shared.engine.take_completions(self.worker, completions);
    }

    fn is_full(&self) -> bool {
        lock(&self.shared).engine.is_full()
    }

    fn is_overrun(&self) -> bool {
        lock(&self.shared).engine.is_overrun()
    }

    fn staging(&self) -> Option<Staging> {
        (self.worker == 0).then(|| lock(&self.shared).engine.staging())
    }

    fn memory(&self) -> usize {
        let shared = lock(&self.shared);
        shared.engine.memory() / shared.engine.workers()
    }
}

/// The shared state of a local store's workers: for tests and tools that look behind it.
#[derive(Debug)]
pub struct LocalGuard<M> {
    shared: Arc<Mutex<Shared<M>>>,
}

impl<M: Medium> LocalGuard<M> {
    /// Opens a store on `medium`, with a handle for each worker.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        mut medium: M,
        binding: u64,
        workers: usize,
        config: &Config,
    ) -> Result<(LocalGuard<M>, Vec<LocalStore<M>>), OpenError> {
        let engine = Engine::open(&mut medium, binding, workers, config)?;
        let terms = Terms::of(&engine);
        let shared = Shared {
            engine,
            medium,
            under_way: 0,
            idle_polls: 0,
            is_still: false,
            done: Vec::new(),
            looks: 0,
            checked: HashMap::default(),
            binding,
        };
        let shared = Arc::new(Mutex::new(shared));
        let stores = (0..workers)
            .map(|worker| {
                let link = LocalLink { worker, shared: Arc::clone(&shared) };
                Handle::new(link, terms.clone())
            })
            .collect();
        Ok((LocalGuard { shared }, stores))
    }

    /// Calls `with` with the medium.
    pub fn medium<T>(&self, with: impl FnOnce(&mut M) -> T) -> T {
        with(&mut lock(&self.shared).medium)
    }

    /// Moves requests and completions between engine and medium as far as they go.
    pub fn drive(&self) {
        lock(&self.shared).drive();
    }

    /// Tells the engine that it is idle: it writes everything back.
    pub fn rest(&self) {
        let mut shared = lock(&self.shared);
        shared.engine.rest();
        shared.drive();
    }

    /// True while something waits to go home.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        lock(&self.shared).engine.is_dirty()
    }

    /// True while a worker has completions to poll.
    #[must_use]
    pub fn has_completions(&self, worker: usize) -> bool {
        lock(&self.shared).engine.has_completions(worker)
    }

    /// True while any shard of a database is forgotten, as workers see it or as a start would find
    /// it now.
    #[must_use]
    pub fn has_forgotten(&self, database: Database) -> bool {
        lock(&self.shared).engine.has_forgotten(database)
    }

    /// True if the last drive left no work before the next request, or a rest.
    #[must_use]
    pub fn is_still(&self) -> bool {
        lock(&self.shared).is_still
    }

    /// True while something that was submitted is not durable.
    #[must_use]
    pub fn is_committing(&self) -> bool {
        lock(&self.shared).engine.is_committing()
    }

    /// Requests that the medium has not answered.
    #[must_use]
    pub fn under_way(&self) -> usize {
        lock(&self.shared).under_way
    }
}
