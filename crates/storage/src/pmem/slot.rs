//! Slots: two versions side by side, written in turn, valid by checksum and sequence; the checksum variant of
//! `bench::media::variants`, with a larger header and a seeded checksum.
//!
//! A version is a header of 24 bytes, the key and the record, in its own cache lines, checksummed with a seed
//! that binds it to its place and its directory. The sequences of a slot's versions always differ by one, so
//! that the newer one is known for ever although the number wraps. A version without a record is *void* and
//! says so under a checksum: no state of a slot but one that was interrupted is ever invalid.
//!
//! ```text
//! 0..8    checksum over the rest, up to the end of the record
//! 8..12   sequence             12..16  bytes of the record
//! 16..20  bytes of the key     20      kind      21  database      22..24  zero
//! 24..    key, record
//! ```

use base::checksum::checksum;
use types::Database;

use super::layout::{Class, HEADER_LEN, PAGE, PageKind, ShardId};
use super::memory::Memory;
use super::persist::LINE;
use super::shared::Shared;
use crate::mutation::{self, Mutation};

/// Bytes of the checksum, in front of the bytes that it covers.
const SUM_LEN: usize = 8;

/// Fills in the checksum of `bytes`, its first eight, over the others.
fn seal(seed: u64, bytes: &mut [u8]) {
    let (sum, rest) = bytes.split_at_mut(SUM_LEN);
    sum.copy_from_slice(&checksum(seed, rest).to_le_bytes());
}

/// True where `bytes` are as they were sealed, with the same seed.
fn is_sealed(seed: u64, bytes: &[u8]) -> bool {
    let (sum, rest) = bytes.split_at(SUM_LEN);
    sum == checksum(seed, rest).to_le_bytes()
}

/// The content of a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Cell,
    Meta,
}

const KIND_CELL: u8 = 1;
const KIND_META: u8 = 2;
const KIND_VOID: u8 = 3;
// Reserved: 4 and 5 for the root and a part of a chunked record, 6 for the log of a database.

/// The contents of a whole version; its bytes are in the buffer that it was read into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content {
    pub kind: Kind,
    pub database: Database,
    key_len: usize,
    record_len: usize,
}

/// A version as it was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    Holding { sequence: u32, content: Content },
    Void { sequence: u32 },
    Bad,
}

/// A slot whose versions are both whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// Which version is the newer one, 0 or 1.
    pub newest: usize,
    pub sequence: u32,
    /// Its content; `None` if the slot was never written.
    pub content: Option<Content>,
}

/// A slot found in its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    pub at: u64,
    pub class: Class,
    pub shard: ShardId,
}

/// Room for the two versions of a slot, reused from one reading to the next.
#[derive(Debug, Default)]
pub struct Buffers([Vec<u8>; 2]);

impl Content {
    #[must_use]
    pub fn len(&self) -> usize {
        HEADER_LEN + self.key_len + self.record_len
    }
}

impl Reading {
    /// The key of the newest version, in the buffers that it was read into.
    #[must_use]
    pub fn key<'a>(&self, content: &Content, buffers: &'a Buffers) -> &'a [u8] {
        &buffers.0[self.newest][HEADER_LEN..HEADER_LEN + content.key_len]
    }

    /// The record of the newest version, in the buffers that it was read into.
    #[must_use]
    pub fn record<'a>(&self, content: &Content, buffers: &'a Buffers) -> &'a [u8] {
        &buffers.0[self.newest][HEADER_LEN + content.key_len..content.len()]
    }
}

impl Version {
    fn sequence(&self) -> Option<u32> {
        match self {
            Version::Holding { sequence, .. } | Version::Void { sequence } => Some(*sequence),
            Version::Bad => None,
        }
    }
}

impl Home {
    fn version_at(&self, index: usize) -> u64 {
        self.at + index as u64 * self.class.capacity()
    }
}

impl<M: Memory> Shared<M> {
    /// The slot at `at`; `None` where no slot can be there or its page is damaged.
    pub fn home(&self, at: u64) -> Option<Home> {
        let page = self.page_use(at)?;
        let PageKind::Slab(class) = page.kind else { return None };
        let run = (at - at % PAGE).checked_sub(page.index * PAGE)?;
        let within = at - run;
        let is_slot = within.is_multiple_of(class.slot_len())
            && within / class.slot_len() < class.slots_per_run()
            && self.contains(at, class.slot_len());
        is_slot.then_some(Home { at, class, shard: page.shard })
    }

    /// Reads both versions. `None` where one of them is damaged, or their sequences do not belong together:
    /// which of them was the newer one is unknown then, and neither counts.
    pub fn read_slot(&self, home: Home, buffers: &mut Buffers) -> Option<Reading> {
        let [first, second] = [0, 1].map(|index| self.read_version(home, index, buffers));
        let (one, two) = (first.sequence()?, second.sequence()?);
        let (newest, sequence, version) = match one.wrapping_sub(two) {
            1 => (0, one, first),
            u32::MAX => (1, two, second),
            _ => return None,
        };
        let older = if newest == 0 { second } else { first };
        let content = match version {
            Version::Holding { content, .. } => Some(content),
            // A void version is older than one that holds something, always.
            Version::Void { .. } if matches!(older, Version::Void { .. }) => None,
            Version::Void { .. } | Version::Bad => return None,
        };
        Some(Reading { newest, sequence, content })
    }

    /// Reads version `index` into its buffer.
    pub fn read_version(&self, home: Home, index: usize, buffers: &mut Buffers) -> Version {
        let at = home.version_at(index);
        let mut header = [0; HEADER_LEN];
        self.memory.read(at, &mut header);
        let field = |from: usize| {
            let bytes = header[from..from + 4].try_into().expect("four bytes of the header");
            u32::from_le_bytes(bytes)
        };
        let (record_len, key_len) = (field(12) as usize, field(16) as usize);
        let len = HEADER_LEN.checked_add(key_len).and_then(|len| len.checked_add(record_len));
        let Some(len) = len.filter(|&len| len as u64 <= home.class.capacity()) else {
            return Version::Bad;
        };
        let buffer = &mut buffers.0[index];
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        self.memory.read(at, &mut buffer[..len]);
        if !is_sealed(self.seed(at), &buffer[..len]) {
            return Version::Bad;
        }
        let sequence = field(8);
        let kind = match header[20] {
            KIND_CELL => Kind::Cell,
            KIND_META => Kind::Meta,
            KIND_VOID => return Version::Void { sequence },
            kind => {
                self.note_unknown(kind);
                return Version::Bad;
            }
        };
        let database = Database(header[21]);
        let content = Content { kind, database, key_len, record_len };
        Version::Holding { sequence, content }
    }

    /// Stores a version and starts writing it back: header, key and record together.
    pub fn write_version(
        &self,
        home: Home,
        (index, sequence): (usize, u32),
        kind: Kind,
        (key, record): (&[u8], &[u8]),
        buffers: &mut Buffers,
    ) {
        let kind = match kind {
            Kind::Cell => KIND_CELL,
            Kind::Meta => KIND_META,
        };
        self.write(home, (index, sequence), kind, (key, record), &mut buffers.0[index]);
    }

    /// Stores a void version and starts writing it back.
    pub fn write_void(&self, home: Home, index: usize, sequence: u32, buffers: &mut Buffers) {
        self.write(home, (index, sequence), KIND_VOID, (&[], &[]), &mut buffers.0[index]);
    }

    fn write(
        &self,
        home: Home,
        (index, sequence): (usize, u32),
        kind: u8,
        (key, record): (&[u8], &[u8]),
        buffer: &mut Vec<u8>,
    ) {
        let at = home.version_at(index);
        let len = HEADER_LEN + key.len() + record.len();
        assert!(len as u64 <= home.class.capacity(), "{len} bytes into {:?}", home.class);
        buffer.clear();
        buffer.extend_from_slice(&[0; SUM_LEN]);
        buffer.extend_from_slice(&sequence.to_le_bytes());
        buffer.extend_from_slice(&(record.len() as u32).to_le_bytes());
        buffer.extend_from_slice(&(key.len() as u32).to_le_bytes());
        buffer.extend_from_slice(&[kind, home.shard.database.0, 0, 0]);
        buffer.extend_from_slice(key);
        buffer.extend_from_slice(record);
        seal(self.seed(at), buffer);
        buffer.resize(len.next_multiple_of(LINE as usize), 0);
        if mutation::is(Mutation::SlotUnwritten) {
            self.memory.write(at, buffer);
        } else {
            self.memory.put(at, buffer);
        }
    }

    /// Makes both versions of a slot void that has never been used, or is not linked.
    pub fn clear_slot(&self, home: Home, buffers: &mut Buffers) {
        self.write_void(home, 0, u32::MAX, buffers);
        self.write_void(home, 1, 0, buffers);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use types::{Key, Shard};

    use super::super::Pmem;
    use super::super::directory::Match;
    use super::super::layout::Geometry;
    use super::super::modelled::Modelled;
    use super::super::verify::verify_memory;
    use super::*;
    use crate::volatile::Beginning;
    use crate::{Completion, Load, Place, Share, Store as _};

    fn bytes_of(memory: &Modelled) -> Vec<u8> {
        let mut bytes = vec![0; memory.len() as usize];
        memory.read(0, &mut bytes);
        bytes
    }

    /// Whatever meets it: a load, a change, a removal, a listing, the scrub.
    #[test]
    fn unknown_record_stops_the_store() {
        let geometry = Geometry { workers: 1, databases: 1, segment_len: 256 << 10 };
        for kind in [4, 5, 6, 0x81] {
            for meeting in 0..5 {
                let memory = Modelled::new(64 << 20);
                let pmem = Pmem::format(memory.clone(), geometry, 7, Beginning::New);
                let pmem = pmem.expect("there is room");
                let key = Key::new(b"key");
                let place = Place::Cell(Database(0), key.clone());
                let mut store = pmem.store(0);
                for record in [b"older", b"newer"] {
                    store.put(&place, record);
                    store.submit();
                }
                let shard = ShardId::of(Database(0), &key);
                let found = pmem.shared.search(shard, key.hash(), |_| Match::Yes);
                let entry = found.expect("it is whole").expect("it is there");
                let home = pmem.shared.home(entry.slot).expect("it is a slot");
                let mut buffers = Buffers::default();
                let reading = pmem.shared.read_slot(home, &mut buffers).expect("it is whole");
                let (next, content) =
                    ((1 - reading.newest, reading.sequence + 1), (&b"key"[..], &b"later"[..]));
                pmem.shared.write(home, next, kind, content, &mut Vec::new());
                pmem.shared.memory.fence();
                drop((store, pmem));

                let pmem = Pmem::from_memory(memory.clone(), 7, Path::new("modelled"));
                let pmem = pmem.expect("it opens");
                let before = bytes_of(&memory);
                let report = verify_memory(memory.clone(), Path::new("modelled")).expect("known");
                let text = format!(
                    "pmem: a record has kind {kind:#04x}, this version knows kinds 1 to 3: "
                );
                assert!(report.faults[0].to_string().starts_with(&text), "{:?}", report.faults);
                let mut store = pmem.store(0);
                match meeting {
                    0 => assert_eq!(store.load(&place), Load::Pending),
                    1 => store.put(&place, b"newest"),
                    2 => store.remove(&place),
                    3 => store.scan(1, Database(0), key.shard().first_hash(), 10),
                    _ => store.scrub(Share { worker: 0, workers: 1 }, u64::MAX),
                }
                store.submit();
                let mut heard = Vec::new();
                store.poll(&mut heard);
                let is_told = |it: &Completion| matches!(it, Completion::Failed(why) if why.starts_with(&text));
                assert!(heard.iter().any(is_told), "kind {kind}, meeting {meeting}: {heard:?}");
                let is_loss = |it: &Completion| matches!(it, Completion::Forgotten { .. });
                assert!(!heard.iter().any(is_loss), "{heard:?}");
                assert!(bytes_of(&memory) == before, "kind {kind}, meeting {meeting}");
                assert!(!store.is_forgotten(Database(0), Shard(key.shard().0)));
            }
        }
    }
}
