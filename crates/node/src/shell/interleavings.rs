//! The orders in which threads can meet at mailboxes and worker assignments, as far as shuttle
//! tries them.
//!
//! An owner that sleeps when it must not is a deadlock, which shuttle reports. Each kind of mistake
//! that this would show is planted once.

use std::panic::{AssertUnwindSafe, catch_unwind};

use shuttle::sync::{Arc, Condvar};
use shuttle::{check_dfs, check_pct, check_random, thread};

use super::super::sync::AtomicU32;
use super::super::worker_assignment::WorkerAssignment;
use super::*;

/// Models the epoll of a thread: it waits until a sender rings, or has rung before.
#[derive(Default)]
struct Bell {
    is_rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    fn wait(&self) {
        let mut is_rung = self.is_rung.lock().expect("nobody panics");
        while !*is_rung {
            is_rung = self.rings.wait(is_rung).expect("nobody panics");
        }
        *is_rung = false;
    }
}

impl Wake for Arc<Bell> {
    fn wake(&self) {
        *self.is_rung.lock().expect("nobody panics") = true;
        self.rings.notify_one();
    }
}

type Letters = Mailbox<u32, Arc<Bell>>;

/// The behaviour of an owner and its senders with a mailbox.
#[derive(Clone, Copy)]
struct Ways {
    may_sleep: fn(&Letters) -> bool,
    send: fn(&Letters, u32),
    take: fn(&Letters, &mut Vec<u32>),
}

const RIGHT: Ways = Ways {
    may_sleep: Mailbox::may_sleep,
    send: Mailbox::send,
    take: |mailbox, mail| {
        mailbox.take(mail);
    },
};

/// One owner and as many senders, each of which leaves `count` items; the owner waits as the
/// control thread does.
fn meet(senders: u32, count: u32, Ways { may_sleep, send, take }: Ways) {
    let bell = Arc::new(Bell::default());
    let mailbox: Arc<Letters> = Arc::new(Mailbox::woken_by(Arc::clone(&bell)));
    let start = |sender: u32| {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || (0..count).for_each(|n| send(&mailbox, sender * count + n)))
    };
    let threads: Vec<_> = (0..senders).map(start).collect();
    let (mut seen, mut mail) = (Vec::new(), Vec::new());
    while seen.len() < (senders * count) as usize {
        if may_sleep(&mailbox) {
            bell.wait();
        }
        mailbox.awake();
        take(&mailbox, &mut mail);
        seen.append(&mut mail);
    }
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..senders * count));
}

/// A notifier tells of something that is no mail; the owner must look once more after it.
fn notified(notify: fn(&Letters)) {
    let bell = Arc::new(Bell::default());
    let mailbox: Arc<Letters> = Arc::new(Mailbox::woken_by(Arc::clone(&bell)));
    let has_happened = Arc::new(AtomicBool::new(false));
    let (sender, happened) = (Arc::clone(&mailbox), Arc::clone(&has_happened));
    let thread = thread::spawn(move || {
        happened.store(true, Ordering::SeqCst);
        notify(&sender);
    });
    while !has_happened.load(Ordering::SeqCst) {
        if mailbox.may_sleep() {
            bell.wait();
        }
        mailbox.awake();
        mailbox.take(&mut Vec::new());
    }
    thread.join().expect("it does not panic");
}

/// An event loop gives its worker to another during a send. The loop that owns the worker finds all
/// its mail.
///
/// The worker's own bell models its epoll, in which its mailbox rings. A loop that registers it
/// hears an earlier ring at once.
fn hand_over(is_registered: bool) {
    let worker_bell = Arc::new(WorkerBell::default());
    let mailbox = Arc::new(Mailbox::woken_by(Arc::clone(&worker_bell)));
    let assignment = Arc::new(WorkerAssignment::new(Arc::new(Bell::default())));
    let sender = Arc::clone(&mailbox);
    let sends = thread::spawn(move || (1..=2).for_each(|n| sender.send(n)));
    let sum = Arc::new(AtomicU32::new(0));
    let (next, registers, heard) =
        (Arc::clone(&assignment), Arc::clone(&worker_bell), Arc::clone(&sum));
    let runs = thread::spawn(move || {
        let mut workers = Vec::<Arc<Mailbox<u32, Arc<WorkerBell>>>>::new();
        while heard.load(Ordering::SeqCst) < 3 {
            for worker in next.take() {
                if is_registered {
                    registers.register(next.waker());
                }
                workers.push(worker);
            }
            // Without a worker, only the assignment can wake this loop.
            if workers.iter().all(|worker| worker.may_sleep()) {
                next.waker().wait();
            }
            workers.iter().for_each(|worker| iterate(worker, &heard));
        }
    });
    // The first event loop was about to sleep, and ran it once more.
    mailbox.may_sleep();
    iterate(&mailbox, &sum);
    assignment.give(vec![mailbox]);
    assert_eq!(assignment.count.load(Ordering::Relaxed), 1);
    sends.join().expect("it does not panic");
    runs.join().expect("it does not panic");
}

fn iterate(worker: &Mailbox<u32, Arc<WorkerBell>>, sum: &AtomicU32) {
    worker.awake();
    let mut mail = Vec::new();
    worker.take(&mut mail);
    sum.fetch_add(mail.into_iter().sum(), Ordering::SeqCst);
}

#[derive(Default)]
struct WorkerBell(Mutex<(bool, Option<Arc<Bell>>)>);

impl WorkerBell {
    fn register(&self, event_loop: &Arc<Bell>) {
        let mut state = self.0.lock().expect("nobody panics");
        state.1 = Some(Arc::clone(event_loop));
        if state.0 {
            event_loop.wake();
        }
    }
}

impl Wake for Arc<WorkerBell> {
    fn wake(&self) {
        let mut state = self.0.lock().expect("nobody panics");
        state.0 = true;
        if let Some(event_loop) = &state.1 {
            event_loop.wake();
        }
    }
}

/// True when some order ends in threads that all wait.
fn is_caught(run: impl Fn() + Send + Sync + 'static) -> bool {
    let tried = catch_unwind(AssertUnwindSafe(|| check_pct(run, 50_000, 3)));
    let Err(panic) = tried else { return false };
    panic.downcast_ref::<String>().is_some_and(|text| text.contains("deadlock"))
}

#[test]
fn no_mail_is_slept_through_in_any_order_of_one_sender() {
    check_dfs(|| meet(1, 1, RIGHT), Some(200_000));
}

#[test]
fn no_mail_is_slept_through_among_more_senders() {
    check_random(|| meet(2, 2, RIGHT), 20_000);
    check_pct(|| meet(3, 2, RIGHT), 20_000, 3);
}

#[test]
fn no_notice_is_slept_through() {
    check_random(|| notified(Mailbox::notify), 20_000);
    check_pct(|| notified(Mailbox::notify), 20_000, 3);
}

#[test]
fn a_worker_that_is_handed_over_is_driven() {
    check_random(|| hand_over(true), 20_000);
    check_pct(|| hand_over(true), 20_000, 3);
}

#[test]
fn an_owner_that_looks_before_it_says_that_it_sleeps_is_caught() {
    let may_sleep = |mailbox: &Letters| {
        let may_sleep = !mailbox.has_mail();
        if may_sleep {
            mailbox.asleep.store(true, Ordering::SeqCst);
        }
        may_sleep
    };
    assert!(is_caught(move || meet(1, 2, Ways { may_sleep, ..RIGHT })));
}

#[test]
fn a_sender_that_tells_of_an_item_before_it_is_there_is_caught() {
    let send = |mailbox: &Letters, item| {
        mailbox.has_items.store(true, Ordering::SeqCst);
        mailbox.items().push(item);
        mailbox.wake();
    };
    assert!(is_caught(move || meet(1, 2, Ways { send, ..RIGHT })));
}

#[test]
fn an_owner_that_forgets_what_it_was_told_after_it_has_taken_the_items_is_caught() {
    let take = |mailbox: &Letters, mail: &mut Vec<u32>| {
        std::mem::swap(&mut *mailbox.items(), mail);
        mailbox.has_items.store(false, Ordering::SeqCst);
    };
    assert!(is_caught(move || meet(1, 2, Ways { take, ..RIGHT })));
}

#[test]
fn a_notifier_that_wakes_before_it_notes_is_caught() {
    assert!(is_caught(|| {
        notified(|mailbox| {
            mailbox.wake();
            mailbox.notified.store(true, Ordering::SeqCst);
        });
    }));
}

#[test]
fn worker_unheard_by_its_new_event_loop_is_caught() {
    assert!(is_caught(|| hand_over(false)));
}
