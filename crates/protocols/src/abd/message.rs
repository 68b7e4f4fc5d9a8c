//! The messages between ABD nodes, and the version that orders values.

use bytes::Bytes;
use types::wire::{put_blob, put_varint};
use types::{Key, Malformed, Reader, Wire};

use crate::protocol;
use crate::protocol::Touches;
use crate::toolkit::pager::{PAGE_KINDS_MAX, PageMessage};
use crate::toolkit::stamp::Stamp;

/// Orders the values of one register.
pub type Version = Stamp;

/// The value in a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reported {
    /// Deleted, or never written.
    Nothing,
    /// There is one, and it was not asked for.
    Omitted,
    Value(Bytes),
}

impl Reported {
    /// The value, if it is there and was asked for.
    #[must_use]
    pub fn into_value(self) -> Option<Bytes> {
        match self {
            Reported::Value(value) => Some(value),
            Reported::Nothing | Reported::Omitted => None,
        }
    }
}

/// A register as its replica reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub version: Version,
    pub value: Reported,
}

impl Report {
    /// The report of a register that does not exist.
    pub const ABSENT: Report = Report { version: Version::NONE, value: Reported::Nothing };

    #[must_use]
    pub fn without_value(&self) -> Report {
        let value = match self.value {
            Reported::Nothing => Reported::Nothing,
            Reported::Omitted | Reported::Value(_) => Reported::Omitted,
        };
        Report { version: self.version, value }
    }
}

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
        report: Report,
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
    /// To this node itself: the content of a forgotten register of a page.
    Adopt {
        walk: u64,
        key: Key,
        version: Version,
        value: Option<Bytes>,
    },
    Paging(PageMessage<Report>),
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
            Message::Paging(message) => Touches::Shard(message.shard()),
        }
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

impl Wire for Report {
    fn encode(&self, out: &mut Vec<u8>) {
        self.version.encode(out);
        self.value.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Report, Malformed> {
        Ok(Report { version: Version::decode(reader)?, value: Reported::decode(reader)? })
    }
}

// The lower kinds are those of pages.
const QUERY: u8 = 4;
const STATE: u8 = 5;
const STORE: u8 = 6;
const STORED: u8 = 7;
const ADOPT: u8 = 8;

impl Wire for Message {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut head = |kind: u8, id: u64, key: &Key| {
            out.push(kind);
            put_varint(out, id);
            key.encode(out);
        };
        match self {
            Message::Query { op, key, want_value } => {
                head(QUERY, *op, key);
                out.push(u8::from(*want_value));
            }
            Message::State { op, key, report } => {
                head(STATE, *op, key);
                report.encode(out);
            }
            Message::Store { op, key, version, value } => {
                head(STORE, *op, key);
                version.encode(out);
                put_value(out, value.as_ref());
            }
            Message::Stored { op, key } => head(STORED, *op, key),
            Message::Adopt { walk, key, version, value } => {
                head(ADOPT, *walk, key);
                version.encode(out);
                put_value(out, value.as_ref());
            }
            Message::Paging(message) => message.encode(out),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Message, Malformed> {
        let kind = reader.u8()?;
        if kind <= PAGE_KINDS_MAX {
            return Ok(Message::Paging(PageMessage::decode_kind(kind, reader)?));
        }
        let (op, key) = (reader.varint()?, Key::decode(reader)?);
        Ok(match kind {
            QUERY => Message::Query { op, key, want_value: take_bool(reader)? },
            STATE => Message::State { op, key, report: Report::decode(reader)? },
            STORE => {
                let (version, value) = (Version::decode(reader)?, take_value(reader)?);
                Message::Store { op, key, version, value }
            }
            STORED => Message::Stored { op, key },
            ADOPT => {
                let (version, value) = (Version::decode(reader)?, take_value(reader)?);
                Message::Adopt { walk: op, key, version, value }
            }
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use types::{Incarnation, NodeId};

    use super::*;

    fn messages() -> Vec<Message> {
        let key = Key::new(b"k");
        let version = Version { number: 300, writer: NodeId(2), incarnation: Incarnation(7) };
        let value = Bytes::from_static(b"v");
        let report = |value| Report { version, value };
        let page = PageMessage::Page {
            id: 6,
            from_hash: 9,
            entries: vec![(key.clone(), report(Reported::Value(value.clone())))],
            next_hash: Some(u64::MAX),
        };
        vec![
            Message::Query { op: 1, key: key.clone(), want_value: true },
            Message::State { op: 2, key: key.clone(), report: report(Reported::Nothing) },
            Message::State { op: 2, key: key.clone(), report: report(Reported::Omitted) },
            Message::Store { op: 3, key: key.clone(), version, value: Some(value) },
            Message::Stored { op: 4, key: key.clone() },
            Message::Adopt { walk: 7, key, version, value: None },
            Message::Paging(page),
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
}
