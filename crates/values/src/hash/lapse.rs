//! Fields whose time is over.

use bytes::Bytes;

use super::{HEAD_LEN, Hash};
use crate::Kind;

/// The rest of a hash that had fields which are over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lapsed {
    /// A value without these fields.
    Rest(Bytes),
    /// No field: the key is gone.
    All,
}

/// Takes the fields off a value whose ends are not after `unix`, in milliseconds. `None` when no
/// field is over, also of another type, and of a value that cannot be read.
#[must_use]
pub fn lapse(value: &[u8], unix: u64) -> Option<Lapsed> {
    if value.first() != Some(&(Kind::Hash as u8)) || !first_is_over(value, unix) {
        return None;
    }
    let hash = Hash::decode(value).ok()?;
    let is_over = |end: Option<u64>| end.is_some_and(|end| end <= unix);
    let rest = hash.places().find(|(_, field)| !is_over(field.end));
    Some(match rest {
        None => Lapsed::All,
        Some((place, _)) => {
            let (head, fields) = (&value[..HEAD_LEN], &hash.bytes[place.start..]);
            Lapsed::Rest([head, fields].concat().into())
        }
    })
}

/// The first field ends first.
fn first_is_over(value: &[u8], unix: u64) -> bool {
    let has_ends = |&byte: &u8| super::Encoding::from_byte(byte).is_some_and(|it| it.has_ends());
    let Some((encoding, mut rest)) = value[1..].split_first() else { return false };
    has_ends(encoding) && base::varint::take(&mut rest).is_some_and(|end| end != 0 && end <= unix)
}
