//! The ring's bytes: 512-byte sectors that say which lap of the ring they belong to, and batches of
//! them.
//!
//! A sector carries its *position*: a count that never repeats, whose remainder by the ring's
//! length is its place. So every sector is, by itself, recognisably of this lap, of an earlier lap,
//! or damaged. A batch is a run of sectors written at once: data sectors, then one parity sector
//! for every 64 of them. One damaged sector of a batch costs no record.

use base::checksum::{Seeded, checksum};
use bytes::Bytes;

use super::aligned::AlignedBuffer;
use super::bytes_at::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::mutation::{self, Mutation};

pub(crate) const SECTOR: usize = 512;
/// Bytes of a sector that carry a ring batch's payload; the rest is its trailer.
pub(crate) const PAYLOAD: usize = 488;
/// Bytes of the head at the start of a batch's payload.
pub(crate) const STRIPE_HEAD_LEN: usize = 16;
/// Fewest sectors of a ring batch: data and parity.
pub(crate) const STRIPE_SECTORS_MIN: u64 = 2;

const POSITION: usize = 488;
const INDEX: usize = 496;
const COUNT: usize = 498;
const CHECKSUM: usize = 504;
const MAGIC: u32 = u32::from_le_bytes(*b"PSTR");
const FORMAT: u16 = 1;
/// Data sectors that share a parity sector.
const PARITY_SPAN: usize = 64;

/// Data and parity sectors of a ring batch with this many sectors in all.
fn split_count(count: usize) -> (usize, usize) {
    let parity = count.div_ceil(PARITY_SPAN + 1);
    (count - parity, parity)
}

/// Sectors of a ring batch of so many that carry payload.
pub(crate) fn data_sectors(count: u64) -> u64 {
    split_count(count as usize).0 as u64
}

/// Sectors that a payload of this length takes, parity included.
pub(crate) fn sectors_for(payload_len: usize) -> u64 {
    let data = payload_len.div_ceil(PAYLOAD).max(1);
    (data + data.div_ceil(PARITY_SPAN)) as u64
}

/// The longest payload, its head included, that fits this many sectors.
pub(crate) fn payload_max(sectors: u64) -> usize {
    split_count(sectors as usize).0 * PAYLOAD
}

/// Builds a ring batch while its entries come in.
#[derive(Default, Debug)]
pub(crate) struct StripeWriter {
    sectors: AlignedBuffer,
    payload_len: usize,
    entries: u32,
}

impl StripeWriter {
    pub(crate) fn new() -> StripeWriter {
        StripeWriter::over(Vec::new())
    }

    /// Begins in memory that another ring batch has had.
    pub(crate) fn over(memory: Vec<u8>) -> StripeWriter {
        let sectors = AlignedBuffer::over(memory);
        let mut writer = StripeWriter { sectors, payload_len: 0, entries: 0 };
        writer.append(&[0; STRIPE_HEAD_LEN]);
        writer
    }

    /// Bytes of payload so far, the ring batch's head included.
    pub(crate) fn payload_len(&self) -> usize {
        self.payload_len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Makes sure that so many bytes of entries can be added without a move.
    pub(crate) fn reserve(&mut self, len: usize) {
        let sectors = sectors_for(self.payload_len + len) as usize;
        self.sectors.reserve(sectors * SECTOR - self.sectors.len());
    }

    /// Adds one encoded entry.
    pub(crate) fn push(&mut self, entry: &[u8]) {
        self.push_all(entry, 1);
    }

    /// Adds so many encoded entries, one after the other.
    pub(crate) fn push_all(&mut self, entries: &[u8], count: u32) {
        self.entries += count;
        self.append(entries);
    }

    fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let take = bytes.len().min(PAYLOAD - self.payload_len % PAYLOAD);
            self.sectors.extend_from_slice(&bytes[..take]);
            self.payload_len += take;
            bytes = &bytes[take..];
            if self.payload_len.is_multiple_of(PAYLOAD) {
                self.sectors.extend_from_slice(&[0; SECTOR - PAYLOAD]);
            }
        }
    }

    /// The ring batch's sectors for this position, aligned for a device.
    pub(crate) fn finish(mut self, binding: u64, position: u64) -> Bytes {
        let payload_len = self.payload_len as u32;
        put_u32(&mut self.sectors, 0, MAGIC);
        put_u16(&mut self.sectors, 4, FORMAT);
        put_u32(&mut self.sectors, 8, payload_len);
        put_u32(&mut self.sectors, 12, self.entries);
        let data = self.sectors.len().div_ceil(SECTOR);
        let parity = data.div_ceil(PARITY_SPAN);
        self.sectors.fill_to((data + parity) * SECTOR);
        let (content, parities) = self.sectors.split_at_mut(data * SECTOR);
        for (class, into) in parities.chunks_exact_mut(SECTOR).enumerate() {
            let (columns, rest) = into[..PAYLOAD].as_chunks_mut();
            for (i, into) in columns.iter_mut().enumerate() {
                *into = column::<COLUMN>(content, (class, parity), i * COLUMN);
            }
            let at = columns.len() * COLUMN;
            rest.copy_from_slice(&column::<{ PAYLOAD % COLUMN }>(content, (class, parity), at));
        }
        let (count, sums) = (data + parity, Seeded::new(binding));
        for (i, sector) in self.sectors.chunks_exact_mut(SECTOR).enumerate() {
            seal(sector, &sums, position + i as u64, i as u16, count as u16);
        }
        self.sectors.into_bytes()
    }
}

/// Bytes of sectors that are summed at once: as many as stay in registers meanwhile.
const COLUMN: usize = 64;

/// The sum by exclusive or of every `step`-th sector at an offset.
fn column<const LEN: usize>(sectors: &[u8], (first, step): (usize, usize), at: usize) -> [u8; LEN] {
    let mut sum = [0; LEN];
    for sector in sectors.chunks_exact(SECTOR).skip(first).step_by(step) {
        xor(&mut sum, &sector[at..at + LEN]);
    }
    sum
}

fn xor(into: &mut [u8], from: &[u8]) {
    for (to, byte) in into.iter_mut().zip(from) {
        *to ^= byte;
    }
}

/// Writes a sector's trailer, which is zeros so far.
pub(crate) fn seal(sector: &mut [u8], sums: &Seeded, position: u64, index: u16, count: u16) {
    put_u64(sector, POSITION, position);
    put_u16(sector, INDEX, index);
    put_u16(sector, COUNT, count);
    let sum = sums.checksum(&sector[..CHECKSUM]);
    put_u64(sector, CHECKSUM, sum);
}

/// A sector that belongs to no ring batch, as the first lap finds it.
pub(crate) fn blank(binding: u64, position: u64) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    seal(&mut sector, &Seeded::new(binding), position, 0, 0);
    sector
}

/// The state of a sector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// Written for this position, as sector `index` of a ring batch of `count`.
    Current { index: u64, count: u64 },
    /// Whole, and from an earlier lap: no write has come here since.
    Old,
    /// Damaged, or from another place.
    Bad,
}

/// Looks at the sector found where `position` belongs in a ring of `ring` sectors.
pub(crate) fn see(sector: &[u8], binding: u64, position: u64, ring: u64) -> Seen {
    let is_whole = u64_at(sector, CHECKSUM) == checksum(binding, &sector[..CHECKSUM]);
    if !is_whole && !mutation::is(Mutation::SectorUnchecked) {
        return Seen::Bad;
    }
    let found = u64_at(sector, POSITION);
    let (index, count) = (u64::from(u16_at(sector, INDEX)), u64::from(u16_at(sector, COUNT)));
    if found == position && count >= STRIPE_SECTORS_MIN && index < count {
        Seen::Current { index, count }
    } else if found < position && found % ring == position % ring {
        Seen::Old
    } else {
        Seen::Bad
    }
}

/// The payload of a ring batch whose sectors are at hand, in a row; `is_good` says which are whole.
/// The others get their part of it, from parity; `None` where that cannot help.
pub(crate) fn payload(sectors: &mut [u8], is_good: &[bool]) -> Option<Vec<u8>> {
    let (data, parity) = split_count(is_good.len());
    for class in 0..parity {
        let members: Vec<usize> = (class..data).step_by(parity).chain([data + class]).collect();
        let mut bad = members.iter().copied().filter(|&i| !is_good[i]);
        let Some(lost) = bad.next() else { continue };
        if bad.next().is_some() {
            return None;
        }
        let mut content = vec![0; PAYLOAD];
        for &i in members.iter().filter(|&&i| i != lost) {
            xor(&mut content, &sectors[i * SECTOR..][..PAYLOAD]);
        }
        sectors[lost * SECTOR..][..PAYLOAD].copy_from_slice(&content);
    }
    let mut payload = Vec::with_capacity(data * PAYLOAD);
    for sector in sectors[..data * SECTOR].chunks_exact(SECTOR) {
        payload.extend_from_slice(&sector[..PAYLOAD]);
    }
    Some(payload)
}

/// The entries of a payload and how many they are; `None` where its head is not one.
pub(crate) fn entries(payload: &[u8]) -> Option<(&[u8], u32)> {
    let head = payload.get(..STRIPE_HEAD_LEN)?;
    if u32_at(head, 0) != MAGIC || u16_at(head, 4) != FORMAT {
        return None;
    }
    let bytes = payload.get(STRIPE_HEAD_LEN..u32_at(head, 8) as usize)?;
    Some((bytes, u32_at(head, 12)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripe_of(len: usize) -> (Vec<u8>, Bytes) {
        let content: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
        let mut writer = StripeWriter::new();
        for part in content.chunks(300) {
            writer.push(part);
        }
        assert_eq!(
            sectors_for(writer.payload_len()) as usize * SECTOR,
            writer.finish(5, 1000).len()
        );
        let mut writer = StripeWriter::new();
        writer.push(&content);
        (content, writer.finish(5, 1000))
    }

    #[test]
    fn any_one_damaged_sector_of_a_parity_class_is_restored() {
        for len in [1, 472, 473, 5_000, 40_000, 90_000] {
            let (content, bytes) = stripe_of(len);
            let count = bytes.len() / SECTOR;
            for bad in 0..count {
                let (mut sectors, mut is_good) = (bytes.to_vec(), vec![true; count]);
                sectors[bad * SECTOR..][..SECTOR].fill(0xee);
                is_good[bad] = false;
                let payload = payload(&mut sectors, &is_good).expect("one sector is restored");
                assert_eq!(entries(&payload), Some((&content[..], 1)));
            }
        }
    }

    #[test]
    fn what_a_stripe_was_collected_in_does_not_show() {
        for len in [0, 1, 471, 472, 473, 960, 961, 64 * PAYLOAD, 100_000] {
            let entry: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let finish = |mut writer: StripeWriter, expected: usize| {
                writer.reserve(expected);
                writer.push(&entry);
                writer.finish(5, 1000)
            };
            let wanted = finish(StripeWriter::new(), 0);
            for capacity in [100, 5_000, 200_000] {
                for expected in [0, len / 2, len] {
                    let used = vec![0xee; capacity];
                    assert_eq!(finish(StripeWriter::over(used), expected), wanted);
                }
            }
        }
    }

    #[test]
    fn entries_that_were_expected_move_nothing() {
        let mut writer = StripeWriter::new();
        writer.reserve(100_000);
        let at = writer.sectors.as_ptr();
        (0..100).for_each(|_| writer.push(&[1; 1_000]));
        assert_eq!(writer.sectors.as_ptr(), at);
    }

    #[test]
    fn a_sector_knows_its_lap() {
        let (_, bytes) = stripe_of(600);
        let seen = |position| see(&bytes[..SECTOR], 5, position, 100);
        assert_eq!(seen(1000), Seen::Current { index: 0, count: 3 });
        assert_eq!(seen(1100), Seen::Old);
        assert_eq!(seen(1001), Seen::Bad, "misplaced");
        assert_eq!(seen(900), Seen::Bad, "from the future");
        assert_eq!(see(&bytes[..SECTOR], 6, 1000, 100), Seen::Bad, "of another node");
        assert_eq!(see(&blank(5, 7), 5, 107, 100), Seen::Old);
    }

    #[test]
    fn the_bytes_of_a_stripe_are_these() {
        let mut writer = StripeWriter::new();
        writer.push(b"entry");
        let bytes = writer.finish(5, 0x0102);
        assert_eq!(bytes.len(), 1024);
        assert_eq!(&bytes[..21], b"PSTR\x01\0\0\0\x15\0\0\0\x01\0\0\0entry");
        assert_eq!(bytes[488..504], [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0]);
        assert_eq!(base::checksum::hash(&bytes), GOLDEN);
    }

    const GOLDEN: u64 = 0x207f_030d_e100_87fb;
}
