//! The newest metas among the entries of some stripes.
//!
//! Every access to a shard begins with its meta, and some workloads write one with every command. So a digest has them
//! whole: a start that could not tell would let everybody wait for the ring.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::entry::{Entry, Kind};

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Metas {
    entries: BTreeMap<(u64, u8), Bytes>, // by hash and database
    /// Some are not here.
    pub(super) are_partial: bool,
}

impl Metas {
    /// Adds an encoded entry that is newer than all before, if it is a meta.
    pub(super) fn add(&mut self, raw: &[u8]) {
        let Some(entry) = Entry::read(raw).filter(|entry| entry.kind.class() == Kind::META) else {
            return;
        };
        self.are_partial |= entry.kind.is_in_extent();
        let raw = Bytes::copy_from_slice(&raw[..entry.len()]);
        self.entries.insert((entry.hash, entry.database), raw);
    }

    /// Adds those of later stripes.
    pub(super) fn add_all(&mut self, later: &Metas) {
        self.are_partial |= later.are_partial;
        self.entries.extend(later.entries.iter().map(|(key, raw)| (*key, raw.clone())));
    }

    /// Encoded entries.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Bytes> {
        self.entries.values()
    }

    /// Bytes that [`Metas::append_to`] adds.
    pub(super) fn len(&self) -> usize {
        self.entries.values().map(Bytes::len).sum()
    }

    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        self.entries.values().for_each(|raw| out.extend_from_slice(raw));
    }

    pub(super) fn read(mut bytes: &[u8]) -> Metas {
        let mut metas = Metas::default();
        while let Some(entry) = Entry::read(bytes) {
            metas.add(bytes);
            bytes = &bytes[entry.len()..];
        }
        metas.are_partial |= !bytes.is_empty();
        metas
    }
}

#[cfg(test)]
mod tests {
    use types::{Database, Shard};

    use super::super::entry::meta_hash;
    use super::*;

    fn raw(kind: Kind, hash: u64, record: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Entry { hash, checksum: 0, kind, database: 2, key_len: 0, body: record }
            .append_to(&mut out);
        out
    }

    #[test]
    fn the_newest_of_each_shard_is_kept_and_comes_back() {
        let hash = meta_hash(Database(2), Shard(9));
        let mut metas = Metas::default();
        metas.add(&raw(Kind::META, hash, b"old"));
        metas.add(&raw(Kind::CELL, hash, b"no meta"));
        metas.add(&raw(Kind::META, hash + 1, b"of another"));
        let mut later = Metas::default();
        later.add(&raw(Kind::META, hash, b"new"));
        metas.add_all(&later);
        let mut bytes = Vec::new();
        metas.append_to(&mut bytes);
        assert_eq!(bytes.len(), metas.len());
        assert_eq!(Metas::read(&bytes), metas);
        let raws: Vec<&[u8]> = metas.entries().map(|raw| &raw[..]).collect();
        assert_eq!(
            raws,
            [&raw(Kind::META, hash, b"new")[..], &raw(Kind::META, hash + 1, b"of another")]
        );
        assert!(!metas.are_partial && Metas::read(&bytes[1..]).are_partial);
        metas.add(&raw(Kind::META.in_extent(), hash, &[0; 24]));
        assert!(metas.are_partial, "what it refers to is not here");
    }
}
