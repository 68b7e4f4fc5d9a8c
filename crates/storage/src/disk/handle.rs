//! A worker's end of a store: the open batch, tickets, and the losses that the worker has heard of.
//!
//! It encodes records once, with their checksums, and hands whole batches over a [`Link`]. Every
//! load of a record that is not in the open batch is a question to the engine.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashTable;
use types::key::SHARDS;
use types::limits::{RECORD_LEN_MAX, SPACES};
use types::{Database, Key, Shard, Ticket};

use super::engine::Engine;
use super::entry::{
    Entry, FINGERPRINT_LEN, HEAD_LEN, KEY_LEN_INLINE, Kind, MARK_LEN, RING_BODY_MAX, Reference,
    entry_checksum, fingerprint, meta_hash,
};
use super::pool::{self, Pool};
use super::request::{Batch, Large, Request, ScanRequest, ShardMark};
use crate::mutation::{self, Mutation};
use crate::{Completion, Load, Place, Room, ScrubScope, Share, Staging, Store};

/// Loads of one worker that may be under way before there are too many.
const LOADS_MAX: usize = 16 * 1024;

/// Bytes of memory that a handle keeps for its next batch.
const KEPT_MAX: usize = pool::LEN_MAX;

/// Bytes that a batch is given at once where the one before had as many.
const EXPECTED_MAX: usize = 1 << 20;

/// How requests reach the engine and completions come back.
pub trait Link: Send {
    /// Hands requests over in order, leaving `requests` empty.
    fn send(&mut self, requests: &mut Vec<Request>);

    /// The answer to a load, if it is at hand. Everything that was asked for before must have been
    /// handed over; `None` where the engine has not taken all of that.
    fn try_load(&mut self, place: &Place) -> Option<Load>;

    /// Appends completions.
    fn receive(&mut self, completions: &mut Vec<Completion>);

    /// True while the engine wants no new changes.
    fn is_full(&self) -> bool;

    /// True while the bytes that wait for the medium must not grow.
    fn is_overrun(&self) -> bool;

    /// See [`crate::Store::room`].
    fn room(&self) -> Room {
        Room::Enough
    }

    /// Of the ring; by the first of a store's links.
    fn staging(&self) -> Option<Staging>;
    /// See [`crate::Store::memory`].
    fn memory(&self) -> usize;
}

/// The facts about a store that its handles need.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) binding: u64,
    /// Longest encoded batch, marks included.
    pub(super) batch_len_max: usize,
    pub(super) forgotten: Vec<bool>,
    pub(super) pool: Arc<Pool>,
}

impl Terms {
    pub(super) fn of(engine: &Engine) -> Terms {
        let all =
            (0..SPACES as u8).flat_map(|d| (0..=u8::MAX).map(move |s| (Database(d), Shard(s))));
        Terms {
            binding: engine.binding(),
            batch_len_max: engine.batch_len_max(),
            forgotten: all.map(|(database, shard)| engine.is_forgotten(database, shard)).collect(),
            pool: engine.pool(),
        }
    }
}

/// [`Store`] over a link to an engine.
#[derive(Debug)]
pub struct Handle<L> {
    link: L,
    binding: u64,
    batch_len_max: usize,
    open: OpenBatch,
    ticket: Ticket,
    outgoing: Vec<Request>,
    loads: usize,
    forgotten: Vec<bool>,
    losses_heard: Vec<u32>,
}

/// The batch that changes go into.
#[derive(Debug)]
struct OpenBatch {
    pool: Arc<Pool>,
    entries: Vec<u8>,
    entry_len_max: usize, // none of them is longer
    /// As long as `entries` will be, if this batch is like the last one.
    expected_len: usize,
    places: HashTable<usize>, // where the newest entry of each place starts
    large: Vec<Large>,
    marks: Vec<ShardMark>,
}

/// The parts of an entry before it is made.
struct Draft<'a> {
    hash: u64,
    database: Database,
    kind: Kind,
    key: &'a [u8],      // as the entry has it
    full_key: &'a [u8], // as the extent has it
}

impl<L: Link> Handle<L> {
    pub(super) fn new(link: L, terms: Terms) -> Handle<L> {
        Handle {
            link,
            binding: terms.binding,
            batch_len_max: terms.batch_len_max,
            open: OpenBatch::new(terms.pool),
            ticket: Ticket(1),
            outgoing: Vec::new(),
            loads: 0,
            forgotten: terms.forgotten,
            losses_heard: vec![0; SPACES * SHARDS],
        }
    }

    /// Calls `with` with the parts of an entry for this place.
    fn draft<T>(&mut self, place: &Place, with: impl FnOnce(&mut Self, Draft<'_>) -> T) -> T {
        let mut short = [0; FINGERPRINT_LEN];
        let draft = match place {
            Place::Cell(database, key) => cell_draft(self.binding, *database, key, &mut short),
            Place::Meta(database, shard) => Draft {
                hash: meta_hash(*database, *shard),
                database: *database,
                kind: Kind::META,
                key: &[],
                full_key: &[],
            },
        };
        with(self, draft)
    }

    fn put_draft(&mut self, draft: &Draft<'_>, record: &[u8]) {
        let len = record.len();
        assert!(len <= RECORD_LEN_MAX, "a record of {len} bytes exceeds {RECORD_LEN_MAX}");
        let key_len = draft.full_key.len();
        if key_len + len <= RING_BODY_MAX && !draft.kind.has_long_key() {
            return self.open.add(self.binding, draft, draft.kind, record);
        }
        let content = Bytes::from([draft.full_key, record].concat());
        let reference = Reference::to(0, self.binding, draft.hash, key_len, &content);
        self.open.add(self.binding, draft, draft.kind.in_extent(), &reference.bytes());
        let at = self.open.find(draft).expect("it has just been added");
        self.open.large.push(Large { at, content });
    }

    /// The newest record of a place in the open batch: `None` where the batch does not have it.
    fn load_open(&self, draft: &Draft<'_>) -> Option<Option<Bytes>> {
        let at = self.open.find(draft)?;
        let entry = Entry::read(&self.open.entries[at..]).expect("the batch holds whole entries");
        if entry.kind.is_remove() {
            return Some(None);
        }
        let record = match self.open.large.iter().find(|large| large.at == at) {
            Some(large) => large.content.slice(draft.full_key.len()..),
            None => Bytes::copy_from_slice(entry.record()),
        };
        Some(Some(record))
    }

    fn absent(&self, place: &Place) -> Load {
        let (database, shard) = match place {
            Place::Cell(database, key) => (*database, key.shard()),
            Place::Meta(database, shard) => (*database, *shard),
        };
        if self.is_forgotten(database, shard) && !mutation::is(Mutation::LostIsAbsent) {
            Load::Lost
        } else {
            Load::Absent
        }
    }

    fn send(&mut self) {
        if !self.outgoing.is_empty() {
            self.link.send(&mut self.outgoing);
        }
    }

    fn hear(&mut self, completion: &Completion) {
        match completion {
            Completion::Loaded { .. } => self.loads = self.loads.saturating_sub(1),
            Completion::Forgotten { database, shard } => {
                let i = index(*database, *shard);
                self.losses_heard[i] += 1;
                self.forgotten[i] = true;
            }
            _ => {}
        }
    }
}

fn index(database: Database, shard: Shard) -> usize {
    usize::from(database.0) % SPACES * SHARDS + usize::from(shard.0)
}

fn cell_draft<'a>(
    binding: u64,
    database: Database,
    key: &'a Key,
    short: &'a mut [u8; FINGERPRINT_LEN],
) -> Draft<'a> {
    let full_key = key.bytes();
    let is_long = full_key.len() > KEY_LEN_INLINE;
    if is_long {
        *short = fingerprint(binding, full_key);
    }
    Draft {
        hash: key.hash(),
        database,
        kind: Kind::CELL.with_long_key(is_long),
        key: if is_long { short } else { full_key },
        full_key,
    }
}

impl OpenBatch {
    fn new(pool: Arc<Pool>) -> OpenBatch {
        OpenBatch {
            pool,
            entries: Vec::new(),
            entry_len_max: 0,
            expected_len: 0,
            places: HashTable::new(),
            large: Vec::new(),
            marks: Vec::new(),
        }
    }

    fn find(&self, draft: &Draft<'_>) -> Option<usize> {
        let wanted = Entry {
            hash: draft.hash,
            checksum: 0,
            kind: draft.kind,
            database: draft.database.0,
            key_len: draft.key.len(),
            body: draft.key,
        };
        let is_it = |&at: &usize| {
            Entry::read(&self.entries[at..]).is_some_and(|entry| entry.has_identity_of(&wanted))
        };
        self.places.find(table_hash(draft.hash), is_it).copied()
    }

    /// Adds an entry; the place's older entry, if any, dies.
    fn add(&mut self, binding: u64, draft: &Draft<'_>, kind: Kind, rest: &[u8]) {
        let old = self.find(draft);
        if let Some(at) = old {
            self.large.retain(|large| large.at != at);
        }
        let start = self.entries.len();
        if start == 0 {
            let expected = self.expected_len + self.expected_len / 16;
            match self.entries.capacity() {
                0 => self.entries = self.pool.take(expected),
                _ => self.entries.reserve(expected),
            }
        }
        self.entries.resize(start + HEAD_LEN, 0);
        self.entries.extend_from_slice(draft.key);
        self.entries.extend_from_slice(rest);
        let (hash, database, key_len) = (draft.hash, draft.database.0, draft.key.len());
        let body = &self.entries[start + HEAD_LEN..];
        let checksum = entry_checksum(binding, hash, database, kind, body);
        let entry = Entry { hash, checksum, kind, database, key_len, body };
        self.entry_len_max = self.entry_len_max.max(entry.len());
        let head = entry.head();
        self.entries[start..start + HEAD_LEN].copy_from_slice(&head);
        match old {
            Some(at) => self.replace(at, start, draft.hash),
            None => {
                let entries = &self.entries;
                self.places.insert_unique(table_hash(hash), start, |&at| {
                    table_hash(Entry::read(&entries[at..]).map_or(0, |entry| entry.hash))
                });
            }
        }
    }

    /// Lets the entry at `start`, the last one, take the place of the one at `at`.
    fn replace(&mut self, at: usize, start: usize, hash: u64) {
        let old_len = Entry::read(&self.entries[at..]).map_or(0, |entry| entry.len());
        if old_len == self.entries.len() - start {
            self.entries.copy_within(start.., at);
            self.entries.truncate(start);
            return;
        }
        self.entries[at + 22] = Kind::DEAD.0;
        if let Some(place) = self.places.find_mut(table_hash(hash), |&known| known == at) {
            *place = start;
        }
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.marks.is_empty()
    }

    /// As long as an entry of it is in the ring, all of a batch is in memory: it gets little more
    /// than it needs. Short ones are copied from where the next one is collected; of the others,
    /// those that were collected in much more than they need, unless they are so long that a copy
    /// costs more than memory.
    fn take_entries(&mut self) -> Vec<u8> {
        let len = self.entries.len();
        self.expected_len = len.min(EXPECTED_MAX);
        if len > KEPT_MAX {
            let mut entries = std::mem::take(&mut self.entries);
            entries.shrink_to_fit();
            return entries;
        }
        if pool::takes(&self.entries) && self.entries.capacity() - len <= len / 8 {
            return std::mem::take(&mut self.entries);
        }
        let mut entries = self.pool.take(len);
        entries.extend_from_slice(&self.entries);
        if pool::takes(&entries) {
            self.pool.put(std::mem::take(&mut self.entries));
        } else {
            self.entries.clear();
            self.entries.shrink_to(KEPT_MAX);
        }
        entries
    }

    /// The batch as requests: several if it exceeds a ring batch though every record fits a page.
    /// Then their order is that of durability: marks of forgotten shards, metas, puts, removals,
    /// marks of recovered shards.
    fn take(&mut self, binding: u64, len_max: usize, ticket: Ticket) -> Vec<Batch> {
        let entries = self.take_entries();
        self.places.clear();
        self.places.shrink_to(KEPT_MAX / HEAD_LEN, |_| 0);
        let (large, marks) = (std::mem::take(&mut self.large), std::mem::take(&mut self.marks));
        let entry_len_max = std::mem::take(&mut self.entry_len_max);
        let mut whole = Batch { entries, entry_len_max, large, marks, ticket: Some(ticket) };
        if whole.len() > len_max {
            whole.shorten(binding);
        }
        if whole.len() <= len_max {
            return vec![whole];
        }
        whole.divide(len_max)
    }
}

impl Batch {
    /// Bytes of a ring batch that it takes at most.
    fn len(&self) -> usize {
        self.entries.len() + (self.marks.len() + 1) * MARK_LEN
    }

    /// Lets records that are too long for a page go to extents before the ring batch.
    fn shorten(&mut self, binding: u64) {
        let entries = Bytes::from(std::mem::take(&mut self.entries));
        let mut large = std::mem::take(&mut self.large);
        large.sort_unstable_by_key(|large| large.at);
        let (mut large, mut from) = (large.into_iter().peekable(), 0);
        for (raw, entry) in Entry::all(&entries) {
            let at = self.entries.len();
            if let Some(known) = large.next_if(|large| large.at == from) {
                self.large.push(Large { at, ..known });
            }
            if entry.outgrows_page() && entry.kind != Kind::DEAD {
                self.large.push(Large { at, content: entries.slice_ref(entry.body) });
                entry.in_extent(0, binding, &mut Vec::new()).append_to(&mut self.entries);
            } else if entry.kind != Kind::DEAD {
                self.entries.extend_from_slice(raw);
            }
            from += raw.len();
        }
    }

    fn divide(self, len_max: usize) -> Vec<Batch> {
        let Batch { entries, entry_len_max, mut large, marks, ticket } = self;
        let mut starts: Vec<(u8, usize)> = Vec::new();
        let mut at = 0;
        while let Some(entry) = Entry::read(&entries[at..]) {
            if entry.kind != Kind::DEAD {
                let is_cell = entry.kind.class() == Kind::CELL;
                starts.push((u8::from(is_cell) + 2 * u8::from(entry.kind.is_remove()), at));
            }
            at += entry.len();
        }
        starts.sort_unstable();
        let part = || Batch { entry_len_max, ..Batch::default() };
        let mut parts = vec![part()];
        let (lost, known): (Vec<ShardMark>, Vec<ShardMark>) =
            marks.into_iter().partition(|mark| mark.forgotten);
        let room = |parts: &mut Vec<Batch>, len: usize| {
            if parts.last().is_some_and(|part| part.len() + len > len_max) {
                parts.push(part());
            }
            parts.len() - 1
        };
        for mark in lost {
            let i = room(&mut parts, MARK_LEN);
            parts[i].marks.push(mark);
        }
        for (_, at) in starts {
            let len = Entry::read(&entries[at..]).map_or(0, |entry| entry.len());
            let i = room(&mut parts, len);
            let to = parts[i].entries.len();
            parts[i].entries.extend_from_slice(&entries[at..at + len]);
            if let Some(found) = large.iter().position(|large| large.at == at) {
                let Large { content, .. } = large.swap_remove(found);
                parts[i].large.push(Large { at: to, content });
            }
        }
        for mark in known {
            let i = room(&mut parts, MARK_LEN);
            parts[i].marks.push(mark);
        }
        let last = parts.len() - 1;
        parts[last].ticket = ticket;
        parts
    }
}

/// The table looks at the top bits, which the keys of a shard share.
fn table_hash(hash: u64) -> u64 {
    hash.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl<L: Link> Store for Handle<L> {
    fn load(&mut self, place: &Place) -> Load {
        if !self.open.entries.is_empty() {
            match self.draft(place, |handle, draft| handle.load_open(&draft)) {
                Some(Some(record)) => return Load::Found(record),
                Some(None) => return self.absent(place),
                None => {}
            }
        }
        // Loads and scans that wait to be handed over make no change.
        if let Some(load) = self.link.try_load(place) {
            return load;
        }
        self.loads += 1;
        self.outgoing.push(Request::Load(place.clone()));
        Load::Pending
    }

    fn put(&mut self, place: &Place, record: &[u8]) {
        self.draft(place, |handle, draft| handle.put_draft(&draft, record));
    }

    fn remove(&mut self, place: &Place) {
        self.draft(place, |handle, draft| {
            handle.open.add(handle.binding, &draft, draft.kind.removing(), &[]);
        });
    }

    fn set_forgotten(&mut self, database: Database, shard: Shard, forgotten: bool) {
        let i = index(database, shard);
        self.forgotten[i] = forgotten;
        let losses_heard = self.losses_heard[i];
        self.open.marks.retain(|mark| (mark.database, mark.shard) != (database, shard));
        self.open.marks.push(ShardMark { database, shard, forgotten, losses_heard });
    }

    fn is_forgotten(&self, database: Database, shard: Shard) -> bool {
        self.forgotten[index(database, shard)]
    }

    fn scan(&mut self, id: u64, database: Database, from_hash: u64, limit: usize) {
        self.outgoing.push(Request::Scan(ScanRequest { id, database, from_hash, limit }));
    }

    fn ticket(&self) -> Ticket {
        self.ticket
    }

    fn submit(&mut self) {
        if !self.open.is_empty() {
            let parts = self.open.take(self.binding, self.batch_len_max, self.ticket);
            self.outgoing.extend(parts.into_iter().map(Request::Change));
            self.ticket.0 += 1;
        }
        self.send();
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.send();
        let known = completions.len();
        self.link.receive(completions);
        for completion in &completions[known..] {
            self.hear(completion);
        }
    }

    fn outlives_process(&self) -> bool {
        true
    }

    fn scrub_scope(&self) -> ScrubScope {
        ScrubScope::Medium
    }

    fn scrub(&mut self, _share: Share, bytes: u64) {
        self.outgoing.push(Request::Scrub { bytes });
    }

    fn is_full(&self) -> bool {
        self.link.is_full()
    }

    fn has_many_loads(&self) -> bool {
        self.loads > LOADS_MAX
    }

    fn is_overrun(&self) -> bool {
        self.link.is_overrun()
    }

    fn room(&self) -> Room {
        self.link.room()
    }

    fn staging(&self) -> Option<Staging> {
        self.link.staging()
    }

    fn memory(&self) -> usize {
        self.link.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the allocator does: that of AddressSanitizer does not.
    fn shortens_in_place(len: usize) -> bool {
        let mut long = Vec::with_capacity(2 * len);
        long.resize(len, 1_u8);
        let at = std::hint::black_box(&long).as_ptr();
        long.shrink_to_fit();
        std::hint::black_box(&long).as_ptr() == at
    }

    #[test]
    fn a_batch_has_little_more_memory_than_it_needs_and_the_next_one_moves_nothing() {
        for (len, count) in [(100, 20), (1_000, 40), (5_000, 100)] {
            let mut open = OpenBatch::new(Pool::new(1 << 20));
            for round in 0..3 {
                let (mut short, mut moved) = ([0; FINGERPRINT_LEN], false);
                for number in 0..count {
                    let key = Key::new(format!("{number}").as_bytes());
                    let draft = cell_draft(1, Database(0), &key, &mut short);
                    let at = open.entries.as_ptr();
                    open.add(1, &draft, draft.kind, &vec![round; len]);
                    moved |= number > 0 && open.entries.as_ptr() != at;
                }
                assert!(round == 0 || !moved);
                let (wanted, at) = (open.entries.clone(), open.entries.as_ptr());
                let batches = open.take(1, 4 << 20, Ticket(1));
                let [Batch { entries, .. }] = &batches[..] else { panic!("it has room") };
                assert_eq!(entries, &wanted);
                assert!(entries.capacity() <= wanted.len() + wanted.len() / 8);
                let is_copied = entries.as_ptr() != at;
                let is_right = match wanted.len() {
                    ..4096 => is_copied,
                    len => !is_copied || !shortens_in_place(len),
                };
                assert!(round == 0 || is_right, "{} bytes", wanted.len());
                assert!(open.is_empty());
            }
        }
    }
}
