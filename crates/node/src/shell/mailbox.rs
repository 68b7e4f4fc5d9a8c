//! Messages between the threads of a node.
//!
//! A mailbox is filled in batches and emptied at once. Senders wake its owner only while it sleeps:
//! a wake-up across cores costs more than most turns. Mailboxes have no limit of their own. The
//! limits of requests per session and of frames per link bound their length.

use std::io;

use mio::net::TcpStream;
use mio::{Registry, Token, Waker};
use protocols::GroupReport;
use transport::{Connection, Hello, Pipe, Reset};
use types::{AmnesiaCount, Database, Epoch, Incarnation, NodeId, Outcome, Tag};

use super::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, PoisonError, Wake};
use crate::group_view::GroupOrder;
use crate::session::Client;
use crate::worker::{Input, Worker};

/// To a worker's thread.
pub(crate) enum Mail {
    /// A client that was dealt to this worker.
    Client { stream: TcpStream, client: Client },
    /// A request or a part of a frame for shards of this worker.
    Input(Input),
    /// The outcome of a request that a session of this worker made.
    Outcome { tag: Tag, outcome: Outcome },
    /// A peer has proven itself on a new connection.
    Link(Box<NewLink>),
    /// Close all connections: this node's counters changed.
    DropLinks,
    /// This node's amnesia count was durably raised.
    Amnesia(AmnesiaCount),
    /// This incarnation is durably this node's own.
    Renewed(Incarnation),
    /// An authenticated peer opened a new connection.
    Begin { worker: Box<Worker>, first: Vec<Input> },
}

/// A connection that has just been proven.
pub(crate) struct NewLink {
    /// Tells this link from its predecessors.
    pub(crate) serial: u64,
    pub(crate) channel: u16,
    pub(crate) peer: Hello,
    pub(crate) pipe: Box<dyn Pipe>,
    pub(crate) connection: Connection,
    /// Payloads that arrived with the proof.
    pub(crate) payloads: Vec<bytes::Bytes>,
}

/// Takes the epoch that an order begins, or why it was refused.
pub(crate) type OrderAnswer = std::sync::mpsc::SyncSender<Result<Epoch, String>>;

/// To the control thread.
pub(crate) enum ControlMail {
    /// A worker's link ended.
    LinkDown { peer: NodeId, channel: u16, serial: u64, why: Option<Reset> },
    /// A clock of countdowns was woken, or used for the first time.
    UptimesChanged,
    /// A worker found registers forgotten while its messages carried `at`.
    RaiseAmnesia { worker: usize, at: AmnesiaCount },
    /// A worker's transactions are shut out below this incarnation.
    Renew { worker: usize, below: Incarnation },
    /// A peer has become slow at the links of this loop's workers, or is so no longer.
    Slow { event_loop: usize, peer: NodeId, is_slow: bool },
    /// A peer did not answer a database's protocol in time.
    Suspect { database: Database, node: NodeId },
    /// The answer of a worker to the membership service.
    Group { worker: usize, database: Database, report: GroupReport },
    /// The end of an operation of the membership service on a register.
    Register { group: Database, token: u64, outcome: Outcome },
    /// An operator's order about a group.
    Order { order: GroupOrder, answer: OrderAnswer },
}

/// The incoming queue of one thread.
pub(crate) struct Mailbox<T, W = Waker> {
    items: Mutex<Vec<T>>,
    /// There may be items. A sender sets it after adding items, and the owner clears it before
    /// taking them.
    has_items: AtomicBool,
    asleep: AtomicBool,
    /// Something other than mail happened, for example storage completed something.
    notified: AtomicBool,
    /// How often the owner has looked into it.
    looks: AtomicU64,
    waker: W,
}

impl<T> Mailbox<T> {
    /// A mailbox whose owner waits on `registry` and is woken by an event with `token`.
    ///
    /// # Errors
    /// When the system is out of file descriptors.
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Mailbox<T>> {
        Ok(Mailbox::woken_by(Waker::new(registry, token)?))
    }
}

impl<T, W: Wake> Mailbox<T, W> {
    fn woken_by(waker: W) -> Mailbox<T, W> {
        Mailbox {
            items: Mutex::new(Vec::new()),
            has_items: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            notified: AtomicBool::new(false),
            looks: AtomicU64::new(0),
            waker,
        }
    }

    fn items(&self) -> MutexGuard<'_, Vec<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn send(&self, item: T) {
        self.items().push(item);
        self.has_items.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Hands over a batch, leaving it empty.
    pub(crate) fn send_all(&self, batch: &mut Vec<T>) {
        if !batch.is_empty() {
            self.items().append(batch);
            self.has_items.store(true, Ordering::SeqCst);
            self.wake();
        }
    }

    /// Makes the owner look around, without mail.
    pub(crate) fn notify(&self) {
        // Read before written: completions come often, and the flag's cache line is the owner's.
        if !self.notified.load(Ordering::SeqCst) {
            self.notified.store(true, Ordering::SeqCst);
        }
        self.wake();
    }

    fn wake(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Takes everything out, and says whether something other than mail has happened. `into` must
    /// be empty; its memory is reused.
    pub(crate) fn take(&self, into: &mut Vec<T>) -> bool {
        assert!(into.is_empty(), "mail is dealt with before more is taken");
        // Only the owner counts.
        self.looks.store(self.looks().wrapping_add(1), Ordering::Relaxed);
        // Read before the write: most polls find no mail.
        if self.has_mail() {
            self.has_items.store(false, Ordering::SeqCst);
            std::mem::swap(&mut *self.items(), into);
        }
        self.notified.load(Ordering::SeqCst) && self.notified.swap(false, Ordering::SeqCst)
    }

    /// How often the owner polled, with or without mail. An owner that hangs does not poll.
    pub(crate) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    pub(crate) fn has_mail(&self) -> bool {
        self.has_items.load(Ordering::SeqCst)
    }

    /// Announces that the owner is about to wait; false when there is something to do already.
    pub(crate) fn may_sleep(&self) -> bool {
        // A sender either is seen by the check below or sees the flag.
        self.asleep.store(true, Ordering::SeqCst);
        if !self.has_mail() && !self.notified.load(Ordering::SeqCst) {
            return true;
        }
        self.asleep.store(false, Ordering::SeqCst);
        false
    }

    /// The owner waits no more.
    pub(crate) fn awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }
}

#[cfg(all(test, feature = "shuttle"))]
#[path = "interleavings.rs"]
mod interleavings;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use mio::{Events, Poll};

    use super::*;

    #[test]
    fn nothing_is_slept_through() {
        let mut poll = Poll::new().expect("an epoll");
        let mailbox: Arc<Mailbox<u32>> =
            Arc::new(Mailbox::new(poll.registry(), Token(0)).expect("an eventfd"));
        let sender = Arc::clone(&mailbox);
        let count = 20_000;
        let thread = std::thread::spawn(move || (0..count).for_each(|n| sender.send(n)));
        let (mut seen, mut mail, mut events) = (Vec::new(), Vec::new(), Events::with_capacity(4));
        while seen.len() < count as usize {
            if mailbox.may_sleep() {
                // Never reached by a lost wake-up: the assertion below would see the time-out.
                poll.poll(&mut events, Some(Duration::from_secs(20))).expect("it polls");
                assert!(!events.is_empty(), "slept through {} of {count}", seen.len());
                mailbox.awake();
            }
            mailbox.take(&mut mail);
            seen.append(&mut mail);
        }
        thread.join().expect("the sender ends");
        assert!(seen.iter().copied().eq(0..count));
    }
}
