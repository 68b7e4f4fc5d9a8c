//! The write-back clock: a hand goes round the buckets in their order, at the pace at which the
//! ring fills.
//!
//! Neighbouring pages are read and written together, which costs little more than one of them. A
//! lap brings every entry home before the ring needs its place. The longer a lap, the fewer pages
//! are written, so it takes as much of the ring as it can.

use std::collections::BTreeSet;

use super::buckets::Buckets;
use super::losses::Losses;
use super::staged::Staged;
use crate::disk::directory::Directory;
use crate::disk::entry::{PAGE_BODY_MAX, RING_BODY_MAX};
use crate::disk::ring::Ring;
use crate::disk::stripe::SECTOR;

/// A lap of the hand takes five eighths of the ring; a store is full at eleven sixteenths.
fn lap_len(ring: u64) -> u64 {
    ring / 8 * 5
}

/// The lap after a burst, with so many sectors in use. The tail stays until the hand has been
/// everywhere, so there is only the room that later laps leave.
fn burst_lap_len(ring: u64, used: u64) -> u64 {
    lap_len(ring).saturating_sub(used).clamp(ring / 32, lap_len(ring))
}

/// The room for batches on the first lap after a start, with so many sectors in use. That lap may
/// read every page from a cold device, so it gets half of the room that later laps leave. The other
/// half is for the next start.
fn first_room(ring: u64, used: u64) -> u64 {
    (ring / 16 * 15).saturating_sub(used) / 2
}

/// The fill of an empty ring at which the hand sets out: a burst costs its batches and no more.
pub(super) fn burst_len(ring: u64) -> u64 {
    ring / 16 * 7
}

/// Sectors that a store commits after a start before it writes back: first requests do not wait for
/// that.
fn held_len(ring: u64) -> u64 {
    (ring / 1024).max(16)
}

/// The hand moves in so many steps per lap: buckets that are written together share their flushes.
const STEPS: u64 = 24;
/// The part of a lap by which the hand may be late: more than a step, less than the rest of the
/// ring.
const SLACK: u64 = 12;

/// A write of a page that brings fewer entries home is a costly one.
const FEW: u64 = 4;

/// Limits on the first lap, in sectors in use.
#[derive(Clone, Copy, Debug)]
struct First {
    /// Writers are asked to wait.
    full: u64,
    limit: u64,
}

/// The hand, and the buckets that it stops at.
#[derive(Debug)]
pub(super) struct Clock {
    /// A bit for each bucket for which the ring may hold a durable entry.
    dirty: Vec<u64>,
    /// Newest batch whose entries are in `dirty`.
    seen: u64,
    /// The bucket that is looked at next.
    hand: u64,
    /// The ring's head when the lap began.
    begun: u64,
    /// Sectors of new batches that the lap takes.
    lap: u64,
    /// On the first lap, for which the hand does not wait.
    first: Option<First>,
    /// The ring was empty a while ago: the hand has not set out yet.
    waits: bool,
    /// It was late on this lap.
    was_late: bool,
    /// The same of the lap before.
    was_late_before: bool,
    /// No write-back begins before the ring's head is here.
    held_until: u64,
    /// All entries are to go home: the store is idle.
    is_resting: bool,
}

impl Clock {
    /// For a ring as a start has found it.
    pub(super) fn new(ring: &Ring) -> Clock {
        let (sectors, head, used) = (ring.sectors, ring.head, ring.used());
        let room = first_room(sectors, used);
        // A pace is not kept exactly: a quarter is left for that.
        let pace = room / 4 * 3;
        Clock {
            dirty: Vec::new(),
            seen: 0,
            hand: 0,
            begun: head,
            lap: pace.clamp(sectors / 64, lap_len(sectors)),
            first: (used > 0).then_some(First { full: used + pace, limit: used + room }),
            waits: used == 0,
            was_late: false,
            was_late_before: false,
            held_until: head + held_len(sectors),
            is_resting: false,
        }
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

    /// The last bucket is gone; this one has taken it in.
    pub(super) fn join(&mut self, low: u64, high: u64) {
        if self.has(high) {
            self.mark(low);
            self.clear(high);
        }
        self.hand = self.hand.min(high);
    }

    /// The sectors that batches may take of a ring of so many. The rest is for the marks that a
    /// damaged bucket needs before it is rewritten.
    pub(super) fn limit(&self, ring: u64) -> u64 {
        (ring / 4 * 3).max(self.first.map_or(0, |first| first.limit))
    }

    /// The fill from which on writers are asked to wait.
    pub(super) fn full(&self, ring: u64) -> u64 {
        (ring / 16 * 11).max(self.first.map_or(0, |first| first.full))
    }

    /// Moves the hand behind the next marked bucket, which it returns, or to `end`.
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

    /// True shortly after a start, while the device serves requests first.
    pub(super) fn is_held(&self, ring: &Ring) -> bool {
        ring.head < self.held_until
    }

    /// Lets write-backs begin.
    pub(super) fn let_go(&mut self) {
        self.held_until = 0;
    }

    /// Sends all entries home from now on.
    pub(super) fn rest(&mut self) {
        self.is_resting = true;
        self.let_go();
    }

    /// Goes at its pace again. After a rest the hand sets out when the ring has taken a burst.
    pub(super) fn wake(&mut self, ring: &Ring) {
        if std::mem::take(&mut self.is_resting) && ring.used() == 0 {
            (self.waits, self.was_late, self.was_late_before) = (true, false, false);
        }
    }

    pub(super) fn is_resting(&self) -> bool {
        self.is_resting
    }

    /// The bucket at which the hand should be.
    fn due(&self, ring: &Ring, buckets: u64) -> u64 {
        let passed = ring.head - self.begun;
        (u128::from(buckets) * u128::from(passed.min(self.lap)) / u128::from(self.lap)) as u64
    }

    /// Sectors of the lap for which the hand is where it should be.
    fn came(&self, buckets: u64) -> u64 {
        (u128::from(self.lap) * u128::from(self.hand) / u128::from(buckets)) as u64
    }

    /// Lets a hand that waits set out once the ring has taken a burst.
    pub(super) fn end_burst(&mut self, ring: &Ring) {
        let (sectors, used) = (ring.sectors, ring.used());
        if self.waits && used >= burst_len(sectors) {
            (self.hand, self.begun, self.waits) = (0, ring.head, false);
            self.lap = burst_lap_len(sectors, used);
        }
    }

    /// True if the hand is to make a step.
    pub(super) fn is_behind(&self, ring: &Ring, buckets: u64) -> bool {
        let step = (buckets / STEPS).max(1);
        !self.waits
            && (self.first.is_some() || self.due(ring, buckets) >= (self.hand + step).min(buckets))
    }

    /// True if the hand has a step to make, and is later than by so many sectors.
    fn is_late(&self, by: u64, ring: &Ring, buckets: u64) -> bool {
        ring.head - self.begun > self.came(buckets) + by
            && self.is_behind(ring, buckets)
            && !self.is_held(ring)
    }

    /// True if the hand is so far behind that new batches have to wait for it. Then the ring's head
    /// goes on as fast as the hand does, in short steps. Never while no step is to be made: among
    /// few buckets a step is longer than the slack.
    pub(super) fn is_far_behind(&self, ring: &Ring, buckets: u64) -> bool {
        self.is_late(self.lap / SLACK, ring, buckets)
    }

    /// The same before any batch has to wait.
    fn is_nearly_far_behind(&self, ring: &Ring, buckets: u64) -> bool {
        self.is_late(self.lap / SLACK / 4 * 3, ring, buckets)
    }

    /// Remembers whether the hand was late. To be called when a batch is to be written.
    pub(super) fn note_pace(&mut self, ring: &Ring, buckets: u64) {
        self.was_late |= self.is_nearly_far_behind(ring, buckets);
    }

    /// Entries that are longer than this, and too long for a page, go to extents at once:
    /// references fill the ring more slowly. `None` for no entries: while the hand keeps up. If it
    /// is late, all of them go. From then on, until it kept up for a lap, those go of which a
    /// bucket would not take home many at a time.
    pub(super) fn extent_len(&self, ring: &Ring, buckets: u64) -> Option<usize> {
        if self.is_nearly_far_behind(ring, buckets) {
            return Some(PAGE_BODY_MAX);
        }
        let was_late = self.was_late || self.was_late_before;
        let bytes = lap_len(ring.sectors) * SECTOR as u64;
        let len = bytes / (FEW * buckets);
        (was_late && len < RING_BODY_MAX as u64).then_some(len as usize)
    }

    /// Chooses at most `max` buckets, none of which `is_written`: damaged ones that may be
    /// rewritten, and those that the hand meets. It goes as far as it is due, or all round if the
    /// ring is to become empty.
    pub(super) fn choose(
        &mut self,
        max: usize,
        is_written: impl Fn(u64) -> bool,
        (staged, buckets, losses): (&mut Staged, &Buckets, &Losses),
    ) -> BTreeSet<u64> {
        let durable = staged.ring().durable;
        let ready = losses.ready(durable).filter(|&bucket| !is_written(bucket));
        let mut targets: BTreeSet<u64> = ready.take(max).collect();
        self.mark_durable(staged.ring_mut(), buckets.directory());
        let (ring, count) = (staged.ring(), buckets.count());
        let is_much = is_much(ring.head - ring.next_tail(), ring.sectors);
        let goes_round = self.is_resting || self.first.is_some() || is_much;
        let way = match goes_round {
            true => count,
            false => self.due(ring, count).saturating_sub(self.hand),
        };
        let mut left = way;
        while left > 0 && targets.len() < max {
            let from = self.hand;
            let met = self.advance(count.min(from + left));
            left -= self.hand - from;
            if let Some(bucket) = met.filter(|&bucket| is_written(bucket)) {
                self.hand = bucket;
                break;
            }
            if self.hand == count {
                self.begin_lap(ring);
                if !goes_round {
                    // It may begin late, and commits then wait for it. If the rest of the lap
                    // before was empty, no completion leads here again.
                    left = self.due(ring, count);
                }
            }
            if let Some(bucket) = met.filter(|&bucket| !losses.awaits_mark(bucket, durable)) {
                self.clear(bucket);
                let (first, last) = buckets.directory().interval(bucket);
                let mut entries = staged.index().range(first, last);
                if entries.any(|(_, slot)| slot.durable(durable).is_some()) {
                    targets.insert(bucket);
                }
            }
        }
        // A hand that went further than it was due goes on at the lap's pace. If it stood still
        // until it is due, entries of the meantime would wait for more than a lap.
        self.begun = self.begun.min(ring.head - self.came(count));
        targets
    }

    fn begin_lap(&mut self, ring: &Ring) {
        self.hand = 0;
        self.begun = (self.begun + self.lap).min(ring.head);
        self.lap = lap_len(ring.sectors);
        self.first = None;
        self.was_late_before = std::mem::take(&mut self.was_late);
    }

    /// Marks the buckets of batches that have become durable.
    fn mark_durable(&mut self, ring: &mut Ring, directory: &Directory) {
        for number in ring.first().max(self.seen + 1)..=ring.durable {
            let Some(stripe) = ring.stripe(number) else { continue };
            for hash in std::mem::take(&mut stripe.hashes) {
                self.mark(directory.bucket_of(hash));
            }
        }
        self.seen = ring.durable;
    }
}

/// True for a backlog that is to go home whatever its pace was.
pub(super) fn is_much(sectors: u64, ring: u64) -> bool {
    sectors * 8 > ring * 5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hand_stops_at_each_marked_bucket_once() {
        let mut clock = Clock::new(&Ring::new(1 << 10, 7));
        let marked = [0, 1, 63, 64, 200, 4_095];
        marked.into_iter().for_each(|bucket| clock.mark(bucket));
        let met: Vec<u64> = std::iter::from_fn(|| clock.advance(5_000)).collect();
        assert_eq!(met, marked);
        assert_eq!((clock.hand, clock.advance(5_000)), (5_000, None));
        clock.hand = 0;
        clock.clear(63);
        assert!(clock.has(1) && !clock.has(63) && !clock.has(70_000));
        assert_eq!([clock.advance(1), clock.advance(1)], [Some(0), None]);
        assert_eq!(
            [clock.advance(64), clock.advance(64), clock.advance(65)],
            [Some(1), None, Some(64)]
        );
        assert_eq!((clock.advance(200), clock.hand), (None, 200));
    }
}
