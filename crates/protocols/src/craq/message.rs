//! The messages between the members of a chain.

use bytes::Bytes;
use types::wire::put_varint;
use types::{Key, Malformed, Reader, Reply, Wire};

use super::register::Register;
use super::version::Version;
use crate::protocol;
use crate::protocol::Touches;
use crate::toolkit::content::Content;
use crate::toolkit::fields::Field;

/// Names its key: members may run different numbers of workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub key: Key,
    pub body: Body,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// To the head: run this command once.
    Steer(Steer),
    /// The steered command has ended. `None`: it ran, and its reply was too long to keep.
    Done { seq: u64, reply: Option<Reply> },
    /// Every member before the receiver holds this version or a newer one durably: hold it, and
    /// tell the next one.
    Down { register: Register },
    /// Every member holds this version or a newer one durably.
    Up { version: Version },
    /// The sender holds it too, and waits for the members behind.
    Have { version: Version },
    /// Is this version at every member? The sender knows that the receiver holds it.
    Again { version: Version },
    /// To the head: this version is not known to be at every member. A read waits, perhaps.
    Nudge { version: Version, is_read: bool },
    /// To the last full member: is this version the committed one?
    AskTail { id: u64, version: Version },
    /// The committed version, with its content if it is another one.
    Tail { id: u64, version: Version, content: Option<Content<Version>> },
    /// To this node itself: look after this key, for which no request waits.
    Look,
    /// To the head: the time to live of the key is over here.
    Expire,
    /// To the head: may the register of this deletion be removed here? Commands of this worker
    /// below `low` have ended.
    Spent { version: Version, worker: u64, low: u64 },
    /// It may. No version of the shard up to this number of the epoch is on its way.
    Bury { version: Version, floor: u64 },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Steer {
    /// The worker that numbered it.
    pub worker: u64,
    pub seq: u64,
    /// Commands of that worker below this one have ended.
    pub low: u64,
    /// A head of an earlier epoch may have run it.
    pub is_again: bool,
    pub command: Bytes,
}

impl protocol::Message for Message {
    fn is_write(&self) -> bool {
        matches!(self.body, Body::Down { .. } | Body::Steer(_))
    }

    fn touches(&self) -> Touches<'_> {
        Touches::Key(&self.key)
    }
}

const STEER: u8 = 1;
const DONE: u8 = 2;
const DOWN: u8 = 3;
const UP: u8 = 4;
const HAVE: u8 = 5;
const NUDGE: u8 = 6;
const ASK_TAIL: u8 = 7;
const TAIL: u8 = 8;
const LOOK: u8 = 9;
const EXPIRE: u8 = 10;
const SPENT: u8 = 11;
const BURY: u8 = 12;
const AGAIN: u8 = 13;

impl Wire for Message {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(match &self.body {
            Body::Steer(_) => STEER,
            Body::Done { .. } => DONE,
            Body::Down { .. } => DOWN,
            Body::Up { .. } => UP,
            Body::Have { .. } => HAVE,
            Body::Nudge { .. } => NUDGE,
            Body::AskTail { .. } => ASK_TAIL,
            Body::Tail { .. } => TAIL,
            Body::Look => LOOK,
            Body::Expire => EXPIRE,
            Body::Spent { .. } => SPENT,
            Body::Bury { .. } => BURY,
            Body::Again { .. } => AGAIN,
        });
        self.key.encode(out);
        match &self.body {
            Body::Steer(steer) => steer.encode(out),
            Body::Done { seq, reply } => {
                put_varint(out, *seq);
                reply.put(out);
            }
            Body::Down { register } => register.encode(out),
            Body::Up { version } | Body::Have { version } | Body::Again { version } => {
                version.encode(out)
            }
            Body::Nudge { version, is_read } => {
                version.encode(out);
                is_read.put(out);
            }
            Body::Spent { version, worker, low } => {
                version.encode(out);
                put_varint(out, *worker);
                put_varint(out, *low);
            }
            Body::Bury { version, floor } => {
                version.encode(out);
                put_varint(out, *floor);
            }
            Body::AskTail { id, version } => {
                put_varint(out, *id);
                version.encode(out);
            }
            Body::Tail { id, version, content } => {
                put_varint(out, *id);
                version.encode(out);
                // The flag tells whether there is one.
                content.as_ref().unwrap_or(&Content::DELETED).put(out, content.is_some());
            }
            Body::Look | Body::Expire => {}
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Message, Malformed> {
        let kind = reader.u8()?;
        let key = Key::decode(reader)?;
        let body = match kind {
            STEER => Body::Steer(Steer::decode(reader)?),
            DONE => Body::Done { seq: reader.varint()?, reply: Field::take(reader)? },
            DOWN => Body::Down { register: Register::decode(reader)? },
            UP => Body::Up { version: Version::decode(reader)? },
            HAVE => Body::Have { version: Version::decode(reader)? },
            AGAIN => Body::Again { version: Version::decode(reader)? },
            NUDGE => {
                Body::Nudge { version: Version::decode(reader)?, is_read: Field::take(reader)? }
            }
            ASK_TAIL => Body::AskTail { id: reader.varint()?, version: Version::decode(reader)? },
            TAIL => {
                let (id, version) = (reader.varint()?, Version::decode(reader)?);
                let (content, has_content) = Content::take(reader)?;
                Body::Tail { id, version, content: has_content.then_some(content) }
            }
            LOOK => Body::Look,
            EXPIRE => Body::Expire,
            SPENT => {
                let version = Version::decode(reader)?;
                Body::Spent { version, worker: reader.varint()?, low: reader.varint()? }
            }
            BURY => Body::Bury { version: Version::decode(reader)?, floor: reader.varint()? },
            _ => return Err(Malformed),
        };
        Ok(Message { key, body })
    }
}

impl Wire for Steer {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.worker);
        put_varint(out, self.seq);
        put_varint(out, self.low);
        self.is_again.put(out);
        self.command.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Steer, Malformed> {
        Ok(Steer {
            worker: reader.varint()?,
            seq: reader.varint()?,
            low: reader.varint()?,
            is_again: bool::take(reader)?,
            command: Bytes::decode(reader)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use types::Epoch;

    use super::*;
    use crate::toolkit::content::tests::contents;

    #[test]
    fn messages_round_trip_and_reject_truncation() {
        let version = Version { epoch: Epoch(2), number: 300 };
        let command = Bytes::from_static(b"c");
        let content = contents(version).swap_remove(2);
        let register = Register { version, content: content.clone(), ..Register::ABSENT };
        let steer = Steer { worker: 1, seq: 300, low: 299, is_again: true, command };
        let bodies = [
            Body::Steer(steer),
            Body::Done { seq: 3, reply: Some(Reply::Integer(4)) },
            Body::Done { seq: 3, reply: None },
            Body::Down { register },
            Body::Up { version },
            Body::Have { version },
            Body::Again { version },
            Body::Nudge { version, is_read: false },
            Body::Nudge { version, is_read: true },
            Body::AskTail { id: 9, version },
            Body::Tail { id: 9, version, content: None },
            Body::Tail { id: 9, version, content: Some(Content::DELETED) },
            Body::Tail { id: 9, version, content: Some(content) },
            Body::Look,
            Body::Expire,
            Body::Spent { version, worker: 1, low: 300 },
            Body::Bury { version, floor: 300 },
        ];
        for body in bodies {
            let message = Message { key: Key::new(b"k"), body };
            let bytes = message.to_bytes();
            for len in 0..bytes.len() {
                assert_eq!(Message::from_bytes(&bytes[..len]), Err(Malformed), "{message:?}");
            }
            assert_eq!(Message::from_bytes(&bytes), Ok(message));
        }
    }
}
