//! The end of a dump: the version of the format and a checksum, both with the low byte first.

use crc::{CRC_64_REDIS, Crc, Table};

/// The version that Redis 7.4 writes.
pub const VERSION: u16 = 12;

const VERSION_LEN: usize = 2;
const CHECKSUM_LEN: usize = 8;

static CHECKSUM: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

pub(super) fn append(dump: &mut Vec<u8>) {
    dump.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = CHECKSUM.checksum(dump);
    dump.extend_from_slice(&checksum.to_le_bytes());
}

/// The bytes before the footer. `None` when the version is newer, or the checksum is another.
pub(super) fn strip(dump: &[u8]) -> Option<&[u8]> {
    let (checked, checksum) = dump.split_last_chunk::<CHECKSUM_LEN>()?;
    let (body, version) = checked.split_last_chunk::<VERSION_LEN>()?;
    let is_sound = u16::from_le_bytes(*version) <= VERSION
        && CHECKSUM.checksum(checked) == u64::from_le_bytes(*checksum);
    is_sound.then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_that_of_redis() {
        assert_eq!(CHECKSUM.checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn newer_versions_and_damage_are_refused() {
        let mut dump = b"value".to_vec();
        append(&mut dump);
        assert_eq!(strip(&dump), Some(&b"value"[..]));
        for at in 0..dump.len() {
            let mut damaged = dump.clone();
            damaged[at] ^= 1;
            assert_eq!(strip(&damaged), None, "byte {at}");
            assert_eq!(strip(&dump[..at]), None, "{at} bytes");
        }
        let mut newer = b"value".to_vec();
        newer.extend_from_slice(&(VERSION + 1).to_le_bytes());
        newer.extend_from_slice(&CHECKSUM.checksum(&newer).to_le_bytes());
        assert_eq!(strip(&newer), None);
    }
}
