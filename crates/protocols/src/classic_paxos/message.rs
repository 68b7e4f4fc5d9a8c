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
use crate::toolkit::countdown::Countdown;
use crate::toolkit::pager::{PAGE_KINDS_MAX, PageMessage};
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, State, put_base, take_base};

/// A message about one key, or about a page of a shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    About { id: u64, key: Key, body: Body },
    Paging(PageMessage<Report>),
}

/// A message about one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    Read,
    State(Report),
    /// `base`: the state committed before, for an acceptor that lacks it.
    Propose {
        slot: u64,
        ballot: Stamp,
        base: Base,
    },
    Promise {
        accepted: Option<(Stamp, Arc<State>)>,
        countdown: Countdown,
    },
    Accept {
        ballot: Stamp,
        state: Arc<State>,
        base: Base,
    },
    Accepted,
    HigherSeen {
        promised: Stamp,
    },
    /// The slot is decided: this state or a later one is.
    SlotLow {
        state: Arc<State>,
    },
    SlotHigh,
    Commit {
        state: Arc<State>,
        answer: bool,
    },
    /// The receiver's own vote is decided.
    CommitThin {
        slot: u64,
        ballot: Stamp,
        answer: bool,
    },
    Committed,
    /// To this node itself: the content of a forgotten register, unless only a proposal tells.
    Recover {
        found: Option<(Base, Stamp)>,
    },
    /// To this node itself: the time of a key may be over.
    Expire,
}

impl protocol::Message for Message {
    fn is_write(&self) -> bool {
        let Message::About { body, .. } = self else { return false };
        matches!(body, Body::Propose { .. } | Body::Accept { .. } | Body::Commit { .. })
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
const STATE: u8 = 5;
const PROPOSE: u8 = 6;
const PROMISE: u8 = 7;
const ACCEPT: u8 = 8;
const ACCEPTED: u8 = 9;
const HIGHER_SEEN: u8 = 10;
const SLOT_LOW: u8 = 11;
const SLOT_HIGH: u8 = 12;
const COMMIT: u8 = 13;
const COMMIT_THIN: u8 = 14;
const COMMITTED: u8 = 15;
const RECOVER: u8 = 16;
const EXPIRE: u8 = 17;

impl Wire for Message {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Message::About { id, key, body } => {
                out.push(body.kind());
                put_varint(out, *id);
                key.encode(out);
                body.encode(out);
            }
            Message::Paging(message) => message.encode(out),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Message, Malformed> {
        let kind = reader.u8()?;
        Ok(match kind {
            ..=PAGE_KINDS_MAX => Message::Paging(PageMessage::decode_kind(kind, reader)?),
            kind => {
                let id = reader.varint()?;
                let key = Key::decode(reader)?;
                Message::About { id, key, body: Body::decode(kind, reader)? }
            }
        })
    }
}

impl Body {
    fn kind(&self) -> u8 {
        match self {
            Body::Read => READ,
            Body::State(_) => STATE,
            Body::Propose { .. } => PROPOSE,
            Body::Promise { .. } => PROMISE,
            Body::Accept { .. } => ACCEPT,
            Body::Accepted => ACCEPTED,
            Body::HigherSeen { .. } => HIGHER_SEEN,
            Body::SlotLow { .. } => SLOT_LOW,
            Body::SlotHigh => SLOT_HIGH,
            Body::Commit { .. } => COMMIT,
            Body::CommitThin { .. } => COMMIT_THIN,
            Body::Committed => COMMITTED,
            Body::Recover { .. } => RECOVER,
            Body::Expire => EXPIRE,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Body::Read | Body::Accepted | Body::SlotHigh | Body::Committed | Body::Expire => {}
            Body::State(report) => report.encode(out),
            Body::Propose { slot, ballot, base } => {
                put_varint(out, *slot);
                ballot.encode(out);
                put_base(out, base);
            }
            Body::Promise { accepted, countdown } => {
                out.push(u8::from(accepted.is_some()));
                if let Some((ballot, state)) = accepted {
                    ballot.encode(out);
                    state.encode(out);
                }
                countdown.encode(out);
            }
            Body::Accept { ballot, state, base } => {
                ballot.encode(out);
                state.encode(out);
                put_base(out, base);
            }
            Body::HigherSeen { promised } => promised.encode(out),
            Body::SlotLow { state } => state.encode(out),
            Body::Commit { state, answer } => {
                state.encode(out);
                out.push(u8::from(*answer));
            }
            Body::CommitThin { slot, ballot, answer } => {
                put_varint(out, *slot);
                ballot.encode(out);
                out.push(u8::from(*answer));
            }
            Body::Recover { found } => {
                out.push(u8::from(found.is_some()));
                if let Some((base, promised)) = found {
                    put_base(out, base);
                    promised.encode(out);
                }
            }
        }
    }

    fn decode(kind: u8, reader: &mut Reader<'_>) -> Result<Body, Malformed> {
        Ok(match kind {
            READ => Body::Read,
            STATE => Body::State(Report::decode(reader)?),
            PROPOSE => Body::Propose {
                slot: reader.varint()?,
                ballot: Stamp::decode(reader)?,
                base: take_base(reader)?,
            },
            PROMISE => {
                let accepted = match take_bool(reader)? {
                    true => Some((Stamp::decode(reader)?, Arc::decode(reader)?)),
                    false => None,
                };
                Body::Promise { accepted, countdown: Countdown::decode(reader)? }
            }
            ACCEPT => Body::Accept {
                ballot: Stamp::decode(reader)?,
                state: Arc::decode(reader)?,
                base: take_base(reader)?,
            },
            ACCEPTED => Body::Accepted,
            HIGHER_SEEN => Body::HigherSeen { promised: Stamp::decode(reader)? },
            SLOT_LOW => Body::SlotLow { state: Arc::decode(reader)? },
            SLOT_HIGH => Body::SlotHigh,
            COMMIT => Body::Commit { state: Arc::decode(reader)?, answer: take_bool(reader)? },
            COMMIT_THIN => Body::CommitThin {
                slot: reader.varint()?,
                ballot: Stamp::decode(reader)?,
                answer: take_bool(reader)?,
            },
            COMMITTED => Body::Committed,
            RECOVER => {
                let found = match take_bool(reader)? {
                    true => Some((take_base(reader)?, Stamp::decode(reader)?)),
                    false => None,
                };
                Body::Recover { found }
            }
            EXPIRE => Body::Expire,
            _ => return Err(Malformed),
        })
    }
}

fn take_bool(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use base::Millis;
    use types::{Incarnation, NodeId};

    use super::*;
    use crate::toolkit::state::tests::state;

    fn messages() -> Vec<Message> {
        let key = Key::new(b"k");
        let ballot = Stamp { number: 300, writer: NodeId(2), incarnation: Incarnation(7) };
        let one = Arc::new(state(4, Some(b"v")));
        let two = Arc::new(state(5, None));
        let report = Report {
            committed: Some(one.clone()),
            countdown: Countdown::Running(Millis(9)),
            promised: ballot,
            accepted: Some((ballot, two.clone(), Countdown::Over)),
        };
        let bodies = vec![
            Body::Read,
            Body::State(report.clone()),
            Body::State(Report::ABSENT),
            Body::Propose { slot: 5, ballot, base: None },
            Body::Propose { slot: 5, ballot, base: Some(one.clone()) },
            Body::Promise { accepted: Some((ballot, two.clone())), countdown: Countdown::Over },
            Body::Promise { accepted: None, countdown: Countdown::None },
            Body::Accept { ballot, state: two.clone(), base: Some(one.clone()) },
            Body::Accepted,
            Body::HigherSeen { promised: ballot },
            Body::SlotLow { state: one.clone() },
            Body::SlotHigh,
            Body::Commit { state: two, answer: true },
            Body::CommitThin { slot: 5, ballot, answer: false },
            Body::Committed,
            Body::Recover { found: Some((Some(one), ballot)) },
            Body::Recover { found: None },
            Body::Expire,
        ];
        let about = |body| Message::About { id: 3, key: key.clone(), body };
        let mut messages: Vec<Message> = bodies.into_iter().map(about).collect();
        messages.push(Message::Paging(PageMessage::Recovered { id: 8, from_hash: 1 }));
        messages
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
