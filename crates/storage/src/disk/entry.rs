//! One record as bytes: the same head and body in a batch, in the ring and in a bucket page.
//!
//! A head is 24 bytes and starts with the hash and a checksum of the body that is bound to hash, database, kind
//! and node. It is computed once, by the worker that put the record, and travels with it. The body is the key and
//! the record. One too long to stand in a page goes to an extent when it goes home, one too long for the ring before it
//! is committed, and a reference stands for it.
//! Keys above [`KEY_LEN_INLINE`] are named by a fingerprint in ring and pages and written out in the extent.

use base::checksum::checksum;
use bytes::Bytes;
use types::limits::SPACES;
use types::{Database, Key, Shard};

use super::bytes_at::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::Place;
use crate::mutation::{self, Mutation};

/// Bytes of a head.
pub(super) const HEAD_LEN: usize = 24;
/// Longest body that stands in a page.
pub(super) const PAGE_BODY_MAX: usize = 1024;
/// Longest body that stands in a batch and in the ring.
pub(super) const RING_BODY_MAX: usize = 16 << 10;
/// Longest key that stands in the ring and in a page as it is.
pub(super) const KEY_LEN_INLINE: usize = 512;
/// Bytes of a reference to an extent.
pub(super) const REFERENCE_LEN: usize = 24;
/// Bytes of the fingerprint of a long key.
pub(super) const FINGERPRINT_LEN: usize = 16;

/// Bytes of a mark as an entry.
pub(super) const MARK_LEN: usize = HEAD_LEN + MARK_BODY_LEN;
const MARK_BODY_LEN: usize = 10;

/// The kind of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Kind(pub(super) u8);

impl Kind {
    /// Overwritten by a later entry of the same batch; only in batches.
    pub(super) const DEAD: Kind = Kind(0);
    pub(super) const CELL: Kind = Kind(1);
    pub(super) const META: Kind = Kind(2);
    /// The body names shards that are forgotten from here on; only in the ring.
    pub(super) const FORGET: Kind = Kind(3);
    /// The body names shards that are known again from here on; only in the ring.
    pub(super) const KNOW: Kind = Kind(4);

    // Reserved: 5 and 6 for the root and a part of a chunked record, 7 for the log of a database.

    const CLASS: u8 = 0x0f;
    const REMOVE: u8 = 0x10;
    const EXTENT: u8 = 0x20;
    const LONG_KEY: u8 = 0x40;
    const FLAGS: u8 = Kind::REMOVE | Kind::EXTENT | Kind::LONG_KEY;

    /// False for a kind of a later version, and for a reserved one.
    fn is_known(self) -> bool {
        let known = [Kind::CELL, Kind::META, Kind::FORGET, Kind::KNOW];
        self.0 & !(Kind::CLASS | Kind::FLAGS) == 0 && known.contains(&self.class())
    }

    pub(super) fn removing(self) -> Kind {
        Kind(self.0 | Kind::REMOVE)
    }

    pub(super) fn in_extent(self) -> Kind {
        Kind(self.0 | Kind::EXTENT)
    }

    pub(super) fn with_long_key(self, is_long: bool) -> Kind {
        if is_long { Kind(self.0 | Kind::LONG_KEY) } else { self }
    }

    pub(super) fn is_remove(self) -> bool {
        self.0 & Kind::REMOVE != 0
    }

    pub(super) fn is_in_extent(self) -> bool {
        self.0 & Kind::EXTENT != 0
    }

    pub(super) fn has_long_key(self) -> bool {
        self.0 & Kind::LONG_KEY != 0
    }

    pub(super) fn class(self) -> Kind {
        Kind(self.0 & Kind::CLASS)
    }

    /// The part that tells two places apart beyond hash, database and key.
    fn identity(self) -> u8 {
        self.0 & (Kind::CLASS | Kind::LONG_KEY)
    }
}

/// A decoded head with its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry<'a> {
    pub(super) hash: u64,
    pub(super) checksum: u64,
    pub(super) kind: Kind,
    pub(super) database: u8,
    pub(super) key_len: usize,
    pub(super) body: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The entry at the start of `bytes`, as batches and the ring hold it; `None` where it is cut short.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Entry<'a>> {
        let head = bytes.get(..HEAD_LEN)?;
        let body_len = u32_at(head, 16) as usize;
        let entry = Entry {
            hash: u64_at(head, 0),
            checksum: u64_at(head, 8),
            kind: Kind(head[22]),
            database: head[23],
            key_len: usize::from(u16_at(head, 20)),
            body: bytes.get(HEAD_LEN..HEAD_LEN.checked_add(body_len)?)?,
        };
        entry.is_well_formed(RING_BODY_MAX).then_some(entry)
    }

    /// The entry at the start of bytes in which [`Entry::read`] has found one.
    ///
    /// # Panics
    /// If they are cut short.
    pub(super) fn known(bytes: &'a [u8]) -> Entry<'a> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().expect("it has a head");
        Entry {
            hash: u64_at(head, 0),
            checksum: u64_at(head, 8),
            kind: Kind(head[22]),
            database: head[23],
            key_len: usize::from(u16_at(head, 20)),
            body: &rest[..u32_at(head, 16) as usize],
        }
    }

    /// The hashes of entries in a row from the start of `bytes` on, whatever else is wrong with them.
    pub(super) fn hashes(mut bytes: &'a [u8]) -> impl Iterator<Item = u64> {
        std::iter::from_fn(move || {
            let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>()?;
            bytes = rest.get(u32_at(head, 16) as usize..)?;
            Some(u64_at(head, 0))
        })
    }

    /// The entries in a row from the start of `bytes` on, each as it stands there and decoded.
    pub(super) fn all(mut bytes: &'a [u8]) -> impl Iterator<Item = (&'a [u8], Entry<'a>)> {
        std::iter::from_fn(move || {
            let entry = Entry::read(bytes)?;
            let (raw, rest) = bytes.split_at(entry.len());
            bytes = rest;
            Some((raw, entry))
        })
    }

    /// The head as batches and the ring hold it.
    pub(super) fn head(&self) -> [u8; HEAD_LEN] {
        let mut head = [0; HEAD_LEN];
        put_u64(&mut head, 0, self.hash);
        put_u64(&mut head, 8, self.checksum);
        put_u32(&mut head, 16, self.body.len() as u32);
        put_u16(&mut head, 20, self.key_len as u16);
        head[22] = self.kind.0;
        head[23] = self.database;
        head
    }

    /// The head as a page's directory holds it, with the body from here on in the page.
    pub(super) fn row(&self, top: u16) -> [u8; HEAD_LEN] {
        let mut row = self.head();
        put_u16(&mut row, 16, top);
        put_u16(&mut row, 18, self.body.len() as u16);
        row
    }

    /// Appends head and body as batches and the ring hold them.
    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head());
        out.extend_from_slice(self.body);
    }

    /// Bytes that [`Entry::append_to`] writes.
    pub(super) fn len(&self) -> usize {
        HEAD_LEN + self.body.len()
    }

    /// Bytes that it takes of a page's room.
    pub(super) fn home_len(&self) -> usize {
        if self.outgrows_page() { HEAD_LEN + self.key_len + REFERENCE_LEN } else { self.len() }
    }

    /// True for an entry of the ring whose record goes to an extent when it goes home.
    pub(super) fn outgrows_page(&self) -> bool {
        self.body.len() > PAGE_BODY_MAX
    }

    /// The entry that stands for this one while its body is in an extent that begins at this unit.
    /// `body` is where its own is made.
    ///
    /// # Panics
    /// If the body has changed since the entry was made.
    pub(super) fn in_extent<'b>(
        &self,
        unit: u64,
        binding: u64,
        body: &'b mut Vec<u8>,
    ) -> Entry<'b> {
        assert!(self.is_whole(binding), "a record has changed in memory");
        let Entry { hash, database, key_len, .. } = *self;
        let reference = Reference::to(unit, binding, hash, key_len, self.body);
        body.extend_from_slice(self.key());
        body.extend_from_slice(&reference.bytes());
        let kind = self.kind.in_extent();
        let checksum = entry_checksum(binding, hash, database, kind, body);
        Entry { hash, checksum, kind, database, key_len, body }
    }

    pub(super) fn is_well_formed(&self, body_max: usize) -> bool {
        let reference = if self.kind.is_in_extent() { REFERENCE_LEN } else { 0 };
        self.body.len() <= body_max
            && self.key_len <= KEY_LEN_INLINE
            && self.key_len + reference <= self.body.len()
            && (!self.kind.has_long_key() || self.key_len == FINGERPRINT_LEN)
    }

    /// The format of a whole record that this version does not know.
    pub(super) fn unknown(&self) -> Option<UnknownRecord> {
        let is_known = self.kind.is_known() && usize::from(self.database) < SPACES;
        (!is_known).then_some(UnknownRecord { kind: self.kind.0, database: self.database })
    }

    pub(super) fn is_whole(&self, binding: u64) -> bool {
        self.checksum == entry_checksum(binding, self.hash, self.database, self.kind, self.body)
            || mutation::is(Mutation::RecordUnchecked)
    }

    /// The key, or the fingerprint of a long one.
    pub(super) fn key(&self) -> &'a [u8] {
        &self.body[..self.key_len]
    }

    /// The record of an entry that is not in an extent.
    pub(super) fn record(&self) -> &'a [u8] {
        &self.body[self.key_len..]
    }

    pub(super) fn reference(&self) -> Option<Reference> {
        self.kind.is_in_extent().then(|| Reference::read(self.record()))
    }

    /// The mark that it is, if it is one.
    pub(super) fn mark(&self) -> Option<Mark> {
        Mark::read(self).filter(|_| matches!(self.kind.class(), Kind::FORGET | Kind::KNOW))
    }

    pub(super) fn has_identity_of(&self, other: &Entry<'_>) -> bool {
        self.hash == other.hash
            && self.database == other.database
            && self.kind.identity() == other.kind.identity()
            && self.key() == other.key()
    }

    pub(super) fn identity(&self) -> Identity {
        let kind = Kind(self.kind.identity());
        let key = Bytes::copy_from_slice(self.key());
        Identity { hash: self.hash, database: self.database, kind, key }
    }
}

/// A whole record that a later version wrote. It must not be taken for a damaged one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a record has kind {kind:#04x} in database {database}, this version knows kinds 1 to 4 and databases below {SPACES}: \
     run the version that wrote it"
)]
pub struct UnknownRecord {
    pub kind: u8,
    pub database: u8,
}

/// Checksum of a body, bound to kind, place and node of the entry.
pub(super) fn entry_checksum(
    binding: u64,
    hash: u64,
    database: u8,
    kind: Kind,
    body: &[u8],
) -> u64 {
    let role = u64::from(kind.0) << 8 | u64::from(database) | 0x5061_0000;
    checksum(binding ^ hash.rotate_left(17) ^ role.wrapping_mul(0x9E37_79B9_7F4A_7C15), body)
}

/// Checksum of the content of an extent: key, then record.
pub(super) fn content_checksum(binding: u64, hash: u64, content: &[u8]) -> u64 {
    checksum(binding.rotate_left(7) ^ hash, content)
}

/// Where a record stands that is too long for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reference {
    pub(super) unit: u64,
    pub(super) checksum: u64,
    pub(super) key_len: u32,
    pub(super) record_len: u32,
}

impl Reference {
    /// To the content of an extent that begins at this unit: a key of this length, then a record.
    pub(super) fn to(
        unit: u64,
        binding: u64,
        hash: u64,
        key_len: usize,
        content: &[u8],
    ) -> Reference {
        Reference {
            unit,
            checksum: content_checksum(binding, hash, content),
            key_len: key_len as u32,
            record_len: (content.len() - key_len) as u32,
        }
    }

    /// # Panics
    /// If `bytes` are fewer than [`REFERENCE_LEN`]; well-formed entries have them.
    pub(super) fn read(bytes: &[u8]) -> Reference {
        Reference {
            unit: u64_at(bytes, 0),
            checksum: u64_at(bytes, 8),
            key_len: u32_at(bytes, 16),
            record_len: u32_at(bytes, 20),
        }
    }

    pub(super) fn bytes(&self) -> [u8; REFERENCE_LEN] {
        let mut bytes = [0; REFERENCE_LEN];
        put_u64(&mut bytes, 0, self.unit);
        put_u64(&mut bytes, 8, self.checksum);
        put_u32(&mut bytes, 16, self.key_len);
        put_u32(&mut bytes, 20, self.record_len);
        bytes
    }

    pub(super) fn content_len(&self) -> usize {
        self.key_len as usize + self.record_len as usize
    }
}

/// The name of a place inside the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    pub(super) hash: u64,
    pub(super) database: u8,
    pub(super) kind: Kind,
    pub(super) key: Bytes,
}

impl Identity {
    pub(super) fn of(binding: u64, place: &Place) -> Identity {
        match place {
            Place::Cell(database, key) => {
                let is_long = key.bytes().len() > KEY_LEN_INLINE;
                let part = if is_long {
                    Bytes::copy_from_slice(&fingerprint(binding, key.bytes()))
                } else {
                    Bytes::copy_from_slice(key.bytes())
                };
                let kind = Kind::CELL.with_long_key(is_long);
                Identity { hash: key.hash(), database: database.0, kind, key: part }
            }
            Place::Meta(database, shard) => Identity {
                hash: meta_hash(*database, *shard),
                database: database.0,
                kind: Kind::META,
                key: Bytes::new(),
            },
        }
    }

    pub(super) fn matches(&self, entry: &Entry<'_>) -> bool {
        self.hash == entry.hash
            && self.database == entry.database
            && self.kind.identity() == entry.kind.identity()
            && self.key == entry.key()
    }

    pub(super) fn shard(&self) -> u8 {
        (self.hash >> 56) as u8
    }

    /// The key, where it is not a fingerprint.
    pub(super) fn short_key(&self) -> Option<Key> {
        (!self.kind.has_long_key()).then(|| Key::at(self.hash, &self.key))
    }
}

/// Names a long key under two seeds that only this node knows: two keys of one fingerprint and one hash would
/// have to agree in 192 bits.
pub(super) fn fingerprint(binding: u64, key: &[u8]) -> [u8; FINGERPRINT_LEN] {
    let mut bytes = [0; FINGERPRINT_LEN];
    put_u64(&mut bytes, 0, checksum(binding ^ 0x6b65_7931, key));
    put_u64(&mut bytes, 8, checksum(binding.rotate_left(32) ^ 0x6b65_7932, key));
    bytes
}

/// A meta lives in the shard that it describes, so it is lost with it.
pub(super) fn meta_hash(database: Database, shard: Shard) -> u64 {
    shard.first_hash() | base::checksum::hash(&[b'm', database.0]) >> 8
}

/// Shards of some databases, forgotten or known again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) forgotten: bool,
    pub(super) databases: u64, // bit i is database i
    pub(super) first: u8,
    pub(super) last: u8, // >= first
}

impl Mark {
    pub(super) const FORGET_ALL: Mark =
        Mark { forgotten: true, databases: u64::MAX, first: 0, last: u8::MAX };

    /// Says something of no shard.
    pub(super) const NOTHING: Mark = Mark { forgotten: false, databases: 0, first: 0, last: 0 };

    pub(super) fn of(database: Database, shard: Shard, forgotten: bool) -> Mark {
        // A number of no database stands for all: a damaged record may have been of any.
        let is_known = usize::from(database.0) < SPACES;
        let databases = if is_known { 1 << database.0 } else { u64::MAX };
        Mark { forgotten, databases, first: shard.0, last: shard.0 }
    }

    pub(super) fn says_something(&self) -> bool {
        self.databases != 0
    }

    /// True if both speak of some shard.
    pub(super) fn meets(&self, other: &Mark) -> bool {
        self.databases & other.databases != 0
            && self.first <= other.last
            && other.first <= self.last
    }

    pub(super) fn append_to(&self, binding: u64, out: &mut Vec<u8>) {
        let kind = if self.forgotten { Kind::FORGET } else { Kind::KNOW };
        let mut body = [0; MARK_BODY_LEN];
        put_u64(&mut body, 0, self.databases);
        (body[8], body[9]) = (self.first, self.last);
        let checksum = entry_checksum(binding, 0, 0, kind, &body);
        Entry { hash: 0, checksum, kind, database: 0, key_len: 0, body: &body }.append_to(out);
    }

    pub(super) fn read(entry: &Entry<'_>) -> Option<Mark> {
        let body: &[u8; MARK_BODY_LEN] = entry.body.try_into().ok()?;
        let [first, last] = [body[8], body[9]];
        let databases = u64_at(body, 0);
        let forgotten = entry.kind == Kind::FORGET;
        (first <= last).then_some(Mark { forgotten, databases, first, last })
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = (Database, Shard)> + use<> {
        let Mark { databases, first, last, .. } = *self;
        (first..=last).flat_map(move |shard| {
            (0..SPACES as u8)
                .filter(move |database| databases & (1 << database) != 0)
                .map(move |database| (Database(database), Shard(shard)))
        })
    }
}

const _: () = assert!(SPACES <= u64::BITS as usize, "a mark has a bit for each database");
const _: () = assert!(KEY_LEN_INLINE + REFERENCE_LEN <= PAGE_BODY_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_comes_back_and_notices_any_flipped_byte_of_its_body() {
        let body = b"keyrecord";
        let checksum = entry_checksum(7, 99, 3, Kind::CELL, body);
        let entry = Entry { hash: 99, checksum, kind: Kind::CELL, database: 3, key_len: 3, body };
        let mut bytes = Vec::new();
        entry.append_to(&mut bytes);
        assert_eq!(Entry::read(&bytes), Some(entry));
        assert!(entry.is_whole(7));
        assert!(!entry.is_whole(8), "a record of another node is not whole");
        for at in HEAD_LEN..bytes.len() {
            bytes[at] ^= 1;
            assert!(!Entry::read(&bytes).expect("the head is untouched").is_whole(7));
            bytes[at] ^= 1;
        }
        assert_eq!(Entry::read(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn mark_of_an_unknown_database_means_all() {
        for database in (0..=u8::MAX).map(Database) {
            let mark = Mark::of(database, Shard(9), true);
            let is_known = usize::from(database.0) < SPACES;
            assert_eq!(mark.shards().count(), if is_known { 1 } else { SPACES }, "{database:?}");
        }
    }

    #[test]
    fn the_bytes_of_an_entry_are_these() {
        let mut bytes = Vec::new();
        Mark::of(Database(2), Shard(9), true).append_to(1, &mut bytes);
        assert_eq!(bytes[..8], [0; 8], "hash");
        assert_eq!(bytes[16..], [10, 0, 0, 0, 0, 0, 3, 0, 4, 0, 0, 0, 0, 0, 0, 0, 9, 9]);
        let entry = Entry::read(&bytes).expect("well formed");
        assert!(entry.is_whole(1));
        assert_eq!(Mark::read(&entry), Some(Mark::of(Database(2), Shard(9), true)));
        let reference = Reference { unit: 4, checksum: 5, key_len: 6, record_len: 7 };
        assert_eq!(reference.bytes()[..16], [4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Reference::read(&reference.bytes()), reference);
    }

    #[test]
    fn a_meta_lies_in_its_shard_and_apart_from_other_databases() {
        let of = |database, shard| meta_hash(Database(database), Shard(shard));
        assert_eq!(of(0, 200) >> 56, 200);
        assert_ne!(of(0, 200), of(1, 200));
    }
}
