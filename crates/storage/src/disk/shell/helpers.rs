//! Threads for what may block: reads that are not in the page cache, large records, write-back, and stripes where the
//! system cannot write them by itself. One of them builds write-backs while another writes the one before, and sees to it
//! that a store comes to rest.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::run::By;
use super::{LastWords, Shared, lock};
use crate::disk::engine;
use crate::disk::files::Flusher;
use crate::disk::io::{Done, Io};
use crate::disk::merge::{Merged, Merging};

/// Threads that read.
const READERS: usize = 2;
/// How long it leaves the page cache as the process before has left it.
const CACHE_AFTER: Duration = Duration::from_millis(500);
/// How long what finds no room waits before it tries again.
const ROOM_LOOK: Duration = Duration::from_millis(500);
/// Requests that a helper takes at once.
const TAKE_MAX: usize = 16;

/// What the helpers have to do.
#[derive(Default)]
pub(super) struct Queues {
    pub(super) reads: Queue,
    pub(super) commits: Queue,
    /// Reads of homes for the helper that builds write-backs.
    pub(super) gathers: Queue,
    pub(super) homes: Queue,
    /// For the helper that drops what the process before has left in the page cache.
    cache: Stop,
    /// For helpers that wait for room: only ever to stop.
    pub(super) room: Stop,
    /// The engine has something to write back, or to go on with.
    is_reminded: AtomicBool,
}

/// Ends the pause of a helper when the store stops.
#[derive(Default)]
pub(super) struct Stop {
    is_called: Mutex<bool>,
    has_news: Condvar,
}

impl Stop {
    pub(super) fn call(&self) {
        *lock(&self.is_called) = true;
        self.has_news.notify_all();
    }

    /// Waits for so long; returns false if the store stops meanwhile.
    fn pause(&self, time: Duration) -> bool {
        let is_called = lock(&self.is_called);
        let waited = self.has_news.wait_timeout_while(is_called, time, |is_called| !*is_called);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Requests for helper threads; bounded by the loads and listings of the workers.
#[derive(Default)]
pub(super) struct Queue {
    ios: Mutex<VecDeque<Io>>,
    has_news: Condvar,
    stops: AtomicBool,
}

impl Queue {
    pub(super) fn push(&self, ios: Vec<Io>) {
        if !ios.is_empty() {
            lock(&self.ios).extend(ios);
            self.has_news.notify_one();
        }
    }

    /// Waits until there is something, no longer than `most`, or until `is_reminded`; `None` when all is to end.
    fn take(&self, most: Option<Duration>, is_reminded: &AtomicBool) -> Option<Vec<Io>> {
        let mut ios = lock(&self.ios);
        while ios.is_empty() && !is_reminded.load(SeqCst) {
            if self.stops.load(SeqCst) {
                return None;
            }
            match most {
                Some(most) => {
                    let waited = self.has_news.wait_timeout(ios, most);
                    ios = waited.unwrap_or_else(PoisonError::into_inner).0;
                    break;
                }
                None => ios = self.has_news.wait(ios).unwrap_or_else(PoisonError::into_inner),
            }
        }
        is_reminded.store(false, SeqCst);
        let count = ios.len().min(TAKE_MAX);
        let taken = ios.drain(..count).collect();
        if !ios.is_empty() {
            self.has_news.notify_one();
        }
        Some(taken)
    }

    pub(super) fn has_some(&self) -> bool {
        !lock(&self.ios).is_empty()
    }

    fn wake(&self) {
        drop(lock(&self.ios));
        self.has_news.notify_all();
    }
}

impl Queues {
    /// Makes the helper that writes back look at the engine.
    pub(super) fn remind(&self) {
        if !self.is_reminded.swap(true, SeqCst) {
            self.gathers.wake();
        }
    }

    /// Ends the helpers when they have nothing left to do.
    pub(super) fn stop(&self) {
        [&self.cache, &self.room].into_iter().for_each(Stop::call);
        for queue in [&self.reads, &self.commits, &self.gathers, &self.homes] {
            queue.stops.store(true, SeqCst);
            queue.wake();
        }
    }
}

/// Starts all helpers of a store, or none.
pub(super) fn start(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>, String> {
    let mut threads = Vec::new();
    let started = start_all(shared, &mut threads);
    if started.is_err() {
        shared.queues.stop();
        for thread in threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
    started.map(|()| threads)
}

fn start_all(shared: &Arc<Shared>, threads: &mut Vec<JoinHandle<()>>) -> Result<(), String> {
    fn spawn(
        shared: &Arc<Shared>,
        name: &str,
        help: impl FnOnce(&Shared) + Send + 'static,
    ) -> Result<JoinHandle<()>, String> {
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || help(&shared));
        thread.map_err(|error| format!("cannot start a thread: {error}"))
    }
    threads.push(spawn(shared, "disk-commits", |shared| {
        help(shared, &shared.queues.commits, Flusher::Commits, By::Helper)
    })?);
    threads.push(spawn(shared, "disk-homes", |shared| {
        help(shared, &shared.queues.homes, Flusher::Homes, By::Writer)
    })?);
    threads.push(spawn(shared, "disk-builder", build)?);
    for _ in 0..READERS {
        threads.push(spawn(shared, "disk-reader", |shared| {
            help(shared, &shared.queues.reads, Flusher::Homes, By::Helper)
        })?);
    }
    threads.push(spawn(shared, "disk-cache", |shared| {
        if shared.queues.cache.pause(CACHE_AFTER) {
            shared.medium.drop_rest(|pause| shared.queues.cache.pause(pause));
        }
    })?);
    Ok(())
}

fn help(shared: &Shared, queue: &Queue, flusher: Flusher, by: By) {
    let never = AtomicBool::new(false);
    while let Some(ios) = queue.take(None, &never) {
        carry_out(shared, ios, flusher);
        shared.advance(by);
    }
}

fn build(shared: &Shared) {
    let mut look_again = None;
    while let Some(ios) = shared.queues.gathers.take(look_again, &shared.queues.is_reminded) {
        carry_out(shared, ios, Flusher::Homes);
        let Ok(mut run) = shared.run.lock() else { return };
        let last_words = LastWords(shared);
        look_again = run.tend(shared);
        let merging = run.engine.take_merging();
        drop((last_words, run));
        shared.call_driver();
        // What came in while the engine was taken was left to this thread.
        if shared.has_news() {
            shared.advance(By::Helper);
        }
        if let Some(merging) = merging {
            shared.merged.put(&mut vec![merge(merging)]);
            look_again = Some(Duration::ZERO);
        }
    }
}

/// A helper that panics holds nothing: who waits for what it merges is to hear of it.
fn merge(merging: Merging) -> Result<Merged, String> {
    catch_unwind(AssertUnwindSafe(|| merging.merge()))
        .map_err(|_| "the thread that merges entries into pages has panicked".to_owned())
}

/// Hands in each as it is done: the next one may wait for room, and that another has failed must be known at once. Who calls
/// this moves the engine on for the last of them.
fn carry_out(shared: &Shared, ios: Vec<Io>, by: Flusher) {
    for (index, io) in ios.iter().enumerate() {
        if index > 0 && matches!(io, Io::Store { .. }) {
            shared.advance(By::Helper);
        }
        let carried_out = catch_unwind(AssertUnwindSafe(|| carry_out_one(shared, io, by)));
        // Who waits for it, a stop among them, is to hear of it.
        let done = carried_out.unwrap_or_else(|_| {
            let reason = "a thread that reads and writes for the store has panicked";
            Done { id: io.id(), result: Err(reason.to_owned()) }
        });
        // Where that panics the engine does so, too, and whoever waits hears of it.
        let check = || engine::check(io, &done, shared.binding);
        let pages = catch_unwind(AssertUnwindSafe(check)).unwrap_or_default();
        shared.done.put(&mut vec![(done, pages)]);
    }
}

/// Waits while there is no room. Nothing is lost meanwhile: the bytes are in the ring, or were not acknowledged.
fn carry_out_one(shared: &Shared, io: &Io, by: Flusher) -> Done {
    let waits = Cell::new(None);
    let done = shared.medium.execute_with_room(io, by, |lack| {
        shared.room.wait_begins(lack);
        if let Some(before) = waits.replace(Some(lack)) {
            shared.room.wait_ends(before);
        }
        shared.queues.room.pause(ROOM_LOOK)
    });
    if matches!(io, Io::Store { .. }) {
        shared.room.look_if_grown(&shared.medium);
    }
    if let Some(lack) = waits.get() {
        shared.room.wait_ends(lack);
    }
    done
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use types::{Database, Key};

    use super::super::{DiskStore, Keeper, Pump, create_at, open_at};
    use super::*;
    use crate::disk::Config;
    use crate::{Completion, Load, Place, Room, Store};

    const BINDING: u64 = 1;
    const RECORDS: u32 = 2_000;

    struct Opened {
        store: DiskStore,
        pump: Pump,
        keeper: Keeper,
    }

    impl Opened {
        fn new(dir: &Path) -> Opened {
            let (keeper, mut stores) =
                open_at(dir, BINDING, &Config::default(), vec![Box::new(|| ())])
                    .expect("it was created");
            let store = stores.pop().expect("one for each waker");
            Opened { store, pump: keeper.attend(), keeper }
        }

        fn medium_lacks_room(&self, lacks: bool) {
            self.keeper.shared.medium.lacks_room.store(lacks, SeqCst);
        }

        /// Moves on until something has completed.
        fn completed(&mut self) -> Vec<Completion> {
            let mut completions = Vec::new();
            while completions.is_empty() {
                self.pump.notice();
                self.pump.advance();
                self.store.poll(&mut completions);
            }
            completions
        }

        fn put(&mut self, numbers: std::ops::Range<u32>) {
            for number in numbers {
                self.store.put(&place(number), &[number as u8; 100]);
            }
            let ticket = self.store.ticket();
            self.store.submit();
            while !self.completed().contains(&Completion::Stored(ticket)) {}
        }

        fn has_all(&mut self) {
            for number in 0..RECORDS {
                let mut load = self.store.load(&place(number));
                while load == Load::Pending {
                    for completion in self.completed() {
                        if let Completion::Loaded { load: found, .. } = completion {
                            load = found;
                        }
                    }
                }
                assert!(matches!(load, Load::Found(record) if record[..] == [number as u8; 100]));
            }
        }

        fn wait_until(&self, holds: impl Fn(&Opened) -> bool) {
            while !holds(self) {
                self.pump.advance();
                std::thread::yield_now();
            }
        }
    }

    fn place(number: u32) -> Place {
        Place::Cell(Database(0), Key::new(&number.to_le_bytes()))
    }

    fn directory(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("palimpsest-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("the temporary directory is writable");
        create_at(&dir, BINDING, &Config::default()).expect("an empty directory takes a store");
        dir
    }

    #[test]
    fn a_store_without_room_serves_and_goes_on_when_there_is_some() {
        let dir = directory("roomless");
        let mut opened = Opened::new(&dir);
        opened.medium_lacks_room(true);
        opened.put(0..RECORDS / 2);
        opened.wait_until(|it| it.store.room() == Room::Missing);
        opened.put(RECORDS / 2..RECORDS);
        opened.has_all();
        assert_eq!(opened.store.room(), Room::Missing);
        opened.medium_lacks_room(false);
        opened.wait_until(|it| it.store.room() != Room::Missing && it.keeper.is_at_home());
        opened.has_all();
        opened.keeper.stop();
        std::fs::remove_dir_all(&dir).expect("it is there");
    }

    #[test]
    fn a_helper_that_panics_ends_the_store_and_no_stop_waits_for_it() {
        let dir = directory("panicking");
        let mut opened = Opened::new(&dir);
        opened.medium_lacks_room(true);
        opened.put(0..RECORDS);
        opened.wait_until(|it| it.store.room() == Room::Missing);
        opened.keeper.shared.medium.panics.store(true, SeqCst);
        opened.medium_lacks_room(false);
        let completed = opened.completed();
        let has_failed =
            |it: &Completion| matches!(it, Completion::Failed(why) if why.contains("panicked"));
        assert!(completed.iter().any(has_failed), "{completed:?}");
        opened.keeper.stop();
        drop((opened.store, opened.pump));
        let mut opened = Opened::new(&dir);
        opened.has_all();
        opened.keeper.stop();
        std::fs::remove_dir_all(&dir).expect("it is there");
    }

    #[test]
    fn a_store_without_room_ends_when_it_is_to_and_loses_nothing() {
        let dir = directory("ends-roomless");
        let mut opened = Opened::new(&dir);
        opened.medium_lacks_room(true);
        opened.put(0..RECORDS);
        opened.wait_until(|it| it.store.room() == Room::Missing);
        opened.keeper.stop();
        drop((opened.store, opened.pump));
        let mut opened = Opened::new(&dir);
        opened.has_all();
        opened.keeper.stop();
        std::fs::remove_dir_all(&dir).expect("it is there");
    }
}
