//! The inboxes and flags through which the threads of a store pass each other work.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

use super::meeting::Inbox;
use super::queues::Queues;
use super::room::RoomWatch;
use crate::disk::files::FileMedium;
use crate::disk::io::Done;
use crate::disk::page::CheckedPage;
use crate::disk::request::Request;
use crate::{Completion, Staging};

/// Called when a worker's store has completions for it to poll. Runs on any thread: it must not
/// block.
pub type Waker = Box<dyn Fn() + Send + Sync>;

/// Requests of a worker and completions for it. A store that is full bounds them: see
/// [`crate::Store::is_full`].
pub(super) struct Mailbox {
    pub(super) requests: Inbox<Request>,
    pub(super) completions: Inbox<Completion>,
    pub(super) waker: Waker,
}

pub(super) struct Desk {
    pub(super) mailboxes: Vec<Mailbox>,
    pub(super) is_full: AtomicBool,
    pub(super) is_overrun: AtomicBool,
    /// As it was when the store was opened.
    pub(super) staging: Staging,
    /// Bytes of the ring in use.
    pub(super) staged: AtomicU64,
    /// Bytes of memory that the engine takes for records that are not at their places.
    pub(super) memory: AtomicUsize,
    pub(super) medium: FileMedium,
    pub(super) binding: u64,
    pub(super) queues: Queues,
    /// Completions of helpers, with the pages that they have checked.
    pub(super) done: Inbox<(Done, Option<Vec<CheckedPage>>)>,
    /// The system may have completed a commit.
    pub(super) has_committed: AtomicBool,
    /// A batch waits for a driver.
    pub(super) has_stripe: AtomicBool,
    /// A batch is under way, or about to be.
    pub(super) is_committing: AtomicBool,
    /// Workers have left changes that may not have been taken yet.
    pub(super) has_changes: AtomicBool,
    pub(super) room: RoomWatch,
}

impl Desk {
    pub(super) fn new(
        medium: FileMedium,
        binding: u64,
        wakers: Vec<Waker>,
        (staging, memory): (Staging, usize),
    ) -> Desk {
        let mailbox = |waker| {
            let (requests, completions) = (Inbox::default(), Inbox::default());
            Mailbox { requests, completions, waker }
        };
        Desk {
            mailboxes: wakers.into_iter().map(mailbox).collect(),
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
            has_committed: AtomicBool::new(false),
            has_stripe: AtomicBool::new(false),
            is_committing: AtomicBool::new(false),
            has_changes: AtomicBool::new(false),
        }
    }

    /// True if the engine has something to take in.
    pub(super) fn has_news(&self) -> bool {
        self.done.has_items()
            || self.has_committed.load(SeqCst)
            || self.mailboxes.iter().any(|mailbox| mailbox.requests.has_items())
    }

    /// Wakes a driver if a batch was left to one. To be called without the engine: a driver that
    /// finds it taken goes its way.
    pub(super) fn call_driver(&self) {
        if self.has_stripe.load(SeqCst) {
            (self.mailboxes[0].waker)();
        }
    }

    pub(super) fn deliver(&self, worker: usize, completions: &mut Vec<Completion>) {
        let mailbox = &self.mailboxes[worker];
        if mailbox.completions.put(completions) {
            (mailbox.waker)();
        }
    }

    /// Tells the workers that a thread has panicked with the engine in its hands.
    pub(super) fn say_last_words(&self) {
        for worker in 0..self.mailboxes.len() {
            let reason = "the store's engine has panicked".to_owned();
            self.deliver(worker, &mut vec![Completion::Failed(reason)]);
        }
    }
}

/// Tells the workers when a thread panics with the engine in its hands.
pub(super) struct LastWords<'a>(pub(super) &'a Desk);

impl Drop for LastWords<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.say_last_words();
        }
    }
}
