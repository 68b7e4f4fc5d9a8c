//! Group commit: entries go into the stripe that is being collected. It is closed, written and
//! flushed as soon as the previous stripe has been flushed. All entries of that time share one flush.

use std::sync::Arc;

use bytes::Bytes;
use types::Ticket;

use super::Engine;
use crate::Completion;
use crate::disk::bytes_at::put_u64;
use crate::disk::entry::{Entry, HEAD_LEN, Kind, MARK_LEN, Mark, entry_checksum};
use crate::disk::extents::content_write;
use crate::disk::index::WARMED;
use crate::disk::io::{File, Files, Io, Write};
use crate::disk::place::{UNIT, units_for};
use crate::disk::request::{Batch, Large, ShardMark};
use crate::disk::ring::{Ring, Stripe, ring_writes};
use crate::disk::stripe::{
    SECTOR, STRIPE_HEAD_LEN, STRIPE_SECTORS_MIN, StripeWriter, payload_max, sectors_for,
};
use crate::mutation::{self, Mutation};

/// The stripe that is under way; always the one after the newest durable stripe.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) io: Option<u64>, // `None` while it waits for room in the ring
    step: Step,
}

#[derive(Debug)]
enum Step {
    /// Large records, which begin at these units, go to their extents.
    Extents(Vec<u64>),
    /// The stripe goes to the ring.
    Ring,
    /// It waits for room, and losses go to the ring without it.
    Losses(Losses),
}

/// Losses for which something waits, in a stripe of their own.
#[derive(Debug)]
struct Losses {
    marks: Vec<Mark>,
    /// The damaged buckets of which these are all.
    buckets: Vec<u64>,
}

impl Commit {
    /// Waits for room in the ring.
    fn waiting() -> Commit {
        Commit { io: None, step: Step::Ring }
    }
}

impl Engine {
    /// Takes a batch: from here on, loads see it.
    pub(super) fn accept(&mut self, worker: usize, mut batch: Batch) {
        let marks: Vec<Mark> = batch.marks.iter().filter_map(|mark| self.admit(mark)).collect();
        // One mark more: a batch none of whose marks is admitted still carries its ticket.
        let len = batch.entries.len() + (marks.len() + 1) * MARK_LEN;
        let max = Ring::entries_len_max(self.ring.sectors);
        assert!(len <= max, "a batch of {len} bytes exceeds a stripe's {max}");
        self.ring.reserve(len);
        for large in std::mem::take(&mut batch.large) {
            self.place_large(&mut batch.entries, large);
        }
        if let Some(len) = self.extent_len().filter(|&len| batch.entry_len_max > len) {
            batch.entries = self.place_long(batch.entries, len);
        }
        self.add_entries(batch.entries, batch.entry_len_max);
        for mark in marks {
            self.add_mark(mark);
        }
        if let Some(ticket) = batch.ticket {
            self.add_ticket(worker, ticket);
        }
    }

    /// Turns a worker's word on a shard into a mark, unless it speaks of a loss before the latest one.
    fn admit(&self, mark: &ShardMark) -> Option<Mark> {
        let heard_all =
            self.losses[super::shard_index(mark.database, mark.shard)] == mark.losses_heard;
        (mark.forgotten || heard_all).then(|| Mark::of(mark.database, mark.shard, mark.forgotten))
    }

    /// Gives a large record its extent and completes the reference that stands for it in the batch.
    fn place_large(&mut self, entries: &mut [u8], large: Large) {
        let unit = self.place_content(large.content);
        let entry =
            Entry::read(&entries[large.at..]).expect("a worker's handle builds whole entries");
        let (hash, database, kind, key_len) =
            (entry.hash, entry.database, entry.kind, entry.key_len);
        let body = large.at + HEAD_LEN..large.at + entry.len();
        put_u64(&mut entries[body.start + key_len..], 0, unit);
        let checksum = entry_checksum(self.binding, hash, database, kind, &entries[body]);
        put_u64(&mut entries[large.at..], 8, checksum);
    }

    /// Gives extents to records that are too long for a page, and longer than this. The entries, with references in place
    /// of those records.
    fn place_long(&mut self, entries: Vec<u8>, len: usize) -> Vec<u8> {
        let goes = |entry: &Entry<'_>| entry.outgrows_page() && entry.len() > len;
        if !Entry::all(&entries).any(|(_, entry)| goes(&entry)) {
            return entries;
        }
        base::sometimes!("disk: a record that a stripe has room for goes to an extent before it");
        let entries = Bytes::from(entries);
        let mut placed = Vec::new();
        for (raw, entry) in Entry::all(&entries).filter(|(_, entry)| entry.kind != Kind::DEAD) {
            if !goes(&entry) {
                placed.extend_from_slice(raw);
                continue;
            }
            let unit = self.place_content(entries.slice_ref(entry.body));
            entry.in_extent(unit, self.binding, &mut Vec::new()).append_to(&mut placed);
        }
        placed
    }

    /// Gives content an extent, to which it goes before the stripe that is being collected.
    fn place_content(&mut self, content: Bytes) -> u64 {
        let count = units_for(content.len());
        let unit = self.extents.allocate(count);
        self.note_placed(unit, count);
        self.unwritten_len += content.len();
        self.unwritten.insert(unit, content.clone());
        pending(self.ring.collecting()).contents.push(content_write(unit, content));
        unit
    }

    /// Puts encoded entries, none of them longer than this, into the collecting stripe and into the index.
    pub(super) fn add_entries(&mut self, entries: Vec<u8>, entry_len_max: usize) {
        let shared = Arc::new(self.pool.lend(entries));
        let entries = &shared[..];
        let stripe = self.ring.collecting();
        let number = stripe.number;
        let pending = stripe.pending.as_mut().expect("the collecting stripe is pending");
        pending.writer.reserve(entries.len());
        let expected = entries.len() / entry_len_max.max(HEAD_LEN);
        stripe.hashes.reserve(expected);
        pending.superseded.reserve(expected);
        let mut at = 0;
        let (mut taken, mut replaced) = (0, 0);
        let (mut run, mut count) = (0, 0); // where entries begin that are next to each other and alive
        let mut cold = 0;
        for (raw, entry) in Entry::all(entries) {
            let start = at;
            if cold == 0 {
                cold = WARMED;
                self.index.warm(Entry::hashes(&entries[at..]));
            }
            cold -= 1;
            at += raw.len();
            if entry.kind == Kind::DEAD {
                pending.writer.push_all(&entries[run..start], count);
                (run, count) = (at, 0);
                continue;
            }
            count += 1;
            stripe.hashes.push(entry.hash);
            taken += 1;
            let Some(old) = self.index.insert(&shared, start, number) else { continue };
            if old.stripe == number {
                replaced += 1;
            } else {
                pending.superseded.push(old.at);
            }
            if let Some(reference) = old.reference {
                pending.released.push((reference.unit, units_for(reference.content_len())));
            }
        }
        pending.writer.push_all(&entries[run..at], count);
        assert_eq!(at, entries.len(), "a batch is a whole number of entries");
        self.ring.charge(taken, replaced);
    }

    /// Puts a worker's mark into the collecting stripe.
    fn add_mark(&mut self, mark: Mark) {
        self.set_flags(mark);
        self.ring.collecting().add_mark(mark);
    }

    pub(super) fn set_flags(&mut self, mark: Mark) {
        for (database, shard) in mark.shards() {
            self.flags.set(database, shard, mark.forgotten);
        }
    }

    fn add_ticket(&mut self, worker: usize, ticket: Ticket) {
        let stripe = self.ring.collecting();
        if pending(stripe).is_empty() {
            // Only marks of the past were in it: there is nothing to make durable but what came before.
            stripe.add_mark(Mark::NOTHING);
        }
        let tickets = &mut pending(stripe).tickets;
        match tickets.iter_mut().find(|(of, _)| *of == worker) {
            Some((_, newest)) => *newest = ticket,
            None => tickets.push((worker, ticket)),
        }
    }

    /// Starts the next stripe, or goes on with one that waits for room.
    pub(super) fn step_commit(&mut self) {
        if self.commit.is_none() {
            let is_redone = self.write_back.is_redone();
            let Some(stripe) = self.ring.close_next() else { return };
            if is_redone && !pending(stripe).contents.is_empty() {
                // Units may be free only once the write-back that gave them up is in place.
                return;
            }
            let writes = std::mem::take(&mut pending(stripe).contents);
            if !writes.is_empty() {
                let id = self.take_io_id();
                let units = writes.iter().map(|write| write.offset / UNIT).collect();
                let flush = match mutation::is(Mutation::ExtentsUnflushed) {
                    true => Files::default(),
                    false => Files::of(File::Extents),
                };
                self.ios.push(Io::Store { id, writes, flush });
                self.commit = Some(Commit { io: Some(id), step: Step::Extents(units) });
                return;
            }
            self.commit = Some(Commit::waiting());
        }
        if self.commit.as_ref().is_some_and(|commit| commit.io.is_none()) {
            self.write_stripe();
        }
    }

    /// True if the next stripe can only be written when a write-back has got on.
    pub(super) fn waits_for_write_back(&mut self) -> bool {
        match &self.commit {
            Some(commit) => commit.io.is_none(),
            None => self.ring.close_next().is_some(),
        }
    }

    /// Writes the closed stripe if the ring has room for it.
    fn write_stripe(&mut self) {
        let number = self.ring.durable + 1;
        let (used, ring, head) = (self.ring.used(), self.ring.sectors, self.ring.head);
        let is_awaited = self.awaited_marks().any(|stripe| stripe >= number);
        self.note_pace();
        if self.is_far_behind() && !is_awaited {
            return;
        }
        let limit = self.sweep.limit(ring);
        let stripe = self.ring.stripe(number).expect("a closed stripe is in the ring");
        let pending = pending(stripe);
        let sectors = sectors_for(pending.payload_len());
        if used + sectors > limit {
            if is_awaited {
                self.write_losses();
            }
            return;
        }
        let mut writer = std::mem::take(&mut pending.writer);
        for mark in &pending.marks {
            let mut raw = Vec::with_capacity(MARK_LEN);
            mark.append_to(self.binding, &mut raw);
            writer.push(&raw);
        }
        stripe.position = Some(head);
        self.ring.head += sectors;
        let bytes = writer.finish(self.binding, head);
        let id = self.take_io_id();
        let writes = ring_writes(bytes, head, ring);
        let flush = match mutation::is(Mutation::StripeUnflushed) {
            true => Files::default(),
            false => Files::of(File::Ring),
        };
        self.ios.push(Io::Store { id, writes, flush });
        self.commit = Some(Commit { io: Some(id), step: Step::Ring });
    }

    /// Takes back the writes of a stripe that has completed, for their memory.
    pub(in crate::disk) fn recycle(&mut self, writes: Vec<Write>) {
        self.ring.recycle(writes);
    }

    /// The next stripe finds no room until a damaged bucket has gone home, which waits for the mark of its loss. What is
    /// left of the ring is for such marks, and for no entries.
    fn write_losses(&mut self) {
        let (used, ring, head) = (self.ring.used(), self.ring.sectors, self.ring.head);
        let room = ring.saturating_sub(used).min(Ring::stripe_max(ring));
        if room < STRIPE_SECTORS_MIN {
            return;
        }
        let (marks, are_all) = self.ring.take_losses(payload_max(room) - STRIPE_HEAD_LEN);
        if marks.is_empty() {
            return;
        }
        let mut writer = StripeWriter::new();
        for mark in &marks {
            let mut raw = Vec::with_capacity(MARK_LEN);
            mark.append_to(self.binding, &mut raw);
            writer.push(&raw);
        }
        let bytes = writer.finish(self.binding, head);
        self.ring.begin_aside((bytes.len() / SECTOR) as u64);
        let durable = self.ring.durable;
        let waiting = self.repairs.iter().filter(|&(_, &stripe)| are_all && stripe > durable);
        let buckets = waiting.map(|(&bucket, _)| bucket).collect();
        let losses = Losses { marks, buckets };
        let id = self.take_io_id();
        let (writes, flush) = (ring_writes(bytes, head, ring), Files::of(File::Ring));
        self.ios.push(Io::Store { id, writes, flush });
        self.commit = Some(Commit { io: Some(id), step: Step::Losses(losses) });
    }

    fn losses_done(&mut self, losses: Losses) {
        self.ring.settle_aside();
        self.set_flags_durable(&losses.marks);
        self.note_repair();
        for bucket in losses.buckets {
            if let Some(stripe) = self.repairs.get_mut(&bucket) {
                *stripe = 0;
            }
        }
        self.commit = Some(Commit::waiting());
    }

    fn set_flags_durable(&mut self, marks: &[Mark]) {
        for mark in marks {
            for (database, shard) in mark.shards() {
                self.flags_durable.set(database, shard, mark.forgotten);
            }
        }
    }

    /// Stripes with marks that something waits for.
    fn awaited_marks(&self) -> impl Iterator<Item = u64> {
        self.repairs.values().copied()
    }

    /// Lets go of stripes that the store needs no more.
    pub(super) fn trim(&mut self) {
        self.ring.trim(self.marked);
    }

    pub(super) fn commit_done(&mut self) {
        let commit = self.commit.take().expect("its completion has come");
        match commit.step {
            Step::Extents(units) => {
                for unit in &units {
                    let content = self.unwritten.remove(unit).expect("it was unwritten until now");
                    self.unwritten_len -= content.len();
                }
                self.commit = Some(Commit::waiting());
            }
            Step::Losses(losses) => self.losses_done(losses),
            Step::Ring => self.stripe_done(),
        }
    }

    fn stripe_done(&mut self) {
        let pending = self.ring.settle_next();
        let number = self.ring.durable;
        for superseded in pending.superseded.chunks(WARMED) {
            self.index.warm(superseded.iter().map(|&(hash, _)| hash));
            for &at in superseded {
                if let Some(stripe) = self.index.settle(at, number) {
                    self.ring.discharge(stripe);
                }
            }
        }
        for (unit, count) in pending.released {
            self.extents.release(unit, count);
        }
        self.set_flags_durable(&pending.marks);
        for (worker, ticket) in pending.tickets {
            self.completions[worker].push(Completion::Stored(ticket));
        }
        self.trim();
    }
}

fn pending(stripe: &mut Stripe) -> &mut crate::disk::ring::Pending {
    stripe.pending.as_mut().expect("a stripe that is not durable is pending")
}
