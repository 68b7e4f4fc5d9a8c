//! Concatenation in one allocation.

use bytes::Bytes;

/// In one allocation: `Bytes` takes over a vector that has no room to spare, and needs a second one
/// else.
pub(crate) fn concat(parts: &[&[u8]]) -> Bytes {
    let mut out = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.into()
}
