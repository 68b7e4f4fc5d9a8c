//! Keys and values that tell whose they are, so that a wrong reply is noticed.
//!
//! A value holds the number of its key, the write that made it, and a checksum over all of it.

use crate::workload::scramble;

/// Bytes of a key.
pub(super) const KEY_LEN: usize = 8;

/// Bytes of the shortest value.
pub const VALUE_LEN_MIN: usize = 24;

/// Writes of one session have its number in front of this many bits.
const SEQUENCE_BITS: u32 = 40;

/// Names a write: its session and its place among the writes of that session, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriteId(pub(super) u64);

impl WriteId {
    pub(super) fn new(session: u32, sequence: u64) -> WriteId {
        assert!(sequence < 1 << SEQUENCE_BITS, "a session makes no more writes");
        WriteId(u64::from(session) << SEQUENCE_BITS | sequence)
    }

    pub(super) fn session(self) -> usize {
        (self.0 >> SEQUENCE_BITS) as usize
    }

    pub(super) fn sequence(self) -> u64 {
        self.0 & ((1 << SEQUENCE_BITS) - 1)
    }
}

pub(super) fn key_bytes(key: u64) -> [u8; KEY_LEN] {
    key.to_be_bytes()
}

/// Fills `value` for this key and write.
pub(super) fn write_value(value: &mut [u8], key: u64, write: WriteId) {
    let (body, sum) = value.split_at_mut(value.len() - 8);
    body[..8].copy_from_slice(&key.to_be_bytes());
    body[8..16].copy_from_slice(&write.0.to_be_bytes());
    for (at, chunk) in body[16..].chunks_mut(8).enumerate() {
        let filler = scramble(write.0 ^ at as u64).to_be_bytes();
        chunk.copy_from_slice(&filler[..chunk.len()]);
    }
    let checksum = checksum(body);
    sum.copy_from_slice(&checksum.to_be_bytes());
}

/// The write that made a value of this key.
///
/// # Errors
/// The reason why no write of this key made these bytes.
pub(super) fn read_value(value: &[u8], key: u64, len: usize) -> Result<WriteId, String> {
    if value.len() != len {
        return Err(format!("a value of {} bytes where {len} were written", value.len()));
    }
    let (body, sum) = value.split_at(value.len() - 8);
    if checksum(body) != word(sum) {
        return Err("a value with a wrong checksum".to_string());
    }
    let found = word(&body[..8]);
    if found != key {
        return Err(format!("the value of key {found}"));
    }
    Ok(WriteId(word(&body[8..16])))
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

fn checksum(body: &[u8]) -> u64 {
    body.chunks(8).fold(body.len() as u64, |sum, chunk| scramble(sum.rotate_left(7) ^ word(chunk)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_name_their_key_and_write() {
        for len in [VALUE_LEN_MIN, 27, 32, 100] {
            let mut value = vec![0; len];
            let write = WriteId::new(7, 12);
            write_value(&mut value, 5, write);
            assert_eq!(read_value(&value, 5, len), Ok(write));
            assert_eq!((write.session(), write.sequence()), (7, 12));
            assert!(read_value(&value, 6, len).unwrap_err().contains("key 5"));
            assert!(read_value(&value[..len - 1], 5, len).is_err());
            for at in 0..len {
                value[at] ^= 1;
                assert!(read_value(&value, 5, len).is_err(), "byte {at} of {len} is wrong");
                value[at] ^= 1;
            }
        }
    }
}
