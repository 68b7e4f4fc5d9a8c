//! The engine with its devices: what a thread does that has taken it.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use super::Shared;
use super::uring::Uring;
use crate::Completion;
use crate::disk::engine::Engine;
use crate::disk::io::{File, Files, Io, Write};
use crate::disk::place::PAGE;
use crate::disk::request::Request;

/// How long nothing is changed in a store before it writes everything back.
const REST_AFTER: Duration = Duration::from_millis(100);
/// Rounds of one turn.
const ROUNDS_MAX: usize = 64;
/// Reads that are tried between two looks at what workers want.
const READS_MAX: usize = 32;

/// Who has the engine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// A thread that waits for nothing but what may wake it.
    Driver,
    /// A thread that may block in the device next. It leaves stripes to a driver: the system completes one with the
    /// help of the thread that submitted it, so a commit would wait for as long as that thread is in a flush.
    Helper,
    /// The helper that writes back. Others wait for what it writes, and none for what else it does: as soon as there is
    /// something to write it leaves the engine to them.
    Writer,
}

pub(super) struct Run {
    pub(super) engine: Engine,
    /// Writes the stripes, once somebody attends to its completions.
    pub(super) uring: Option<Uring>,
    /// The stripe that `uring` is to write next.
    stripe: Option<(u64, Vec<Write>)>,
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
    pub(super) fn new(engine: Engine) -> Run {
        Run {
            engine,
            uring: None,
            stripe: None,
            reads: VecDeque::new(),
            under_way: 0,
            busy_at: Instant::now(),
            is_rest_due: false,
            scratch: Vec::new(),
        }
    }

    /// Moves on until nothing is left that can be done without waiting, or for long enough: the rest is the helper's
    /// that has nobody else to serve.
    pub(super) fn turn(&mut self, shared: &Shared, by: By) {
        let mut has_moved = true;
        for _ in 0..ROUNDS_MAX {
            has_moved = self.take_requests(shared) | self.take_done(shared);
            self.engine.step();
            has_moved |= self.dispatch(shared);
            self.write_stripe(shared, by);
            self.deliver(shared);
            if !has_moved || shared.is_wanted(by) {
                break;
            }
        }
        if has_moved {
            shared.queues.remind();
        }
        let has_work = self.engine.is_building() || self.engine.has_merging();
        if has_work || (self.engine.is_dirty() && !self.is_rest_due) {
            self.is_rest_due = true;
            shared.queues.remind();
        }
    }

    fn take_requests(&mut self, shared: &Shared) -> bool {
        shared.has_changes.store(false, Relaxed);
        let (mut has_moved, mut has_changed) = (false, false);
        for (worker, mailbox) in shared.mailboxes.iter().enumerate() {
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

    fn take_done(&mut self, shared: &Shared) -> bool {
        let mut has_moved = false;
        for (done, pages) in shared.done.take().unwrap_or_default() {
            self.under_way -= 1;
            self.engine.done_checked(done, pages);
            has_moved = true;
        }
        for merged in shared.merged.take().unwrap_or_default() {
            self.engine.merged(merged);
            has_moved = true;
        }
        shared.has_committed.store(false, SeqCst);
        if let (Some(uring), Some(stripes)) = (&mut self.uring, shared.medium.stripes())
            && let Some((done, parts)) = uring.reap(stripes)
        {
            self.engine.recycle(parts);
            self.engine.done(done);
            has_moved = true;
        }
        has_moved
    }

    /// Passes requests on to those who carry them out; true if an answer is there already.
    fn dispatch(&mut self, shared: &Shared) -> bool {
        if !self.engine.has_ios() {
            return self.read(shared);
        }
        let (mut gathers, mut homes) = (Vec::new(), Vec::new());
        let (mut commits, mut slow) = (Vec::new(), Vec::new());
        let file = shared.medium.stripes().filter(|_| self.uring.is_some());
        let committing = self.engine.committing();
        for io in self.engine.take_ios() {
            match (io, file) {
                // Many pages are for a write-back, which waits for nobody but itself.
                (io @ Io::Read { file: File::Slots, len, .. }, _) if len > PAGE => gathers.push(io),
                (io @ Io::Read { .. }, _) => self.reads.push_back(io),
                // Nor does what gives room back wait behind what may wait for room.
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
        shared.queues.reads.push(slow);
        shared.queues.gathers.push(gathers);
        shared.queues.homes.push(homes);
        shared.queues.commits.push(commits);
        self.read(shared)
    }

    /// Submits the next stripe, or leaves it to a driver. A store that has failed writes nothing more.
    fn write_stripe(&mut self, shared: &Shared, by: By) {
        let stripe = self.stripe.take_if(|_| by == By::Driver);
        if let (Some((id, writes)), None) = (stripe, self.engine.failure())
            && let (Some(uring), Some(file)) = (&mut self.uring, shared.medium.stripes())
        {
            uring.submit(file, id, writes);
            if uring.is_broken() {
                shared.has_committed.store(true, SeqCst);
            }
        }
        shared.has_stripe.store(self.stripe.is_some(), SeqCst);
    }

    /// Answers reads from the page cache, a few at a time; what is not there is left to the helpers.
    fn read(&mut self, shared: &Shared) -> bool {
        let count = self.reads.len().min(READS_MAX);
        let mut slow = Vec::new();
        for io in self.reads.drain(..count) {
            match shared.medium.execute_cached(&io) {
                Some(done) => self.engine.done(done),
                None => slow.push(io),
            }
        }
        self.under_way += slow.len();
        shared.queues.reads.push(slow);
        count > 0
    }

    /// Tells how the engine is, and what has completed.
    fn deliver(&mut self, shared: &Shared) {
        shared.is_committing.store(self.engine.is_committing(), Relaxed);
        shared.staged.store(self.engine.staging().used, Relaxed);
        shared.memory.store(self.engine.memory(), Relaxed);
        shared.is_overrun.store(self.engine.is_overrun(), Relaxed);
        let is_full = self.engine.is_full();
        if shared.is_full.swap(is_full, SeqCst) && !is_full {
            // Workers that had nothing else to do have left their clients waiting for this.
            shared.mailboxes.iter().for_each(|mailbox| (mailbox.waker)());
        }
        for worker in 0..self.engine.workers() {
            if self.engine.has_completions(worker) {
                self.engine.take_completions(worker, &mut self.scratch);
                shared.deliver(worker, &mut self.scratch);
            }
        }
    }

    /// Goes on with what takes many steps, and lets the store rest when nothing has been changed for a while; reads do
    /// not keep it from that. When to call this again, or `None` when there is nothing to write back.
    pub(super) fn tend(&mut self, shared: &Shared) -> Option<Duration> {
        self.turn(shared, By::Helper);
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
            self.turn(shared, By::Helper);
        }
        self.busy_at = now;
        Some(REST_AFTER)
    }

    /// True when nothing that was submitted waits for the device, and the device has nothing to do for a store that has
    /// failed: what is opened next finds what it will find.
    pub(super) fn is_settled(&self) -> bool {
        let has_stripe = self.uring.as_ref().is_some_and(Uring::has_stripe);
        !self.engine.is_committing() && self.under_way == 0 && !has_stripe
    }

    /// The system has a stripe and does not say what becomes of it.
    pub(super) fn is_writing_for_ever(&self) -> bool {
        self.uring.as_ref().is_some_and(Uring::is_broken)
    }

    /// Waits for the stripe under way, if the system has it; false otherwise.
    pub(super) fn wait_for_commit(&mut self) -> bool {
        self.uring.as_mut().is_some_and(Uring::wait)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::combine::EngineGuard;
    use super::super::{DiskStore, Keeper, Pump, create_at, open_at};
    use super::*;
    use crate::disk::Config;
    use crate::{Load, Place, Store};
    use types::{Database, Key};

    fn opened(name: &str) -> (PathBuf, Keeper, Pump, DiskStore) {
        let dir = std::env::temp_dir().join(format!("palimpsest-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("the temporary directory is writable");
        create_at(&dir, 1, &Config::default()).expect("an empty directory takes a store");
        let (keeper, mut stores) =
            open_at(&dir, 1, &Config::default(), vec![Box::new(|| ())]).expect("it was created");
        let (pump, store) = (keeper.attend(), stores.pop().expect("one for each waker"));
        (dir, keeper, pump, store)
    }

    #[test]
    fn a_system_that_takes_no_writes_any_more_ends_the_store() {
        let (dir, keeper, pump, mut store) = opened("broken");
        let break_down = |run: &Run| run.uring.as_ref().map(Uring::break_down);
        // Elsewhere helpers write the stripes.
        if break_down(&keeper.shared.run.lock().expect("nobody has panicked")).is_some() {
            store.put(&Place::Cell(Database(0), Key::new(b"key")), b"record");
            store.submit();
            // A helper may have the engine just then.
            let mut completions = Vec::new();
            while completions.is_empty() {
                pump.advance();
                store.poll(&mut completions);
            }
            let is_told = matches!(&completions[..], [Completion::Failed(why)] if why.contains("no writes any more"));
            assert!(is_told, "{completions:?}");
        }
        keeper.stop();
        std::fs::remove_dir_all(&dir).expect("it is there");
    }

    #[test]
    fn threads_that_may_block_leave_stripes_to_those_that_wait_for_them() {
        let (dir, keeper, pump, mut store) = opened("run");
        for number in 0..50_u8 {
            let mut change = |key: [u8; 2]| {
                store.put(&Place::Cell(Database(0), Key::new(&key)), b"record");
                store.submit();
            };
            let mut run = keeper.shared.run.lock().expect("nobody has panicked");
            change([number, 0]);
            assert!(pump.would_commit() || run.uring.is_none());
            run.turn(&keeper.shared, By::Helper);
            assert!(!run.uring.as_ref().is_some_and(Uring::has_stripe));
            if run.uring.is_none() {
                continue; // then helpers write the stripes
            }
            assert!(run.stripe.is_some(), "it is left to a driver");
            change([number, 1]);
            assert!(!pump.would_commit(), "what comes now waits for this one");
            drop(run);
            // A helper may have the engine just then; it calls the driver again.
            let mut run = loop {
                pump.advance();
                let run = keeper.shared.run.lock().expect("nobody has panicked");
                if run.stripe.is_none() {
                    break run;
                }
            };
            while !run.is_settled() {
                run.wait_for_commit();
                run.turn(&keeper.shared, By::Driver);
            }
            assert!(!pump.would_commit(), "there is nothing to commit");
        }
        keeper.stop();
        std::fs::remove_dir_all(&dir).expect("it is there");
    }

    /// Moves a store on until nothing that was submitted waits for the device.
    fn settle<'a>(keeper: &'a Keeper, pump: &Pump) -> EngineGuard<'a, Run> {
        loop {
            pump.notice();
            pump.advance();
            let run = keeper.shared.run.lock().expect("nobody has panicked");
            if run.is_settled() {
                return run;
            }
        }
    }

    /// A store with one change, which it has told of.
    fn settled(name: &str) -> (PathBuf, Keeper, Pump, DiskStore) {
        let (dir, keeper, pump, mut store) = opened(name);
        drop(put(&keeper, &mut store, 0..1, By::Driver));
        drop(settle(&keeper, &pump));
        store.poll(&mut Vec::new());
        (dir, keeper, pump, store)
    }

    fn loaded(pump: &Pump, store: &mut DiskStore) -> Load {
        let mut completions = Vec::new();
        loop {
            store.poll(&mut completions);
            pump.advance();
            for completion in completions.drain(..) {
                if let Completion::Loaded { load, .. } = completion {
                    return load;
                }
            }
        }
    }

    #[test]
    fn what_is_in_memory_is_found_at_once() {
        let (dir, keeper, pump, mut store) = settled("look");
        let place = |key: u8| Place::Cell(Database(0), Key::new(&[key]));
        let found = Load::Found(b"record"[..].into());
        let run = keeper.shared.run.lock().expect("nobody has panicked");
        assert_eq!(store.load(&place(0)), Load::Pending, "somebody else has the engine");
        drop(run);
        assert_eq!(loaded(&pump, &mut store), found);
        // Its bucket may have to be read.
        if store.load(&place(1)) == Load::Pending {
            assert_eq!(loaded(&pump, &mut store), Load::Absent);
        }
        let mut look = |wanted: &Load, key| {
            // A helper may have the engine just then.
            while store.load(&place(key)) != *wanted {
                assert_eq!(loaded(&pump, &mut store), *wanted);
            }
        };
        look(&found, 0);
        look(&Load::Absent, 1);
        keeper.stop();
        std::fs::remove_dir_all(&dir).expect("it is there");
    }

    #[test]
    fn a_record_is_not_looked_for_before_what_was_submitted_is_taken_in() {
        let (dir, keeper, pump, mut store) = settled("look-after");
        let place = Place::Cell(Database(0), Key::new(&[0]));
        for number in 0..50_u8 {
            store.put(&place, &[number]);
            store.submit();
            let wanted = Load::Found(vec![number].into());
            let load = store.load(&place);
            assert!([wanted.clone(), Load::Pending].contains(&load), "{number}: {load:?}");
            if load == Load::Pending {
                assert_eq!(loaded(&pump, &mut store), wanted);
            }
        }
        drop(settle(&keeper, &pump));
        store.poll(&mut Vec::new());
        drop(put(&keeper, &mut store, 0..1, By::Driver));
        drop(settle(&keeper, &pump));
        assert_eq!(store.load(&place), Load::Pending, "that it is stored is to be heard first");
        keeper.stop();
        std::fs::remove_dir_all(&dir).expect("it is there");
    }

    /// Changes these, and moves the store on before anybody else does.
    fn put<'a>(
        keeper: &'a Keeper,
        store: &mut DiskStore,
        keys: std::ops::Range<u8>,
        by: By,
    ) -> EngineGuard<'a, Run> {
        let mut run = keeper.shared.run.lock().expect("nobody has panicked");
        for key in keys {
            store.put(&Place::Cell(Database(0), Key::new(&[key])), b"record");
        }
        store.submit();
        run.turn(&keeper.shared, by);
        run
    }
}
