//! Replies that many commands give, as RESP3.

use bytes::Bytes;

pub(crate) const OK: Bytes = Bytes::from_static(b"+OK\r\n");
pub(crate) const NULL: Bytes = Bytes::from_static(b"_\r\n");
pub(crate) const EMPTY: Bytes = Bytes::from_static(b"$0\r\n\r\n");
const ZERO: Bytes = Bytes::from_static(b":0\r\n");
const ONE: Bytes = Bytes::from_static(b":1\r\n");

/// In one allocation: `Bytes` takes over a vector that has no room to spare, and needs a second one else.
pub(crate) fn concat(parts: &[&[u8]]) -> Bytes {
    let mut out = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.into()
}

pub(crate) fn integer(value: i64) -> Bytes {
    match value {
        0 => ZERO,
        1 => ONE,
        _ => concat(&[b":", itoa::Buffer::new().format(value).as_bytes(), b"\r\n"]),
    }
}

pub(crate) fn count(happened: bool) -> Bytes {
    if happened { ONE } else { ZERO }
}

pub(crate) fn bulk(bytes: &[u8]) -> Bytes {
    let mut digits = itoa::Buffer::new();
    concat(&[b"$", digits.format(bytes.len()).as_bytes(), b"\r\n", bytes, b"\r\n"])
}

pub(crate) fn bulk_or_null(bytes: Option<&[u8]>) -> Bytes {
    bytes.map_or(NULL, bulk)
}

pub(crate) fn simple(text: &str) -> Bytes {
    let mut out = Vec::new();
    resp::encode::simple(&mut out, text.as_bytes());
    out.into()
}
