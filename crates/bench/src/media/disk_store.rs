//! The product's disk store as a thread with workers uses it: a batch of records and one commit.

use std::cell::RefCell;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use storage::disk::{Committer, Config, DiskStore, StoreGuard, create_at, open_at};
use storage::{Completion, Load, Place, Store as _};
use types::{Database, Key, Ticket};

use super::draws::{Draws, KeyDistribution};
use super::pattern::{Name, Pattern};
use crate::{Error, Result};

pub(super) const NAME: Name = Name { pattern: "multi", how: "store" };
const CHECKED: u64 = 8;
const LOADED_BY: usize = 256;
const BINDING: u64 = 1;
/// Poll interval for a store without a descriptor to wait on.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// A store that holds a value for every key.
pub(super) struct DiskValues {
    store: DiskStore,
    committer: Committer,
    /// Signalled when a commit has completed.
    bell: Arc<OwnedFd>,
    // Ends the store's threads. Declared last, so that their users end first.
    _guard: StoreGuard,
    stored: Ticket,
    loaded: Option<Load>,
    places: Vec<Place>,
    // By key: the number of its last write.
    last: Vec<u64>,
    draws: Rc<Draws>,
    done: u64,
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Protocol(format!("the store on disk: {error}"))
}

impl DiskValues {
    /// Creates a store in a directory and writes every key once.
    pub(super) fn create(dir: &Path, draws: &Rc<Draws>) -> Result<DiskValues> {
        std::fs::create_dir_all(dir).map_err(Error::io(dir.display().to_string()))?;
        let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).map_err(failed)?);
        let rung = Arc::clone(&bell);
        let waker = move || {
            // Fails only when it is signalled very often already.
            let _ = rustix::io::write(&*rung, &1_u64.to_ne_bytes());
        };
        let config = Config::default();
        create_at(dir, BINDING, &config).map_err(failed)?;
        let opened = open_at(dir, BINDING, &config, vec![Box::new(waker)]);
        let (guard, mut stores) = opened.map_err(failed)?;
        let place =
            |key: u32| Place::Cell(Database(0), Key::new(format!("key:{key:012}").as_bytes()));
        let places: Vec<Place> = (0..draws.keys).map(place).collect();
        let mut made = DiskValues {
            store: stores.remove(0),
            committer: guard.committer(),
            bell,
            _guard: guard,
            stored: Ticket::DURABLE,
            loaded: None,
            last: vec![0; places.len()],
            places,
            draws: Rc::clone(draws),
            done: 0,
        };
        for first in (0..made.places.len()).step_by(LOADED_BY) {
            for place in made.places.iter().skip(first).take(LOADED_BY) {
                made.store.put(place, made.draws.value(0));
            }
            made.commit()?;
        }
        Ok(made)
    }

    fn key(&self, n: u64) -> usize {
        self.draws.key(KeyDistribution::Uniform, n) as usize
    }

    /// Submits the records and waits until they are durable.
    fn commit(&mut self) -> Result<()> {
        let ticket = self.store.ticket();
        self.store.submit();
        self.committer.advance();
        while self.stored < ticket || self.store.is_full() {
            self.wait()?;
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        let fd = self.committer.fd();
        let mut fds = vec![PollFd::new(&*self.bell, PollFlags::IN)];
        fds.extend(fd.as_ref().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)));
        match poll(&mut fds, Some(&LOOK_EVERY)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
        // Empty when it was not signalled.
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        self.committer.notice();
        self.committer.advance();
        let mut completions = Vec::new();
        self.store.poll(&mut completions);
        for completion in completions {
            match completion {
                Completion::Stored(ticket) => self.stored = ticket,
                Completion::Loaded { load, .. } => self.loaded = Some(load),
                Completion::Failed(why) => return Err(failed(why)),
                _ => {}
            }
        }
        Ok(())
    }

    fn load(&mut self, key: usize) -> Result<Load> {
        match self.store.load(&self.places[key]) {
            Load::Pending => loop {
                self.wait()?;
                if let Some(load) = self.loaded.take() {
                    return Ok(load);
                }
            },
            load => Ok(load),
        }
    }
}

/// Batches of so many writes, each durable before the next.
pub(super) struct DiskBatches {
    pub store: Rc<RefCell<DiskValues>>,
    pub turn: u64,
}

impl Pattern for DiskBatches {
    fn name(&self) -> Name {
        NAME
    }

    fn unit(&self) -> u64 {
        self.turn
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, units: u64) -> Result<()> {
        let store = &mut *self.store.borrow_mut();
        for _ in 0..units {
            for n in store.done..store.done + self.turn {
                let key = store.key(n);
                store.last[key] = n;
                store.store.put(&store.places[key], store.draws.value(n));
            }
            store.commit()?;
            store.done += self.turn;
        }
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        let store = &mut *self.store.borrow_mut();
        for n in store.done.saturating_sub(CHECKED)..store.done {
            let key = store.key(n);
            let found = store.load(key)?;
            match found {
                Load::Found(found) if found == store.draws.value(store.last[key]) => {}
                other => return Err(failed(format!("it answers {other:?}"))),
            }
        }
        Ok(())
    }
}
