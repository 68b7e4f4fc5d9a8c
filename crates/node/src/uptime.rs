//! The clocks that times to live count on, and the schedule that saves them.
//!
//! A countdown is stored as the time on its clock at which it started. After a crash a clock goes
//! on from the latest saved value, so a countdown loses at most the time since that save. Three
//! rules bound that by 1 s and 1 % of the time to live, whenever the crash comes.
//!
//! - Spans within a factor of two share a clock. It is saved once it has run for 0.8 s and 1 %
//!   of the shortest.
//! - A clock stands still while no countdown uses it. So a countdown that starts after a long rest
//!   starts no later than one such step behind the saved value, although no save was due.
//! - A node knows after a restart which clocks must run: it saves the end of the last countdown
//!   with each clock. After a crash each clock that was ever used runs for twice its longest span.
//!   The first use of a clock is saved before the register that counts on it. It is also saved
//!   before anything about it leaves the node. So is a countdown that starts far beyond the saved
//!   value, because a save stalls.
//!
//! No moment counts twice. A clock shows at most the time for which it has run, and starts are
//! taken from the same clock. A clock that stood still goes on with the offset of the worker that
//! woke it: never a larger one. A clock never rests twice at the same time. So a worker that was
//! kept waiting cannot wake it from an earlier rest.
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

    /// Extends the saved end of the last countdown, so that few new countdowns move it.
    fn slack(self, span: Millis) -> u64 {
        span.0 / 8 + self.every.0 / 16
    }

    /// A crash may come so long after a save was due.
    fn save_takes(self) -> u64 {
        self.every.0 * 16
    }

    /// Further beyond the saved value no countdown starts before the next save.
    fn far(self, class: usize) -> u64 {
        self.save_after(class) + self.save_takes() / 2
    }
}

/// Beyond every reading of a clock.
const FOREVER: u64 = u64::MAX / 8;

/// The time at which a countdown of `span` from `start` surely ended, cut milliseconds included.
fn end(start: Millis, span: Millis) -> u64 {
    start.0.saturating_add(span.0).saturating_add(2).min(FOREVER)
}

/// The state of a clock in one word that is read and changed at once.
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

    /// When a countdown starts that is accepted now. `None` at rest: the clock shows a time before
    /// this turn, and its rest may be taken back.
    fn starts(self, now: u64) -> Option<Millis> {
        matches!(self, Motion::Running(_)).then(|| self.shows(now))
    }

    fn shows(self, now: u64) -> Millis {
        match self {
            Motion::Running(offset) => Millis((now as i64).saturating_add(offset).max(0) as u64),
            Motion::Resting(shown) => Millis(shown),
        }
    }
}

#[derive(Debug)]
struct UptimeClock {
    motion: AtomicU64,
    /// When it came to rest last, in the process's milliseconds.
    rested_at: AtomicU64,
    /// All countdowns that are known are over once the clock shows this.
    until: AtomicU64,
    /// The value that it shows after a crash.
    saved: AtomicU64,
}

impl UptimeClock {
    fn motion(&self) -> Motion {
        Motion::of(self.motion.load(SeqCst))
    }

    fn turn(&self, from: Motion, to: Motion) -> bool {
        self.motion.compare_exchange(from.word(), to.word(), SeqCst, SeqCst).is_ok()
    }

    /// Lets a resting clock run from now on; `now` is when the caller's turn began. False when
    /// another was faster.
    fn wake(&self, from: Motion, shown: u64, now: u64) -> bool {
        // It may have come to rest since this turn began. The rest must not count.
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
    clocks: [UptimeClock; CLASSES],
    /// Clocks of which is durable that they were used, one bit each.
    marked: AtomicU32,
    /// Clocks whose use is to become durable before this node says more.
    asked: AtomicU32,
    /// The control thread must check the clocks.
    changed: AtomicBool,
}

impl Uptimes {
    /// A countdown was accepted whose clock would stand still after a crash, or stop too early.
    /// It is neither stored nor told before the clock is saved.
    pub(crate) fn is_held(&self) -> bool {
        self.asked.load(SeqCst) != 0
    }

    /// True once after a change that the control thread must check.
    pub(crate) fn take_changed(&self) -> bool {
        self.changed.load(SeqCst) && self.changed.swap(false, SeqCst)
    }

    /// The clocks as a worker sees them in the turn that began at `now`.
    pub(crate) fn at(&self, now: Nanos) -> TurnUptime<'_> {
        TurnUptime { uptimes: self, turn: now }
    }

    fn mark(&self, class: usize, start: u64) {
        let bit = 1 << class;
        let is_far = start > self.clocks[class].saved.load(SeqCst) + self.scale.far(class);
        if is_far || self.marked.load(SeqCst) & bit == 0 {
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

impl TurnUptime<'_> {
    /// `between` runs where other threads may take steps: tests order the steps with it.
    fn start_in_steps(&self, span: Millis, mut between: impl FnMut()) -> Millis {
        let Uptimes { scale, clocks, .. } = self.uptimes;
        let class = scale.class(span);
        let (clock, now) = (&clocks[class], self.turn.as_millis());
        loop {
            self.uptimes.wake(class, now);
            between();
            let Some(start) = clock.motion().starts(now) else { continue };
            between();
            let end = end(start, span);
            if clock.until.load(SeqCst) >= end {
                // Before the mark is read: a node that stops takes the marks away, then reads
                // the end.
                self.uptimes.mark(class, start.0);
                return start;
            }
            between();
            // The clock may have come to rest before it saw this: read it again.
            clock.until.fetch_max(end.saturating_add(scale.slack(span)).min(FOREVER), SeqCst);
        }
    }
}

impl Uptime for TurnUptime<'_> {
    fn now(&self, span: Millis) -> Millis {
        let class = self.uptimes.scale.class(span);
        self.uptimes.clocks[class].motion().shows(self.turn.as_millis())
    }

    fn start(&self, span: Millis) -> Millis {
        self.start_in_steps(span, || {})
    }

    fn keep(&self, span: Millis, start: Millis) {
        let Uptimes { scale, clocks, .. } = self.uptimes;
        let class = scale.class(span);
        if clocks[class].until.load(SeqCst) < end(start, span) {
            clocks[class].until.fetch_max(end(start, span), SeqCst);
            self.uptimes.wake(class, self.turn.as_millis());
            self.uptimes.mark(class, start.0);
            self.uptimes.changed.store(true, SeqCst);
        }
    }
}

/// Stops unused clocks and schedules saves.
#[derive(Debug)]
pub struct Keeper {
    uptimes: Arc<Uptimes>,
    /// The times that clocks showed when they came to rest last.
    rested: [u64; CLASSES],
    /// A save failed and is tried again then.
    retry: Option<Nanos>,
}

impl Keeper {
    /// Restores clocks from saved values at `now` of a new process. `orderly`: the last save was
    /// complete.
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
                // Countdowns may have started after the save, on a clock that ran on for as long as
                // a save stalled.
                until if !orderly => {
                    let late = scale.save_after(class) + scale.save_takes() + 2;
                    let last = shown.0 + late + 2 * scale.longest(class);
                    until.max(last).min(FOREVER)
                }
                until => until,
            };
            let motion = if shown.0 < until {
                Motion::Running(shown.0 as i64 - (now as i64 + 1))
            } else {
                Motion::Resting(shown.0)
            };
            UptimeClock {
                motion: AtomicU64::new(motion.word()),
                rested_at: AtomicU64::new(now),
                until: AtomicU64::new(until),
                saved: AtomicU64::new(shown.0),
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
            rested: std::array::from_fn(|class| found(class).shown.0),
            retry: None,
        }
    }

    #[must_use]
    pub fn uptimes(&self) -> Arc<Uptimes> {
        Arc::clone(&self.uptimes)
    }

    /// Stops clocks whose countdowns are over. `Some`: write this, and tell [`Keeper::on_saved`]
    /// once it is durable.
    pub fn look(&mut self, now: Nanos) -> Option<Vec<SavedClock>> {
        if self.retry.is_some_and(|retry| now < retry) {
            return None;
        }
        self.retry = None;
        let now = now.as_millis();
        for class in 0..CLASSES {
            self.rest(class, now);
        }
        let scale = self.uptimes.scale;
        let is_due =
            |class| self.unsaved(class, now).is_some_and(|ran| ran >= scale.save_after(class));
        (self.uptimes.is_held() || (0..CLASSES).any(is_due)).then(|| self.save(now))
    }

    /// The time of the next check, if no clock changes before.
    #[must_use]
    pub fn next(&self, now: Nanos) -> Option<Nanos> {
        if self.retry.is_some() {
            return self.retry;
        }
        let millis = now.as_millis();
        let left = |class: usize| {
            let clock = &self.uptimes.clocks[class];
            // One whose countdowns are over runs until the next look stops it.
            let motion @ Motion::Running(_) = clock.motion() else { return None };
            let ran = self.unsaved(class, millis)?;
            let shown = motion.shows(millis).0;
            let until_rest = clock.until.load(SeqCst).saturating_sub(shown);
            Some(self.uptimes.scale.save_after(class).saturating_sub(ran).min(until_rest))
        };
        // A millisecond later, so that it is over.
        (0..CLASSES).filter_map(left).min().map(|left| now + Nanos::from_millis(left + 1))
    }

    /// The milliseconds beyond its bound that a countdown would lose in a crash at `now`, with
    /// `saved` durable.
    ///
    /// For the simulator. `late` is the longest duration of a save, with the wait for one that is
    /// due.
    #[must_use]
    pub fn excess(&self, now: Nanos, saved: &[SavedClock], late: Millis) -> u64 {
        let lost = |class: usize| {
            let clock = &self.uptimes.clocks[class];
            let shown = clock.motion().shows(now.as_millis()).0;
            let kept = saved.get(class).map_or(0, |clock| clock.shown.0);
            let bound = self.uptimes.scale.save_after(class) + late.0;
            // Also of a clock that rests: the next countdown starts where it stands.
            shown.saturating_sub(kept).saturating_sub(bound)
        };
        (0..CLASSES).map(lost).max().unwrap_or(0)
    }

    /// `save` became durable at `now`.
    pub fn on_saved(&mut self, save: &[SavedClock], now: Nanos) {
        let Uptimes { scale, clocks, .. } = &*self.uptimes;
        let (mut marks, mut near) = (0, 0);
        for (class, (clock, saved)) in clocks.iter().zip(save).enumerate() {
            clock.saved.store(saved.shown.0, SeqCst);
            marks |= u32::from(saved.until.0 > 0) << class;
            // If the save took long, countdowns that started meanwhile wait for the next one.
            let shown = clock.motion().shows(now.as_millis()).0;
            near |= u32::from(shown <= saved.shown.0 + scale.far(class)) << class;
        }
        self.uptimes.marked.fetch_or(marks, SeqCst);
        self.uptimes.asked.fetch_and(!(marks & near), SeqCst);
    }

    /// The save failed for want of room. Retries later.
    pub fn on_refused(&mut self, now: Nanos) {
        self.retry = Some(now + Nanos::from_millis(self.uptimes.scale.every.0 / 2));
    }

    /// The final save of a process that stops in order. Later countdowns are held back for ever, so
    /// the save is complete. `None`: no clock has a countdown.
    pub fn close(&mut self, now: Nanos) -> Option<Vec<SavedClock>> {
        self.uptimes.marked.store(0, SeqCst);
        let save = self.save(now.as_millis());
        save.iter().any(|clock| clock.until.0 > 0).then_some(save)
    }

    /// How long a clock has run since it was saved. It may have run for long after its last
    /// countdown, where the process stood still: then it is saved although it rests.
    fn unsaved(&self, class: usize, now: u64) -> Option<u64> {
        let clock = &self.uptimes.clocks[class];
        let shown = clock.motion().shows(now).0;
        let is_over = shown >= clock.until.load(SeqCst);
        let is_ignored = is_over && mutation::is(Mutation::NeverRests);
        (!is_ignored).then(|| shown.saturating_sub(clock.saved.load(SeqCst)))
    }

    fn rest(&mut self, class: usize, now: u64) {
        if let Some((from, to)) = self.rest_due(class, now)
            && self.uptimes.clocks[class].turn(from, to)
        {
            self.confirm_rest(class, from, to);
        }
    }

    /// The clock's motion, and the rest to which it is to come, once its countdowns are over.
    fn rest_due(&mut self, class: usize, now: u64) -> Option<(Motion, Motion)> {
        let clock = &self.uptimes.clocks[class];
        let from @ Motion::Running(_) = clock.motion() else { return None };
        let shown = from.shows(now).0;
        if shown < clock.until.load(SeqCst) || mutation::is(Mutation::NeverRests) {
            return None;
        }
        // A worker may still be about to wake it from an earlier rest: it must find another.
        if shown <= self.rested[class] {
            return None;
        }
        self.rested[class] = shown;
        clock.rested_at.store(now, SeqCst);
        Some((from, Motion::Resting(shown)))
    }

    /// Takes the rest back if a countdown started meanwhile: it may not have seen the rest.
    /// A rest from which another worker has woken the clock stays.
    fn confirm_rest(&self, class: usize, from: Motion, to: Motion) {
        let clock = &self.uptimes.clocks[class];
        let Motion::Resting(shown) = to else { return };
        if clock.until.load(SeqCst) > shown {
            let _ = clock.turn(to, from);
        }
    }

    fn save(&self, now: u64) -> Vec<SavedClock> {
        let clock = |clock: &UptimeClock| SavedClock {
            until: Millis(clock.until.load(SeqCst)),
            shown: clock.motion().shows(now),
        };
        self.uptimes.clocks.iter().map(clock).collect()
    }
}

#[cfg(test)]
mod tests;
