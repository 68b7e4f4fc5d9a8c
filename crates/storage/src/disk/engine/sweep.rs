//! Which buckets go home next: a hand goes round the slots in their order, at the pace at which the ring fills.
//!
//! Homes that lie side by side are read and written together, which costs a device and a system little more than one of
//! them. And a lap brings every entry home before the ring needs its place, with whatever came to its bucket since the
//! lap before: the longer a lap, the fewer pages are written, so it takes as much of the ring as it can.

use std::collections::BTreeSet;

use super::Engine;
use crate::disk::entry::{PAGE_BODY_MAX, RING_BODY_MAX};
use crate::disk::stripe::SECTOR;

/// A lap of the hand takes five eighths of the ring; a store is full at eleven sixteenths.
fn lap_len(ring: u64) -> u64 {
    ring / 8 * 5
}

/// The lap after a burst, with so many sectors in use: the tail stays where it is until the hand has been everywhere, so
/// there is only the room that later laps leave.
fn burst_lap_len(ring: u64, used: u64) -> u64 {
    lap_len(ring).saturating_sub(used).clamp(ring / 32, lap_len(ring))
}

/// What stripes may take on the first lap after a start, with so many sectors in use. That lap may have to read every
/// page from a cold medium, so writers are given room that later laps leave alone; half of what there is, that a start
/// in the middle of this lap finds some too.
fn first_room(ring: u64, used: u64) -> u64 {
    (ring / 16 * 15).saturating_sub(used) / 2
}

/// What an empty ring takes before the hand sets out: a burst costs its stripes and nothing else.
pub(super) fn burst_len(ring: u64) -> u64 {
    ring / 16 * 7
}

/// The hand moves in so many steps per lap: buckets that are written together share their flushes.
const STEPS: u64 = 24;
/// The part of a lap by which the hand may be late: more than a step, less than what is left of the ring.
const SLACK: u64 = 12;

/// Fewer entries of a bucket than that are few to write its pages for.
const FEW: u64 = 4;

/// What the first lap may take of the ring, in sectors in use.
#[derive(Clone, Copy, Debug)]
struct First {
    /// Writers are asked to wait.
    full: u64,
    limit: u64,
}

/// The hand, and the buckets that it stops at.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// A bit for each bucket for which the ring may hold something durable.
    dirty: Vec<u64>,
    /// Newest stripe whose entries are in `dirty`.
    seen: u64,
    /// The bucket that is looked at next.
    hand: u64,
    /// Where the ring's head was when the lap began.
    begun: u64,
    /// Sectors of new stripes that the lap takes.
    lap: u64,
    /// On the first lap, for which the hand does not wait.
    first: Option<First>,
    /// The ring was empty a while ago: the hand has not set out yet.
    waits: bool,
    /// It was late on this lap.
    was_late: bool,
    /// The same of the lap before.
    was_late_before: bool,
}

impl Sweep {
    /// For a ring of so many sectors whose head is here, with so many of them in use.
    pub(super) fn new(ring: u64, head: u64, used: u64) -> Sweep {
        let room = first_room(ring, used);
        // A pace is not kept to the letter: a quarter is left for that.
        let pace = room / 4 * 3;
        let lap = pace.clamp(ring / 64, lap_len(ring));
        let first = (used > 0).then_some(First { full: used + pace, limit: used + room });
        Sweep { begun: head, lap, first, waits: used == 0, ..Sweep::default() }
    }

    pub(super) fn mark(&mut self, bucket: u64) {
        let word = (bucket / 64) as usize;
        if word >= self.dirty.len() {
            self.dirty.resize(word + 1, 0);
        }
        self.dirty[word] |= 1 << (bucket % 64);
    }

    pub(super) fn has(&self, bucket: u64) -> bool {
        let word = self.dirty.get((bucket / 64) as usize);
        word.is_some_and(|word| word >> (bucket % 64) & 1 == 1)
    }

    fn clear(&mut self, bucket: u64) {
        if let Some(word) = self.dirty.get_mut((bucket / 64) as usize) {
            *word &= !(1 << (bucket % 64));
        }
    }

    /// The last bucket is gone, into this one.
    pub(super) fn join(&mut self, low: u64, high: u64) {
        if self.has(high) {
            self.mark(low);
            self.clear(high);
        }
        self.hand = self.hand.min(high);
    }

    /// What stripes may take of a ring of so many sectors. The rest is for the marks that a damaged bucket needs before
    /// it can go home.
    pub(super) fn limit(&self, ring: u64) -> u64 {
        (ring / 4 * 3).max(self.first.map_or(0, |first| first.limit))
    }

    /// From where on writers are asked to wait.
    pub(super) fn full(&self, ring: u64) -> u64 {
        (ring / 16 * 11).max(self.first.map_or(0, |first| first.full))
    }

    /// Moves the hand behind the next bucket that is marked, which it returns; behind `end` where there is none before.
    fn advance(&mut self, end: u64) -> Option<u64> {
        let (first, from) = ((self.hand / 64) as usize, self.hand);
        self.hand = end;
        for (at, &word) in self.dirty.iter().enumerate().skip(first) {
            let start = at as u64 * 64;
            if start >= end {
                return None;
            }
            let ahead = if start < from { word >> (from - start) << (from - start) } else { word };
            if ahead != 0 {
                let bucket = start + u64::from(ahead.trailing_zeros());
                self.hand = end.min(bucket + 1);
                return (bucket < end).then_some(bucket);
            }
        }
        None
    }
}

impl Engine {
    /// Where the hand should be.
    fn hand_due(&self) -> u64 {
        let (passed, lap) = (self.ring.head - self.sweep.begun, self.sweep.lap);
        let buckets = u128::from(self.directory.buckets());
        (buckets * u128::from(passed.min(lap)) / u128::from(lap)) as u64
    }

    /// Sectors of the lap for which the hand is where it should be.
    fn hand_came(&self) -> u64 {
        let Sweep { hand, lap, .. } = self.sweep;
        (u128::from(lap) * u128::from(hand) / u128::from(self.directory.buckets())) as u64
    }

    /// The store was at rest: the hand sets out when there is something to do.
    pub(super) fn wait_for_burst(&mut self) {
        if self.ring.used() == 0 {
            let Sweep { waits, was_late, was_late_before, .. } = &mut self.sweep;
            (*waits, *was_late, *was_late_before) = (true, false, false);
        }
    }

    /// Lets a hand that waits set out once the ring has taken a burst.
    pub(super) fn end_burst(&mut self) {
        let (ring, used) = (self.ring.sectors, self.ring.used());
        if self.sweep.waits && used >= burst_len(ring) {
            let Sweep { hand, begun, lap, waits, .. } = &mut self.sweep;
            (*hand, *begun, *lap, *waits) = (0, self.ring.head, burst_lap_len(ring, used), false);
        }
    }

    /// True if the hand is to make a step.
    pub(super) fn is_behind(&self) -> bool {
        let buckets = self.directory.buckets();
        let step = (buckets / STEPS).max(1);
        if self.sweep.waits {
            return false;
        }
        self.sweep.first.is_some() || self.hand_due() >= (self.sweep.hand + step).min(buckets)
    }

    /// True if there is something to do for the hand, and it is later than by so many sectors.
    fn is_late(&self, by: u64) -> bool {
        self.ring.head - self.sweep.begun > self.hand_came() + by
            && self.is_behind()
            && !self.is_held()
    }

    /// True if the hand is so far behind that what comes in has to wait for it: then the ring's head goes on as fast as
    /// the hand does, in short steps, and no part of a lap is longer than another. Never while nothing is to be done
    /// about it: among few buckets a step is longer than the slack.
    pub(super) fn is_far_behind(&self) -> bool {
        self.is_late(self.sweep.lap / SLACK)
    }

    /// The same before anything has to wait.
    fn is_nearly_far_behind(&self) -> bool {
        self.is_late(self.sweep.lap / SLACK / 4 * 3)
    }

    /// Remembers whether the hand was late. To be called when a stripe is to be written.
    pub(super) fn note_pace(&mut self) {
        self.sweep.was_late |= self.is_nearly_far_behind();
    }

    /// Entries that are longer than this, and too long for a page, are better off in extents at once than in the ring, which
    /// references fill more slowly. `None` for no entries: while the hand keeps up. Else for all of them, or, from then on
    /// until it kept up for a lap, for those of which a bucket would not take home many at a time: its pages are written for
    /// few.
    pub(super) fn extent_len(&self) -> Option<usize> {
        if self.write_back.is_redone() {
            return None; // there may be no extents to give
        }
        if self.is_nearly_far_behind() {
            return Some(PAGE_BODY_MAX);
        }
        let was_late = self.sweep.was_late || self.sweep.was_late_before;
        let bytes = lap_len(self.ring.sectors) * SECTOR as u64;
        let len = bytes / (FEW * self.directory.buckets());
        (was_late && len < RING_BODY_MAX as u64).then_some(len as usize)
    }

    /// Damaged buckets that may be rewritten, and those that the hand meets: as far as it is due, or all round where the
    /// ring is to become empty.
    pub(super) fn choose(&mut self) -> BTreeSet<u64> {
        let max = self.targets_max();
        let durable = self.ring.durable;
        let ready = self.repairs.iter().filter(|&(_, &stripe)| stripe <= durable);
        let ready = ready.map(|(&bucket, _)| bucket).filter(|&it| !self.is_being_written(it));
        let mut targets: BTreeSet<u64> = ready.take(max).collect();
        self.mark_durable();
        let buckets = self.directory.buckets();
        let backlog = self.ring.head - self.ring.next_tail();
        let goes_round = self.is_resting || self.sweep.first.is_some() || self.is_much(backlog);
        let way = match goes_round {
            true => buckets,
            false => self.hand_due().saturating_sub(self.sweep.hand),
        };
        let mut left = way;
        while left > 0 && targets.len() < max {
            let from = self.sweep.hand;
            let met = self.sweep.advance(buckets.min(from + left));
            left -= self.sweep.hand - from;
            if let Some(bucket) = met.filter(|&bucket| self.is_being_written(bucket)) {
                self.sweep.hand = bucket;
                break;
            }
            if self.sweep.hand == buckets {
                self.begin_lap();
                if !goes_round {
                    // It may begin late: commits wait for it then, and where the rest of the lap before held nothing,
                    // nothing is under way that brings anybody here again.
                    left = self.hand_due();
                }
            }
            if let Some(bucket) = met.filter(|&bucket| !self.awaits_mark(bucket)) {
                self.sweep.clear(bucket);
                if self.has_durable(bucket) {
                    targets.insert(bucket);
                }
            }
        }
        self.catch_up();
        targets
    }

    /// A hand that went further than it was due goes on from there at the lap's pace. If it stood still until it is due,
    /// what comes in meanwhile would have to wait for more than a lap.
    fn catch_up(&mut self) {
        self.sweep.begun = self.sweep.begun.min(self.ring.head - self.hand_came());
    }

    fn begin_lap(&mut self) {
        self.sweep.hand = 0;
        self.sweep.begun = (self.sweep.begun + self.sweep.lap).min(self.ring.head);
        self.sweep.lap = lap_len(self.ring.sectors);
        self.sweep.first = None;
        self.sweep.was_late_before = std::mem::take(&mut self.sweep.was_late);
    }

    /// Marks the buckets of stripes that have become durable.
    fn mark_durable(&mut self) {
        let first = self.ring.first().max(self.sweep.seen + 1);
        for number in first..=self.ring.durable {
            let Some(stripe) = self.ring.stripe(number) else { continue };
            for hash in std::mem::take(&mut stripe.hashes) {
                self.sweep.mark(self.directory.bucket_of(hash));
            }
        }
        self.sweep.seen = self.ring.durable;
    }

    /// True if the ring holds something for a bucket that may go home.
    fn has_durable(&mut self, bucket: u64) -> bool {
        let (first, last) = self.directory.interval(bucket);
        let durable = self.ring.durable;
        self.index.range(first, last).any(|(_, slot)| slot.durable(durable).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hand_stops_at_each_marked_bucket_once() {
        let mut sweep = Sweep::new(1 << 10, 7, 0);
        let marked = [0, 1, 63, 64, 200, 4_095];
        marked.into_iter().for_each(|bucket| sweep.mark(bucket));
        let met: Vec<u64> = std::iter::from_fn(|| sweep.advance(5_000)).collect();
        assert_eq!(met, marked);
        assert_eq!((sweep.hand, sweep.advance(5_000)), (5_000, None));
        sweep.hand = 0;
        sweep.clear(63);
        assert!(sweep.has(1) && !sweep.has(63) && !sweep.has(70_000));
        assert_eq!([sweep.advance(1), sweep.advance(1)], [Some(0), None]);
        assert_eq!(
            [sweep.advance(64), sweep.advance(64), sweep.advance(65)],
            [Some(1), None, Some(64)]
        );
        assert_eq!((sweep.advance(200), sweep.hand), (None, 200));
    }
}
