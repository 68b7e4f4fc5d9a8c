//! The map of a group: one bit for each of its units, and a page that holds them.

use base::checksum::checksum;

use crate::disk::bytes_at::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::disk::place::{GROUP_UNITS, MAP_HEAD_LEN, PAGE, PAGE_UNITS, map_place};

pub(super) const WORDS: usize = (GROUP_UNITS / 64) as usize;
const MAGIC: u32 = u32::from_le_bytes(*b"PMAP");
const FORMAT: u16 = 1;

/// One bit for each unit of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::disk) struct Map(Box<[u64; WORDS]>);

impl Map {
    pub(in crate::disk) fn empty() -> Map {
        Map(Box::new([0; WORDS]))
    }

    /// A map of a group that has just been added: the map itself is in use.
    pub(in crate::disk) fn fresh() -> Map {
        let mut map = Map::empty();
        map.set(0, PAGE_UNITS, true);
        map
    }

    pub(in crate::disk) fn full() -> Map {
        Map(Box::new([u64::MAX; WORDS]))
    }

    fn combine(&self, other: &Map, of: impl Fn(u64, u64) -> u64) -> Map {
        Map(Box::new(std::array::from_fn(|i| of(self.0[i], other.0[i]))))
    }

    /// The units of either.
    pub(in crate::disk) fn with(&self, other: &Map) -> Map {
        self.combine(other, |a, b| a | b)
    }

    /// The units of both.
    pub(in crate::disk) fn within(&self, other: &Map) -> Map {
        self.combine(other, |a, b| a & b)
    }

    pub(in crate::disk) fn without(&self, other: &Map) -> Map {
        self.combine(other, |a, b| a & !b)
    }

    /// Units 64 i to 64 i + 63, the first in the lowest bit.
    pub(super) fn word(&self, i: usize) -> u64 {
        self.0[i]
    }

    pub(in crate::disk) fn has(&self, unit: u64) -> bool {
        self.0[(unit / 64) as usize] & 1 << (unit % 64) != 0
    }

    pub(in crate::disk) fn set(&mut self, first: u64, count: u64, value: bool) {
        for unit in first..first + count {
            let bit = 1 << (unit % 64);
            let word = &mut self.0[(unit / 64) as usize];
            if value {
                *word |= bit;
            } else {
                *word &= !bit;
            }
        }
    }

    /// Runs of its units.
    pub(super) fn runs(&self) -> Vec<(u64, u64)> {
        let (mut runs, mut unit) = (Vec::new(), 0);
        while unit < GROUP_UNITS {
            let count = (unit..GROUP_UNITS).take_while(|&unit| self.has(unit)).count() as u64;
            if count > 0 {
                runs.push((unit, count));
            }
            unit += count.max(1);
        }
        runs
    }

    pub(in crate::disk) fn write(&self, group: u64, batch: u64, binding: u64) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        put_u32(&mut page, 8, MAGIC);
        put_u16(&mut page, 12, FORMAT);
        put_u64(&mut page, 16, group);
        put_u64(&mut page, 24, batch);
        for (word, bytes) in self.0.iter().zip(page[MAP_HEAD_LEN..].chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(map_place(group).seed(binding), &page[8..]);
        put_u64(&mut page, 0, sum);
        page
    }

    /// `None` where the page is not the whole map of this group.
    pub(in crate::disk) fn read(page: &[u8], group: u64, binding: u64) -> Option<Map> {
        let is_whole = u32_at(page, 8) == MAGIC
            && u16_at(page, 12) == FORMAT
            && u64_at(page, 16) == group
            && u64_at(page, 0) == checksum(map_place(group).seed(binding), &page[8..]);
        let mut map = Map::empty();
        for (word, bytes) in map.0.iter_mut().zip(page[MAP_HEAD_LEN..].chunks_exact(8)) {
            *word = u64_at(bytes, 0);
        }
        is_whole.then_some(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_comes_back_and_a_damaged_one_does_not() {
        let mut map = Map::fresh();
        map.set(100, 70, true);
        let mut page = map.write(3, 8, 5);
        assert_eq!(Map::read(&page, 3, 5), Some(map));
        assert_eq!(Map::read(&page, 2, 5), None);
        page[4095] ^= 1;
        assert_eq!(Map::read(&page, 3, 5), None);
    }

    #[test]
    fn the_bytes_of_a_map_are_these() {
        let page = Map::fresh().write(1, 2, 3);
        assert_eq!(&page[8..32], b"PMAP\x01\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0");
        assert_eq!(page[64..66], [0x0f, 0]);
        assert_eq!(base::checksum::hash(&page), GOLDEN);
    }

    const GOLDEN: u64 = 0xecfd_53bc_bc17_de5e;
}
