//! How threads leave each other work and nobody's is left lying: inboxes, and an engine that whoever finds it free moves
//! on (flat combining: Hendler, Incze, Shavit, Tzafrir, SPAA 2010).
//!
//! With the feature `shuttle` locks and flags are those of that crate, and `interleavings` tries the orders in which
//! threads can meet here.

#[cfg(not(feature = "shuttle"))]
use std::sync::{
    LockResult, Mutex, MutexGuard, PoisonError, TryLockError, TryLockResult,
    atomic::{AtomicBool, Ordering::SeqCst},
};

#[cfg(feature = "shuttle")]
use shuttle::sync::{
    LockResult, Mutex, MutexGuard, PoisonError, TryLockError, TryLockResult,
    atomic::{AtomicBool, Ordering::SeqCst},
};

/// The engine in the hands of a thread.
pub(super) type EngineGuard<'a, T> = MutexGuard<'a, T>;

/// Guards the engine.
#[derive(Default)]
pub(super) struct EngineLock<T> {
    engine: Mutex<T>,
    /// A thread has found it taken and gone its way, perhaps while another one had a [`glance`].
    is_missed: AtomicBool,
}

impl<T> EngineLock<T> {
    pub(super) fn new(engine: T) -> EngineLock<T> {
        EngineLock { engine: Mutex::new(engine), is_missed: AtomicBool::new(false) }
    }

    pub(super) fn lock(&self) -> LockResult<EngineGuard<'_, T>> {
        self.engine.lock()
    }

    fn try_lock(&self) -> TryLockResult<EngineGuard<'_, T>> {
        match self.engine.try_lock() {
            Err(TryLockError::WouldBlock) => {}
            taken => return taken,
        }
        self.is_missed.store(true, SeqCst);
        // Who had a glance may have looked at the flag just before.
        self.engine.try_lock()
    }
}

/// What was left for another thread. A flag tells whether there is something, without the lock.
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
        // After the items: whoever takes the flag away finds them.
        self.has_items.store(true, SeqCst);
        was_empty
    }

    /// Everything in it; `None` when there is nothing.
    pub(super) fn take(&self) -> Option<Vec<T>> {
        // Before the items: what comes in behind them raises the flag again.
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

/// How a thread that wanted to move the engine on went its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// With nothing to do, or all of it left to the holder, who looks again before it is done.
    Done,
    /// It served others for long enough, and there is more.
    More,
    /// A thread has panicked with the engine in its hands.
    Broken,
}

/// Moves everything on that waits, unless another thread is doing that: at most `turns` times, then `after` each.
pub(super) fn advance<T>(
    engine: &EngineLock<T>,
    turns: usize,
    mut turn: impl FnMut(&mut T),
    after: impl Fn(),
    has_news: impl Fn() -> bool,
) -> Left {
    for _ in 0..turns {
        match engine.try_lock() {
            Ok(mut engine) => turn(&mut engine),
            Err(TryLockError::WouldBlock) => return Left::Done,
            Err(TryLockError::Poisoned(_)) => return Left::Broken,
        }
        after();
        // What came in while the engine was taken was left to this thread.
        if !has_news() {
            return Left::Done;
        }
    }
    Left::More
}

/// Looks at the engine for a moment, unless another thread has it. Where the flag is true somebody who wanted to move it on
/// may have gone its way meanwhile: then the caller must do that.
pub(super) fn glance<T, R>(
    engine: &EngineLock<T>,
    look: impl FnOnce(&mut T) -> R,
) -> (Option<R>, bool) {
    let Ok(mut taken) = engine.engine.try_lock() else { return (None, false) };
    let seen = look(&mut taken);
    drop(taken);
    (Some(seen), engine.is_missed.swap(false, SeqCst))
}

#[cfg(all(test, feature = "shuttle"))]
mod interleavings {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use shuttle::sync::Arc;
    use shuttle::{check_dfs, check_pct, check_random, thread};

    use super::*;

    /// Enough for one thread that meets two others; a holder that is interrupted more often than this leaves the rest.
    const TURNS: usize = 3;

    #[derive(Default)]
    struct Shared {
        engine: EngineLock<Vec<u32>>,
        inboxes: [Inbox<u32>; 2],
        is_reminded: AtomicBool,
    }

    impl Shared {
        fn turn(&self, engine: &mut Vec<u32>) {
            for inbox in &self.inboxes {
                engine.extend(inbox.take().unwrap_or_default());
            }
        }

        /// The other order: what came in between is there, and its flag is not.
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
            self.note(advance(&self.engine, TURNS, turn, || (), || self.has_news()));
        }

        fn note(&self, left: Left) {
            assert_ne!(left, Left::Broken);
            if left == Left::More {
                self.is_reminded.store(true, SeqCst);
            }
        }
    }

    /// Every thread leaves `count` requests and moves the engine on by `advance`; then all of them have been moved.
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

    /// One thread leaves a request and moves the engine on while another one has a glance, and then does `after` if
    /// it is to move it on.
    fn glance_beside(after: fn(&Shared)) {
        let shared = Arc::new(Shared::default());
        let other = Arc::clone(&shared);
        let glancing = thread::spawn(move || {
            let (_, is_missed) = glance(&other.engine, |engine| engine.len());
            if is_missed {
                after(&other);
            }
        });
        shared.inboxes[0].put(&mut vec![0]);
        shared.advance();
        glancing.join().expect("it does not panic");
        check_moved(&shared, 1);
    }

    fn check_moved(shared: &Shared, count: u32) {
        if shared.is_reminded.load(SeqCst) {
            // A helper was asked to go on.
            let mut engine = shared.engine.lock().expect("nobody panics");
            shared.turn(&mut engine);
        }
        let mut moved = shared.engine.lock().expect("nobody panics").clone();
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
    fn nothing_is_left_lying_beside_a_glance() {
        check_dfs(|| glance_beside(Shared::advance), None);
    }

    #[test]
    fn who_has_a_glance_and_does_not_care_whom_it_kept_away_is_caught() {
        assert!(is_left(|| glance_beside(|_| ())));
    }

    #[test]
    fn nothing_is_left_lying_in_any_order_of_two_threads() {
        check_dfs(|| meet(2, 1, Shared::advance), None);
    }

    #[test]
    fn nothing_is_left_lying_among_more_threads() {
        check_random(|| meet(3, 2, Shared::advance), 20_000);
        check_pct(|| meet(4, 2, Shared::advance), 20_000, 3);
    }

    #[test]
    fn a_holder_that_does_not_look_again_is_caught() {
        assert!(is_caught(|shared| {
            let turn = |engine: &mut Vec<u32>| shared.turn(engine);
            shared.note(advance(&shared.engine, 1, turn, || (), || false));
        }));
    }

    #[test]
    fn a_holder_that_looks_before_it_lets_go_is_caught() {
        assert!(is_caught(|shared| {
            if let Ok(mut engine) = shared.engine.try_lock() {
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
            shared.note(advance(&shared.engine, TURNS, turn, || (), || shared.has_news()));
        }));
    }
}
