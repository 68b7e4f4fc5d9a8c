//! The threads around the engine: a keeper that runs it, and a few that wait for the device.
//!
//! The keeper writes and flushes stripes itself: while it waits for the flush, workers put what the next one will carry
//! into their mailboxes, and nothing has to be handed between threads for a commit. What may take long and blocks
//! nobody (write-back, reads that are not in the page cache) goes to helpers. A thread is woken only if it sleeps.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::engine::{self, Config, Engine, OpenError};
use super::files::FileMedium;
use super::handle::{Handle, Link, Terms};
use super::io::{Done, File, Files, Io};
use super::request::Request;
use crate::Completion;

/// Called when a worker's store has completions for it to poll. Runs on the keeper: it must not block.
pub type Waker = Box<dyn Fn() + Send + Sync>;

/// A worker's store.
pub type DiskStore = Handle<ShellLink>;

/// How long nothing is changed in a store before it writes everything back.
const REST_AFTER: Duration = Duration::from_millis(100);
/// Threads that read.
const READERS: usize = 2;
/// Requests that a helper takes at once.
const TAKE_MAX: usize = 16;
/// Reads that the keeper tries between two looks at what workers want.
const READS_MAX: usize = 32;

/// What a worker and the keeper pass each other. Bounded by what a store calls full: see [`crate::Store::is_full`].
struct Mailbox {
    requests: Mutex<Vec<Request>>,
    has_requests: AtomicBool,
    completions: Mutex<Vec<Completion>>,
    has_completions: AtomicBool,
    waker: Waker,
}

/// Requests for helper threads; bounded by the loads and listings of the workers.
#[derive(Default)]
struct Queue {
    ios: Mutex<VecDeque<Io>>,
    has_ios: Condvar,
}

struct Shared {
    mailboxes: Vec<Mailbox>,
    is_full: AtomicBool,
    medium: FileMedium,
    reads: Queue,
    stores: Queue,
    done: Mutex<Vec<Done>>,
    has_done: AtomicBool,
    keeper: OnceLock<Thread>,
    sleeps: AtomicBool,
    stop: AtomicBool,
    helpers_stop: AtomicBool, // once the keeper has ended
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the locks guard are plain queues: whole after a panic too.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn wake_keeper(&self) {
        if self.sleeps.swap(false, SeqCst)
            && let Some(keeper) = self.keeper.get()
        {
            keeper.unpark();
        }
    }

    fn has_news(&self) -> bool {
        self.has_done.load(SeqCst)
            || self.stop.load(SeqCst)
            || self.mailboxes.iter().any(|mailbox| mailbox.has_requests.load(SeqCst))
    }

    fn deliver(&self, worker: usize, completions: &mut Vec<Completion>) {
        let mailbox = &self.mailboxes[worker];
        let mut waiting = lock(&mailbox.completions);
        let was_empty = waiting.is_empty();
        waiting.append(completions);
        drop(waiting);
        mailbox.has_completions.store(true, SeqCst);
        if was_empty {
            (mailbox.waker)();
        }
    }
}

/// The way from a [`DiskStore`] to the keeper.
pub struct ShellLink {
    worker: usize,
    shared: Arc<Shared>,
}

impl Link for ShellLink {
    fn send(&mut self, requests: &mut Vec<Request>) {
        let mailbox = &self.shared.mailboxes[self.worker];
        lock(&mailbox.requests).append(requests);
        mailbox.has_requests.store(true, SeqCst);
        self.shared.wake_keeper();
    }

    fn receive(&mut self, completions: &mut Vec<Completion>) {
        let mailbox = &self.shared.mailboxes[self.worker];
        if mailbox.has_completions.swap(false, SeqCst) {
            completions.append(&mut lock(&mailbox.completions));
        }
    }

    fn is_full(&self) -> bool {
        self.shared.is_full.load(SeqCst)
    }
}

/// The threads of an open store. Dropping it stops them, after what was submitted is durable.
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
    if !File::ALL.iter().any(|file| dir.join(file.name()).exists()) {
        return Err(OpenError::Missing);
    }
    let mut medium = FileMedium::open(dir)?;
    let engine = Engine::open(&mut medium, binding, wakers.len(), config)?;
    let terms = Terms::of(&engine);
    let mailboxes = wakers.into_iter().map(|waker| Mailbox {
        requests: Mutex::default(),
        has_requests: AtomicBool::new(false),
        completions: Mutex::default(),
        has_completions: AtomicBool::new(false),
        waker,
    });
    let shared = Arc::new(Shared {
        mailboxes: mailboxes.collect(),
        is_full: AtomicBool::new(false),
        medium,
        reads: Queue::default(),
        stores: Queue::default(),
        done: Mutex::default(),
        has_done: AtomicBool::new(false),
        keeper: OnceLock::new(),
        sleeps: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        helpers_stop: AtomicBool::new(false),
    });
    let link = |worker| ShellLink { worker, shared: Arc::clone(&shared) };
    let stores = (0..shared.mailboxes.len()).map(|w| Handle::new(link(w), terms.clone())).collect();
    Ok((Keeper::start(shared, engine)?, stores))
}

impl Keeper {
    fn start(shared: Arc<Shared>, engine: Engine) -> Result<Keeper, String> {
        let mut keeper = Keeper { shared: Arc::clone(&shared), threads: Vec::new() };
        let run = Run {
            shared: Arc::clone(&shared),
            engine,
            reads: VecDeque::new(),
            under_way: 0,
            busy_at: Instant::now(),
            scratch: Vec::new(),
        };
        keeper.spawn("disk-keeper", move || run.run())?;
        for _ in 0..READERS {
            let shared = Arc::clone(&shared);
            keeper.spawn("disk-reader", move || help(&shared, &shared.reads))?;
        }
        keeper.spawn("disk-writer", move || help(&shared, &shared.stores))?;
        Ok(keeper)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), String> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        if self.threads.is_empty() {
            self.shared.keeper.get_or_init(|| thread.thread().clone());
        }
        self.threads.push(thread);
        Ok(())
    }

    /// Waits until everything that was submitted is durable, then ends the threads.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        self.shared.wake_keeper();
        let mut threads = std::mem::take(&mut self.threads).into_iter();
        // A thread that panicked has already told the workers.
        let _ = threads.next().map(JoinHandle::join);
        self.shared.helpers_stop.store(true, SeqCst);
        for queue in [&self.shared.reads, &self.shared.stores] {
            drop(lock(&queue.ios));
            queue.has_ios.notify_all();
        }
        for thread in threads {
            let _ = thread.join();
        }
    }
}

/// Tells the workers when the keeper ends without having been asked to.
struct LastWords<'a>(&'a Shared);

impl Drop for LastWords<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for worker in 0..self.0.mailboxes.len() {
                let reason = "the store's keeper has panicked".to_owned();
                self.0.deliver(worker, &mut vec![Completion::Failed(reason)]);
            }
        }
    }
}

/// The keeper's thread.
struct Run {
    shared: Arc<Shared>,
    engine: Engine,
    /// Not yet tried; bounded by the loads of the workers and the buckets of a write-back.
    reads: VecDeque<Io>,
    under_way: usize,
    /// When something was changed last, or rest was tried.
    busy_at: Instant,
    scratch: Vec<Completion>,
}

impl Run {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let _last_words = LastWords(&shared);
        self.deliver();
        loop {
            let mut has_moved = self.take_requests() | self.take_done();
            self.engine.step();
            has_moved |= self.dispatch() | self.engine.is_building();
            self.deliver();
            if has_moved {
                continue;
            }
            if shared.stop.load(SeqCst) && !self.engine.is_committing() && self.under_way == 0 {
                return;
            }
            self.sleep();
        }
    }

    fn take_requests(&mut self) -> bool {
        let mut has_moved = false;
        for (worker, mailbox) in self.shared.mailboxes.iter().enumerate() {
            if mailbox.has_requests.swap(false, SeqCst) {
                has_moved = true;
                for request in std::mem::take(&mut *lock(&mailbox.requests)) {
                    if matches!(request, Request::Change(_)) {
                        self.busy_at = Instant::now();
                    }
                    self.engine.request(worker, request);
                }
            }
        }
        has_moved
    }

    fn take_done(&mut self) -> bool {
        if !self.shared.has_done.swap(false, SeqCst) {
            return false;
        }
        for done in std::mem::take(&mut *lock(&self.shared.done)) {
            self.under_way -= 1;
            self.engine.done(done);
        }
        true
    }

    /// Passes requests to the helpers and carries out what must not wait for a hand-over; true if it did any.
    fn dispatch(&mut self) -> bool {
        let (mut stores, mut own) = (Vec::new(), Vec::new());
        for io in self.engine.take_ios() {
            match &io {
                Io::Read { .. } => self.reads.push_back(io),
                Io::Store { flush, .. } if is_commit(*flush) => own.push(io),
                Io::Store { .. } => stores.push(io),
            }
        }
        self.under_way += stores.len();
        hand_over(&self.shared.stores, stores);
        let has_moved = self.read() || !own.is_empty();
        if !own.is_empty() {
            self.deliver();
        }
        for io in own {
            let done = self.shared.medium.execute(&io);
            self.engine.done(done);
        }
        has_moved
    }

    /// Answers reads from the page cache, a few at a time; what is not there is left to the helpers.
    fn read(&mut self) -> bool {
        let count = self.reads.len().min(READS_MAX);
        let mut slow = Vec::new();
        for io in self.reads.drain(..count) {
            match self.shared.medium.execute_cached(&io) {
                Some(done) => self.engine.done(done),
                None => slow.push(io),
            }
        }
        self.under_way += slow.len();
        hand_over(&self.shared.reads, slow);
        count > 0
    }

    fn deliver(&mut self) {
        let is_full = self.engine.is_full();
        if self.shared.is_full.swap(is_full, SeqCst) && !is_full {
            // Workers that had nothing else to do have left their clients waiting for this.
            self.shared.mailboxes.iter().for_each(|mailbox| (mailbox.waker)());
        }
        for worker in 0..self.engine.workers() {
            if self.engine.has_completions(worker) {
                self.engine.take_completions(worker, &mut self.scratch);
                self.shared.deliver(worker, &mut self.scratch);
            }
        }
    }

    /// Sleeps until there is news; with something to write back, not for long. Reads do not keep a store from its rest.
    fn sleep(&mut self) {
        self.shared.sleeps.store(true, SeqCst);
        if self.shared.has_news() {
            self.shared.sleeps.store(false, SeqCst);
            return;
        }
        if self.engine.is_dirty() && self.under_way == 0 {
            let rest_at = self.busy_at + REST_AFTER;
            std::thread::park_timeout(rest_at.saturating_duration_since(Instant::now()));
            let now = Instant::now();
            if now >= rest_at {
                self.busy_at = now;
                self.engine.rest();
            }
        } else {
            std::thread::park();
        }
        self.shared.sleeps.store(false, SeqCst);
    }
}

/// True for the requests that a commit waits for.
fn is_commit(flush: Files) -> bool {
    flush == Files::of(File::Ring) || flush == Files::of(File::Extents)
}

fn hand_over(queue: &Queue, ios: Vec<Io>) {
    if !ios.is_empty() {
        lock(&queue.ios).extend(ios);
        queue.has_ios.notify_one();
    }
}

/// A helper's thread: carries out requests until the store is stopped.
fn help(shared: &Shared, queue: &Queue) {
    let mut taken: Vec<Io> = Vec::new();
    loop {
        let mut ios = lock(&queue.ios);
        while ios.is_empty() {
            if shared.helpers_stop.load(SeqCst) {
                return;
            }
            ios = queue.has_ios.wait(ios).unwrap_or_else(PoisonError::into_inner);
        }
        let count = ios.len().min(TAKE_MAX);
        taken.extend(ios.drain(..count));
        if !ios.is_empty() {
            queue.has_ios.notify_one();
        }
        drop(ios);
        let done: Vec<Done> = taken.drain(..).map(|io| shared.medium.execute(&io)).collect();
        lock(&shared.done).extend(done);
        shared.has_done.store(true, SeqCst);
        shared.wake_keeper();
    }
}
