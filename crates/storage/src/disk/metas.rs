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
    /// Adds an entry that is newer than all before, if it is a meta.
    #[inline]
    pub(super) fn add(&mut self, entry: &Entry<'_>) {
        if entry.kind.class() == Kind::META {
            self.are_partial |= entry.kind.is_in_extent();
            let mut raw = Vec::with_capacity(entry.len());
            entry.append_to(&mut raw);
            self.entries.insert((entry.hash, entry.database), raw.into());
        }
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

    pub(super) fn read(bytes: &[u8]) -> Metas {
        let mut metas = Metas::default();
        let mut read = 0;
        for (raw, entry) in Entry::all(bytes) {
            metas.add(&entry);
            read += raw.len();
        }
        metas.are_partial |= read < bytes.len();
        metas
    }
}

#[cfg(test)]
mod tests {
    use types::{Database, Shard};

    use super::super::entry::meta_hash;
    use super::*;

    fn entry(kind: Kind, hash: u64, record: &[u8]) -> Entry<'_> {
        Entry { hash, checksum: 0, kind, database: 2, key_len: 0, body: record }
    }

    #[test]
    fn the_newest_of_each_shard_is_kept_and_comes_back() {
        let hash = meta_hash(Database(2), Shard(9));
        let mut metas = Metas::default();
        metas.add(&entry(Kind::META, hash, b"old"));
        metas.add(&entry(Kind::CELL, hash, b"no meta"));
        metas.add(&entry(Kind::META, hash + 1, b"of another"));
        let mut later = Metas::default();
        later.add(&entry(Kind::META, hash, b"new"));
        metas.add_all(&later);
        let mut bytes = Vec::new();
        metas.append_to(&mut bytes);
        assert_eq!(bytes.len(), metas.len());
        assert_eq!(Metas::read(&bytes), metas);
        let entries: Vec<Entry<'_>> = metas.entries().filter_map(|raw| Entry::read(raw)).collect();
        let newest = [(hash, &b"new"[..]), (hash + 1, b"of another")];
        assert_eq!(entries, newest.map(|(hash, record)| entry(Kind::META, hash, record)));
        assert!(!metas.are_partial && Metas::read(&bytes[1..]).are_partial);
        metas.add(&entry(Kind::META.in_extent(), hash, &[0; 24]));
        assert!(metas.are_partial, "what it refers to is not here");
    }
}
