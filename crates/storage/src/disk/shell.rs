//! The engine among threads.
//!
//! No thread owns it. Requests wait in mailboxes until some thread takes the engine and moves everything on that waits,
//! whoever left it there; a thread that finds the engine taken goes its way, for its holder looks again before it is
//! done ([`combine`]). So the threads that drive a node's workers write
//! the commits themselves, through [`uring`], which waits for nothing, and what may block is left to [`helpers`].

mod combine;
mod helpers;
mod room;
mod run;
mod uring;

use std::os::fd::{BorrowedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::engine::{self, Config, Engine, OpenError};
use super::files::FileMedium;
use super::handle::{Handle, Link, Terms};
use super::io::Done;
use super::merge::Merged;
use super::page::CheckedPage;
use super::request::Request;
use crate::{Completion, Lack, Load, Place, Room, Staging};
use combine::{EngineLock, Inbox, Left};
use helpers::Queues;
use room::RoomWatch;
use run::{By, Run};
use uring::Uring;

/// Called when a worker's store has completions for it to poll. Runs on any thread: it must not block.
pub type Waker = Box<dyn Fn() + Send + Sync>;

/// A worker's store.
pub type DiskStore = Handle<ShellLink>;

/// How often a thread looks again before it leaves what the others bring to a helper.
const TURNS_MAX: usize = 16;
/// How long a stop waits for helpers before it looks again.
const STOP_LOOK: Duration = Duration::from_millis(1);

/// What a worker and the engine pass each other. Bounded by what a store calls full: see [`crate::Store::is_full`].
struct Mailbox {
    requests: Inbox<Request>,
    completions: Inbox<Completion>,
    waker: Waker,
}

struct Shared {
    run: EngineLock<Run>,
    mailboxes: Vec<Mailbox>,
    is_full: AtomicBool,
    is_overrun: AtomicBool,
    /// As it was when the store was opened.
    staging: Staging,
    /// Bytes of the ring in use.
    staged: AtomicU64,
    /// Bytes of memory that the engine takes for what is not at its place.
    memory: AtomicUsize,
    medium: FileMedium,
    binding: u64,
    queues: Queues,
    /// Completions of helpers, with what they have checked.
    done: Inbox<(Done, Option<Vec<CheckedPage>>)>,
    merged: Inbox<Result<Merged, String>>,
    /// The ring of the system may have completed a commit.
    has_committed: AtomicBool,
    /// A stripe waits for a driver.
    has_stripe: AtomicBool,
    /// A stripe is under way, or about to be.
    is_committing: AtomicBool,
    /// Workers have left changes, which nobody may have taken yet.
    has_changes: AtomicBool,
    /// Somebody calls [`Pump::advance`] after the turns of workers.
    is_attended: AtomicBool,
    room: RoomWatch,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these locks guard are plain queues: whole after a panic too.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Moves everything on that waits, unless another thread is doing that.
    fn advance(&self, by: By) {
        let turn = |run: &mut Run| self.turn(run, by);
        match combine::advance(
            &self.run,
            TURNS_MAX,
            turn,
            || self.call_driver(),
            || self.has_news() && !self.is_wanted(by),
        ) {
            Left::Done if self.is_wanted(by) => self.hand_over(),
            Left::Done => {}
            Left::More => self.queues.remind(),
            Left::Broken => self.say_last_words(),
        }
    }

    /// True if a thread that has the engine is to leave it for what only it does.
    fn is_wanted(&self, by: By) -> bool {
        by == By::Writer && self.queues.homes.has_some()
    }

    /// Leaves what waits to the helper that builds, and what came in meanwhile to a driver as well: that helper may be in the
    /// device.
    fn hand_over(&self) {
        self.queues.remind();
        if self.has_news() {
            (self.mailboxes[0].waker)();
        }
    }

    /// Wakes a driver if a stripe was left to one. To be called without the engine: a driver that finds it taken goes
    /// its way.
    fn call_driver(&self) {
        if self.has_stripe.load(SeqCst) {
            (self.mailboxes[0].waker)();
        }
    }

    fn turn(&self, run: &mut Run, by: By) {
        let _last_words = LastWords(self);
        run.turn(self, by);
    }

    fn has_news(&self) -> bool {
        self.done.has_items()
            || self.merged.has_items()
            || self.has_committed.load(SeqCst)
            || self.mailboxes.iter().any(|mailbox| mailbox.requests.has_items())
    }

    fn deliver(&self, worker: usize, completions: &mut Vec<Completion>) {
        let mailbox = &self.mailboxes[worker];
        if mailbox.completions.put(completions) {
            (mailbox.waker)();
        }
    }

    fn say_last_words(&self) {
        for worker in 0..self.mailboxes.len() {
            let reason = "the store's engine has panicked".to_owned();
            self.deliver(worker, &mut vec![Completion::Failed(reason)]);
        }
    }
}

/// Tells the workers when a thread panics with the engine in its hands.
struct LastWords<'a>(&'a Shared);

impl Drop for LastWords<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.say_last_words();
        }
    }
}

/// The way from a [`DiskStore`] to the engine.
pub struct ShellLink {
    worker: usize,
    shared: Arc<Shared>,
}

impl Link for ShellLink {
    fn send(&mut self, requests: &mut Vec<Request>) {
        if requests.iter().any(|request| matches!(request, Request::Change(_))) {
            self.shared.has_changes.store(true, Relaxed);
        }
        self.shared.mailboxes[self.worker].requests.put(requests);
        if !self.shared.is_attended.load(SeqCst) {
            self.shared.advance(By::Driver);
        }
    }

    fn look(&mut self, place: &Place) -> Option<Load> {
        let shared = &*self.shared;
        let Mailbox { requests, completions, .. } = &shared.mailboxes[self.worker];
        // Nobody else puts anything there: without the lock it may only have been taken since.
        if requests.has_items() {
            return None;
        }
        let (load, is_missed) = combine::glance(&shared.run, |run| {
            let _last_words = LastWords(shared);
            if completions.has_items() { None } else { run.engine.look(self.worker, place) }
        });
        if is_missed {
            shared.advance(By::Driver);
        }
        load.flatten()
    }

    fn receive(&mut self, completions: &mut Vec<Completion>) {
        self.shared.mailboxes[self.worker].completions.take_into(completions);
    }

    fn is_full(&self) -> bool {
        self.shared.is_full.load(SeqCst)
    }

    fn is_overrun(&self) -> bool {
        self.shared.is_overrun.load(Relaxed)
    }

    fn room(&self) -> Room {
        self.shared.room.look_at(&self.shared.medium)
    }

    fn staging(&self) -> Option<Staging> {
        // A reader that is late by some commits is told what was true then.
        let staged = || Staging { used: self.shared.staged.load(Relaxed), ..self.shared.staging };
        (self.worker == 0).then(staged)
    }

    fn memory(&self) -> usize {
        self.shared.memory.load(Relaxed) / self.shared.mailboxes.len()
    }
}

/// Moves an open store on, for threads that turn its workers.
#[derive(Clone)]
pub struct Pump {
    shared: Arc<Shared>,
    fd: Option<RawFd>,
}

impl Pump {
    /// Hands the engine what workers have submitted, the device what the engine wants, and the workers what has
    /// completed. Waits for nothing. To be called after the turns of workers, and when [`Pump::fd`] becomes readable.
    pub fn advance(&self) {
        if self.shared.has_news() || self.shared.has_stripe.load(SeqCst) {
            self.shared.advance(By::Driver);
        }
    }

    /// True if [`Pump::advance`] would begin a commit. That commit includes all changes submitted
    /// before the call.
    #[must_use]
    pub fn would_commit(&self) -> bool {
        !self.shared.is_committing.load(Relaxed) && self.shared.has_changes.load(Relaxed)
    }

    /// Why the store refuses to grow, if it does.
    #[must_use]
    pub fn lack(&self) -> Option<Lack> {
        self.shared.room.lack(&self.shared.medium)
    }

    /// To be called before [`Pump::advance`] when [`Pump::fd`] became readable, or a wait for it was interrupted.
    pub fn notice(&self) {
        self.shared.has_committed.store(true, SeqCst);
    }

    /// Becomes readable when the system has completed a commit; `None` where helper threads write commits.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.map(|fd| uring::borrow(fd, self))
    }
}

/// The threads of an open store. Dropping it stops them, after what was submitted is durable, unless that has no room.
pub struct Keeper {
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

/// Opens the store of a directory, with a store handle for each waker: shard `s` belongs to handle
/// `s % wakers.len()`.
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
) -> Result<(Keeper, Vec<DiskStore>), OpenError> {
    if !FileMedium::is_there(dir)? {
        return Err(OpenError::Missing);
    }
    let medium = FileMedium::open(dir)?;
    let engine = Engine::open(&mut medium.reading(), binding, wakers.len(), config)?;
    let terms = Terms::of(&engine);
    let (staging, memory) = (engine.staging(), engine.memory());
    let mailboxes = wakers.into_iter().map(|waker| Mailbox {
        requests: Inbox::default(),
        completions: Inbox::default(),
        waker,
    });
    let shared = Arc::new(Shared {
        run: EngineLock::new(Run::new(engine)),
        mailboxes: mailboxes.collect(),
        is_full: AtomicBool::new(false),
        is_overrun: AtomicBool::new(false),
        staging,
        staged: AtomicU64::new(staging.used),
        memory: AtomicUsize::new(memory),
        room: RoomWatch::new(&medium),
        medium,
        binding,
        queues: Queues::default(),
        done: Inbox::default(),
        merged: Inbox::default(),
        has_committed: AtomicBool::new(false),
        has_stripe: AtomicBool::new(false),
        is_committing: AtomicBool::new(false),
        has_changes: AtomicBool::new(false),
        is_attended: AtomicBool::new(false),
    });
    let link = |worker| ShellLink { worker, shared: Arc::clone(&shared) };
    let stores = (0..shared.mailboxes.len()).map(|w| Handle::new(link(w), terms.clone())).collect();
    let threads = helpers::start(&shared)?;
    shared.advance(By::Driver);
    Ok((Keeper { shared, threads }, stores))
}

impl Keeper {
    /// Leaves it to the caller to move the store on. Until then every submission does so itself, and helper threads
    /// write the commits.
    #[must_use]
    pub fn attend(&self) -> Pump {
        let mut run = self.shared.run.lock().unwrap_or_else(PoisonError::into_inner);
        if run.uring.is_none() && self.shared.medium.stripes().is_some() {
            run.uring = Uring::new(run.engine.stripe_len_max());
        }
        let fd = run.uring.as_ref().map(Uring::fd);
        self.shared.is_attended.store(true, SeqCst);
        drop(run);
        // What came in while the engine was taken was left to this thread.
        self.shared.advance(By::Driver);
        Pump { shared: Arc::clone(&self.shared), fd }
    }

    /// Waits until everything that was submitted is durable, or finds no room, then ends the threads.
    pub fn stop(self) {
        drop(self);
    }

    #[cfg(test)]
    fn is_at_home(&self) -> bool {
        let run = self.shared.run.lock().expect("nobody has panicked");
        !run.engine.is_dirty() && run.is_settled()
    }

    /// True once all of it is durable, and nothing is left that may write; never, where a thread panicked.
    fn settle(&self) -> bool {
        // A thread that panicked with the engine has already told the workers.
        while let Ok(mut run) = self.shared.run.lock() {
            self.shared.turn(&mut run, By::Driver);
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

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.queues.room.call();
        let is_settled = self.settle();
        self.shared.queues.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has already told the workers.
            let _ = thread.join();
        }
        if let Some(stripes) = self.shared.medium.stripes().filter(|_| is_settled) {
            // Stores of workers may hold the files for longer; they write nothing any more.
            stripes.disown();
        }
    }
}
