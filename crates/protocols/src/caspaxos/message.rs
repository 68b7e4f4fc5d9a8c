//! The messages between nodes.
//!
//! `id` names one phase of one process start. So an answer to an earlier phase or process is never
//! counted for this one.

use std::sync::Arc;

use types::wire::put_varint;
use types::{Key, Malformed, Reader, Wire};

use super::register::Report;
use crate::protocol;
use crate::protocol::Touches;
use crate::toolkit::pager::{PAGE_KINDS_MAX, PageMessage};
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::State;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    About { id: u64, key: Key, body: Body },
    Paging(PageMessage<Report>),
}

/// A message about one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    Read,
    Prepare {
        ballot: Stamp,
    },
    /// The register after a `Read` or a `Prepare`.
    State(Report),
    /// `next`: the ballot that a vote promises.
    Accept {
        ballot: Stamp,
        next: Stamp,
        state: Arc<State>,
    },
    Accepted,
    /// A higher ballot is promised.
    Refused {
        promised: Stamp,
    },
    /// To this node itself: the content of a forgotten register, unless only a proposal tells.
    Recover {
        found: Option<Report>,
    },
    /// To this node itself: the time of a key may be over.
    Expire,
}

impl protocol::Message for Message {
    fn is_write(&self) -> bool {
        let Message::About { body, .. } = self else { return false };
        matches!(body, Body::Prepare { .. } | Body::Accept { .. })
    }

    fn touches(&self) -> Touches<'_> {
        match self {
            Message::About { key, .. } => Touches::Key(key),
            Message::Paging(message) => Touches::Shard(message.shard()),
        }
    }
}

// The lower kinds are those of pages.
const READ: u8 = 4;
const PREPARE: u8 = 5;
const STATE: u8 = 6;
const ACCEPT: u8 = 7;
const ACCEPTED: u8 = 8;
const REFUSED: u8 = 9;
const RECOVER: u8 = 10;
const EXPIRE: u8 = 11;

impl Wire for Message {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Message::Paging(message) => message.encode(out),
            Message::About { id, key, body } => {
                out.push(body.kind());
                put_varint(out, *id);
                key.encode(out);
                body.encode(out);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Message, Malformed> {
        let kind = reader.u8()?;
        if kind <= PAGE_KINDS_MAX {
            return Ok(Message::Paging(PageMessage::decode_kind(kind, reader)?));
        }
        let id = reader.varint()?;
        let key = Key::decode(reader)?;
        Ok(Message::About { id, key, body: Body::decode(kind, reader)? })
    }
}

impl Body {
    fn kind(&self) -> u8 {
        match self {
            Body::Read => READ,
            Body::Prepare { .. } => PREPARE,
            Body::State(_) => STATE,
            Body::Accept { .. } => ACCEPT,
            Body::Accepted => ACCEPTED,
            Body::Refused { .. } => REFUSED,
            Body::Recover { .. } => RECOVER,
            Body::Expire => EXPIRE,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Body::Read | Body::Accepted | Body::Expire => {}
            Body::Prepare { ballot } => ballot.encode(out),
            Body::State(report) => report.encode(out),
            Body::Accept { ballot, next, state } => {
                ballot.encode(out);
                next.encode(out);
                state.encode(out);
            }
            Body::Refused { promised } => promised.encode(out),
            Body::Recover { found } => {
                out.push(u8::from(found.is_some()));
                if let Some(report) = found {
                    report.encode(out);
                }
            }
        }
    }

    fn decode(kind: u8, reader: &mut Reader<'_>) -> Result<Body, Malformed> {
        Ok(match kind {
            READ => Body::Read,
            PREPARE => Body::Prepare { ballot: Stamp::decode(reader)? },
            STATE => Body::State(Report::decode(reader)?),
            ACCEPT => Body::Accept {
                ballot: Stamp::decode(reader)?,
                next: Stamp::decode(reader)?,
                state: Arc::decode(reader)?,
            },
            ACCEPTED => Body::Accepted,
            REFUSED => Body::Refused { promised: Stamp::decode(reader)? },
            RECOVER => Body::Recover {
                found: match reader.u8()? {
                    0 => None,
                    1 => Some(Report::decode(reader)?),
                    _ => return Err(Malformed),
                },
            },
            EXPIRE => Body::Expire,
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::register::tests::ballot;
    use super::*;
    use crate::toolkit::state::tests::state;

    #[test]
    fn messages_come_back_from_their_bytes() {
        let state = Arc::new(state(4, Some(b"v")));
        let (promised, next) = (ballot(9), ballot(9));
        let report =
            Report { promised, ballot: ballot(8), state: Some(state.clone()), countdown: None };
        let bodies = [
            Body::Read,
            Body::Prepare { ballot: next },
            Body::State(report.clone()),
            Body::Accept { ballot: ballot(8), next, state },
            Body::Accepted,
            Body::Refused { promised },
            Body::Recover { found: Some(report) },
            Body::Recover { found: None },
            Body::Expire,
        ];
        for body in bodies {
            let message = Message::About { id: 300, key: Key::new(b"k"), body };
            let bytes = message.to_bytes();
            for len in 0..bytes.len() {
                assert_eq!(Message::from_bytes(&bytes[..len]), Err(Malformed));
            }
            assert_eq!(Message::from_bytes(&bytes), Ok(message));
        }
    }
}
