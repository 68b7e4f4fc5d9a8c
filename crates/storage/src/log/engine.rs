//! The log without a device: the kept records, the waiting batches, and the next store.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use bytes::Bytes;
use types::Ticket;

use super::batch::{Batch, HEAD_LEN, encode, encoded_len};
use super::device::{Store, Write, offset_of, stripe_max};
use super::superblock::{COPIES, Superblock};
use crate::disk::stripe::{SECTOR, STRIPE_HEAD_LEN, StripeWriter, payload_max, sectors_for};

/// The part of the ring, one over this, that may be free without the superblock saying so.
const FREE_UNSAID: u64 = 4;

/// Why a batch was not taken. The log is unchanged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AppendError {
    /// Cut off the front, or wait for the store under way.
    #[error("the log is full")]
    Full,
    #[error("a batch of {len} bytes is too long: at most {max}")]
    TooLong { len: usize, max: usize },
    /// It would leave a gap, or change records that were given up.
    #[error("a batch cannot begin at {from}: the log holds {first} and goes on at {next}")]
    Misplaced { from: u64, first: u64, next: u64 },
    #[error("the log's device failed: {0}")]
    Failed(String),
}

/// A run of batches that is stored at once.
#[derive(Debug)]
struct Stripe {
    number: u64,
    // Where it lies; none until it is being stored.
    position: Option<u64>,
    // Records of it that are kept, or were replaced by batches that are not durable yet.
    live: u64,
    // Until it is being stored.
    batches: Vec<Batch>,
    payload_len: usize,
    ticket: Ticket,
    // Stripes of records that this one replaces once it is durable, and how many.
    replaced: Vec<(u64, u64)>,
}

#[derive(Debug)]
struct Kept {
    record: Bytes,
    stripe: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UnderWay {
    Nothing,
    Stripe,
    Superblock,
}

/// The log.
#[derive(Debug)]
pub struct Engine {
    binding: u64,
    // The value that the checksums of sectors depend on.
    ring_binding: u64,
    ring: u64,
    // Position of the next stripe.
    head: u64,
    // Position from which on both superblocks need the ring.
    tail: u64,
    first: u64,
    // The kept records, from `first` on.
    records: VecDeque<Kept>,
    // Oldest first; those without a place are last.
    stripes: VecDeque<Stripe>,
    // Number of the next stripe, and of the first that is not durable.
    next: u64,
    next_durable: u64,
    // The copy of the superblock that is to be stored next, or is being stored.
    superblock: Option<(u64, Superblock)>,
    under_way: UnderWay,
    durable: Ticket,
    issued: Ticket,
    failure: Option<String>,
}

impl Engine {
    /// An empty log; [`Engine::found`] adds the records on the device.
    pub(super) fn new(binding: u64, ring_binding: u64, superblock: Superblock) -> Engine {
        Engine {
            binding,
            ring_binding,
            ring: superblock.ring,
            head: superblock.tail,
            tail: superblock.tail,
            first: superblock.first,
            records: VecDeque::new(),
            stripes: VecDeque::new(),
            next: 0,
            next_durable: 0,
            superblock: None,
            under_way: UnderWay::Nothing,
            durable: Ticket(0),
            issued: Ticket(0),
            failure: None,
        }
    }

    /// Position of the next stripe.
    pub(super) fn head(&self) -> u64 {
        self.head
    }

    /// The first index that is kept, or will be: after a restart earlier ones may be back.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The index that follows the last one.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// Sectors of the ring.
    #[must_use]
    pub fn ring(&self) -> u64 {
        self.ring
    }

    /// Bytes that a batch may take, with 16 for itself and 4 for each of its records.
    #[must_use]
    pub fn batch_len_max(&self) -> usize {
        payload_max(stripe_max(self.ring)) - STRIPE_HEAD_LEN - HEAD_LEN
    }

    /// The record at `index`, durable or not.
    #[must_use]
    pub fn record(&self, index: u64) -> Option<&Bytes> {
        let at = index.checked_sub(self.first)?;
        self.records.get(usize::try_from(at).ok()?).map(|kept| &kept.record)
    }

    /// Records of a range that are kept, in order, durable or not.
    pub fn range(&self, range: RangeInclusive<u64>) -> impl Iterator<Item = (u64, &Bytes)> {
        let (from, upto) = (*range.start().max(&self.first), *range.end());
        (from..).map_while(move |index| {
            (index <= upto).then(|| Some((index, self.record(index)?))).flatten()
        })
    }

    /// Replaces everything from `from` on by these records; without records it cuts off the end.
    /// All of them are durable together, once [`Engine::durable`] has reached the ticket. Until
    /// then all or none may be.
    ///
    /// # Errors
    /// Any [`AppendError`]; the log is unchanged then.
    pub fn append(&mut self, from: u64, records: Vec<Bytes>) -> Result<Ticket, AppendError> {
        if let Some(why) = &self.failure {
            return Err(AppendError::Failed(why.clone()));
        }
        let (first, next) = (self.first, self.next_index());
        if from < first || from > next {
            return Err(AppendError::Misplaced { from, first, next });
        }
        let (len, max) = (encoded_len(&records), self.batch_len_max());
        if len > max {
            return Err(AppendError::TooLong { len, max });
        }
        if !self.has_room(len) {
            return Err(AppendError::Full);
        }
        self.issued = Ticket(self.issued.0 + 1);
        let ticket = self.issued;
        let stripe = self.collecting(len);
        // A stripe is there as a whole: a part that it replaces itself was never there. So each of
        // its batches begins behind the one before, and none behind the needed end of the log.
        while let Some(last) = stripe.batches.pop_if(|last| last.from >= from) {
            stripe.payload_len -= encoded_len(&last.records);
        }
        stripe.batches.push(Batch { from, records: records.clone() });
        stripe.payload_len += len;
        stripe.ticket = ticket;
        self.replace(from, records);
        Ok(ticket)
    }

    /// No reader asks for entries up to `upto` any more. It may lie beyond the end: then the log
    /// goes on behind it.
    pub fn cut_front(&mut self, upto: u64) {
        while self.first <= upto {
            let Some(kept) = self.records.pop_front() else {
                self.first = upto + 1;
                break;
            };
            self.first += 1;
            self.discharge(kept.stripe, 1);
        }
        self.trim();
    }

    /// Everything that was appended up to this ticket is durable.
    #[must_use]
    pub fn durable(&self) -> Ticket {
        self.durable
    }

    /// Why the log is poisoned, if it is: only its durable part may be believed.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The next store. At most one store is under way; `None` while one is, and when no batch
    /// waits.
    pub fn next_store(&mut self) -> Option<Store> {
        if self.under_way != UnderWay::Nothing || self.failure.is_some() {
            return None;
        }
        if self.superblock.is_none() {
            let sectors = self.waiting().map_or(0, Stripe::sectors);
            let needed = self.needed_from();
            let is_short = self.head + sectors > self.tail + self.ring;
            if is_short || needed - self.tail > self.ring / FREE_UNSAID {
                assert!(needed > self.tail, "a batch was taken for which there is no room");
                self.superblock = Some((0, self.superblock_of(needed)));
            }
        }
        match self.superblock {
            Some((copy, superblock)) => {
                self.under_way = UnderWay::Superblock;
                let bytes = superblock.encode(copy).into();
                Some(Store { writes: vec![Write { offset: Superblock::offset(copy), bytes }] })
            }
            None => self.store_stripe(),
        }
    }

    /// How the store under way ended. No store follows a failure.
    ///
    /// # Panics
    /// If none is under way.
    pub fn on_stored(&mut self, stored: Result<(), String>) {
        let under_way = std::mem::replace(&mut self.under_way, UnderWay::Nothing);
        assert_ne!(under_way, UnderWay::Nothing, "no store is under way");
        if let Err(why) = stored {
            self.failure = Some(why);
            return;
        }
        match (under_way, self.superblock.take()) {
            (UnderWay::Superblock, Some((copy, superblock))) if copy + 1 < COPIES => {
                self.superblock = Some((copy + 1, superblock));
            }
            (UnderWay::Superblock, Some((_, superblock))) => self.tail = superblock.tail,
            (_, superblock) => {
                self.superblock = superblock;
                self.stripe_is_durable();
            }
        }
    }

    fn superblock_of(&self, tail: u64) -> Superblock {
        Superblock { binding: self.binding, ring: self.ring, tail, first: self.first }
    }

    /// The oldest stripe that is to be stored.
    fn waiting(&self) -> Option<&Stripe> {
        self.stripes.iter().find(|stripe| stripe.position.is_none())
    }

    /// The oldest position whose bytes are needed.
    fn needed_from(&self) -> u64 {
        self.stripes.front().and_then(|stripe| stripe.position).unwrap_or(self.head)
    }

    /// Whether all waiting batches, and one of so many bytes, have a place once unneeded space is
    /// free.
    fn has_room(&self, len: usize) -> bool {
        let waiting = self.stripes.iter().filter(|stripe| stripe.position.is_none());
        let sectors: u64 = waiting.map(Stripe::sectors).sum();
        let more = match self.takes(len) {
            Some(stripe) => sectors_of(stripe.payload_len + len) - stripe.sectors(),
            None => sectors_of(HEAD_LEN + len),
        };
        self.head + sectors + more <= self.needed_from() + self.ring
    }

    /// The stripe that takes a batch of so many bytes, if one that waits does.
    fn takes(&self, len: usize) -> Option<&Stripe> {
        let is_open = |stripe: &&Stripe| {
            stripe.position.is_none() && stripe.payload_len + len <= HEAD_LEN + self.batch_len_max()
        };
        self.stripes.back().filter(is_open)
    }

    fn collecting(&mut self, len: usize) -> &mut Stripe {
        if self.takes(len).is_none() {
            self.push_stripe(None);
        }
        self.stripes.back_mut().expect("there is one now")
    }

    fn push_stripe(&mut self, position: Option<u64>) {
        self.stripes.push_back(Stripe {
            number: self.next,
            position,
            live: 0,
            batches: Vec::new(),
            payload_len: HEAD_LEN,
            ticket: Ticket(0),
            replaced: Vec::new(),
        });
        self.next += 1;
    }

    fn stripe(&mut self, number: u64) -> &mut Stripe {
        let front = self.stripes.front().map_or(self.next, |stripe| stripe.number);
        let at = number.checked_sub(front).expect("a stripe with live records is in the ring");
        self.stripes.get_mut(at as usize).expect("stripes are numbered without gaps")
    }

    /// Puts records of the newest stripe in the place of everything from `from` on.
    fn replace(&mut self, from: u64, records: Vec<Bytes>) {
        let number = self.next - 1;
        let mut replaced: Vec<(u64, u64)> = Vec::new();
        while self.next_index() > from {
            let kept = self.records.pop_back().expect("the log reaches beyond `from`");
            match replaced.last_mut() {
                Some((stripe, count)) if *stripe == kept.stripe => *count += 1,
                _ => replaced.push((kept.stripe, 1)),
            }
        }
        let stripe = self.stripe(number);
        stripe.live += records.len() as u64;
        stripe.replaced.append(&mut replaced);
        let kept = records.into_iter().map(|record| Kept { record, stripe: number });
        self.records.extend(kept);
    }

    fn store_stripe(&mut self) -> Option<Store> {
        let (binding, position, first) = (self.ring_binding, self.head, self.first);
        let at = self.stripes.iter().position(|stripe| stripe.position.is_none())?;
        let stripe = &mut self.stripes[at];
        stripe.position = Some(position);
        let batches = std::mem::take(&mut stripe.batches);
        self.head += stripe.sectors();
        self.under_way = UnderWay::Stripe;
        let mut writer = StripeWriter::new();
        writer.push(&encode(first, &batches));
        let sectors = writer.finish(binding, position);
        Some(Store { writes: self.writes(position, sectors) })
    }

    /// The sectors of a stripe where they belong: two writes where the ring ends in between.
    fn writes(&self, position: u64, mut bytes: Bytes) -> Vec<Write> {
        let until_end = (self.ring - position % self.ring) as usize * SECTOR;
        let rest = bytes.split_off(until_end.min(bytes.len()));
        let mut writes = vec![Write { offset: offset_of(position, self.ring), bytes }];
        if !rest.is_empty() {
            writes.push(Write { offset: offset_of(0, self.ring), bytes: rest });
        }
        writes
    }

    fn stripe_is_durable(&mut self) {
        let number = self.next_durable;
        self.next_durable += 1;
        let stripe = self.stripe(number);
        let (ticket, replaced) = (stripe.ticket, std::mem::take(&mut stripe.replaced));
        self.durable = self.durable.max(ticket);
        for (stripe, count) in replaced {
            self.discharge(stripe, count);
        }
        self.trim();
    }

    /// So many records of a stripe need it no longer.
    fn discharge(&mut self, number: u64, count: u64) {
        let stripe = self.stripe(number);
        assert!(stripe.live >= count, "stripe {number} has {} live records", stripe.live);
        stripe.live -= count;
    }

    /// Lets go of the oldest stripes that are no longer needed.
    fn trim(&mut self) {
        let is_done = |stripe: &Stripe, durable| stripe.live == 0 && stripe.number < durable;
        while self.stripes.front().is_some_and(|stripe| is_done(stripe, self.next_durable)) {
            self.stripes.pop_front();
        }
    }

    /// Adds the next stripe that was found on the device; false if it leaves a gap.
    pub(super) fn found(
        &mut self,
        position: u64,
        sectors: u64,
        first: u64,
        batches: Vec<Batch>,
    ) -> bool {
        assert_eq!(position, self.head, "stripes lie one behind the other");
        self.push_stripe(Some(position));
        self.head += sectors;
        self.cut_front(first.saturating_sub(1));
        for Batch { from, mut records } in batches {
            if from > self.next_index() {
                return false;
            }
            // Records that were cut off are no longer kept.
            let skipped = self.first.saturating_sub(from).min(records.len() as u64);
            records.drain(..skipped as usize);
            self.replace(from.max(self.first), records);
        }
        self.stripe_is_durable();
        true
    }
}

impl Stripe {
    fn sectors(&self) -> u64 {
        sectors_of(self.payload_len)
    }
}

fn sectors_of(payload_len: usize) -> u64 {
    sectors_for(STRIPE_HEAD_LEN + payload_len)
}
