//! Messages of protocols that ask replicas about single registers.

use std::collections::BTreeMap;

use types::wire::put_varint;
use types::{Key, Malformed, Reader, Wire};

use super::body::{Body, take_bool};
use super::countdown::Countdown;
use super::no_meta::NoMeta;
use super::pager::{PAGE_KINDS_MAX, PageMessage, Paged, PagedScope, Presence};
use super::report::Report;
use crate::protocol::{self, Touches};
use crate::replicas::{Places, ReplicaSet};

/// `id` names one phase of one process start. So an answer to an earlier phase or process is never
/// counted for this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message<E: Report> {
    About { id: u64, key: Key, body: About<E> },
    Paging(PageMessage<E>),
}

/// A message about one register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum About<E: Report> {
    /// Asks for the register.
    Read,
    /// The register of the sender.
    State(E),
    /// To this node itself: the content of a forgotten register, unless only a proposal tells.
    Recover {
        found: Option<E::Found>,
    },
    /// To this node itself: the time of a key may be over.
    Expire,
    Own(E::Body),
}

impl<E: Report> protocol::Message for Message<E> {
    fn is_write(&self) -> bool {
        matches!(self, Message::About { body: About::Own(body), .. } if body.is_write())
    }

    fn touches(&self) -> Touches<'_> {
        match self {
            Message::About { key, .. } => Touches::Key(key),
            Message::Paging(message) => Touches::Shard(message.shard()),
        }
    }
}

impl<E: Report> Paged for E {
    type Record = <E as Report>::Record;
    type Meta = NoMeta;
    type Message = Message<E>;
    type Found = <E as Report>::Found;

    fn of(record: &<E as Report>::Record, cx: &PagedScope<'_, E>) -> E {
        Report::of(record, cx.uptime, cx.unix)
    }

    fn without_values(&self) -> E {
        Report::without_values(self)
    }

    fn value_len(record: &<E as Report>::Record) -> usize {
        <E as Report>::value_len(record)
    }

    fn found(
        set: &ReplicaSet,
        counted: Places,
        at: &BTreeMap<usize, E>,
    ) -> Option<<E as Report>::Found> {
        <E as Report>::found(set, counted, at)
    }

    fn presence(set: &ReplicaSet, counted: Places, at: &BTreeMap<usize, E>) -> Presence {
        let Some(found) = <E as Report>::found(set, counted, at) else {
            return Presence::Undecided;
        };
        let Some(state) = E::state(&found).as_ref().filter(|state| state.value.is_some()) else {
            return Presence::Absent;
        };
        let is_over = |id| at.values().any(|report| report.countdown_of(id) == Countdown::Over);
        match state.expiry_id() {
            // A read of it has a quorum decide whether its time is over.
            Some(id) if is_over(id) => Presence::Undecided,
            _ => Presence::Present,
        }
    }

    fn message(message: PageMessage<E>) -> Message<E> {
        Message::Paging(message)
    }

    fn read(key: Key) -> Message<E> {
        Message::About { id: 0, key, body: About::Read }
    }

    fn recover(walk: u64, key: Key, found: Option<<E as Report>::Found>) -> Message<E> {
        Message::About { id: walk, key, body: About::Recover { found } }
    }
}

// The lower kinds are those of pages, the higher ones those of the protocol.
const READ: u8 = 4;
const STATE: u8 = 5;
const RECOVER: u8 = 6;
const EXPIRE: u8 = 7;

/// `kind u8 · id · key · body`, or a page.
impl<E: Report> Wire for Message<E> {
    fn encode(&self, out: &mut Vec<u8>) {
        let (id, key, body) = match self {
            Message::Paging(message) => return message.encode(out),
            Message::About { id, key, body } => (id, key, body),
        };
        out.push(match body {
            About::Read => READ,
            About::State(_) => STATE,
            About::Recover { .. } => RECOVER,
            About::Expire => EXPIRE,
            About::Own(body) => body.kind(),
        });
        put_varint(out, *id);
        key.encode(out);
        match body {
            About::Read | About::Expire => {}
            About::State(report) => report.encode(out),
            About::Recover { found } => {
                out.push(u8::from(found.is_some()));
                if let Some(found) = found {
                    found.encode(out);
                }
            }
            About::Own(body) => body.put(out),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Message<E>, Malformed> {
        let kind = reader.u8()?;
        if kind <= PAGE_KINDS_MAX {
            return Ok(Message::Paging(PageMessage::decode_kind(kind, reader)?));
        }
        let id = reader.varint()?;
        let key = Key::decode(reader)?;
        let body = match kind {
            READ => About::Read,
            STATE => About::State(Wire::decode(reader)?),
            RECOVER => {
                let found = if take_bool(reader)? { Some(Wire::decode(reader)?) } else { None };
                About::Recover { found }
            }
            EXPIRE => About::Expire,
            kind => About::Own(E::Body::take(kind, reader)?),
        };
        Ok(Message::About { id, key, body })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Messages of a protocol come back from their bytes, and not from fewer.
    pub(crate) fn come_back<E: Report>(
        own: impl IntoIterator<Item = E::Body>,
        reports: impl IntoIterator<Item = E>,
        found: E::Found,
    ) {
        let mut bodies = vec![
            About::Read,
            About::Expire,
            About::Recover { found: Some(found) },
            About::Recover { found: None },
        ];
        bodies.extend(own.into_iter().map(About::Own));
        bodies.extend(reports.into_iter().map(About::State));
        let about = |body| Message::About { id: 300, key: Key::new(b"k"), body };
        let mut messages: Vec<Message<E>> = bodies.into_iter().map(about).collect();
        messages.push(Message::Paging(PageMessage::Recovered { id: 8, from_hash: 1 }));
        for message in messages {
            let bytes = message.to_bytes();
            for len in 0..bytes.len() {
                assert_eq!(Message::<E>::from_bytes(&bytes[..len]), Err(Malformed), "{message:?}");
            }
            assert_eq!(Message::from_bytes(&bytes), Ok(message));
        }
    }
}
