//! The messages between ABD nodes.

use types::wire::put_varint;
use types::{Key, Malformed, Reader, Shard, Wire};

use super::register::{Register, Version};
use super::reports::Report;
use crate::protocol;
use crate::protocol::Touches;
use crate::toolkit::acks::Numbered;
use crate::toolkit::asks::{Ask, Stream};
use crate::toolkit::eras::{Eras, Step, checked, take_era};
use crate::toolkit::fields::Field;
use crate::toolkit::pager::{PAGE_KINDS_MAX, PageMessage};

/// `op` names one operation of one process start. So an answer to an earlier process is never
/// counted for this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    Query {
        op: u64,
        key: Key,
        /// Of the operation. `None`: it stores no register.
        era: Option<u64>,
        want_value: bool,
    },
    State {
        op: u64,
        key: Key,
        report: Report,
    },
    /// Its number is that of the operation.
    Store {
        ask: Ask,
        key: Key,
        era: u64,
        register: Register,
    },
    /// The registers of these asks or newer ones are held durably.
    Stored {
        acks: Numbered,
    },
    /// To this node itself: the content of a forgotten register of a page.
    Adopt {
        walk: u64,
        key: Key,
        register: Register,
    },
    /// To this node itself: is the time to live of this key over?
    Look {
        op: u64,
        key: Key,
    },
    /// The operation is of a closed era. This one has begun.
    Refused {
        op: u64,
        key: Key,
        era: u64,
    },
    /// Remove this tombstone: every replica held it, and no earlier operation counts.
    Bury {
        key: Key,
        version: Version,
    },
    /// A step of a round.
    Era {
        id: u64,
        shard: Shard,
        step: Step,
    },
    EraTold {
        id: u64,
        shard: Shard,
        eras: Eras,
    },
    /// To this node itself: the eras of a forgotten shard are durable.
    Dated {
        id: u64,
        shard: Shard,
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
            | Message::Adopt { key, .. }
            | Message::Refused { key, .. }
            | Message::Bury { key, .. }
            | Message::Look { key, .. } => Touches::Key(key),
            Message::Stored { .. } => Touches::Nothing,
            Message::Era { shard, .. }
            | Message::EraTold { shard, .. }
            | Message::Dated { shard, .. } => Touches::Shard(*shard),
            Message::Paging(message) => Touches::Shard(message.shard()),
        }
    }

    fn shard(&self) -> Option<Shard> {
        match self {
            Message::Stored { acks } => Some(acks.shard),
            _ => self.touches().shard(),
        }
    }
}

fn take_bool(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

// The lower kinds are those of pages.
const QUERY: u8 = 4;
const STATE: u8 = 5;
const STORE: u8 = 6;
const STORED: u8 = 7;
const ADOPT: u8 = 8;
const LOOK: u8 = 9;
const REFUSED: u8 = 10;
const BURY: u8 = 11;
const ERA: u8 = 12;
const ERA_TOLD: u8 = 13;
const DATED: u8 = 14;

impl Wire for Message {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut head = |kind: u8, id: u64, key: &Key| {
            out.push(kind);
            put_varint(out, id);
            key.encode(out);
        };
        match self {
            Message::Query { op, key, era, want_value } => {
                head(QUERY, *op, key);
                era.put(out);
                out.push(u8::from(*want_value));
            }
            Message::State { op, key, report } => {
                head(STATE, *op, key);
                report.encode(out);
            }
            Message::Store { ask, key, era, register } => {
                head(STORE, ask.number, key);
                ask.stream.encode(out);
                put_varint(out, *era);
                register.encode(out);
            }
            Message::Stored { acks } => {
                out.push(STORED);
                acks.encode(out);
            }
            Message::Adopt { walk, key, register } => {
                head(ADOPT, *walk, key);
                register.encode(out);
            }
            Message::Look { op, key } => head(LOOK, *op, key),
            Message::Refused { op, key, era } => {
                head(REFUSED, *op, key);
                put_varint(out, *era);
            }
            Message::Bury { key, version } => {
                head(BURY, 0, key);
                version.encode(out);
            }
            Message::Era { id, shard, step } => {
                out.extend([ERA, shard.0]);
                put_varint(out, *id);
                step.encode(out);
            }
            Message::EraTold { id, shard, eras } => {
                out.extend([ERA_TOLD, shard.0]);
                put_varint(out, *id);
                eras.encode(out);
            }
            Message::Dated { id, shard } => {
                out.extend([DATED, shard.0]);
                put_varint(out, *id);
            }
            Message::Paging(message) => message.encode(out),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Message, Malformed> {
        let kind = reader.u8()?;
        if kind <= PAGE_KINDS_MAX {
            return Ok(Message::Paging(PageMessage::decode_kind(kind, reader)?));
        }
        if kind == STORED {
            return Ok(Message::Stored { acks: Numbered::decode(reader)? });
        }
        if kind >= ERA {
            let (shard, id) = (Shard(reader.u8()?), reader.varint()?);
            return Ok(match kind {
                ERA => Message::Era { id, shard, step: Step::decode(reader)?.checked()? },
                ERA_TOLD => Message::EraTold { id, shard, eras: Eras::decode(reader)?.checked()? },
                DATED => Message::Dated { id, shard },
                _ => return Err(Malformed),
            });
        }
        let (op, key) = (reader.varint()?, Key::decode(reader)?);
        Ok(match kind {
            QUERY => {
                let era = <Option<u64> as Field>::take(reader)?.map(checked).transpose()?;
                let want_value = take_bool(reader)?;
                Message::Query { op, key, era, want_value }
            }
            STATE => Message::State { op, key, report: Report::decode(reader)? },
            STORE => {
                let ask = Ask { stream: Stream::decode(reader)?, number: op };
                let (era, register) = (take_era(reader)?, Register::decode(reader)?);
                Message::Store { ask, key, era, register }
            }
            REFUSED => Message::Refused { op, key, era: take_era(reader)? },
            BURY => Message::Bury { key, version: Version::decode(reader)? },
            ADOPT => Message::Adopt { walk: op, key, register: Register::decode(reader)? },
            LOOK => Message::Look { op, key },
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use base::Millis;
    use types::{Incarnation, NodeId, Ticket};

    use super::super::register::tests::register;
    use super::*;
    use crate::toolkit::acks::Collector;
    use crate::toolkit::countdown::Countdown;

    fn messages() -> Vec<Message> {
        let key = Key::new(b"k");
        let register = register(300, true);
        let countdown = Countdown::Running(Millis(200));
        let report = Report { register: register.clone(), countdown };
        let page = PageMessage::Page {
            id: 6,
            from_hash: 9,
            entries: vec![(key.clone(), report.clone())],
            next_hash: Some(u64::MAX),
        };
        let stream = Stream { incarnation: Incarnation(3), worker: 1 };
        let ask = Ask { stream, number: 300 };
        let mut collector = Collector::new(2);
        collector.add(NodeId(2), ask, key.shard(), Ticket::DURABLE);
        vec![
            Message::Query { op: 1, key: key.clone(), era: Some(3), want_value: true },
            Message::Query { op: 1, key: key.clone(), era: None, want_value: false },
            Message::State { op: 2, key: key.clone(), report },
            Message::Store { ask, key: key.clone(), era: 200, register: register.clone() },
            Message::Stored { acks: collector.take().swap_remove(0).numbered },
            Message::Adopt { walk: 7, key: key.clone(), register: register.ended() },
            Message::Refused { op: 3, key: key.clone(), era: 300 },
            Message::Bury { key: key.clone(), version: register.ended().version },
            Message::Era { id: 5, shard: Shard(7), step: Step::Ask {} },
            Message::Era { id: 5, shard: Shard(7), step: Step::Close { era: 4 } },
            Message::EraTold { id: 5, shard: Shard(7), eras: Eras { now: 5, closed: 4 } },
            Message::Dated { id: 6, shard: Shard(255) },
            Message::Look { op: 0, key },
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

    #[test]
    fn eras_beyond_all_are_malformed() {
        let key = Key::new(b"k");
        let register = register(300, true);
        let version = Version { era: u64::MAX, ..register.version };
        let ask = Ask { stream: Stream { incarnation: Incarnation(3), worker: 1 }, number: 1 };
        let (id, shard, era) = (5, Shard(7), u64::MAX);
        for message in [
            Message::Query { op: 1, key: key.clone(), era: Some(era), want_value: true },
            Message::Store { ask, key: key.clone(), era, register: register.clone() },
            Message::Store {
                ask,
                key: key.clone(),
                era: 1,
                register: Register { version, ..register },
            },
            Message::Refused { op: 1, key: key.clone(), era },
            Message::Bury { key, version },
            Message::Era { id, shard, step: Step::Advance { era } },
            Message::Era { id, shard, step: Step::Close { era } },
            Message::EraTold { id, shard, eras: Eras { now: era, closed: 4 } },
            Message::EraTold { id, shard, eras: Eras { now: 4, closed: era } },
        ] {
            assert_eq!(Message::from_bytes(&message.to_bytes()), Err(Malformed), "{message:?}");
        }
    }
}
