//! Entries of the ring take the places of a bucket's records.

use super::entry::Entry;

/// A record, or the entry that has taken its place; `None` once it is removed.
#[derive(Debug)]
struct Row<'a> {
    hash: u64,
    entry: Option<Entry<'a>>,
}

/// Records by hash, and behind them those that are new.
#[derive(Debug)]
pub(super) struct Rows<'a> {
    rows: Vec<Row<'a>>,
    known: usize,
    at: usize, // the first one whose hash is not below the last one that was put
}

impl<'a> Rows<'a> {
    pub(super) fn of(homes: impl Iterator<Item = Entry<'a>>) -> Rows<'a> {
        let row = |entry: Entry<'a>| Row { hash: entry.hash, entry: Some(entry) };
        let mut rows: Vec<Row<'a>> = homes.map(row).collect();
        rows.sort_by_key(|row| row.hash);
        let known = rows.len();
        Rows { rows, known, at: 0 }
    }

    pub(super) fn homes(&self) -> impl Iterator<Item = &Entry<'a>> {
        self.rows[..self.known].iter().filter_map(|row| row.entry.as_ref())
    }

    /// Puts an entry of the ring in the place of the record that it replaces, which is returned, or behind the others.
    ///
    /// # Panics
    /// If entries do not come in the order of their hashes: the records that they replace would stay.
    pub(super) fn put(&mut self, entry: Entry<'a>) -> Option<Entry<'a>> {
        let is_in_order = self.at == 0 || self.rows[self.at - 1].hash < entry.hash;
        assert!(is_in_order, "entries come in the order of their hashes");
        let homes = &self.rows[self.at..self.known];
        self.at += homes.iter().take_while(|row| row.hash < entry.hash).count();
        let mut same =
            self.rows[self.at..self.known].iter_mut().take_while(|row| row.hash == entry.hash);
        let is_replaced = |old: &Entry<'_>| old.has_identity_of(&entry);
        let replaced = same.find(|row| row.entry.as_ref().is_some_and(is_replaced));
        let stays = !entry.kind.is_remove();
        match replaced {
            Some(row) => std::mem::replace(&mut row.entry, stays.then_some(entry)),
            None => {
                if stays {
                    self.rows.push(Row { hash: entry.hash, entry: Some(entry) });
                }
                None
            }
        }
    }

    pub(super) fn into_entries(self) -> impl Iterator<Item = Entry<'a>> {
        self.rows.into_iter().filter_map(|row| row.entry)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::entry::Kind;
    use super::super::io::File;
    use super::*;
    use crate::disk::page::{Bucket, Packed, Packer};
    use crate::disk::place::PagePlace;
    use base::Prng;

    const PLACE: PagePlace = PagePlace { file: File::Slots, offset: 0 };

    /// Hash and key, and the record.
    type Records = BTreeMap<(u64, Vec<u8>), Vec<u8>>;

    /// Records of few hashes, with several keys each, and lengths below one that is a multiple of `step`.
    fn draw(prng: &mut Prng, count: u64, step: u64) -> Records {
        let mut records = Records::new();
        for _ in 0..count {
            let place = (prng.below(40), vec![b'a' + prng.below(3) as u8]);
            let len = prng.below(200) / step * step;
            records.insert(place, vec![prng.next_u64() as u8; len as usize]);
        }
        records
    }

    /// The bytes of a record as the ring has them, each as this kind.
    fn append_to(
        ((hash, key), record): (&(u64, Vec<u8>), &Vec<u8>),
        kind: Kind,
        out: &mut Vec<u8>,
    ) {
        let (body, key_len) = ([&key[..], record].concat(), key.len());
        let entry = Entry { hash: *hash, checksum: 7, kind, database: 0, key_len, body: &body };
        entry.append_to(out);
    }

    fn bucket(records: &Records) -> Bucket {
        let (mut packer, mut bytes) = (Packer::default(), Vec::new());
        records.iter().for_each(|record| append_to(record, Kind::CELL, &mut bytes));
        Entry::all(&bytes).for_each(|(_, entry)| packer.push(entry));
        finish(packer.pack())
    }

    fn finish(packed: Packed) -> Bucket {
        let overflow = (1..packed.pages() as u64).collect();
        packed.finish((0, 0, 1), PLACE, overflow, 9)
    }

    fn records(bucket: &Bucket) -> Records {
        let record =
            |entry: Entry<'_>| ((entry.hash, entry.key().to_vec()), entry.record().to_vec());
        bucket.entries().map(record).collect()
    }

    #[test]
    fn bucket_takes_in_its_entries() {
        for seed in 0..400 {
            let mut prng = Prng::new(seed);
            // Some replace records of their own length only.
            let step = *prng.pick(&[1, 100, 200]);
            let removing = *prng.pick(&[0.0, 0.3]);
            let count = prng.below(60);
            let mut wanted = draw(&mut prng, count, step);
            let old = bucket(&wanted);
            let count = prng.below(60);
            let mut staged = Vec::new();
            for record in &draw(&mut prng, count, step) {
                let is_removed = prng.chance(removing);
                let kind = if is_removed { Kind::CELL.removing() } else { Kind::CELL };
                append_to(record, kind, &mut staged);
                match is_removed {
                    true => wanted.remove(record.0),
                    false => wanted.insert(record.0.clone(), record.1.clone()),
                };
            }
            let entries = || Entry::all(&staged).map(|(_, entry)| entry);
            let mut rows = Rows::of(old.entries());
            for entry in entries() {
                rows.put(entry);
            }
            let mut packer = Packer::default();
            rows.into_entries().for_each(|entry| packer.push(entry));
            for new in [Some(packer.pack()), old.replacing(entries())].into_iter().flatten() {
                let new = finish(new);
                assert_eq!(new.entries().count(), wanted.len(), "seed {seed}: none twice");
                assert_eq!(records(&new), wanted, "seed {seed}");
            }
        }
    }
}
