//! The engine among threads.
//!
//! No thread owns it: [`meeting`] says how they meet. The threads that drive a node's workers write the commits themselves,
//! through [`uring`], which does not block. [`helpers`] carry out all requests that may block.

mod desk;
mod helpers;
mod meeting;
mod queues;
mod room;
mod run;
mod shared;
#[cfg(test)]
mod tests;
mod uring;

use std::os::fd::{BorrowedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use self::desk::{Desk, LastWords, Mailbox};
use self::meeting::{Meeting, Role};
use self::run::Run;
use self::shared::Shared;
use self::uring::Uring;
use super::engine::{self, Config, Engine, OpenError};
use super::files::FileMedium;
use super::handle::{Handle, Link, Terms};
use super::request::Request;
use crate::{Completion, Lack, Load, Place, Room, Staging};

pub use self::desk::Waker;

/// A worker's store.
pub type DiskStore = Handle<ShellLink>;

/// How long a stop waits for helpers before it looks again.
const STOP_LOOK: Duration = Duration::from_millis(1);

/// The way from a [`DiskStore`] to the engine.
pub struct ShellLink {
    worker: usize,
    shared: Arc<Shared>,
}

impl ShellLink {
    fn desk(&self) -> &Desk {
        &self.shared.desk
    }
}

impl Link for ShellLink {
    fn send(&mut self, requests: &mut Vec<Request>) {
        if requests.iter().any(|request| matches!(request, Request::Change(_))) {
            self.desk().has_changes.store(true, Relaxed);
        }
        self.desk().mailboxes[self.worker].requests.put(requests);
    }

    fn try_load(&mut self, place: &Place) -> Option<Load> {
        let Shared { run, desk } = &*self.shared;
        let Mailbox { requests, completions, .. } = &desk.mailboxes[self.worker];
        // Only this thread puts requests there: without the lock they may only have been taken since.
        if requests.has_items() {
            return None;
        }
        let (load, is_missed) = run.try_peek(|run| {
            let _last_words = LastWords(desk);
            if completions.has_items() { None } else { run.engine.try_load(self.worker, place) }
        });
        if is_missed {
            self.shared.advance(Role::Driver);
        }
        load.flatten()
    }

    fn receive(&mut self, completions: &mut Vec<Completion>) {
        self.desk().mailboxes[self.worker].completions.take_into(completions);
    }

    fn is_full(&self) -> bool {
        self.desk().is_full.load(SeqCst)
    }

    fn is_overrun(&self) -> bool {
        self.desk().is_overrun.load(Relaxed)
    }

    fn room(&self) -> Room {
        self.desk().room.look_at(&self.desk().medium)
    }

    fn staging(&self) -> Option<Staging> {
        let Desk { staging, staged, .. } = self.desk();
        // A reader that is late by some commits is told the fill of that time.
        (self.worker == 0).then(|| Staging { used: staged.load(Relaxed), ..*staging })
    }

    fn memory(&self) -> usize {
        self.desk().memory.load(Relaxed) / self.desk().mailboxes.len()
    }
}

/// Moves an open store on, for threads that turn its workers.
#[derive(Clone)]
pub struct Committer {
    shared: Arc<Shared>,
    fd: Option<RawFd>,
}

impl Committer {
    /// Hands requests to the engine and the device, and completions to the workers. Does not block. To be called after
    /// the turns of workers, and when [`Committer::fd`] becomes readable.
    pub fn advance(&self) {
        let desk = &self.shared.desk;
        if desk.has_news() || desk.has_stripe.load(SeqCst) {
            self.shared.advance(Role::Driver);
        }
    }

    /// True if [`Committer::advance`] would begin a commit. That commit includes all changes submitted
    /// before the call.
    #[must_use]
    pub fn would_commit(&self) -> bool {
        let desk = &self.shared.desk;
        !desk.is_committing.load(Relaxed) && desk.has_changes.load(Relaxed)
    }

    /// Why the store refuses to grow, if it does.
    #[must_use]
    pub fn lack(&self) -> Option<Lack> {
        self.shared.desk.room.lack(&self.shared.desk.medium)
    }

    /// To be called before [`Committer::advance`] when [`Committer::fd`] became readable, or a wait for it was
    /// interrupted.
    pub fn notice(&self) {
        self.shared.desk.has_committed.store(true, SeqCst);
    }

    /// Becomes readable when the system has completed a commit; `None` if helper threads write commits.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.map(|fd| uring::borrow(fd, self))
    }
}

/// The threads of an open store. Dropping it stops them, after all submitted changes are durable or lack room.
pub struct StoreGuard {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Makes an empty store in a directory that exists.
///
/// # Errors
/// See [`OpenError`].
pub fn create_at(dir: &Path, binding: u64, config: &Config) -> Result<(), OpenError> {
    engine::create(&mut FileMedium::create(dir)?, binding, config)
}

/// Opens the store of a directory, with a store handle for each waker: shard `s` belongs to handle `s % wakers.len()`.
/// The store goes on when its [`Committer`] is called.
///
/// # Errors
/// See [`OpenError`].
///
/// # Panics
/// If there are no wakers.
pub fn open_at(
    dir: &Path,
    binding: u64,
    config: &Config,
    wakers: Vec<Waker>,
) -> Result<(StoreGuard, Vec<DiskStore>), OpenError> {
    if !FileMedium::is_there(dir)? {
        return Err(OpenError::Missing);
    }
    let mut medium = FileMedium::open(dir)?;
    let engine = Engine::open(&mut medium, binding, wakers.len(), config)?;
    medium.drop_ring();
    let terms = Terms::of(&engine);
    let desk = Desk::new(medium, binding, wakers, (engine.staging(), engine.memory()));
    let uring = desk.medium.stripes().and_then(|_| Uring::new());
    let shared = Arc::new(Shared { run: Meeting::new(Run::new(engine, uring)), desk });
    let link = |worker| ShellLink { worker, shared: Arc::clone(&shared) };
    let workers = shared.desk.mailboxes.len();
    let stores = (0..workers).map(|worker| Handle::new(link(worker), terms.clone())).collect();
    let threads = helpers::start(&shared)?;
    shared.advance(Role::Driver);
    Ok((StoreGuard { shared, threads }, stores))
}

impl StoreGuard {
    /// A committer for each thread that turns workers.
    #[must_use]
    pub fn committer(&self) -> Committer {
        let run = self.shared.run.hold();
        let fd = run.and_then(|run| run.uring.as_ref().map(Uring::fd));
        // Items that came in while the engine was taken were left to this thread.
        self.shared.advance(Role::Driver);
        Committer { shared: Arc::clone(&self.shared), fd }
    }

    /// Waits until all submitted changes are durable or lack room, then ends the threads.
    pub fn stop(self) {
        drop(self);
    }

    /// True once all of it is durable, and no thread is left that may write; never, if a thread panicked.
    fn settle(&self) -> bool {
        // A thread that panicked with the engine has already told the workers.
        while let Some(mut run) = self.shared.run.hold() {
            self.shared.turn(&mut run, Role::Driver);
            if run.is_settled() {
                return !run.is_writing_for_ever();
            }
            if !run.wait_for_commit() {
                drop(run);
                std::thread::sleep(STOP_LOOK);
            }
        }
        false
    }
}

impl Drop for StoreGuard {
    fn drop(&mut self) {
        let Desk { queues, medium, .. } = &self.shared.desk;
        queues.room.call();
        let is_settled = self.settle();
        queues.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has already told the workers.
            let _ = thread.join();
        }
        if let Some(stripes) = medium.stripes().filter(|_| is_settled) {
            // Stores of workers may hold the files for longer, and write no more.
            stripes.disown();
        }
    }
}
