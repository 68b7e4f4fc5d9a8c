//! Group commit: entries go into the open batch of the ring. It is closed, written and flushed as
//! soon as the batch before has been flushed, so all entries of that time share one flush.

use bytes::Bytes;
use types::Ticket;

use super::records::Records;
use crate::Completion;
use crate::disk::bytes_at::put_u64;
use crate::disk::device::Device;
use crate::disk::entry::{Entry, HEAD_LEN, Kind, MARK_LEN, Mark, entry_checksum};
use crate::disk::io::{File, Files};
use crate::disk::replies::Replies;
use crate::disk::request::{Batch, Large};
use crate::disk::ring::{Pending, Ring, Stripe, ring_writes};
use crate::disk::stripe::{
    SECTOR, STRIPE_HEAD_LEN, STRIPE_SECTORS_MIN, StripeWriter, payload_max, sectors_for,
};
use crate::mutation::{self, Mutation};

/// The batch that is being written; always the one after the newest durable batch.
#[derive(Default, Debug)]
pub(super) struct Commits {
    under_way: Option<Commit>,
}

#[derive(Debug)]
struct Commit {
    /// `None` while it waits for room in the ring.
    io: Option<u64>,
    step: Step,
}

#[derive(Debug)]
enum Step {
    /// Large records go to these offsets of the extents file.
    Extents(Vec<u64>),
    /// The batch goes to the ring.
    Ring,
    /// The batch waits for room, and losses go to the ring without it.
    Losses(Losses),
}

/// Losses that a repair waits for, in a batch of their own.
#[derive(Debug)]
struct Losses {
    marks: Vec<Mark>,
    /// The damaged buckets whose last mark is among them.
    buckets: Vec<u64>,
}

impl Commit {
    fn waiting() -> Commit {
        Commit { io: None, step: Step::Ring }
    }
}

impl Commits {
    /// The request that the next durable batch waits for.
    pub(super) fn io(&self) -> Option<u64> {
        self.under_way.as_ref().and_then(|commit| commit.io)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.under_way.is_some()
    }

    /// Takes a worker's batch: from here on, loads see it.
    pub(super) fn accept(worker: usize, mut batch: Batch, records: &mut Records) {
        let marks = batch.marks.iter().filter_map(|mark| records.losses.admit(mark));
        let marks: Vec<Mark> = marks.collect();
        // One mark more: a batch none of whose marks is admitted still carries its ticket.
        let len = batch.entries.len() + (marks.len() + 1) * MARK_LEN;
        let max = Ring::entries_len_max(records.staged.ring().sectors);
        assert!(len <= max, "a batch of {len} bytes exceeds the ring's {max}");
        records.staged.ring_mut().reserve(len);
        for large in std::mem::take(&mut batch.large) {
            place_large(&mut batch.entries, large, records);
        }
        let extent_len = records.extent_len();
        if let Some(len) = extent_len.filter(|&len| batch.entry_len_max > len) {
            batch.entries = place_long(batch.entries, len, records);
        }
        records.staged.add_entries(batch.entries, batch.entry_len_max);
        let stripe = records.staged.ring_mut().collecting();
        for mark in marks {
            records.losses.set(mark);
            stripe.add_mark(mark);
        }
        if let Some(ticket) = batch.ticket {
            add_ticket(stripe, worker, ticket);
        }
    }

    /// Starts the next batch, or goes on with one that waits for room.
    pub(super) fn step(&mut self, records: &mut Records, device: &mut Device) {
        if self.under_way.is_none() {
            let is_redone = records.redone.is_some();
            let Some(stripe) = records.staged.ring_mut().close_next() else { return };
            let contents = &mut pending(stripe).contents;
            if is_redone && !contents.is_empty() {
                // Units may be free only once the write-back that gave them up is in place.
                return;
            }
            let writes = std::mem::take(contents);
            if !writes.is_empty() {
                let offsets = writes.iter().map(|write| write.offset).collect();
                let flush = match mutation::is(Mutation::ExtentsUnflushed) {
                    true => Files::default(),
                    false => Files::of(File::Extents),
                };
                let io = Some(device.store(writes, flush));
                self.under_way = Some(Commit { io, step: Step::Extents(offsets) });
                return;
            }
            self.under_way = Some(Commit::waiting());
        }
        if self.io().is_none() {
            self.write(records, device);
        }
    }

    /// True if the next batch can only be written when a write-back has got on.
    pub(super) fn waits_for_write_back(&self, ring: &mut Ring) -> bool {
        match &self.under_way {
            Some(commit) => commit.io.is_none(),
            None => ring.close_next().is_some(),
        }
    }

    /// Writes the closed batch if the ring has room for it.
    fn write(&mut self, records: &mut Records, device: &mut Device) {
        let binding = records.binding;
        let ring = records.staged.ring();
        let (used, sectors, head, durable) = (ring.used(), ring.sectors, ring.head, ring.durable);
        let is_awaited = records.losses.waiting(durable).next().is_some();
        records.clock.note_pace(ring, records.buckets.count());
        if records.is_far_behind() && !is_awaited {
            return;
        }
        let limit = records.clock.limit(sectors);
        let ring = records.staged.ring_mut();
        let stripe = ring.stripe(durable + 1).expect("a closed batch is in the ring");
        let pending = pending(stripe);
        let len = sectors_for(pending.payload_len());
        if used + len > limit {
            if is_awaited {
                self.write_losses(records, device);
            }
            return;
        }
        let mut writer = std::mem::take(&mut pending.writer);
        pending.marks.iter().for_each(|mark| push_mark(&mut writer, mark, binding));
        stripe.position = Some(head);
        ring.head += len;
        let writes = ring_writes(writer.finish(binding, head), head, sectors);
        let flush = match mutation::is(Mutation::StripeUnflushed) {
            true => Files::default(),
            false => Files::of(File::Ring),
        };
        let io = Some(device.store(writes, flush));
        self.under_way = Some(Commit { io, step: Step::Ring });
    }

    /// The next batch finds no room until a damaged bucket is rewritten, which waits for the mark
    /// of its loss. The rest of the ring is for such marks, and for no entries.
    fn write_losses(&mut self, records: &mut Records, device: &mut Device) {
        let ring = records.staged.ring_mut();
        let (used, sectors, head, durable) = (ring.used(), ring.sectors, ring.head, ring.durable);
        let room = sectors.saturating_sub(used).min(Ring::stripe_max(sectors));
        if room < STRIPE_SECTORS_MIN {
            return;
        }
        let (marks, are_all) = ring.take_losses(payload_max(room) - STRIPE_HEAD_LEN);
        if marks.is_empty() {
            return;
        }
        let mut writer = StripeWriter::new();
        marks.iter().for_each(|mark| push_mark(&mut writer, mark, records.binding));
        let bytes = writer.finish(records.binding, head);
        ring.begin_aside((bytes.len() / SECTOR) as u64);
        let waiting = records.losses.waiting(durable).filter(|_| are_all);
        let losses = Losses { marks, buckets: waiting.collect() };
        let io = Some(device.store(ring_writes(bytes, head, sectors), Files::of(File::Ring)));
        self.under_way = Some(Commit { io, step: Step::Losses(losses) });
    }

    /// The request of [`Commits::io`] is done.
    pub(super) fn done(&mut self, records: &mut Records, replies: &mut Replies) {
        let commit = self.under_way.take().expect("its completion has come");
        match commit.step {
            Step::Ring => return settle(records, replies),
            Step::Extents(offsets) => records.contents.written(&offsets),
            Step::Losses(losses) => {
                records.staged.ring_mut().settle_aside();
                records.losses.set_durable(&losses.marks);
                records.losses.set_ready(&losses.buckets);
            }
        }
        self.under_way = Some(Commit::waiting());
    }
}

/// The batch under way is durable.
fn settle(records: &mut Records, replies: &mut Replies) {
    let pending = records.staged.settle_next();
    for (unit, count) in pending.released {
        records.extents.release(unit, count);
    }
    records.losses.set_durable(&pending.marks);
    for (worker, ticket) in pending.tickets {
        replies.push(worker, Completion::Stored(ticket));
    }
}

fn push_mark(writer: &mut StripeWriter, mark: &Mark, binding: u64) {
    let mut raw = Vec::with_capacity(MARK_LEN);
    mark.append_to(binding, &mut raw);
    writer.push(&raw);
}

/// Gives a large record its extent and completes the reference to it in the batch.
fn place_large(entries: &mut [u8], large: Large, records: &mut Records) {
    let unit = place_content(large.content, records);
    let entry = Entry::read(&entries[large.at..]).expect("a worker's handle builds whole entries");
    let (hash, database, kind, key_len) = (entry.hash, entry.database, entry.kind, entry.key_len);
    let body = large.at + HEAD_LEN..large.at + entry.len();
    put_u64(&mut entries[body.start + key_len..], 0, unit);
    let checksum = entry_checksum(records.binding, hash, database, kind, &entries[body]);
    put_u64(&mut entries[large.at..], 8, checksum);
}

/// Gives extents to records that are too long for a page, and longer than `len`. Returns the
/// entries, with references in the place of those records.
fn place_long(entries: Vec<u8>, len: usize, records: &mut Records) -> Vec<u8> {
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
        let unit = place_content(entries.slice_ref(entry.body), records);
        entry.in_extent(unit, records.binding, &mut Vec::new()).append_to(&mut placed);
    }
    placed
}

/// Gives a content its units, to which it goes before the open batch is written.
fn place_content(content: Bytes, records: &mut Records) -> u64 {
    let (unit, write) = records.contents.place(content, &mut records.extents);
    pending(records.staged.ring_mut().collecting()).contents.push(write);
    unit
}

fn add_ticket(stripe: &mut Stripe, worker: usize, ticket: Ticket) {
    if pending(stripe).is_empty() {
        // It had only marks that were not admitted: the ticket says that the batches before are
        // durable.
        stripe.add_mark(Mark::NOTHING);
    }
    let tickets = &mut pending(stripe).tickets;
    match tickets.iter_mut().find(|(of, _)| *of == worker) {
        Some((_, newest)) => *newest = ticket,
        None => tickets.push((worker, ticket)),
    }
}

fn pending(stripe: &mut Stripe) -> &mut Pending {
    stripe.pending.as_mut().expect("a batch that is not durable is pending")
}
