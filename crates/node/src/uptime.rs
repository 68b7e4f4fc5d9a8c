//! The clocks on which times to live are counted, and when they are saved.
//!
//! A countdown is stored as the time on its clock at which it started. After a crash a clock goes on from the value
//! that was saved last, so a countdown loses at most the time since then. Three rules bound that by 1 s and 1 % of
//! the time to live, whenever the crash comes:
//!
//! - Spans within a factor of two share a clock, and it is saved once it has run for 0.8 s and 1 % of the shortest.
//! - A clock stands still while nothing counts on it. So a countdown that starts after a long rest starts no later
//!   than one such step behind the saved value, although nothing has been saved for it.
//! - A node knows after a restart which clocks must run: it saves the end of the last countdown with each clock, and
//!   after a crash each clock that was ever used runs for as long as its longest span. The first use of a clock is
//!   saved before anything about it leaves the node.
//!
//! No moment counts twice: a clock shows at most the time for which it has run, and starts are taken from the same
//! clock. A clock that stood still goes on with the offset of the worker that woke it: never a larger one.
//!
//! Workers share the clocks without a lock; the control thread stops them and saves them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

use base::{Millis, Nanos};
use protocols::Uptime;
use protocols::mutation::{self, Mutation};
use storage::identity::SavedClock;

/// Clocks of a node. The last one is for all spans of more than three days.
pub const CLASSES: usize = 14;

/// How spans are divided into classes, and how often clocks are saved. The simulator lives faster.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Spans of at most so many bits have the first clock.
    pub bits: u32,
    /// The first clock is saved once it has run for so long, and the others somewhat later.
    pub every: Millis,
}

impl Scale {
    pub const REAL: Scale = Scale { bits: 16, every: Millis(800) };

    fn class(self, span: Millis) -> usize {
        let bits = u64::BITS - span.0.leading_zeros();
        (bits.saturating_sub(self.bits) as usize).min(CLASSES - 1)
    }

    fn shortest(self, class: usize) -> u64 {
        if class == 0 { 0 } else { 1 << (self.bits as usize + class - 1) }
    }

    /// Every span of the class is shorter.
    fn longest(self, class: usize) -> u64 {
        if class == CLASSES - 1 { FOREVER } else { 1 << (self.bits as usize + class) }
    }

    fn save_after(self, class: usize) -> u64 {
        self.every.0 + self.shortest(class) / 100
    }

    /// How far the end of the last countdown is put off beyond what is needed, so that few countdowns move it.
    fn slack(self, span: Millis) -> u64 {
        span.0 / 8 + self.every.0 / 16
    }

    /// A crash may come so long after a save was due.
    fn save_takes(self) -> u64 {
        self.every.0 * 16
    }
}

/// No clock gets here.
const FOREVER: u64 = u64::MAX / 8;

/// What a countdown of `span` from `start` needs, cut milliseconds included.
fn end(start: Millis, span: Millis) -> u64 {
    start.0.saturating_add(span.0).saturating_add(2).min(FOREVER)
}

/// What a clock does, in one word that is read and changed at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Motion {
    /// It shows the process's milliseconds and this much.
    Running(i64),
    Resting(u64),
}

impl Motion {
    fn word(self) -> u64 {
        match self {
            Motion::Running(offset) => (offset << 1) as u64 | 1,
            Motion::Resting(shown) => shown << 1,
        }
    }

    fn of(word: u64) -> Motion {
        if word & 1 == 1 { Motion::Running(word as i64 >> 1) } else { Motion::Resting(word >> 1) }
    }

    fn shows(self, now: u64) -> Millis {
        match self {
            Motion::Running(offset) => Millis((now as i64).saturating_add(offset).max(0) as u64),
            Motion::Resting(shown) => Millis(shown),
        }
    }
}

#[derive(Debug)]
struct Clock {
    motion: AtomicU64,
    /// When it came to rest last, in the process's milliseconds.
    rested_at: AtomicU64,
    /// All countdowns that are known are over once the clock shows this.
    until: AtomicU64,
}

impl Clock {
    fn motion(&self) -> Motion {
        Motion::of(self.motion.load(SeqCst))
    }

    fn turn(&self, from: Motion, to: Motion) -> bool {
        self.motion.compare_exchange(from.word(), to.word(), SeqCst, SeqCst).is_ok()
    }

    /// Lets a resting clock run from now on; `now` is when the caller's turn began. False when another was faster.
    fn wake(&self, from: Motion, shown: u64, now: u64) -> bool {
        // It may have come to rest since this turn began; what it stood still for must not count.
        let now = now.max(self.rested_at.load(SeqCst));
        // The first millisecond may be all but over.
        let offset = shown as i64 - (now as i64 + 1);
        self.turn(from, Motion::Running(offset))
    }
}

/// The clocks, shared by the workers of a node and its control thread.
#[derive(Debug)]
pub struct Uptimes {
    scale: Scale,
    clocks: [Clock; CLASSES],
    /// Clocks of which is durable that they were used, one bit each.
    marked: AtomicU32,
    /// Clocks whose use is to become durable before this node says more.
    asked: AtomicU32,
    /// The control thread has to look.
    changed: AtomicBool,
}

impl Uptimes {
    /// Something was accepted that counts on a clock of which a crash would leave no trace.
    pub(crate) fn is_held(&self) -> bool {
        self.asked.load(SeqCst) != 0
    }

    /// True once after anything that the control thread has to look at.
    pub(crate) fn take_changed(&self) -> bool {
        self.changed.load(SeqCst) && self.changed.swap(false, SeqCst)
    }

    /// The clocks as a worker sees them in the turn that began at `now`.
    pub(crate) fn at(&self, now: Nanos) -> TurnUptime<'_> {
        TurnUptime { uptimes: self, turn: now }
    }

    fn mark(&self, class: usize) {
        let bit = 1 << class;
        if self.marked.load(SeqCst) & bit == 0 {
            self.asked.fetch_or(bit, SeqCst);
            self.changed.store(true, SeqCst);
        }
    }

    fn wake(&self, class: usize, now: u64) {
        let clock = &self.clocks[class];
        while let from @ Motion::Resting(shown) = clock.motion() {
            if clock.wake(from, shown, now) {
                self.changed.store(true, SeqCst);
            }
        }
    }
}

/// [`Uptimes`] within one turn of a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnUptime<'a> {
    uptimes: &'a Uptimes,
    turn: Nanos,
}

impl Uptime for TurnUptime<'_> {
    fn now(&self, span: Millis) -> Millis {
        let class = self.uptimes.scale.class(span);
        self.uptimes.clocks[class].motion().shows(self.turn.as_millis())
    }

    fn start(&self, span: Millis) -> Millis {
        let Uptimes { scale, clocks, .. } = self.uptimes;
        let class = scale.class(span);
        let (clock, now) = (&clocks[class], self.turn.as_millis());
        loop {
            self.uptimes.wake(class, now);
            let start = clock.motion().shows(now);
            let end = end(start, span);
            if clock.until.load(SeqCst) >= end {
                // Before the mark is looked at: a node that stops takes the marks away, then reads the end.
                self.uptimes.mark(class);
                return start;
            }
            // The clock may have come to rest before it saw this: it is looked at again.
            clock.until.fetch_max(end.saturating_add(scale.slack(span)).min(FOREVER), SeqCst);
        }
    }

    fn keep(&self, span: Millis, start: Millis) {
        let Uptimes { scale, clocks, .. } = self.uptimes;
        let class = scale.class(span);
        if clocks[class].until.load(SeqCst) < end(start, span) {
            clocks[class].until.fetch_max(end(start, span), SeqCst);
            self.uptimes.wake(class, self.turn.as_millis());
            self.uptimes.mark(class);
            self.uptimes.changed.store(true, SeqCst);
        }
    }
}

/// Stops clocks that nothing counts on, and says when they are to be saved.
#[derive(Debug)]
pub struct Keeper {
    uptimes: Arc<Uptimes>,
    saved: [u64; CLASSES],
}

impl Keeper {
    /// Clocks that go on from what was saved, at `now` of a new process. `orderly`: nothing happened since.
    #[must_use]
    pub fn restore(scale: Scale, saved: &[SavedClock], orderly: bool, now: Nanos) -> Keeper {
        let now = now.as_millis();
        let found = |class: usize| saved.get(class).copied().unwrap_or_default();
        let clock = |class: usize| {
            let SavedClock { mut shown, until } = found(class);
            if mutation::is(Mutation::CountTwice) && !orderly {
                shown.0 += scale.save_takes();
            }
            let until = match until.0 {
                0 => 0,
                // Countdowns may have started since, on a clock that had gone on for a while.
                until if !orderly => {
                    let late = scale.save_after(class) + scale.save_takes() + 2;
                    let last = shown.0 + late + scale.longest(class);
                    until.max(last).min(FOREVER)
                }
                until => until,
            };
            let motion = if shown.0 < until {
                Motion::Running(shown.0 as i64 - (now as i64 + 1))
            } else {
                Motion::Resting(shown.0)
            };
            Clock {
                motion: AtomicU64::new(motion.word()),
                rested_at: AtomicU64::new(now),
                until: AtomicU64::new(until),
            }
        };
        let is_marked = |class: &usize| found(*class).until.0 > 0;
        let marked = (0..CLASSES).filter(is_marked).fold(0, |marks, class| marks | 1 << class);
        let uptimes = Uptimes {
            scale,
            clocks: std::array::from_fn(clock),
            marked: AtomicU32::new(marked),
            asked: AtomicU32::new(0),
            changed: AtomicBool::new(false),
        };
        Keeper {
            uptimes: Arc::new(uptimes),
            saved: std::array::from_fn(|class| found(class).shown.0),
        }
    }

    #[must_use]
    pub fn uptimes(&self) -> Arc<Uptimes> {
        Arc::clone(&self.uptimes)
    }

    /// Stops clocks whose countdowns are over. `Some`: write this, and tell [`Keeper::on_saved`] once it is durable.
    pub fn look(&mut self, now: Nanos) -> Option<Vec<SavedClock>> {
        let now = now.as_millis();
        (0..CLASSES).for_each(|class| self.rest(class, now));
        let scale = self.uptimes.scale;
        let is_due =
            |class| self.unsaved(class, now).is_some_and(|ran| ran >= scale.save_after(class));
        (self.uptimes.is_held() || (0..CLASSES).any(is_due)).then(|| self.save(now))
    }

    /// When to look again, if nothing changes before.
    #[must_use]
    pub fn next(&self, now: Nanos) -> Option<Nanos> {
        let millis = now.as_millis();
        let left = |class| {
            let ran = self.unsaved(class, millis)?;
            let clock = &self.uptimes.clocks[class];
            let shown = clock.motion().shows(millis).0;
            let until_rest = clock.until.load(SeqCst).saturating_sub(shown);
            Some(self.uptimes.scale.save_after(class).saturating_sub(ran).min(until_rest))
        };
        // A millisecond later, so that it is over.
        (0..CLASSES).filter_map(left).min().map(|left| now + Nanos::from_millis(left + 1))
    }

    /// What a crash at `now` would cost a countdown beyond its bound, `saved` being durable; in milliseconds.
    ///
    /// For the simulator. `late` is how long a save may take, and the wait for one that is due.
    #[must_use]
    pub fn excess(&self, now: Nanos, saved: &[SavedClock], late: Millis) -> u64 {
        let lost = |class: usize| {
            let clock = &self.uptimes.clocks[class];
            let shown = clock.motion().shows(now.as_millis()).0;
            let kept = saved.get(class).map_or(0, |clock| clock.shown.0);
            let bound = self.uptimes.scale.save_after(class) + late.0;
            match shown < clock.until.load(SeqCst) {
                true => shown.saturating_sub(kept).saturating_sub(bound),
                false => 0,
            }
        };
        (0..CLASSES).map(lost).max().unwrap_or(0)
    }

    /// This is durable.
    pub fn on_saved(&mut self, save: &[SavedClock]) {
        let mut marks = 0;
        for (class, clock) in save.iter().enumerate() {
            self.saved[class] = clock.shown.0;
            marks |= u32::from(clock.until.0 > 0) << class;
        }
        self.uptimes.marked.fetch_or(marks, SeqCst);
        self.uptimes.asked.fetch_and(!marks, SeqCst);
    }

    /// The last word of a process that stops in order. Countdowns that start from now on are held back for ever, so
    /// what is saved is all. `None`: there is nothing to save.
    pub fn close(&mut self, now: Nanos) -> Option<Vec<SavedClock>> {
        self.uptimes.marked.store(0, SeqCst);
        let save = self.save(now.as_millis());
        save.iter().any(|clock| clock.until.0 > 0).then_some(save)
    }

    /// How long a clock has run since it was saved. `None`: nothing counts on it.
    fn unsaved(&self, class: usize, now: u64) -> Option<u64> {
        let clock = &self.uptimes.clocks[class];
        let shown = clock.motion().shows(now).0;
        (shown < clock.until.load(SeqCst)).then(|| shown.saturating_sub(self.saved[class]))
    }

    fn rest(&self, class: usize, now: u64) {
        let clock = &self.uptimes.clocks[class];
        let from @ Motion::Running(_) = clock.motion() else { return };
        let shown = from.shows(now).0;
        if shown < clock.until.load(SeqCst) || mutation::is(Mutation::NeverRests) {
            return;
        }
        clock.rested_at.store(now, SeqCst);
        let to = Motion::Resting(shown);
        if clock.turn(from, to) && clock.until.load(SeqCst) > shown {
            // A countdown started meanwhile, and may not have seen that its clock came to rest. Where another worker
            // has woken it already, that stands.
            let _ = clock.turn(to, from);
        }
    }

    fn save(&self, now: u64) -> Vec<SavedClock> {
        let clock = |clock: &Clock| SavedClock {
            until: Millis(clock.until.load(SeqCst)),
            shown: clock.motion().shows(now),
        };
        self.uptimes.clocks.iter().map(clock).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Millis = Millis(86_400_000);
    const LOCK: Millis = Millis(2_000);

    /// A node's clocks, the identity that they are saved to, and its process's time.
    struct Node {
        keeper: Keeper,
        saved: Vec<SavedClock>,
        now: u64,
    }

    impl Node {
        fn new() -> Node {
            Node { keeper: keeper(&[], true, 5), saved: Vec::new(), now: 5 }
        }

        fn at(&self) -> Nanos {
            Nanos::from_millis(self.now)
        }

        fn start(&self, span: Millis) -> Millis {
            self.keeper.uptimes.at(self.at()).start(span)
        }

        fn rest(&self, span: Millis, start: Millis) -> u64 {
            let at = self.keeper.uptimes.at(self.at());
            let at: &dyn Uptime = &at;
            at.rest(span, start).0
        }

        /// Lets time pass, saving in time. How often it saved.
        fn pass(&mut self, millis: u64) -> u64 {
            let (end, mut saves) = (self.now + millis, 0);
            loop {
                while let Some(save) = self.keeper.look(self.at()) {
                    self.keeper.on_saved(&save);
                    self.saved = save;
                    saves += 1;
                }
                let next = self.keeper.next(self.at()).map_or(end, |next| next.as_millis());
                assert!(next > self.now, "it looks again and again");
                if next >= end {
                    self.now = end;
                    return saves;
                }
                self.now = next;
            }
        }

        fn crash(&mut self) {
            self.now = 3;
            self.keeper = keeper(&self.saved, false, self.now);
        }

        fn stop(&mut self) {
            if let Some(save) = self.keeper.close(self.at()) {
                self.saved = save;
            }
            self.now = 3;
            self.keeper = keeper(&self.saved, true, self.now);
        }
    }

    fn keeper(saved: &[SavedClock], orderly: bool, now: u64) -> Keeper {
        Keeper::restore(Scale::REAL, saved, orderly, Nanos::from_millis(now))
    }

    fn most(span: Millis) -> u64 {
        1_000 + span.0 / 100
    }

    #[test]
    fn every_class_is_saved_in_time() {
        let scale = Scale::REAL;
        for span in (0..40).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]) {
            let class = scale.class(Millis(span));
            assert!(scale.shortest(class) <= span && span < scale.longest(class), "{span}");
            assert!(scale.save_after(class) + 150 < most(Millis(span)), "{span}");
        }
        assert_eq!(scale.class(Millis(u64::MAX)), CLASSES - 1);
    }

    #[test]
    fn node_without_countdowns_saves_nothing() {
        let mut node = Node::new();
        assert_eq!(node.pass(DAY.0), 0);
        node.crash();
        assert_eq!(node.pass(DAY.0), 0);
        node.stop();
        assert!(node.saved.is_empty());
    }

    #[test]
    fn clock_stands_still_when_nothing_counts() {
        let mut node = Node::new();
        node.start(LOCK);
        assert!(node.pass(3_000) > 0);
        assert_eq!(node.pass(DAY.0), 0);
        let start = node.start(LOCK);
        assert!(start.0 < 3_000, "{start:?} after a day");
        assert_eq!(node.rest(LOCK, start), LOCK.0);
    }

    #[test]
    fn day_long_countdown_is_saved_every_quarter_of_an_hour() {
        let mut node = Node::new();
        let start = node.start(DAY);
        let saves = node.pass(DAY.0);
        assert!((96..160).contains(&saves), "{saves} saves");
        assert!(node.rest(DAY, start) <= 2);
        node.pass(2);
        assert_eq!(node.rest(DAY, start), 0);
    }

    /// The smallest input of the fault: a long countdown runs, a short one starts, the node is killed.
    #[test]
    fn crash_costs_a_short_countdown_little_beside_a_long_one() {
        for held in [0, 1, 40, 799, 801, 1_300] {
            let mut node = Node::new();
            node.start(DAY);
            node.pass(290_000);
            let lock = node.start(LOCK);
            // Its first use is held back until a trace of it is durable.
            node.pass(held.max(1));
            node.crash();
            let left = node.rest(LOCK, lock);
            assert!(left <= LOCK.0 - held + most(LOCK), "{left} ms are left after {held}");
            assert!(left >= LOCK.0 - held, "early: {left} ms are left after {held}");
            node.pass(left + 2);
            assert_eq!(node.rest(LOCK, lock), 0);
        }
    }

    #[test]
    fn crashes_in_a_row_cost_little_each() {
        for span in [LOCK, Millis(70_000), Millis(3_600_000), DAY] {
            let mut node = Node::new();
            node.pass(1_000_000);
            let start = node.start(span);
            let (mut ran, mut crashes) = (0, 0);
            let step = most(span) + span.0 / 7;
            while node.rest(span, start) > 0 {
                node.pass(step);
                ran += step;
                node.crash();
                crashes += 1;
                assert!(crashes < 20, "{span:?} never ends");
            }
            assert!(ran >= span.0, "{span:?} was early");
            assert!(ran <= span.0 + step + crashes * most(span), "{span:?} took {ran} ms");
        }
    }

    #[test]
    fn countdown_that_was_not_saved_runs_after_a_crash() {
        let mut node = Node::new();
        node.start(LOCK);
        node.pass(10_000);
        // A clock that was used before: nothing is held back.
        let lock = node.start(LOCK);
        assert!(!node.keeper.uptimes.is_held());
        node.crash();
        node.pass(LOCK.0 + most(LOCK));
        assert_eq!(node.rest(LOCK, lock), 0);
    }

    #[test]
    fn first_use_of_a_clock_is_held_until_it_is_saved() {
        let mut node = Node::new();
        node.start(LOCK);
        assert!(node.keeper.uptimes.is_held() && node.keeper.uptimes.take_changed());
        node.pass(1);
        assert!(!node.keeper.uptimes.is_held());
        node.start(LOCK);
        assert!(!node.keeper.uptimes.is_held());
        node.start(DAY);
        assert!(node.keeper.uptimes.is_held());
    }

    #[test]
    fn orderly_stop_costs_nothing() {
        let mut node = Node::new();
        let start = node.start(DAY);
        node.pass(DAY.0 / 2 + 77);
        let left = node.rest(DAY, start);
        node.stop();
        assert!((left..=left + 1).contains(&node.rest(DAY, start)));
        node.pass(left + 2);
        assert_eq!(node.rest(DAY, start), 0);
        node.pass(DAY.0 / 4);
        assert_eq!(node.pass(DAY.0), 0, "nothing counts any more");
        node.stop();
        assert_eq!(node.pass(DAY.0), 0, "nor after an orderly restart");
    }

    #[test]
    fn what_starts_while_the_node_stops_is_held_back() {
        let mut node = Node::new();
        node.start(LOCK);
        node.pass(1);
        assert!(!node.keeper.uptimes.is_held());
        assert!(node.keeper.close(node.at()).is_some());
        node.start(LOCK);
        assert!(node.keeper.uptimes.is_held());
    }

    #[test]
    fn countdown_nobody_knows_of_wakes_its_clock() {
        let mut node = Node::new();
        let start = Millis(3);
        assert_eq!(node.rest(LOCK, start), LOCK.0);
        assert!(node.keeper.uptimes.is_held());
        node.pass(LOCK.0 + 10);
        assert_eq!(node.rest(LOCK, start), 0);
    }

    #[test]
    fn worker_in_an_old_turn_counts_no_time_at_rest() {
        let mut node = Node::new();
        let old = node.start(LOCK);
        node.pass(1);
        let end = node.keeper.uptimes.clocks[0].until.load(SeqCst);
        let before = node.at();
        node.pass(end + 50);
        let Motion::Resting(shown) = node.keeper.uptimes.clocks[0].motion() else {
            panic!("nothing counts")
        };
        // Its turn began before the clock came to rest.
        let start = node.keeper.uptimes.at(before).start(LOCK);
        assert!(start.0 < shown);
        assert_eq!(node.rest(LOCK, old), 0);
        let at = node.keeper.uptimes.at(Nanos::from_millis(node.now));
        assert!(at.now(LOCK).0 <= shown + 50);
        node.now = before.as_millis() + LOCK.0;
        assert!(node.rest(LOCK, start) > 0, "never early");
    }

    /// Threads start countdowns while the clock comes to rest again and again: no countdown is over early.
    #[test]
    fn countdowns_are_never_early_while_clocks_come_to_rest() {
        let keeper = Keeper::restore(Scale { bits: 16, every: Millis(16) }, &[], true, Nanos(0));
        let (uptimes, began) = (keeper.uptimes(), std::time::Instant::now());
        let now = move || Nanos(began.elapsed().as_nanos() as u64);
        let worker = move |uptimes: Arc<Uptimes>, seed: u64| {
            for round in 0..300_u64 {
                let turn = now();
                let span = Millis(1 + (round * 7 + seed) % 4);
                let start = uptimes.at(turn).start(span);
                while uptimes.at(now()).now(span).0 <= start.0 + span.0 {
                    assert!(now() < turn + Nanos::from_secs(60), "the clock stands still");
                    std::hint::spin_loop();
                }
                let passed = now().since(turn);
                assert!(passed >= Nanos::from_millis(span.0), "{span:?} took {passed:?}");
                std::thread::sleep(std::time::Duration::from_micros(500 * (round % 5)));
            }
        };
        let threads: Vec<_> = (0..2)
            .map(|seed| {
                let uptimes = Arc::clone(&uptimes);
                std::thread::spawn(move || worker(uptimes, seed))
            })
            .collect();
        let mut keeper = keeper;
        while threads.iter().any(|thread| !thread.is_finished()) {
            if let Some(save) = keeper.look(now()) {
                keeper.on_saved(&save);
            }
            std::thread::yield_now();
        }
        threads.into_iter().for_each(|thread| thread.join().expect("never early"));
    }
}
