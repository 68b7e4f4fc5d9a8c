//! Self-checking words: 48 bits of payload and 16 bits that say it is whole and at home.
//!
//! The structure of the file is made of these, each replaced by one failure-atomic store. The check is the
//! payload modulo the prime 65521, shifted by a term of the word's place and the directory's binding: any
//! damage to a single byte changes it for certain (no `d * 256^k` with `0 < |d| < 256` is a multiple of the
//! prime), other garbage passes once in 65521 times per word, and a word found elsewhere or zero never counts.

/// Largest payload, kept for an empty place.
pub const NONE: u64 = MASK;

const MASK: u64 = (1 << 48) - 1;
const PRIME: u64 = 65521;

/// Scatters the bits of `x`. [SplitMix64's finaliser, Steele, Lea and Flood, 2014]
#[inline]
#[must_use]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The word that holds `payload` at `place`; `beside` is a further word that it vouches for.
#[inline]
#[must_use]
pub fn seal(place: u64, beside: u64, payload: u64) -> u64 {
    assert!(payload <= MASK, "{payload:#x} has more than 48 bits");
    payload | check(place, beside, payload) << 48
}

/// The payload of a word found at `place`; `None` where it is damaged or does not belong there.
#[inline]
#[must_use]
pub fn open(place: u64, beside: u64, word: u64) -> Option<u64> {
    let payload = word & MASK;
    (word >> 48 == check(place, beside, payload)).then_some(payload)
}

/// In `1..=65521`, so that a word of zeros is never whole.
#[inline]
fn check(place: u64, beside: u64, payload: u64) -> u64 {
    (payload + (mix(place) >> 8) + beside % PRIME) % PRIME + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flip_of_one_byte_is_seen() {
        let mut prng = base::Prng::new(1);
        for _ in 0..200 {
            let (place, beside) = (prng.next_u64(), prng.next_u64());
            let payload = prng.next_u64() & MASK;
            let word = seal(place, beside, payload);
            assert_eq!(open(place, beside, word), Some(payload));
            for shift in (0..64).step_by(8) {
                for flip in 1..=255_u64 {
                    assert_eq!(open(place, beside, word ^ flip << shift), None);
                    assert_eq!(open(place, beside ^ flip << shift, word), None);
                }
            }
        }
    }

    #[test]
    fn zero_and_moved_words_are_damaged() {
        assert_eq!(open(64, 0, 0), None);
        let word = seal(64, 0, 7);
        let moved = (1..1000).filter(|step| open(64 + 64 * step, 0, word).is_some()).count();
        assert!(moved < 3, "{moved} of 999 other places take it");
    }
}
