//! Checksums and stable hashes: XXH3 64 bit, whose output is fixed for ever and so may go to disk and wire.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Checksum of `bytes`, bound to `seed`: the same bytes found at another place do not verify.
#[must_use]
pub fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}

/// Stable hash of a key's bytes.
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_never_change() {
        assert_eq!(hash(b""), 0x2d06_8005_38d3_94c2);
        assert_ne!(checksum(1, b"slot"), checksum(2, b"slot"));
    }
}
