//! The accounts of the ring: its batches, the entries that still need them, and the room that is
//! left.
//!
//! A batch may leave the ring when each of its entries has gone home or has been replaced by one
//! that is itself durable. Its marks must stand in the superblock by then. Batches leave in order.

use std::collections::VecDeque;

use bytes::Bytes;
use types::Ticket;

use super::entry::{MARK_LEN, Mark};
use super::index::At;
use super::io::{File, Write};
use super::said::Said;
use super::stripe::{SECTOR, StripeWriter, payload_max};

/// Marks of losses that every ring batch keeps room for.
const LOSSES: usize = 8;

/// A ring batch that is being filled or written.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) writer: StripeWriter,
    /// Batches that are durable with it: worker and ticket.
    pub(super) tickets: Vec<(usize, Ticket)>,
    /// Places whose older entries, in other batches, are not needed once this one is durable.
    pub(super) superseded: Vec<At>,
    /// Its marks of shards; they follow its entries when it is written.
    pub(super) marks: Vec<Mark>,
    /// Records that must be in their extents before the ring batch that refers to them.
    pub(super) contents: Vec<Write>,
    /// Extents without a reference once it is durable: unit and count.
    pub(super) released: Vec<(u64, u64)>,
}

impl Pending {
    fn over(memory: Vec<u8>) -> Pending {
        Pending {
            writer: StripeWriter::over(memory),
            tickets: Vec::new(),
            superseded: Vec::new(),
            marks: Vec::new(),
            contents: Vec::new(),
            released: Vec::new(),
        }
    }

    /// Bytes of payload, marks included.
    pub(super) fn payload_len(&self) -> usize {
        self.writer.payload_len() + self.marks.len() * MARK_LEN
    }

    pub(super) fn is_empty(&self) -> bool {
        self.writer.is_empty() && self.marks.is_empty()
    }
}

/// One batch, from its first entry until it is no longer needed.
#[derive(Debug)]
pub(super) struct Stripe {
    pub(super) number: u64,
    pub(super) position: Option<u64>, // once it is being written
    /// Hashes of its entries, until write-back has noted their buckets.
    pub(super) hashes: Vec<u64>,
    pub(super) has_marks: bool,
    pub(super) pending: Option<Box<Pending>>, // until it is durable
    is_closed: bool,
}

impl Stripe {
    fn new(number: u64) -> Stripe {
        Stripe {
            number,
            position: None,
            hashes: Vec::new(),
            has_marks: false,
            pending: None,
            is_closed: false,
        }
    }

    /// Says something of shards with the ring batch, which is pending.
    pub(super) fn add_mark(&mut self, mark: Mark) {
        self.has_marks = true;
        self.pending.as_mut().expect("a stripe that takes marks is pending").marks.push(mark);
    }
}

/// A batch of losses only, which was written ahead of batches that wait for room. It has no
/// entries, and no number among the others.
#[derive(Clone, Copy, Debug)]
struct Aside {
    count: u64,
    position: u64,
}

/// How far the marks of ring batches stand in a superblock.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Marked {
    stripe: u64,
    asides: u64,
}

/// The ring's ring batches, oldest first.
#[derive(Debug)]
pub(super) struct Ring {
    /// Its length in sectors.
    pub(super) sectors: u64,
    /// Position of the next ring batch.
    pub(super) head: u64,
    /// Oldest position that the medium's superblock still needs: bytes below may be overwritten.
    pub(super) tail: u64,
    /// Number of the newest durable ring batch.
    pub(super) durable: u64,
    stripes: VecDeque<Stripe>, // consecutive numbers
    /// For each of them, its entries that are the newest durable ones of their place and have not
    /// gone home. By themselves: each entry that is replaced counts down at some ring batch of the
    /// ring.
    live: VecDeque<u32>,
    next: u64,
    asides: VecDeque<Aside>,
    asides_begun: u64,
    asides_durable: u64,
    /// Memory of a ring batch that has been written, for the next one.
    spare: Vec<u8>,
}

/// Number of the first ring batch of a process: those that it finds go before it.
const FIRST: u64 = 1 << 32;

impl Ring {
    pub(super) fn new(sectors: u64, tail: u64) -> Ring {
        Ring {
            sectors,
            head: tail,
            tail,
            durable: FIRST - 1,
            stripes: VecDeque::new(),
            live: VecDeque::new(),
            next: FIRST,
            asides: VecDeque::new(),
            asides_begun: 0,
            asides_durable: 0,
            spare: Vec::new(),
        }
    }

    /// Longest ring batch of a ring of so many sectors.
    pub(super) fn stripe_max(sectors: u64) -> u64 {
        (sectors / 16).clamp(8, 2048)
    }

    /// Longest payload of entries in one ring batch.
    pub(super) fn entries_len_max(sectors: u64) -> usize {
        Ring::payload_max(sectors) - super::stripe::STRIPE_HEAD_LEN
    }

    /// Longest payload of a ring batch to which no loss was added.
    fn payload_max(sectors: u64) -> usize {
        payload_max(Ring::stripe_max(sectors)) - LOSSES * MARK_LEN
    }

    /// Sectors in use, those included that the next superblock will free.
    pub(super) fn used(&self) -> u64 {
        self.head - self.tail
    }

    /// Position of the oldest ring batch that is still in use.
    pub(super) fn next_tail(&self) -> u64 {
        let stripe = self.stripes.front().and_then(|stripe| stripe.position);
        let aside = self.asides.front().map(|aside| aside.position);
        [stripe, aside].into_iter().flatten().min().unwrap_or(self.head)
    }

    /// Makes sure that the open batch has room for `len` bytes of entries: the next ones stay
    /// together.
    pub(super) fn reserve(&mut self, len: usize) {
        let max = Ring::payload_max(self.sectors);
        let has_room = self.stripes.back().is_some_and(|stripe| {
            let pending = stripe.pending.as_ref().filter(|_| !stripe.is_closed);
            pending.is_some_and(|pending| pending.payload_len() + len <= max)
        });
        if !has_room {
            let memory = std::mem::take(&mut self.spare);
            self.push(Some(Box::new(Pending::over(memory))), None);
        }
    }

    /// Takes back the writes of a batch, for their memory, unless they are shared.
    pub(super) fn recycle(&mut self, writes: Vec<Write>) {
        let bytes = writes.into_iter().next().map(|write| write.bytes);
        if let Some(mut bytes) = bytes.filter(Bytes::is_unique) {
            bytes.truncate(0); // else they would be moved to where their memory begins
            let memory = Vec::from(bytes);
            if memory.capacity() > self.spare.capacity() {
                self.spare = memory;
            }
        }
    }

    /// The ring batch that takes the next entries.
    ///
    /// # Panics
    /// If no room was reserved first.
    pub(super) fn collecting(&mut self) -> &mut Stripe {
        let stripe = self.stripes.back_mut().expect("room has been reserved");
        assert!(!stripe.is_closed, "stripe {} takes no more entries", stripe.number);
        stripe
    }

    /// The first ring batch that takes the mark of a loss: it must not wait behind those that may
    /// wait for room.
    pub(super) fn first_open(&mut self) -> &mut Stripe {
        let max = payload_max(Ring::stripe_max(self.sectors));
        let has_room = |stripe: &Stripe| {
            let pending = stripe.pending.as_ref().filter(|_| stripe.position.is_none());
            pending.is_some_and(|pending| pending.payload_len() + MARK_LEN <= max)
        };
        match self.stripes.iter().position(has_room) {
            Some(at) => &mut self.stripes[at],
            None => {
                self.reserve(MARK_LEN);
                self.collecting()
            }
        }
    }

    /// True if the ring batch under way says of some of these shards that they are known.
    pub(super) fn is_saying_known(&self, lost: Mark) -> bool {
        let under_way = self.stripes.iter().filter(|stripe| stripe.position.is_some());
        let marks = under_way.filter_map(|stripe| stripe.pending.as_ref()).flat_map(|it| &it.marks);
        marks.into_iter().any(|mark| !mark.forgotten && mark.meets(&lost))
    }

    /// Takes losses out of batches that are not being written, as many as have room in `len` bytes,
    /// for a batch of their own that goes first. Also says whether these are all. Earlier marks
    /// that a shard is known stay before.
    pub(super) fn take_losses(&mut self, len: usize) -> (Vec<Mark>, bool) {
        let (mut losses, mut known, mut are_all) = (Vec::new(), Vec::new(), true);
        let pending = self.stripes.iter_mut().filter(|stripe| stripe.position.is_none());
        let marks =
            pending.filter_map(|stripe| stripe.pending.as_mut()).flat_map(|it| &mut it.marks);
        for mark in marks.filter(|mark| mark.says_something()) {
            if !mark.forgotten {
                known.push(*mark);
                continue;
            }
            let has_room = (losses.len() + 1) * MARK_LEN <= len;
            if has_room && !known.iter().any(|known| mark.meets(known)) {
                losses.push(std::mem::replace(mark, Mark::NOTHING));
            } else {
                are_all = false;
            }
        }
        (losses, are_all)
    }

    /// A ring batch of losses is being written, of so many sectors.
    pub(super) fn begin_aside(&mut self, sectors: u64) {
        self.asides_begun += 1;
        self.asides.push_back(Aside { count: self.asides_begun, position: self.head });
        self.head += sectors;
    }

    /// That ring batch is durable.
    pub(super) fn settle_aside(&mut self) {
        self.asides_durable = self.asides_begun;
    }

    /// How far marks stand in a superblock made now.
    pub(super) fn marked(&self) -> Marked {
        Marked { stripe: self.durable, asides: self.asides_durable }
    }

    /// Takes back marks that these shards are known from batches that are not being written.
    pub(super) fn take_back(&mut self, lost: Mark) {
        let pending = self.stripes.iter_mut().filter(|stripe| stripe.position.is_none());
        for pending in pending.filter_map(|stripe| stripe.pending.as_mut()) {
            for mark in pending.marks.iter_mut().filter(|mark| !mark.forgotten) {
                if mark.meets(&lost) {
                    *mark = Mark::NOTHING;
                }
            }
        }
    }

    /// Puts the ring batches that the process before has written in front of all others; returns
    /// the number of the first.
    pub(super) fn put_before(&mut self, found: Vec<(u64, Said)>) -> u64 {
        let mut number = self.first();
        for (position, said) in found.into_iter().rev() {
            number -= 1;
            let live = said.hashes.len() as u32;
            let has_marks = !said.marks.is_empty();
            let stripe = Stripe { hashes: said.hashes, has_marks, ..Stripe::new(number) };
            self.live.push_front(live);
            self.stripes.push_front(Stripe { position: Some(position), ..stripe });
        }
        number
    }

    /// Adds a ring batch that has just been made durable.
    pub(super) fn put_behind(&mut self, position: u64) -> u64 {
        self.push(None, Some(position));
        self.durable = self.next - 1;
        self.durable
    }

    fn push(&mut self, pending: Option<Box<Pending>>, position: Option<u64>) {
        self.stripes.push_back(Stripe { position, pending, ..Stripe::new(self.next) });
        self.live.push_back(0);
        self.next += 1;
    }

    /// Number of the oldest ring batch.
    pub(super) fn first(&self) -> u64 {
        self.stripes.front().map_or(self.next, |stripe| stripe.number)
    }

    /// The ring batch of this number, if it is still in the ring.
    pub(super) fn stripe(&mut self, number: u64) -> Option<&mut Stripe> {
        find(&mut self.stripes, number)
    }

    /// The next ring batch to write, if it has entries; takes no more of them.
    pub(super) fn close_next(&mut self) -> Option<&mut Stripe> {
        let stripe = self.stripe(self.durable + 1)?;
        let has_entries = stripe.pending.as_ref().is_some_and(|pending| !pending.is_empty());
        stripe.is_closed |= has_entries;
        has_entries.then_some(stripe)
    }

    /// The batch under way is durable: gives away its dependants.
    pub(super) fn settle_next(&mut self) -> Box<Pending> {
        self.durable += 1;
        let stripe = find(&mut self.stripes, self.durable);
        let stripe = stripe.expect("a stripe under way is in the ring");
        stripe.pending.take().expect("it was not durable until now")
    }

    /// Bytes of payload that wait to be written.
    pub(super) fn waiting_len(&self) -> usize {
        let waiting = self.stripes.iter().rev().map_while(|stripe| stripe.pending.as_ref());
        waiting.map(|pending| pending.payload_len()).sum()
    }

    /// The ring batch that takes entries has taken so many, some of which replace others of its
    /// own.
    pub(super) fn charge(&mut self, taken: u32, replaced: u32) {
        let live = self.live.back_mut().expect("a stripe takes entries");
        *live = *live + taken - replaced;
    }

    /// One entry of this ring batch needs it no longer.
    ///
    /// # Panics
    /// If it had no such entry: then the accounts are wrong and a needed ring batch may be overwritten.
    pub(super) fn discharge(&mut self, number: u64) {
        let at = number.checked_sub(self.next - self.live.len() as u64);
        let live = at.and_then(|at| self.live.get_mut(at as usize));
        let live = live.expect("a stripe with a live entry is in the ring");
        assert!(*live > 0, "stripe {number} has no live entry");
        *live -= 1;
    }

    /// Lets go of the oldest batches that are no longer needed; `marked` says whose marks stand in
    /// the superblock.
    pub(super) fn trim(&mut self, marked: Marked) {
        while self.asides.front().is_some_and(|aside| aside.count <= marked.asides) {
            self.asides.pop_front();
        }
        while let (Some(stripe), Some(&live)) = (self.stripes.front(), self.live.front()) {
            let is_needed = stripe.number > self.durable
                || live > 0
                || (stripe.has_marks && stripe.number > marked.stripe);
            if is_needed {
                return;
            }
            self.stripes.pop_front();
            self.live.pop_front();
        }
    }

    /// True if a durable ring batch says something of forgotten shards that the superblock does not
    /// say yet.
    pub(super) fn has_marks_beyond(&self, marked: Marked) -> bool {
        let mut durable = self.stripes.iter().take_while(|stripe| stripe.number <= self.durable);
        durable.any(|stripe| stripe.has_marks && stripe.number > marked.stripe)
            || self.asides_durable > marked.asides
    }
}

fn find(stripes: &mut VecDeque<Stripe>, number: u64) -> Option<&mut Stripe> {
    let front = stripes.front()?.number;
    stripes.get_mut(number.checked_sub(front)? as usize)
}

/// The writes of a ring batch: one, or two where it wraps.
pub(super) fn ring_writes(bytes: Bytes, position: u64, ring: u64) -> Vec<Write> {
    let place = position % ring;
    let until_end = ((ring - place) as usize * SECTOR).min(bytes.len());
    let (end, start) = (bytes.slice(..until_end), bytes.slice(until_end..));
    let mut writes = vec![Write { file: File::Ring, offset: place * SECTOR as u64, bytes: end }];
    if !start.is_empty() {
        writes.push(Write { file: File::Ring, offset: 0, bytes: start });
    }
    writes
}

#[cfg(test)]
mod tests {
    use types::{Database, Shard};

    use super::*;

    #[test]
    fn a_loss_that_stays_behind_what_was_said_before_is_not_told_of_ahead() {
        let mark = |shard, forgotten| Mark::of(Database(0), Shard(shard), forgotten);
        let mut ring = Ring::new(1_024, 1_024);
        ring.reserve(8 * MARK_LEN);
        for said in [mark(1, true), mark(2, false), mark(2, true), mark(3, true)] {
            ring.collecting().add_mark(said);
        }
        assert_eq!(ring.take_losses(8 * MARK_LEN), (vec![mark(1, true), mark(3, true)], false));
        assert_eq!(ring.take_losses(8 * MARK_LEN), (vec![], false));
        ring.take_back(mark(2, true));
        assert_eq!(ring.take_losses(8 * MARK_LEN), (vec![mark(2, true)], true));
    }

    #[test]
    fn the_memory_of_a_stripe_comes_back_whether_it_wraps_or_not() {
        for (position, parts) in [(100, 1), (2_040, 2)] {
            let mut ring = Ring::new(1_024, 1_024);
            let mut writer = StripeWriter::over(Vec::with_capacity(1 << 16));
            writer.push(&[1; 20_000]);
            let writes = ring_writes(writer.finish(1, position), position, 1_024);
            assert_eq!(writes.len(), parts);
            let held = writes.clone();
            ring.recycle(writes);
            assert_eq!(ring.spare.capacity(), 0, "somebody else has it");
            ring.recycle(held);
            assert!(ring.spare.capacity() >= 1 << 16);
        }
    }

    #[test]
    fn losses_that_find_no_room_wait() {
        let mark = |shard| Mark::of(Database(0), Shard(shard), true);
        let mut ring = Ring::new(1_024, 1_024);
        ring.reserve(8 * MARK_LEN);
        (0..3).for_each(|shard| ring.collecting().add_mark(mark(shard)));
        assert_eq!(ring.take_losses(2 * MARK_LEN), (vec![mark(0), mark(1)], false));
        assert_eq!(ring.take_losses(2 * MARK_LEN), (vec![mark(2)], true));
    }
}
