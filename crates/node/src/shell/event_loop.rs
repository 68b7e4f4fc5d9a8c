//! Threads that run workers: one per worker, of which [`Balance`] uses as few as the load needs.
//!
//! A thread waits in the kernel while its workers are idle; sockets, timers, mail and completed
//! commits wake it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use base::Nanos;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use protocols::Pace;
use storage::disk::Committer;
use types::NodeId;

use super::balance::{Balance, HandOver};
use super::clock::{Moment, thread_cpu};
use super::mailbox::ControlMail;
use super::node_status::{STOP_MAX, SharedNodeStatus};
use super::peers::Slowness;
use super::sync::Ordering;
use super::worker_thread::{ITERATION_LONG, WorkerThread};

const TOKEN_WAKE: Token = Token(usize::MAX);
const TOKEN_PUMP: Token = Token(usize::MAX - 1);

/// Rounds over workers between two looks at sockets: they handle each other's mail at once.
const ROUNDS_MAX: usize = 3;

/// Iterations before their changes are submitted, while more input is ready. A larger commit costs
/// no more than a small one.
const ITERATIONS_MAX: usize = 6;
/// How long after the first of them another one may begin.
const HELD_MAX: Nanos = Nanos::from_micros(500);

type WorkerAssignment = super::worker_assignment::WorkerAssignment<WorkerThread>;

pub(crate) struct EventLoop {
    index: usize,
    node_status: Arc<SharedNodeStatus>,
    assignments: Arc<Vec<WorkerAssignment>>,
    poll: Poll,
    /// This thread hears when the disk has completed something.
    hears_committer: bool,
    workers: Vec<WorkerThread>,
    balance: Balance,
    /// Some peers may be slow, or may have been for long. No peer becomes so while this node sends
    /// no frames.
    has_slow_peers: bool,
    /// Peers that the control thread knows to be slow.
    told_slow: BTreeSet<NodeId>,
}

impl EventLoop {
    /// As many event loops as workers. The first one gets all workers.
    ///
    /// # Errors
    /// When the system is out of file descriptors.
    pub(crate) fn all(
        node_status: &Arc<SharedNodeStatus>,
        workers: Vec<WorkerThread>,
    ) -> std::io::Result<Vec<EventLoop>> {
        let polls = workers.iter().map(|_| Poll::new()).collect::<std::io::Result<Vec<Poll>>>()?;
        let assignment = |poll: &Poll| {
            Ok(WorkerAssignment::new(Arc::new(Waker::new(poll.registry(), TOKEN_WAKE)?)))
        };
        let assignments = Arc::new(
            polls.iter().map(assignment).collect::<std::io::Result<Vec<WorkerAssignment>>>()?,
        );
        node_status.set_event_loops(
            assignments.iter().map(|assignment| Arc::clone(assignment.waker())).collect(),
        );
        assignments[0].give(workers);
        let event_loop = |(index, poll)| EventLoop {
            index,
            node_status: Arc::clone(node_status),
            assignments: Arc::clone(&assignments),
            poll,
            hears_committer: false,
            workers: Vec::new(),
            balance: Balance::default(),
            has_slow_peers: false,
            told_slow: BTreeSet::new(),
        };
        Ok(polls.into_iter().enumerate().map(event_loop).collect())
    }

    /// Runs until the node stops. An error is a reason to stop the node at once.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        let mut events = Events::with_capacity(64);
        let mut stop_at = None;
        while !self.node_status.has_failed() {
            self.take_given()?;
            self.listen_to_committer()?;
            if self.node_status.is_stopping() {
                let now = self.node_status.clocks.now();
                let until = *stop_at.get_or_insert(now + Nanos(STOP_MAX.as_nanos() as u64));
                self.workers.iter_mut().for_each(|worker| worker.drain());
                if self.node_status.is_drained() || now >= until {
                    return Ok(());
                }
            }
            self.wait(&mut events, stop_at)?;
            let began = self.node_status.clocks.look();
            let ended = self.iterate(began)?;
            let ended = self.iterate_further(began.now, ended, &mut events)?;
            if let Some(committer) = self.node_status.committer() {
                committer.advance();
            }
            self.balance(ended);
        }
        Ok(())
    }

    /// Reads sockets that are ready, before the device gets the changes of the iteration before.
    /// Returns the end of the last iteration.
    fn iterate_further(
        &mut self,
        began: Nanos,
        mut ended: Nanos,
        events: &mut Events,
    ) -> Result<Nanos, String> {
        for _ in 1..ITERATIONS_MAX {
            if !self.node_status.committer().is_some_and(Committer::would_commit)
                || !self.look(events, Some(Duration::ZERO))?
            {
                break;
            }
            let moment = self.node_status.clocks.look();
            if moment.now >= began + HELD_MAX {
                break;
            }
            ended = self.iterate(moment)?;
        }
        Ok(ended)
    }

    fn take_given(&mut self) -> Result<(), String> {
        for worker in self.assignments[self.index].take() {
            // Perhaps: the thread that had it may have known of some.
            self.has_slow_peers = true;
            let (fd, token) = (worker.as_raw_fd(), Token(worker.index()));
            self.poll
                .registry()
                .register(&mut SourceFd(&fd), token, Interest::READABLE)
                .map_err(|error| format!("a worker's sockets cannot be waited for: {error}"))?;
            self.workers.push(worker);
        }
        Ok(())
    }

    /// Only the first thread, which always has workers.
    fn listen_to_committer(&mut self) -> Result<(), String> {
        let fd = self.node_status.committer().and_then(|committer| committer.fd());
        let Some(fd) = fd.filter(|_| self.index == 0 && !self.hears_committer) else {
            return Ok(());
        };
        self.hears_committer = true;
        let registry = self.poll.registry();
        registry
            .register(&mut SourceFd(&fd.as_raw_fd()), TOKEN_PUMP, Interest::READABLE)
            .map_err(|error| format!("the disk cannot be waited for: {error}"))
    }

    fn wait(&mut self, events: &mut Events, stop_at: Option<Nanos>) -> Result<(), String> {
        // Ask all of them, also after one that may not: mail from now on wakes this thread.
        let restless = self.workers.iter().filter(|worker| !worker.may_sleep()).count();
        let wait = if restless == 0 {
            let timers = self.workers.iter().filter_map(|worker| worker.next_timer());
            let timer = timers.chain(stop_at).min();
            // The kernel counts whole milliseconds here; mio rounds up.
            timer.map(|at| Duration::from_nanos(at.since(self.node_status.clocks.now()).0))
        } else {
            Some(Duration::ZERO)
        };
        self.look(events, wait).map(|_| ())
    }

    /// Waits no longer than that for something to happen; true if there is something to read.
    fn look(&mut self, events: &mut Events, wait: Option<Duration>) -> Result<bool, String> {
        let polled = self.poll.poll(events, wait);
        self.workers.iter().for_each(|worker| worker.awake());
        let is_interrupted = match polled {
            Ok(()) => false,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => true,
            Err(error) => return Err(format!("waiting for sockets failed: {error}")),
        };
        // The system interrupts the thread that has submitted a commit to complete it.
        if (is_interrupted || events.iter().any(|event| event.token() == TOKEN_PUMP))
            && let Some(committer) = self.node_status.committer()
        {
            committer.notice();
            committer.advance();
        }
        let mut has_fired = false;
        for event in events.iter() {
            let fired = |worker: &&mut WorkerThread| Token(worker.index()) == event.token();
            if let Some(worker) = self.workers.iter_mut().find(fired) {
                worker.fire();
                has_fired = true;
            }
        }
        Ok(has_fired)
    }

    /// Reads sockets, runs the workers and sends their frames; returns the time of sending.
    fn iterate(&mut self, began: Moment) -> Result<Nanos, String> {
        // This thread may have slept since it looked.
        if self.has_slow_peers {
            self.attend_to_slow_peers(began.now);
        }
        // All of them read before one runs, so mail between them is handled in the same iteration.
        self.workers.iter_mut().try_for_each(|worker| worker.gather(began))?;
        // The first round includes every worker: a timer may be due.
        self.workers.iter_mut().try_for_each(|worker| worker.work(began))?;
        for _ in 1..ROUNDS_MAX {
            if !self.workers.iter().any(WorkerThread::has_mail)
                || self.node_status.clocks.now() >= began.now + ITERATION_LONG
            {
                break;
            }
            for worker in self.workers.iter_mut().filter(|worker| worker.has_mail()) {
                worker.work(began)?;
            }
        }
        // Patience with a peer begins now, however long the turns were.
        let now = self.node_status.clocks.now();
        if let Some((lead, others)) = self.workers.split_first_mut() {
            others.iter_mut().for_each(|worker| worker.share_frames(now, lead));
        }
        self.workers.iter_mut().for_each(|worker| worker.flush(now));
        self.attend_to_slow_peers(now);
        Ok(now)
    }

    /// So much waits for some peers that they hear late of anything new. Where the others make a
    /// majority they are spared, if that lasts; else no requests are taken in meanwhile. A worker's
    /// frames go over the links of others as well.
    fn attend_to_slow_peers(&mut self, now: Nanos) {
        let (mut is_clogged, mut paces) = (false, Vec::new());
        let mut slow = BTreeSet::new();
        self.has_slow_peers = self.workers.iter().any(|worker| worker.has_slow_links(now));
        if self.has_slow_peers {
            let links = self.workers.iter().flat_map(|worker| worker.links(now));
            let mut peers: BTreeMap<NodeId, Slowness> = BTreeMap::new();
            for (peer, slowness) in links {
                let worst = peers.entry(peer).or_default();
                worst.is_slow |= slowness.is_slow;
                worst.was_for_long |= slowness.was_for_long;
            }
            slow.extend(peers.iter().filter(|(_, it)| it.was_for_long).map(|(&peer, _)| peer));
            let wanted = self.workers.iter().map(WorkerThread::peers_of_majority).max();
            let wanted = wanted.unwrap_or(0);
            let fast = peers.values().filter(|it| !it.is_slow).count();
            let always_fast = peers.values().filter(|it| !it.is_slow && !it.was_for_long).count();
            is_clogged = fast < wanted;
            paces.extend(peers.into_iter().filter_map(|(peer, slowness)| {
                let others = if slowness.is_slow { fast } else { always_fast };
                match slowness {
                    Slowness { was_for_long: true, .. } if others >= wanted => {
                        Some((peer, Pace::Spared))
                    }
                    Slowness { is_slow: true, .. } => Some((peer, Pace::Slow)),
                    _ => None,
                }
            }));
        }
        self.workers.iter_mut().for_each(|worker| worker.on_slow_peers(is_clogged, &paces));
        if slow != self.told_slow {
            for &peer in slow.symmetric_difference(&self.told_slow) {
                let (event_loop, is_slow) = (self.index, slow.contains(&peer));
                self.node_status.control.send(ControlMail::Slow { event_loop, peer, is_slow });
            }
            self.told_slow = slow;
        }
    }

    /// Hands workers to another thread if the load asks for it.
    fn balance(&mut self, ended: Nanos) {
        if !self.balance.is_due(ended) || self.node_status.is_stopping() {
            return;
        }
        let moment = (self.node_status.clocks.now(), thread_cpu());
        let workers = self.workers.len();
        if let Some(HandOver { to, count }) =
            self.balance.look(moment, self.index, workers, &self.assignments)
        {
            let given = self.release(count);
            self.assignments[to].give(given);
        }
    }

    /// Takes workers out of this thread's hands.
    fn release(&mut self, count: usize) -> Vec<WorkerThread> {
        // The next iteration reports the state of the links again.
        self.workers.iter_mut().for_each(|worker| worker.on_slow_peers(false, &[]));
        let given = self.workers.split_off(self.workers.len() - count);
        for worker in &given {
            // Fails only for a descriptor that was never registered.
            let _ = self.poll.registry().deregister(&mut SourceFd(&worker.as_raw_fd()));
        }
        self.assignments[self.index].count.fetch_sub(count, Ordering::Relaxed);
        given
    }
}
