//! The register and the rank of an element, by its hash.

/// Bits of a hash that select a register. The others have the rank.
pub(super) const INDEX_BITS: u32 = 14;

/// The rank of a hash without any bit for it.
pub(super) const RANK_MAX: u8 = (u64::BITS - INDEX_BITS + 1) as u8;

const SEED: u64 = 0xadc8_3b19;

/// The effect of an element: it raises a register to a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Raise {
    pub(super) index: u16,
    /// From 1 to [`RANK_MAX`].
    pub(super) rank: u8,
}

impl Raise {
    pub(super) fn of(element: &[u8]) -> Raise {
        let hash = murmur(element);
        let index = hash & ((1 << INDEX_BITS) - 1);
        // A bit beyond the last one ends the run of zeros.
        let run = (hash >> INDEX_BITS | 1 << (RANK_MAX - 1)).trailing_zeros();
        Raise { index: index as u16, rank: run as u8 + 1 }
    }
}

/// `MurmurHash64A` of Austin Appleby, in the public domain.
fn murmur(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let mut words = bytes.chunks_exact(8);
    for word in words.by_ref() {
        let word = little_endian(word).wrapping_mul(FACTOR);
        hash ^= (word ^ word >> SHIFT).wrapping_mul(FACTOR);
        hash = hash.wrapping_mul(FACTOR);
    }
    if !words.remainder().is_empty() {
        hash = (hash ^ little_endian(words.remainder())).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(FACTOR);
    hash ^ hash >> SHIFT
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_within_limits() {
        for number in 0..10_000_u32 {
            let Raise { index, rank } = Raise::of(&number.to_le_bytes());
            assert!(usize::from(index) < super::super::REGISTERS);
            assert!((1..=RANK_MAX).contains(&rank));
        }
    }

    #[test]
    fn hashes_never_change() {
        for (element, index, rank) in [
            (&b""[..], 5938, 2),
            (b"a", 12711, 2),
            (b"12345678", 10579, 3),
            (b"123456789abcdef", 1977, 3),
            (b"\x22\x95\xe7\x76\xdc\x15\xca\x3f", 16383, RANK_MAX),
        ] {
            assert_eq!(Raise::of(element), Raise { index, rank }, "{element:?}");
        }
    }
}
