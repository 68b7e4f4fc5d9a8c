//! Part of a ring that a start reads for one record, before it has read all of it.

use bytes::Bytes;

use super::entry::{Entry, Identity};
use super::outline::Extent;
use super::stripe::{PAYLOAD, SECTOR, Seen, data_sectors, entries, see};

/// The newest entry of a place among the stripes of a part, given its content. `None` where anything there is not as it
/// should be, which takes a closer look.
pub(super) fn newest(
    extent: &Extent,
    (first, end): (u64, u64),
    content: &[u8],
    identity: &Identity,
) -> Option<Option<Bytes>> {
    let (binding, ring) = (extent.binding, extent.ring);
    let sector = |position: u64| {
        let start = (position - first) as usize * SECTOR;
        let sector = content.get(start..start + SECTOR)?;
        Some((sector, see(sector, binding, position, ring)))
    };
    let (mut at, mut newest) = (first, None);
    while at < end {
        let (_, Seen::Current { index: 0, count }) = sector(at)? else { return None };
        let mut payload = Vec::with_capacity(count as usize * PAYLOAD);
        for index in 0..count {
            let (sector, seen) = sector(at + index)?;
            if seen != (Seen::Current { index, count }) {
                return None;
            }
            if index < data_sectors(count) {
                payload.extend_from_slice(&sector[..PAYLOAD]);
            }
        }
        let (entries, _) = entries(&payload)?;
        for (raw, entry) in Entry::all(entries).filter(|(_, entry)| identity.matches(entry)) {
            if !entry.is_whole(binding) {
                return None;
            }
            newest = Some(Bytes::copy_from_slice(raw));
        }
        at += count;
    }
    Some(newest)
}

#[cfg(test)]
mod tests {
    use types::{Database, Key};

    use super::super::entry::{Kind, entry_checksum};
    use super::super::stripe::StripeWriter;
    use super::*;
    use crate::Place;

    const EXTENT: Extent = Extent { binding: 1, ring: 64, stripe_max: 16, tail: 64 };

    fn identity(key: &str) -> Identity {
        Identity::of(1, &Place::Cell(Database(0), Key::new(key.as_bytes())))
    }

    fn append(content: &mut Vec<u8>, key: &str, record: &str) {
        let (Identity { hash, .. }, kind) = (identity(key), Kind::CELL);
        let body = [key, record].concat().into_bytes();
        let checksum = entry_checksum(1, hash, 0, kind, &body);
        let mut raw = Vec::new();
        Entry { hash, checksum, kind, database: 0, key_len: key.len(), body: &body }
            .append_to(&mut raw);
        let mut writer = StripeWriter::new();
        writer.push(&raw);
        let position = 70 + (content.len() / SECTOR) as u64;
        content.extend(writer.finish(1, position));
    }

    #[test]
    fn the_newest_entry_of_a_place_is_found_or_nothing_is_said() {
        let mut content = Vec::new();
        for (key, record) in [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")] {
            append(&mut content, key, record);
        }
        let part = (70, 70 + (content.len() / SECTOR) as u64);
        let find = |content: &[u8], key| newest(&EXTENT, part, content, &identity(key));
        let record = |raw: Bytes| Entry::read(&raw).map(|entry| entry.record().to_vec());
        let found = |key| find(&content, key).map(|raw| raw.and_then(record));
        assert_eq!(found("a"), Some(Some(b"3".to_vec())));
        assert_eq!(found("b"), Some(Some(b"2".to_vec())));
        assert_eq!(found("d"), Some(None));
        for sector in 0..content.len() / SECTOR {
            let mut content = content.clone();
            content[sector * SECTOR + 20] ^= 1;
            assert_eq!(find(&content, "b"), None, "sector {sector}");
        }
        assert_eq!(find(&content[..SECTOR], "b"), None, "cut short");
    }
}
