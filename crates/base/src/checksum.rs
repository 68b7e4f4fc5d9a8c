//! Checksums and stable hashes by XXH3 (64 bit). Its output never changes, so it may go to disk and
//! wire.

use twox_hash::XxHash3_64;
use twox_hash::xxhash3_64::{DEFAULT_SECRET_LENGTH, SecretBuffer};

/// Checksum of `bytes`, bound to `seed`: the same bytes found at another place do not verify.
#[must_use]
pub fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// [`checksum`] for many inputs under one seed: derives the secret for long inputs once.
#[derive(Debug)]
pub struct Seeded {
    seed: u64,
    secret: [u8; DEFAULT_SECRET_LENGTH],
}

impl Seeded {
    #[must_use]
    pub fn new(seed: u64) -> Seeded {
        let secret = SecretBuffer::with_seed(seed, [0; DEFAULT_SECRET_LENGTH]);
        let secret = secret.expect("a secret has this length");
        Seeded { seed, secret: secret.into_secret() }
    }

    #[must_use]
    pub fn checksum(&self, bytes: &[u8]) -> u64 {
        let sum = XxHash3_64::oneshot_with_seed_and_secret(self.seed, &self.secret, bytes);
        sum.expect("the secret has its length")
    }
}

/// [`checksum`] that is cheap right after a fence.
///
/// Beyond 240 bytes XXH3 writes a secret into memory, and loading it would wait for the fence.
/// Such inputs are bound to `place` afterwards.
/// Shorter ones take the seed, because the known secret lets some 8-byte words hide their
/// neighbour.
#[inline]
#[must_use]
pub fn checksum_at(place: u64, bytes: &[u8]) -> u64 {
    if bytes.len() <= SEEDED_IN_REGISTERS_MAX {
        // The length of a secret is checked only for longer inputs.
        XxHash3_64::oneshot_with_seed_and_secret(place, &[], bytes).expect("needs no secret")
    } else {
        hash(bytes) ^ place
    }
}

/// Inputs up to this length take a seed without deriving a secret in memory.
const SEEDED_IN_REGISTERS_MAX: usize = 240;

/// Hash of `bytes` under a secret of at least 136 bytes, which counts at every length.
///
/// # Panics
/// If the secret is shorter.
#[must_use]
pub fn keyed_hash(secret: &[u8], bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_secret(secret, bytes).expect("a secret has 136 bytes or more")
}

/// Stable hash of bytes, without a secret.
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_changes_the_checksum() {
        for len in [1, 16, 17, 128, 240, 241, 300] {
            let bytes = vec![7; len];
            for place in [1, 64, u64::MAX] {
                assert_ne!(checksum_at(place, &bytes), checksum_at(0, &bytes), "{len} bytes");
                assert_ne!(checksum_at(place, &bytes), checksum_at(place, &bytes[1..]));
            }
        }
    }

    /// The first word equals the start of the algorithm's secret, so one factor of a product is 0.
    #[test]
    fn no_word_hides_its_neighbour() {
        let bytes = |second: u8| {
            let mut bytes = [second; 32];
            bytes[..8].copy_from_slice(&0xbe4b_a423_396c_feb8_u64.to_le_bytes());
            bytes[16..].fill(7);
            bytes
        };
        assert_eq!(hash(&bytes(1)), hash(&bytes(2)));
        assert_ne!(checksum_at(4096, &bytes(1)), checksum_at(4096, &bytes(2)));
    }

    /// Covers each branch by length, with the seeds 0 and 7.
    #[test]
    fn values_never_change() {
        assert_eq!(hash(b""), 0x2d06_8005_38d3_94c2);
        let bytes: Vec<u8> = (0..5000_u32).map(|at| (at * at % 251) as u8).collect();
        for (len, of_zero, of_seven) in [
            (1, 0xc44b_dff4_074e_ecdb, 0x2c45_aa60_ff5d_c0e5),
            (8, 0xbcfe_131f_a6cb_6952, 0x4f62_a081_6fc5_6e5a),
            (16, 0xf36d_1380_fc3d_25fd, 0xb8f9_ef1a_7024_6d94),
            (128, 0xa053_9760_2c0d_7380, 0xe7ab_a05f_adf0_0c51),
            (240, 0x2599_f783_6101_b7c7, 0x6de8_f7fc_5691_8a4d),
            (241, 0xfa3e_3f95_0b82_1a67, 0x242b_e6a7_dda5_90dd),
            (1024, 0xa311_5476_086f_73f1, 0xac87_dfcb_5d3a_0346),
            (5000, 0x924c_0d5e_4141_8245, 0x87c6_1303_a98c_2ada),
        ] {
            assert_eq!(hash(&bytes[..len]), of_zero, "{len} bytes");
            assert_eq!(checksum(0, &bytes[..len]), of_zero, "{len} bytes");
            assert_eq!(checksum(7, &bytes[..len]), of_seven, "{len} bytes");
            if len <= SEEDED_IN_REGISTERS_MAX {
                assert_eq!(checksum_at(7, &bytes[..len]), of_seven, "{len} bytes");
            }
            assert_eq!(Seeded::new(7).checksum(&bytes[..len]), of_seven, "{len} bytes");
            assert_eq!(Seeded::new(0).checksum(&bytes[..len]), of_zero, "{len} bytes");
        }
    }
}
