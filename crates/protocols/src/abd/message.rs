//! The messages between ABD nodes, and the version that orders values.

use bytes::Bytes;
use types::wire::{put_blob, put_varint};
use types::{Incarnation, Key, Malformed, NodeId, Reader, Shard, Wire};

use crate::protocol;
use crate::protocol::Touches;

/// Orders the values of one register. Names the start of the process that minted it. So a writer
/// that forgot its last write cannot reuse the version for another value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Version {
    pub number: u64,
    pub writer: NodeId,
    pub incarnation: Incarnation,
}

impl Version {
    /// Below every minted version, for a register that was never written.
    pub const NONE: Version = Version { number: 0, writer: NodeId(0), incarnation: Incarnation(0) };
}

/// The value in a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reported {
    /// Deleted, or never written.
    Nothing,
    /// There is one, and it was not asked for.
    Omitted,
    Value(Bytes),
}

/// One register in a [`Message::Page`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageEntry {
    pub key: Key,
    pub version: Version,
    pub value: Reported,
}

/// Registers of one page; a page of more is malformed.
pub const PAGE_ENTRIES_MAX: usize = 4096;

/// `op` names one operation of one process start. So an answer to an earlier process is never
/// counted for this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    Query {
        op: u64,
        key: Key,
        want_value: bool,
    },
    State {
        op: u64,
        key: Key,
        version: Version,
        value: Reported,
    },
    /// `value: None` deletes.
    Store {
        op: u64,
        key: Key,
        version: Version,
        value: Option<Bytes>,
    },
    Stored {
        op: u64,
        key: Key,
    },
    List {
        op: u64,
        from_hash: u64,
        limit: u32,
        want_values: bool,
    },
    Page {
        op: u64,
        from_hash: u64,
        entries: Vec<PageEntry>,
        next_hash: Option<u64>,
    },
    /// To this node itself: the recovered content of a forgotten register.
    Adopt {
        op: u64,
        key: Key,
        version: Version,
        value: Option<Bytes>,
    },
    /// To this node itself, once all adopted registers are durable.
    Adopted {
        op: u64,
        from_hash: u64,
    },
}

impl protocol::Message for Message {
    fn is_write(&self) -> bool {
        matches!(self, Message::Store { .. })
    }

    fn touches(&self) -> Touches<'_> {
        match self {
            Message::Query { key, .. }
            | Message::State { key, .. }
            | Message::Store { key, .. }
            | Message::Stored { key, .. }
            | Message::Adopt { key, .. } => Touches::Key(key),
            Message::List { from_hash, .. }
            | Message::Page { from_hash, .. }
            | Message::Adopted { from_hash, .. } => Touches::Shard(Shard((from_hash >> 56) as u8)),
        }
    }
}

impl Wire for Version {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number);
        put_varint(out, u64::from(self.writer.0));
        put_varint(out, u64::from(self.incarnation.0));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Version, Malformed> {
        Ok(Version {
            number: reader.varint()?,
            writer: NodeId(u16::try_from(reader.varint()?).map_err(|_| Malformed)?),
            incarnation: Incarnation(u32::try_from(reader.varint()?).map_err(|_| Malformed)?),
        })
    }
}

impl Wire for Reported {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Reported::Omitted => out.push(0),
            Reported::Nothing => out.push(1),
            Reported::Value(value) => {
                out.push(2);
                value.encode(out);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Reported, Malformed> {
        match reader.u8()? {
            0 => Ok(Reported::Omitted),
            1 => Ok(Reported::Nothing),
            2 => Ok(Reported::Value(Bytes::decode(reader)?)),
            _ => Err(Malformed),
        }
    }
}

/// Appends an optional value.
pub(super) fn put_value(out: &mut Vec<u8>, value: Option<&Bytes>) {
    match value {
        None => out.push(0),
        Some(value) => {
            out.push(1);
            put_blob(out, value);
        }
    }
}

/// Reads the bytes of [`put_value`].
pub(super) fn take_value(reader: &mut Reader<'_>) -> Result<Option<Bytes>, Malformed> {
    match reader.u8()? {
        0 => Ok(None),
        1 => Ok(Some(Bytes::decode(reader)?)),
        _ => Err(Malformed),
    }
}

fn take_bool(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

impl Wire for PageEntry {
    fn encode(&self, out: &mut Vec<u8>) {
        self.key.encode(out);
        self.version.encode(out);
        self.value.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<PageEntry, Malformed> {
        Ok(PageEntry {
            key: Key::decode(reader)?,
            version: Version::decode(reader)?,
            value: Reported::decode(reader)?,
        })
    }
}

const QUERY: u8 = 1;
const STATE: u8 = 2;
const STORE: u8 = 3;
const STORED: u8 = 4;
const LIST: u8 = 5;
const PAGE: u8 = 6;
const ADOPT: u8 = 7;
const ADOPTED: u8 = 8;

impl Wire for Message {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Message::Query { op, key, want_value } => {
                out.push(QUERY);
                put_varint(out, *op);
                key.encode(out);
                out.push(u8::from(*want_value));
            }
            Message::State { op, key, version, value } => {
                out.push(STATE);
                put_varint(out, *op);
                key.encode(out);
                version.encode(out);
                value.encode(out);
            }
            Message::Store { op, key, version, value } => {
                out.push(STORE);
                put_register(out, *op, key, *version, value.as_ref());
            }
            Message::Stored { op, key } => {
                out.push(STORED);
                put_varint(out, *op);
                key.encode(out);
            }
            Message::List { op, from_hash, limit, want_values } => {
                out.push(LIST);
                put_varint(out, *op);
                out.extend_from_slice(&from_hash.to_le_bytes());
                put_varint(out, u64::from(*limit));
                out.push(u8::from(*want_values));
            }
            Message::Page { op, from_hash, entries, next_hash } => {
                out.push(PAGE);
                put_varint(out, *op);
                out.extend_from_slice(&from_hash.to_le_bytes());
                put_page(out, entries, *next_hash);
            }
            Message::Adopt { op, key, version, value } => {
                out.push(ADOPT);
                put_register(out, *op, key, *version, value.as_ref());
            }
            Message::Adopted { op, from_hash } => {
                out.push(ADOPTED);
                put_varint(out, *op);
                out.extend_from_slice(&from_hash.to_le_bytes());
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Message, Malformed> {
        let kind = reader.u8()?;
        let op = reader.varint()?;
        Ok(match kind {
            QUERY => {
                Message::Query { op, key: Key::decode(reader)?, want_value: take_bool(reader)? }
            }
            STATE => Message::State {
                op,
                key: Key::decode(reader)?,
                version: Version::decode(reader)?,
                value: Reported::decode(reader)?,
            },
            STORE => Message::Store {
                op,
                key: Key::decode(reader)?,
                version: Version::decode(reader)?,
                value: take_value(reader)?,
            },
            STORED => Message::Stored { op, key: Key::decode(reader)? },
            LIST => Message::List {
                op,
                from_hash: reader.u64()?,
                limit: u32::try_from(reader.varint()?).map_err(|_| Malformed)?,
                want_values: take_bool(reader)?,
            },
            PAGE => take_page(op, reader)?,
            ADOPT => Message::Adopt {
                op,
                key: Key::decode(reader)?,
                version: Version::decode(reader)?,
                value: take_value(reader)?,
            },
            ADOPTED => Message::Adopted { op, from_hash: reader.u64()? },
            _ => return Err(Malformed),
        })
    }
}

fn put_register(out: &mut Vec<u8>, op: u64, key: &Key, version: Version, value: Option<&Bytes>) {
    put_varint(out, op);
    key.encode(out);
    version.encode(out);
    put_value(out, value);
}

fn put_page(out: &mut Vec<u8>, entries: &[PageEntry], next_hash: Option<u64>) {
    put_varint(out, entries.len() as u64);
    for entry in entries {
        entry.encode(out);
    }
    match next_hash {
        None => out.push(0),
        Some(hash) => {
            out.push(1);
            out.extend_from_slice(&hash.to_le_bytes());
        }
    }
}

fn take_page(op: u64, reader: &mut Reader<'_>) -> Result<Message, Malformed> {
    let from_hash = reader.u64()?;
    let count = reader.varint()?;
    if count > PAGE_ENTRIES_MAX as u64 {
        return Err(Malformed);
    }
    let mut entries = Vec::new();
    for _ in 0..count {
        entries.push(PageEntry::decode(reader)?);
    }
    let next_hash = if take_bool(reader)? { Some(reader.u64()?) } else { None };
    Ok(Message::Page { op, from_hash, entries, next_hash })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<Message> {
        let key = Key::new(b"k");
        let version = Version { number: 300, writer: NodeId(2), incarnation: Incarnation(7) };
        let value = Bytes::from_static(b"v");
        let entry = PageEntry { key: key.clone(), version, value: Reported::Value(value.clone()) };
        vec![
            Message::Query { op: 1, key: key.clone(), want_value: true },
            Message::State { op: 2, key: key.clone(), version, value: Reported::Nothing },
            Message::State { op: 2, key: key.clone(), version, value: Reported::Omitted },
            Message::Store { op: 3, key: key.clone(), version, value: Some(value.clone()) },
            Message::Stored { op: 4, key: key.clone() },
            Message::List { op: 5, from_hash: 9, limit: 10, want_values: false },
            Message::Page { op: 6, from_hash: 9, entries: vec![entry], next_hash: Some(u64::MAX) },
            Message::Page { op: 6, from_hash: 9, entries: Vec::new(), next_hash: None },
            Message::Adopt { op: 7, key, version, value: None },
            Message::Adopted { op: 8, from_hash: 1 },
        ]
    }

    #[test]
    fn messages_come_back_from_their_bytes() {
        for message in messages() {
            assert_eq!(Message::from_bytes(&message.to_bytes()), Ok(message));
        }
    }

    #[test]
    fn shortened_messages_are_malformed() {
        for message in messages() {
            let bytes = message.to_bytes();
            for len in 0..bytes.len() {
                assert_eq!(Message::from_bytes(&bytes[..len]), Err(Malformed), "{message:?}");
            }
        }
    }

    #[test]
    fn versions_order_by_number_writer_and_start() {
        let version = |number, writer, incarnation| Version {
            number,
            writer: NodeId(writer),
            incarnation: Incarnation(incarnation),
        };
        assert!(Version::NONE < version(1, 1, 1));
        assert!(version(1, 9, 9) < version(2, 1, 1));
        assert!(version(2, 1, 9) < version(2, 2, 1));
        assert!(version(2, 2, 1) < version(2, 2, 2));
    }
}
