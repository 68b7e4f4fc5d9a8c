//! The one place where the threads of a store meet. They have three roles:
//!
//! - A driver turns workers and never blocks: it brings their requests and submits ring batches.
//! - A helper carries out requests that may block and brings their completions.
//! - The builder, one of the helpers, goes on with write-backs and lets an idle store rest.
//!
//! No role owns the engine. Each thread leaves its items in inboxes and then takes the engine if it
//! is free, to move on everything that waits. A thread that finds the engine taken goes its way:
//! the holder looks again before it is done. This is flat combining (Hendler, Incze, Shavit,
//! Tzafrir, SPAA 2010): a commit costs no switch to another thread.
//!
//! With the feature `shuttle` locks and flags are those of that crate, and `interleavings` tries
//! the orders in which threads can meet here.

#[cfg(not(feature = "shuttle"))]
use std::sync::{
    Mutex, MutexGuard, PoisonError, TryLockError, TryLockResult,
    atomic::{AtomicBool, Ordering::SeqCst},
};

#[cfg(feature = "shuttle")]
use shuttle::sync::{
    Mutex, MutexGuard, PoisonError, TryLockError, TryLockResult,
    atomic::{AtomicBool, Ordering::SeqCst},
};

/// The role of a thread that takes the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Driver,
    /// It leaves ring batches to a driver. The system completes one with the help of the thread
    /// that submitted it, and this one may be in a flush by then.
    Helper,
}

/// The engine in the hands of a thread.
pub(super) type Held<'a, T> = MutexGuard<'a, T>;

/// An engine that threads of all roles move on.
#[derive(Default)]
pub(super) struct Meeting<T> {
    engine: Mutex<T>,
    /// A thread has found the engine taken and gone its way, perhaps during a
    /// [`Meeting::try_peek`].
    is_missed: AtomicBool,
}

/// How a thread went its way that wanted to move the engine on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// With no work left, or all of it left to the holder, which looks again before it is done.
    Done,
    /// It served others for long enough, and there is more.
    More,
    /// A thread has panicked with the engine in its hands.
    Broken,
}

impl<T> Meeting<T> {
    pub(super) fn new(engine: T) -> Meeting<T> {
        Meeting { engine: Mutex::new(engine), is_missed: AtomicBool::new(false) }
    }

    /// Waits for the engine. Items that come in meanwhile are left to this thread: it calls
    /// [`Meeting::advance`] after it has let the engine go. `None` if a thread has panicked with
    /// the engine in its hands.
    pub(super) fn hold(&self) -> Option<Held<'_, T>> {
        self.engine.lock().ok()
    }

    fn try_hold(&self) -> TryLockResult<Held<'_, T>> {
        match self.engine.try_lock() {
            Err(TryLockError::WouldBlock) => {}
            taken => return taken,
        }
        self.is_missed.store(true, SeqCst);
        // A peek may have looked at the flag just before.
        self.engine.try_lock()
    }

    /// Moves everything on that waits, unless another thread is doing that: at most `turns` times,
    /// then `after` each.
    pub(super) fn advance(
        &self,
        turns: usize,
        mut turn: impl FnMut(&mut T),
        after: impl Fn(),
        has_news: impl Fn() -> bool,
    ) -> Left {
        for _ in 0..turns {
            match self.try_hold() {
                Ok(mut engine) => turn(&mut engine),
                Err(TryLockError::WouldBlock) => return Left::Done,
                Err(TryLockError::Poisoned(_)) => return Left::Broken,
            }
            after();
            // Items that came in while the engine was taken were left to this thread.
            if !has_news() {
                return Left::Done;
            }
        }
        Left::More
    }

    /// Looks at the engine for a moment, unless another thread has it. If the flag is true, the
    /// caller must move the engine on: a thread that wanted to may have gone its way meanwhile.
    pub(super) fn try_peek<R>(&self, look: impl FnOnce(&mut T) -> R) -> (Option<R>, bool) {
        let Ok(mut engine) = self.engine.try_lock() else { return (None, false) };
        let seen = look(&mut engine);
        drop(engine);
        (Some(seen), self.is_missed.swap(false, SeqCst))
    }
}

/// Items that threads leave for the holder of the engine. A flag tells without the lock whether
/// there are any.
pub(super) struct Inbox<T> {
    items: Mutex<Vec<T>>,
    has_items: AtomicBool,
}

impl<T> Default for Inbox<T> {
    fn default() -> Inbox<T> {
        Inbox { items: Mutex::new(Vec::new()), has_items: AtomicBool::new(false) }
    }
}

impl<T> Inbox<T> {
    fn items(&self) -> MutexGuard<'_, Vec<T>> {
        // A plain queue: whole after a panic too.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves `items` into it; true if there were none before.
    pub(super) fn put(&self, items: &mut Vec<T>) -> bool {
        let mut waiting = self.items();
        let was_empty = waiting.is_empty();
        waiting.append(items);
        drop(waiting);
        // After the items: a thread that lowers the flag finds them.
        self.has_items.store(true, SeqCst);
        was_empty
    }

    /// Everything in it; `None` if it is empty.
    pub(super) fn take(&self) -> Option<Vec<T>> {
        // Before the items: later ones raise the flag again.
        self.has_items.swap(false, SeqCst).then(|| std::mem::take(&mut *self.items()))
    }

    /// Moves everything in it to the end of `into`.
    pub(super) fn take_into(&self, into: &mut Vec<T>) {
        if self.has_items.swap(false, SeqCst) {
            into.append(&mut self.items());
        }
    }

    pub(super) fn has_items(&self) -> bool {
        self.has_items.load(SeqCst)
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod interleavings {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use shuttle::sync::Arc;
    use shuttle::{check_dfs, check_pct, check_random, thread};

    use super::*;

    /// Enough for one thread that meets two others; a holder that is interrupted more often than
    /// this leaves the rest.
    const TURNS: usize = 3;

    #[derive(Default)]
    struct Shared {
        engine: Meeting<Vec<u32>>,
        inboxes: [Inbox<u32>; 2],
        is_reminded: AtomicBool,
    }

    impl Shared {
        fn turn(&self, engine: &mut Vec<u32>) {
            for inbox in &self.inboxes {
                engine.extend(inbox.take().unwrap_or_default());
            }
        }

        /// The other order: an item that came in between is there, and its flag is not.
        fn turn_wrongly(&self, engine: &mut Vec<u32>) {
            for inbox in &self.inboxes {
                engine.append(&mut inbox.items());
                inbox.has_items.store(false, SeqCst);
            }
        }

        fn has_news(&self) -> bool {
            self.inboxes.iter().any(Inbox::has_items)
        }

        fn advance(&self) {
            let turn = |engine: &mut Vec<u32>| self.turn(engine);
            self.note(self.engine.advance(TURNS, turn, || (), || self.has_news()));
        }

        fn note(&self, left: Left) {
            assert_ne!(left, Left::Broken);
            if left == Left::More {
                self.is_reminded.store(true, SeqCst);
            }
        }
    }

    /// Every thread leaves `count` requests and moves the engine on by `advance`; then all of them
    /// have been moved.
    fn meet(threads: usize, count: u32, advance: fn(&Shared)) {
        let shared = Arc::new(Shared::default());
        let leave = |worker: usize| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for number in 0..count {
                    shared.inboxes[worker % 2].put(&mut vec![worker as u32 * count + number]);
                    advance(&shared);
                }
            })
        };
        let handles: Vec<_> = (0..threads).map(leave).collect();
        handles.into_iter().for_each(|handle| handle.join().expect("it does not panic"));
        check_moved(&shared, threads as u32 * count);
    }

    /// One thread leaves a request and moves the engine on while another one peeks, and does
    /// `after` if the peek kept it away.
    fn peek_beside(after: fn(&Shared)) {
        let shared = Arc::new(Shared::default());
        let other = Arc::clone(&shared);
        let peeking = thread::spawn(move || {
            let (_, is_missed) = other.engine.try_peek(|engine| engine.len());
            if is_missed {
                after(&other);
            }
        });
        shared.inboxes[0].put(&mut vec![0]);
        shared.advance();
        peeking.join().expect("it does not panic");
        check_moved(&shared, 1);
    }

    fn check_moved(shared: &Shared, count: u32) {
        if shared.is_reminded.load(SeqCst) {
            // A helper was asked to go on.
            let mut engine = shared.engine.hold().expect("no thread panics");
            shared.turn(&mut engine);
        }
        let mut moved = shared.engine.hold().expect("no thread panics").clone();
        moved.sort_unstable();
        assert!(moved.into_iter().eq(0..count), "a request is left lying");
    }

    fn is_left(meet: impl Fn() + Send + Sync + 'static) -> bool {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| check_dfs(meet, None))) else {
            return false;
        };
        panic.downcast_ref::<&str>().is_some_and(|text| text.contains("left lying"))
    }

    fn is_caught(advance: fn(&Shared)) -> bool {
        is_left(move || meet(2, 1, advance))
    }

    #[test]
    fn no_request_is_left_beside_a_peek() {
        check_dfs(|| peek_beside(Shared::advance), None);
    }

    #[test]
    fn peek_that_ignores_a_missed_thread_is_caught() {
        assert!(is_left(|| peek_beside(|_| ())));
    }

    #[test]
    fn no_request_is_left_between_two_threads() {
        check_dfs(|| meet(2, 1, Shared::advance), None);
    }

    #[test]
    fn no_request_is_left_among_more_threads() {
        check_random(|| meet(3, 2, Shared::advance), 20_000);
        check_pct(|| meet(4, 2, Shared::advance), 20_000, 3);
    }

    #[test]
    fn a_holder_that_does_not_look_again_is_caught() {
        assert!(is_caught(|shared| {
            let turn = |engine: &mut Vec<u32>| shared.turn(engine);
            shared.note(shared.engine.advance(1, turn, || (), || false));
        }));
    }

    #[test]
    fn a_holder_that_looks_before_it_lets_go_is_caught() {
        assert!(is_caught(|shared| {
            if let Ok(mut engine) = shared.engine.try_hold() {
                while shared.has_news() {
                    shared.turn(&mut engine);
                }
            }
        }));
    }

    #[test]
    fn a_flag_that_is_lowered_after_the_items_are_taken_is_caught() {
        assert!(is_caught(|shared| {
            let turn = |engine: &mut Vec<u32>| shared.turn_wrongly(engine);
            shared.note(shared.engine.advance(TURNS, turn, || (), || shared.has_news()));
        }));
    }
}
