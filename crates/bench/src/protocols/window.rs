//! The state that sessions share with the thread that measures.
//!
//! A [`Window`] is a stretch of one kind of load. Sessions look at the number of the current window
//! before each request; they take a lock only where a window begins or ends.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Reads;
use super::draws::Draws;
use super::samples::Sample;

/// Keys of a window whose operations are checked as a history.
pub(super) const CHECKED_KEYS: usize = 8;
/// Operations on each of them, at most.
const CHECKED_MAX: u32 = 400;
/// One request in so many goes to one of them, until they have enough.
pub(super) const CHECKED_EVERY: u64 = 128;

/// Wrong replies that are described; all are counted.
const DESCRIBED_MAX: usize = 5;

/// The requests of a window.
pub(super) enum Work {
    /// Write each key once.
    Fill {
        keys: u64,
    },
    /// Read one key in each session, in one order with all writes. Then each node has them all.
    Settle {
        keys: u64,
    },
    Requests {
        draws: Draws,
        mix: Mix,
    },
}

#[derive(Clone, Copy)]
pub(super) struct Mix {
    /// Of a hundred requests.
    pub(super) writes: u32,
    pub(super) reads: Reads,
    /// Only sessions of this node make requests.
    pub(super) only_node: Option<usize>,
    /// Time between two requests of one session on average; none: as fast as replies come.
    pub(super) pause: Option<Duration>,
}

/// A stretch of load.
pub(super) struct Window {
    pub(super) work: Work,
    /// Numbers of the checked keys begin here. No earlier window used them.
    pub(super) checked_from: u64,
    checked: [AtomicU32; CHECKED_KEYS],
    /// Of all sessions.
    pub(super) counters: Vec<Arc<Counters>>,
    /// In nanoseconds, one per worker of all nodes.
    latencies: Vec<Mutex<Histogram<u64>>>,
    /// Latencies count.
    pub(super) is_measured: AtomicBool,
    /// No request begins any more.
    pub(super) is_over: AtomicBool,
    results: Mutex<Results>,
    has_result: Condvar,
}

/// Results of all sessions at the end of a window.
#[derive(Default)]
struct Results {
    /// Sessions that have brought theirs.
    sessions: usize,
    samples: Vec<Sample>,
}

impl Window {
    /// `lanes`: workers of all nodes. All `counters` are there.
    fn new(work: Work, checked_from: u64, counters: Vec<Arc<Counters>>, lanes: usize) -> Window {
        Window {
            work,
            checked_from,
            checked: std::array::from_fn(|_| AtomicU32::new(0)),
            counters,
            latencies: (0..lanes).map(|_| Mutex::new(crate::report::new_histogram())).collect(),
            is_measured: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            results: Mutex::new(Results::default()),
            has_result: Condvar::new(),
        }
    }

    /// Whether one more operation on this checked key may begin.
    pub(super) fn takes_checked(&self, at: usize) -> bool {
        let is_below = self.checked[at].load(Ordering::Relaxed) < CHECKED_MAX;
        is_below && self.checked[at].fetch_add(1, Ordering::Relaxed) < CHECKED_MAX
    }

    /// Only one thread records in a lane.
    pub(super) fn record(&self, lane: usize, nanos: u64) {
        // Longer than the histogram's range is longer than any time-out.
        let _ = lock(&self.latencies[lane]).record(nanos.max(1));
    }

    /// In nanoseconds, of all sessions.
    pub(super) fn latencies(&self) -> Histogram<u64> {
        let mut sum = crate::report::new_histogram();
        for lane in &self.latencies {
            sum.add(&*lock(lane)).expect("all histograms have the same bounds");
        }
        sum
    }

    /// A session has ended all its requests of this window.
    pub(super) fn bring(&self, samples: Vec<Sample>) {
        let mut results = lock(&self.results);
        results.sessions += 1;
        results.samples.extend(samples);
        self.has_result.notify_all();
    }

    /// Waits until all sessions have brought their samples; none if they take too long.
    pub(super) fn wait(&self, most: Duration) -> Option<Vec<Sample>> {
        let end = Instant::now() + most;
        let mut results = lock(&self.results);
        while results.sessions < self.counters.len() {
            let left = end.checked_duration_since(Instant::now())?;
            let waited = self.has_result.wait_timeout(results, left);
            results = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(std::mem::take(&mut results.samples))
    }
}

/// Counters of one session. Only the session writes them.
#[derive(Default)]
pub(super) struct Counters {
    /// Writes that have begun.
    pub(super) writes_begun: AtomicU64,
    pub(super) succeeded: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) failed: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64) -> u64 {
        let next = counter.load(Ordering::Relaxed) + 1;
        counter.store(next, Ordering::Release);
        next
    }
}

/// Sums over sessions.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Totals {
    pub(super) succeeded: u64,
    pub(super) reads: u64,
    pub(super) failed: u64,
}

impl Totals {
    pub(super) fn since(self, earlier: Totals) -> Totals {
        Totals {
            succeeded: self.succeeded - earlier.succeeded,
            reads: self.reads - earlier.reads,
            failed: self.failed - earlier.failed,
        }
    }
}

/// One per cluster.
pub(super) struct Load {
    pub(super) value_len: usize,
    pub(super) nodes: usize,
    /// Of a node.
    pub(super) workers: usize,
    pub(super) seed: u64,
    /// The number of the current window; none at zero.
    number: AtomicU64,
    window: Mutex<Option<Arc<Window>>>,
    sessions: Mutex<Vec<Arc<Counters>>>,
    wrong: AtomicUsize,
    problems: Mutex<Vec<String>>,
    failures: Mutex<std::collections::BTreeMap<String, u64>>,
}

impl Load {
    pub(super) fn new(value_len: usize, nodes: usize, workers: usize, seed: u64) -> Load {
        Load {
            value_len,
            nodes,
            workers,
            seed,
            number: AtomicU64::new(0),
            window: Mutex::new(None),
            sessions: Mutex::new(Vec::new()),
            wrong: AtomicUsize::new(0),
            problems: Mutex::new(Vec::new()),
            failures: Mutex::new(std::collections::BTreeMap::new()),
        }
    }

    /// A new session's number and counters.
    pub(super) fn join(&self) -> (u32, Arc<Counters>) {
        let mut sessions = lock(&self.sessions);
        let counters = Arc::new(Counters::default());
        sessions.push(Arc::clone(&counters));
        (sessions.len() as u32 - 1, counters)
    }

    pub(super) fn sessions(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// The number of a worker among those of all nodes.
    pub(super) fn lane(&self, node: usize, worker: usize) -> usize {
        node * self.workers + worker
    }

    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for counters in lock(&self.sessions).iter() {
            totals.succeeded += counters.succeeded.load(Ordering::Acquire);
            totals.reads += counters.reads.load(Ordering::Acquire);
            totals.failed += counters.failed.load(Ordering::Acquire);
        }
        totals
    }

    /// Begins a window for the sessions that there are.
    pub(super) fn begin(&self, work: Work, checked_from: u64) -> Arc<Window> {
        let counters = lock(&self.sessions).clone();
        let lanes = self.nodes * self.workers;
        let window = Arc::new(Window::new(work, checked_from, counters, lanes));
        *lock(&self.window) = Some(Arc::clone(&window));
        self.number.fetch_add(1, Ordering::Release);
        window
    }

    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    pub(super) fn window(&self) -> Option<Arc<Window>> {
        lock(&self.window).clone()
    }

    /// A reply that no correct store gives.
    pub(super) fn note_wrong(&self, text: String) {
        self.wrong.fetch_add(1, Ordering::Relaxed);
        let mut problems = lock(&self.problems);
        if problems.len() < DESCRIBED_MAX {
            problems.push(text);
        }
    }

    /// A request that failed.
    pub(super) fn note_failed(&self, kind: String) {
        *lock(&self.failures).entry(kind).or_default() += 1;
    }

    pub(super) fn take_failures(&self) -> std::collections::BTreeMap<String, u64> {
        std::mem::take(&mut *lock(&self.failures))
    }

    /// The number of wrong replies, and some of them.
    pub(super) fn wrong(&self) -> (usize, Vec<String>) {
        (self.wrong.load(Ordering::Relaxed), lock(&self.problems).clone())
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
