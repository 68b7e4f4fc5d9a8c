//! Names of fields: among the arguments of a command, and among the fields of an operation.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};

use crate::errors::{self, ErrorReply};
use crate::operation::{self, Sink};
use crate::row::*;

/// `FIELDS numfields field [field …]`, as rows describe it.
pub(super) const FIELDS: Argument = Argument::block(
    "fields",
    &[Argument::integer("numfields"), Argument::string("field").multiple()],
)
.after("FIELDS");

const MISSING: ErrorReply =
    errors::fixed(b"ERR Mandatory argument FIELDS is missing or not at the right position");
const MISMATCH: ErrorReply =
    errors::fixed(b"ERR The `numfields` parameter must match the number of arguments");
pub(super) const NOT_POSITIVE: ErrorReply =
    errors::fixed(b"ERR Number of fields must be a positive integer");

/// Parses `FIELDS numfields field [field …]`.
///
/// # Errors
/// The reply to send: `not_positive` for a wrong number.
pub(super) fn parse<'a>(
    args: &[&'a [u8]],
    not_positive: ErrorReply,
) -> Result<Vec<&'a [u8]>, ErrorReply> {
    let [word, count, names @ ..] = args else { return Err(MISSING) };
    if !word.eq_ignore_ascii_case(b"FIELDS") {
        return Err(MISSING);
    }
    let count = parse_i64(count).filter(|&count| count > 0).ok_or(not_positive)?;
    if count.cast_unsigned() != names.len() as u64 {
        return Err(MISMATCH);
    }
    Ok(names.to_vec())
}

/// Writes all names at the end of a body.
pub(super) fn put(names: &[&[u8]], out: &mut impl Sink) {
    names.iter().for_each(|name| out.blob(name));
}

/// Reads the names that [`put`] wrote.
pub(super) fn take<'a>(fields: &mut Reader<'a>) -> Result<Vec<&'a [u8]>, Malformed> {
    let blobs = values::Blobs::decode(operation::rest(fields)?).ok_or(Malformed)?;
    Ok(blobs.iter().collect())
}
