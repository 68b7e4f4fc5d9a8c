//! Replies as values: a command produces one, protocols carry it, a session encodes it once.

use bytes::Bytes;

use crate::wire::{put_blob, put_varint};
use crate::{Malformed, Reader, Wire};

/// Aggregates within aggregates in a reply that travels between nodes.
pub const REPLY_DEPTH_MAX: usize = 16;

/// Bytes of one text in a reply that travels between nodes.
const BLOB_LEN_MAX: usize = crate::limits::SENT_LEN_MAX;

/// The reply to a command. RESP2 and RESP3 tell the variants apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// No value: RESP2 shows a missing string.
    Null,
    /// No value: RESP2 shows a missing array.
    NullArray,
    /// A short text without line ends.
    Simple(Bytes),
    /// A text that starts with its code: `ERR …`.
    Error(Bytes),
    Integer(i64),
    Bulk(Bytes),
    /// RESP2: a string.
    Double(Double),
    /// RESP2: 0 or 1.
    Boolean(bool),
    /// Decimal digits; RESP2: a string.
    BigNumber(Bytes),
    /// RESP2: a string without the format.
    Verbatim {
        format: [u8; 3],
        text: Bytes,
    },
    Array(Vec<Reply>),
    /// RESP2: an array.
    Set(Vec<Reply>),
    /// RESP2: an array of keys and values in turn.
    Map(Vec<(Reply, Reply)>),
    /// RESP3: an array of pairs, such as members and scores. RESP2: an array of both in turn.
    Pairs(Vec<(Reply, Reply)>),
    /// RESP3: a map, such as entries by stream. RESP2: an array of pairs.
    Table(Vec<(Reply, Reply)>),
}

/// A number that equals another one with the same bits.
#[derive(Clone, Copy, Debug)]
pub struct Double(pub f64);

impl PartialEq for Double {
    fn eq(&self, other: &Double) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Double {}

impl Reply {
    pub const OK: Reply = Reply::Simple(Bytes::from_static(b"OK"));
    pub const EMPTY: Reply = Reply::Bulk(Bytes::new());

    pub fn simple(text: impl Into<Bytes>) -> Reply {
        Reply::Simple(text.into())
    }

    /// `text` starts with its code.
    pub fn error(text: impl Into<Bytes>) -> Reply {
        Reply::Error(text.into())
    }

    pub fn bulk(bytes: impl Into<Bytes>) -> Reply {
        Reply::Bulk(bytes.into())
    }

    /// Text for people.
    pub fn text(text: impl Into<Bytes>) -> Reply {
        Reply::Verbatim { format: *b"txt", text: text.into() }
    }

    #[must_use]
    pub fn copy(bytes: &[u8]) -> Reply {
        Reply::Bulk(Bytes::copy_from_slice(bytes))
    }

    #[must_use]
    pub fn copy_or_null(bytes: Option<&[u8]>) -> Reply {
        bytes.map_or(Reply::Null, Reply::copy)
    }

    /// 1 or 0.
    #[must_use]
    pub fn count(happened: bool) -> Reply {
        Reply::Integer(i64::from(happened))
    }

    pub fn array(replies: impl IntoIterator<Item = Reply>) -> Reply {
        Reply::Array(replies.into_iter().collect())
    }

    pub fn set(replies: impl IntoIterator<Item = Reply>) -> Reply {
        Reply::Set(replies.into_iter().collect())
    }

    /// A map whose keys are texts.
    pub fn map<K: Into<Bytes>>(fields: impl IntoIterator<Item = (K, Reply)>) -> Reply {
        Reply::Map(fields.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect())
    }

    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    /// About as many bytes as the reply takes on a connection.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Reply::Null | Reply::NullArray | Reply::Boolean(_) => 5,
            Reply::Integer(_) | Reply::Double(_) => 16,
            Reply::Simple(text) | Reply::Error(text) => text.len() + 3,
            Reply::Bulk(bytes) | Reply::BigNumber(bytes) | Reply::Verbatim { text: bytes, .. } => {
                bytes.len() + 16
            }
            Reply::Array(all) | Reply::Set(all) => 8 + all.iter().map(Reply::len).sum::<usize>(),
            Reply::Map(all) | Reply::Pairs(all) | Reply::Table(all) => {
                8 + all.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
            }
        }
    }

    /// No reply is empty on a connection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    fn put(&self, out: &mut Vec<u8>, depth: usize) {
        assert!(depth <= REPLY_DEPTH_MAX, "a reply to a command on a key is shallow");
        let put_text = |out: &mut Vec<u8>, kind: u8, text: &[u8]| {
            out.push(kind);
            put_blob(out, text);
        };
        match self {
            Reply::Null => out.push(kind::NULL),
            Reply::NullArray => out.push(kind::NULL_ARRAY),
            Reply::Boolean(false) => out.push(kind::FALSE),
            Reply::Boolean(true) => out.push(kind::TRUE),
            Reply::Simple(text) => put_text(out, kind::SIMPLE, text),
            Reply::Error(text) => put_text(out, kind::ERROR, text),
            Reply::Bulk(bytes) => put_text(out, kind::BULK, bytes),
            Reply::BigNumber(digits) => put_text(out, kind::BIG_NUMBER, digits),
            Reply::Integer(value) => {
                out.push(kind::INTEGER);
                // The sign goes last, so that small numbers are short.
                put_varint(out, (value << 1 ^ value >> 63).cast_unsigned());
            }
            Reply::Double(Double(value)) => {
                out.push(kind::DOUBLE);
                out.extend_from_slice(&value.to_bits().to_le_bytes());
            }
            Reply::Verbatim { format, text } => {
                out.push(kind::VERBATIM);
                out.extend_from_slice(format);
                put_blob(out, text);
            }
            Reply::Array(all) => put_all(out, kind::ARRAY, all, depth),
            Reply::Set(all) => put_all(out, kind::SET, all, depth),
            Reply::Map(all) => put_pairs(out, kind::MAP, all, depth),
            Reply::Pairs(all) => put_pairs(out, kind::PAIRS, all, depth),
            Reply::Table(all) => put_pairs(out, kind::TABLE, all, depth),
        }
    }

    fn take(reader: &mut Reader<'_>, depth: usize) -> Result<Reply, Malformed> {
        if depth > REPLY_DEPTH_MAX {
            return Err(Malformed);
        }
        let text = |reader: &mut Reader<'_>| reader.blob(BLOB_LEN_MAX).map(Bytes::copy_from_slice);
        Ok(match reader.u8()? {
            kind::NULL => Reply::Null,
            kind::NULL_ARRAY => Reply::NullArray,
            kind::FALSE => Reply::Boolean(false),
            kind::TRUE => Reply::Boolean(true),
            kind::SIMPLE => Reply::Simple(text(reader)?),
            kind::ERROR => Reply::Error(text(reader)?),
            kind::BULK => Reply::Bulk(text(reader)?),
            kind::BIG_NUMBER => Reply::BigNumber(text(reader)?),
            kind::INTEGER => {
                let bits = reader.varint()?;
                Reply::Integer((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed())
            }
            kind::DOUBLE => Reply::Double(Double(f64::from_bits(reader.u64()?))),
            kind::VERBATIM => {
                let format = [reader.u8()?, reader.u8()?, reader.u8()?];
                Reply::Verbatim { format, text: text(reader)? }
            }
            kind::ARRAY => Reply::Array(take_all(reader, depth)?),
            kind::SET => Reply::Set(take_all(reader, depth)?),
            kind::MAP => Reply::Map(take_pairs(reader, depth)?),
            kind::PAIRS => Reply::Pairs(take_pairs(reader, depth)?),
            kind::TABLE => Reply::Table(take_pairs(reader, depth)?),
            _ => return Err(Malformed),
        })
    }
}

/// First byte of an encoded reply.
mod kind {
    pub(super) const NULL: u8 = 0;
    pub(super) const NULL_ARRAY: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const TRUE: u8 = 3;
    pub(super) const SIMPLE: u8 = 4;
    pub(super) const ERROR: u8 = 5;
    pub(super) const BULK: u8 = 6;
    pub(super) const BIG_NUMBER: u8 = 7;
    pub(super) const INTEGER: u8 = 8;
    pub(super) const DOUBLE: u8 = 9;
    pub(super) const VERBATIM: u8 = 10;
    pub(super) const ARRAY: u8 = 11;
    pub(super) const SET: u8 = 12;
    pub(super) const MAP: u8 = 13;
    pub(super) const PAIRS: u8 = 14;
    pub(super) const TABLE: u8 = 15;
}

fn put_all(out: &mut Vec<u8>, kind: u8, all: &[Reply], depth: usize) {
    out.push(kind);
    put_varint(out, all.len() as u64);
    all.iter().for_each(|reply| reply.put(out, depth + 1));
}

fn put_pairs(out: &mut Vec<u8>, kind: u8, all: &[(Reply, Reply)], depth: usize) {
    out.push(kind);
    put_varint(out, all.len() as u64);
    for (key, value) in all {
        key.put(out, depth + 1);
        value.put(out, depth + 1);
    }
}

/// A count of elements that take at least `least` bytes each: the bytes that are there bound it.
fn count(reader: &mut Reader<'_>, least: usize) -> Result<usize, Malformed> {
    let count = reader.varint()?;
    let max = reader.rest().len() / least;
    if count > max as u64 { Err(Malformed) } else { Ok(count as usize) }
}

/// Elements for which memory is taken before they are decoded.
const RESERVED_MAX: usize = 1024;

fn take_all(reader: &mut Reader<'_>, depth: usize) -> Result<Vec<Reply>, Malformed> {
    let count = count(reader, 1)?;
    let mut all = Vec::with_capacity(count.min(RESERVED_MAX));
    for _ in 0..count {
        all.push(Reply::take(reader, depth + 1)?);
    }
    Ok(all)
}

fn take_pairs(reader: &mut Reader<'_>, depth: usize) -> Result<Vec<(Reply, Reply)>, Malformed> {
    let count = count(reader, 2)?;
    let mut all = Vec::with_capacity(count.min(RESERVED_MAX));
    for _ in 0..count {
        all.push((Reply::take(reader, depth + 1)?, Reply::take(reader, depth + 1)?));
    }
    Ok(all)
}

impl Wire for Reply {
    fn encode(&self, out: &mut Vec<u8>) {
        self.put(out, 0);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Reply, Malformed> {
        Reply::take(reader, 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn replies() -> impl Strategy<Value = Reply> {
        let text = || prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from);
        let leaf = prop_oneof![
            Just(Reply::Null),
            Just(Reply::NullArray),
            any::<bool>().prop_map(Reply::Boolean),
            any::<i64>().prop_map(Reply::Integer),
            any::<u64>().prop_map(|bits| Reply::Double(Double(f64::from_bits(bits)))),
            text().prop_map(Reply::Simple),
            text().prop_map(Reply::Error),
            text().prop_map(Reply::Bulk),
            text().prop_map(Reply::BigNumber),
            (any::<[u8; 3]>(), text()).prop_map(|(format, text)| Reply::Verbatim { format, text }),
        ];
        leaf.prop_recursive(6, 64, 5, |inner| {
            let all = prop::collection::vec(inner.clone(), 0..5);
            let pairs = prop::collection::vec((inner.clone(), inner), 0..3);
            prop_oneof![
                all.clone().prop_map(Reply::Array),
                all.prop_map(Reply::Set),
                pairs.clone().prop_map(Reply::Map),
                pairs.clone().prop_map(Reply::Pairs),
                pairs.prop_map(Reply::Table),
            ]
        })
    }

    proptest! {
        #[test]
        fn replies_come_back(reply in replies()) {
            let bytes = reply.to_bytes();
            prop_assert_eq!(Reply::from_bytes(&bytes), Ok(reply.clone()));
            prop_assert!(bytes.len() <= reply.len(), "a bound is counted by the estimate");
            prop_assert!(Reply::from_bytes(&bytes[..bytes.len() - 1]).is_err());
            let longer = [&bytes[..], &[0]].concat();
            prop_assert_eq!(Reply::from_bytes(&longer), Err(Malformed));
        }

        #[test]
        fn damage_is_noticed_or_is_another_reply(
            reply in replies(),
            at in any::<prop::sample::Index>(),
            with in any::<u8>(),
        ) {
            let mut bytes = reply.to_bytes();
            let at = at.index(bytes.len());
            bytes[at] = with;
            if let Ok(other) = Reply::from_bytes(&bytes) {
                prop_assert_eq!(Reply::from_bytes(&other.to_bytes()), Ok(other));
            }
        }
    }

    #[test]
    fn bytes_never_change() {
        for (reply, bytes) in [
            (Reply::Null, &b"\x00"[..]),
            (Reply::OK, b"\x04\x02OK"),
            (Reply::Integer(-2), b"\x08\x03"),
            (Reply::Integer(64), b"\x08\x80\x01"),
            (Reply::bulk("ab"), b"\x06\x02ab"),
            (Reply::array([Reply::Null, Reply::Boolean(true)]), b"\x0b\x02\x00\x03"),
            (Reply::map([("k", Reply::Integer(1))]), b"\x0d\x01\x06\x01k\x08\x02"),
        ] {
            assert_eq!(reply.to_bytes(), bytes, "{reply:?}");
        }
    }

    #[test]
    fn depth_and_counts_are_bounded() {
        let mut deep = vec![kind::NULL];
        for _ in 0..REPLY_DEPTH_MAX {
            deep.splice(0..0, [kind::ARRAY, 1]);
        }
        assert!(Reply::from_bytes(&deep).is_ok());
        deep.splice(0..0, [kind::ARRAY, 1]);
        assert_eq!(Reply::from_bytes(&deep), Err(Malformed));
        let announced = [kind::ARRAY, 0xff, 0xff, 0xff, 0xff, 0x0f, kind::NULL];
        assert_eq!(Reply::from_bytes(&announced), Err(Malformed));
        assert_eq!(Reply::from_bytes(&[kind::MAP, 1, kind::NULL]), Err(Malformed));
    }
}
