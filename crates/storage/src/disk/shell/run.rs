//! The engine with its devices: the work of a thread that has taken it.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use super::desk::Desk;
use super::meeting::Role;
use super::uring::Uring;
use crate::Completion;
use crate::disk::engine::Engine;
use crate::disk::io::{File, Files, Io, Write};
use crate::disk::place::PAGE;
use crate::disk::request::Request;

/// How long a store is left unchanged before it writes everything back.
const REST_AFTER: Duration = Duration::from_millis(100);
/// Rounds of one turn.
const ROUNDS_MAX: usize = 64;
/// Reads that are tried between two looks at requests of workers.
const READS_MAX: usize = 32;

pub(super) struct Run {
    pub(super) engine: Engine,
    /// Writes the batches; `None` if helpers do.
    pub(super) uring: Option<Uring>,
    /// The ring batch that `uring` is to write next.
    pub(super) stripe: Option<(u64, Vec<Write>)>,
    /// Not yet tried; bounded by the loads of the workers and the buckets of a write-back.
    reads: VecDeque<Io>,
    /// Requests that helpers have.
    under_way: usize,
    /// When something was changed last, or rest was tried.
    busy_at: Instant,
    /// The helper that writes back knows that there is something to write back.
    is_rest_due: bool,
    scratch: Vec<Completion>,
}

impl Run {
    pub(super) fn new(engine: Engine, uring: Option<Uring>) -> Run {
        Run {
            engine,
            uring,
            stripe: None,
            reads: VecDeque::new(),
            under_way: 0,
            busy_at: Instant::now(),
            is_rest_due: false,
            scratch: Vec::new(),
        }
    }

    /// Moves on until all that is left has to wait, or for long enough: the builder, which serves
    /// no client, does the rest.
    pub(super) fn turn(&mut self, desk: &Desk, role: Role) {
        let mut has_moved = true;
        for _ in 0..ROUNDS_MAX {
            has_moved = self.take_requests(desk) | self.take_done(desk);
            self.engine.step();
            has_moved |= self.dispatch(desk);
            self.write_stripe(desk, role);
            self.deliver(desk);
            if !has_moved {
                break;
            }
        }
        if has_moved {
            desk.queues.remind();
        }
        let has_work = self.engine.is_building();
        if has_work || (self.engine.is_dirty() && !self.is_rest_due) {
            self.is_rest_due = true;
            desk.queues.remind();
        }
    }

    fn take_requests(&mut self, desk: &Desk) -> bool {
        desk.has_changes.store(false, Relaxed);
        let (mut has_moved, mut has_changed) = (false, false);
        for (worker, mailbox) in desk.mailboxes.iter().enumerate() {
            let Some(requests) = mailbox.requests.take() else { continue };
            has_moved = true;
            for request in requests {
                has_changed |= matches!(request, Request::Change(_));
                self.engine.request(worker, request);
            }
        }
        if has_changed {
            self.busy_at = Instant::now();
        }
        has_moved
    }

    fn take_done(&mut self, desk: &Desk) -> bool {
        let mut has_moved = false;
        for (done, pages) in desk.done.take().unwrap_or_default() {
            self.under_way -= 1;
            self.engine.done_checked(done, pages);
            has_moved = true;
        }
        desk.has_committed.store(false, SeqCst);
        if let (Some(uring), Some(stripes)) = (&mut self.uring, desk.medium.stripes())
            && let Some((done, parts)) = uring.reap(stripes)
        {
            self.engine.recycle(parts);
            self.engine.done(done);
            has_moved = true;
        }
        has_moved
    }

    /// Passes requests on to the helpers; true if an answer is there already.
    fn dispatch(&mut self, desk: &Desk) -> bool {
        if !self.engine.has_ios() {
            return self.read(desk);
        }
        let (mut gathers, mut homes) = (Vec::new(), Vec::new());
        let (mut commits, mut slow) = (Vec::new(), Vec::new());
        let file = desk.medium.stripes().filter(|_| self.uring.is_some());
        let committing = self.engine.committing();
        for io in self.engine.take_ios() {
            match (io, file) {
                // Many pages are for a write-back, which waits only for itself.
                (io @ Io::Read { file: File::Slots, len, .. }, _) if len > PAGE => gathers.push(io),
                (io @ Io::Read { .. }, _) => self.reads.push_back(io),
                // Nor does a request that gives room back wait behind one that may wait for room.
                (io @ Io::Discard { .. }, _) => gathers.push(io),
                (io @ Io::Verify { .. }, _) => slow.push(io),
                (Io::Store { id, writes, flush }, Some(file))
                    if committing == Some(id)
                        && flush == Files::of(File::Ring)
                        && file.takes(File::Ring, &writes) =>
                {
                    self.stripe = Some((id, writes));
                }
                (io @ Io::Store { id, flush, .. }, _)
                    if committing == Some(id) || flush == Files::of(File::Ring) =>
                {
                    commits.push(io);
                }
                (io, _) => homes.push(io),
            }
        }
        self.under_way += gathers.len() + homes.len() + commits.len() + slow.len();
        desk.queues.reads.push(slow);
        desk.queues.gathers.push(gathers);
        desk.queues.homes.push(homes);
        desk.queues.commits.push(commits);
        self.read(desk)
    }

    /// Submits the next batch, or leaves it to a driver. A failed store writes no more.
    fn write_stripe(&mut self, desk: &Desk, role: Role) {
        let stripe = self.stripe.take_if(|_| role == Role::Driver);
        if let (Some((id, writes)), None) = (stripe, self.engine.failure())
            && let (Some(uring), Some(file)) = (&mut self.uring, desk.medium.stripes())
        {
            uring.submit(file, id, writes);
            if uring.is_broken() {
                desk.has_committed.store(true, SeqCst);
            }
        }
        desk.has_stripe.store(self.stripe.is_some(), SeqCst);
    }

    /// Answers reads from the page cache, a few at a time; the others are left to the helpers.
    fn read(&mut self, desk: &Desk) -> bool {
        let count = self.reads.len().min(READS_MAX);
        let mut slow = Vec::new();
        for io in self.reads.drain(..count) {
            match desk.medium.execute_cached(&io) {
                Some(done) => self.engine.done(done),
                None => slow.push(io),
            }
        }
        self.under_way += slow.len();
        desk.queues.reads.push(slow);
        count > 0
    }

    /// Publishes the state of the engine, and delivers completions.
    fn deliver(&mut self, desk: &Desk) {
        desk.is_committing.store(self.engine.is_committing(), Relaxed);
        desk.staged.store(self.engine.staging().used, Relaxed);
        desk.memory.store(self.engine.memory(), Relaxed);
        desk.is_overrun.store(self.engine.is_overrun(), Relaxed);
        let is_full = self.engine.is_full();
        if desk.is_full.swap(is_full, SeqCst) && !is_full {
            // Idle workers have left their clients waiting for this.
            desk.mailboxes.iter().for_each(|mailbox| (mailbox.waker)());
        }
        for worker in 0..self.engine.workers() {
            if self.engine.has_completions(worker) {
                self.engine.take_completions(worker, &mut self.scratch);
                desk.deliver(worker, &mut self.scratch);
            }
        }
    }

    /// Goes on with long work, and lets the store rest when it has not been changed for a while;
    /// reads do not keep it from that. Returns when to call this again, or `None` if all is written
    /// back.
    pub(super) fn tend(&mut self, desk: &Desk) -> Option<Duration> {
        self.turn(desk, Role::Helper);
        if self.engine.is_building() {
            return Some(Duration::ZERO);
        }
        if !self.engine.is_dirty() {
            self.is_rest_due = false;
            return None;
        }
        let rest_at = self.busy_at + REST_AFTER;
        let now = Instant::now();
        if now < rest_at {
            return Some(rest_at - now);
        }
        if self.under_way == 0 {
            self.engine.rest();
            self.turn(desk, Role::Helper);
        }
        self.busy_at = now;
        Some(REST_AFTER)
    }

    /// True when no submitted change waits for the device, and the device has no work for a failed
    /// store: the next process finds a settled medium.
    pub(super) fn is_settled(&self) -> bool {
        let has_stripe = self.uring.as_ref().is_some_and(Uring::has_stripe);
        !self.engine.is_committing() && self.under_way == 0 && !has_stripe
    }

    /// The system has a batch and does not report its end.
    pub(super) fn is_writing_for_ever(&self) -> bool {
        self.uring.as_ref().is_some_and(Uring::is_broken)
    }

    /// Waits for the ring batch under way, if the system has it; false otherwise.
    pub(super) fn wait_for_commit(&mut self) -> bool {
        self.uring.as_mut().is_some_and(Uring::wait)
    }
}
