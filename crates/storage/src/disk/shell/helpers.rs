//! Threads for requests that may block: reads that are not in the page cache, large records,
//! write-back, and ring batches if the system cannot write them by itself. The builder, one of
//! them, builds a write-back while another one writes.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;

use super::desk::{Desk, LastWords};
use super::meeting::Role;
use super::queues::Queue;
use super::shared::Shared;
use crate::disk::files::Flusher;
use crate::disk::io::{Done, Io};
use crate::disk::page::CheckedPage;

/// Threads that read.
const READERS: usize = 2;
/// How long it leaves the page cache as the process before has left it.
const CACHE_AFTER: Duration = Duration::from_millis(500);
/// How long a write without room waits before the next try.
const ROOM_LOOK: Duration = Duration::from_millis(500);

/// Starts all helpers of a store, or none.
pub(super) fn start(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>, String> {
    let mut threads = Vec::new();
    let started = start_all(shared, &mut threads);
    if started.is_err() {
        shared.desk.queues.stop();
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
        help(shared, &shared.desk.queues.commits, Flusher::Commits)
    })?);
    threads.push(spawn(shared, "disk-homes", |shared| {
        help(shared, &shared.desk.queues.homes, Flusher::Homes)
    })?);
    threads.push(spawn(shared, "disk-builder", build)?);
    for _ in 0..READERS {
        threads.push(spawn(shared, "disk-reader", |shared| {
            help(shared, &shared.desk.queues.reads, Flusher::Homes)
        })?);
    }
    threads.push(spawn(shared, "disk-cache", |shared| {
        if shared.desk.queues.cache.pause(CACHE_AFTER) {
            shared.desk.medium.drop_rest(|pause| shared.desk.queues.cache.pause(pause));
        }
    })?);
    Ok(())
}

fn help(shared: &Shared, queue: &Queue, flusher: Flusher) {
    let never = AtomicBool::new(false);
    while let Some(ios) = queue.take(None, &never) {
        carry_out(shared, ios, flusher);
        shared.advance(Role::Helper);
    }
}

/// The builder.
fn build(shared: &Shared) {
    let desk = &shared.desk;
    let mut look_again = None;
    while let Some(ios) = desk.queues.gathers.take(look_again, &desk.queues.is_reminded) {
        carry_out(shared, ios, Flusher::Homes);
        let Some(mut run) = shared.run.hold() else { return };
        let last_words = LastWords(desk);
        look_again = run.tend(desk);
        drop((last_words, run));
        desk.call_driver();
        // Items that came in while the engine was taken were left to this thread.
        if desk.has_news() {
            shared.advance(Role::Helper);
        }
    }
}

/// Hands in each as it is done: the next one may wait for room, and a failure must be known at
/// once. The caller moves the engine on for the last of them.
fn carry_out(shared: &Shared, ios: Vec<Io>, by: Flusher) {
    for (index, io) in ios.iter().enumerate() {
        if index > 0 && matches!(io, Io::Store { .. }) {
            shared.advance(Role::Helper);
        }
        let carried_out = catch_unwind(AssertUnwindSafe(|| carry_out_one(&shared.desk, io, by)));
        // The threads that wait for it, a stop among them, must hear of it.
        let done = carried_out.unwrap_or_else(|_| {
            let reason = "a thread that reads and writes for the store has panicked";
            Done { id: io.id(), result: Err(reason.to_owned()) }
        });
        // If that panics the engine does so, too, and the workers hear of it.
        let check = || CheckedPage::of_read(io, &done, shared.desk.binding);
        let pages = catch_unwind(AssertUnwindSafe(check)).unwrap_or_default();
        shared.desk.done.put(&mut vec![(done, pages)]);
    }
}

/// Waits while there is no room. No byte is lost meanwhile: it is in the ring, or was not
/// acknowledged.
fn carry_out_one(desk: &Desk, io: &Io, by: Flusher) -> Done {
    let waits = Cell::new(None);
    let done = desk.medium.execute_with_room(io, by, |lack| {
        desk.room.wait_begins(lack);
        if let Some(before) = waits.replace(Some(lack)) {
            desk.room.wait_ends(before);
        }
        desk.queues.room.pause(ROOM_LOOK)
    });
    if matches!(io, Io::Store { .. }) {
        desk.room.look_if_grown(&desk.medium);
    }
    if let Some(lack) = waits.get() {
        desk.room.wait_ends(lack);
    }
    done
}
