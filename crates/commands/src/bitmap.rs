//! Bits of strings. Bit 0 is the most significant one of the first byte.

mod field;
mod range;

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};

use crate::errors::{self, ErrorReply};

crate::module::modules! {
    bitcount,
    bitfield,
    bitop,
    bitpos,
    getbit,
    setbit,
}

const OFFSET_OUT_OF_RANGE: ErrorReply =
    errors::fixed(b"ERR bit offset is not an integer or out of range");

/// The last bit of the longest string that redis-server makes.
const OFFSET_MAX: u64 = crate::string::LEN_MAX * 8 - 1;

/// # Errors
/// The reply to an argument that is no offset.
fn parse_offset(text: &[u8]) -> Result<u64, ErrorReply> {
    let offset = parse_i64(text).ok_or(OFFSET_OUT_OF_RANGE)?;
    checked_offset(offset).ok_or(OFFSET_OUT_OF_RANGE)
}

fn checked_offset(offset: i64) -> Option<u64> {
    u64::try_from(offset).ok().filter(|&offset| offset <= OFFSET_MAX)
}

/// Reads an offset out of the fields of an operation.
fn read_offset(fields: &mut Reader<'_>) -> Result<u64, Malformed> {
    let offset = fields.varint()?;
    if offset <= OFFSET_MAX { Ok(offset) } else { Err(Malformed) }
}

/// Bytes behind the end of a string are zero.
fn byte_at(string: &[u8], index: usize) -> u8 {
    string.get(index).copied().unwrap_or_default()
}

/// A mask of one bit in its byte.
fn mask_of(offset: u64) -> u8 {
    0x80 >> (offset % 8)
}
