//! The messages between nodes.

use std::sync::Arc;

use types::wire::put_varint;
use types::{Malformed, Reader, Wire};

use super::register::Report;
use crate::toolkit::body::{self, BODY_KINDS, take_bool};
use crate::toolkit::countdown::Countdown;
use crate::toolkit::message;
use crate::toolkit::stamp::{Stamp, take_number};
use crate::toolkit::state::{Base, State, put_base, take_base};

pub type Message = message::Message<Report>;
pub type About = message::About<Report>;

/// A message of this protocol about one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
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
}

const PROPOSE: u8 = BODY_KINDS;
const PROMISE: u8 = BODY_KINDS + 1;
const ACCEPT: u8 = BODY_KINDS + 2;
const ACCEPTED: u8 = BODY_KINDS + 3;
const HIGHER_SEEN: u8 = BODY_KINDS + 4;
const SLOT_LOW: u8 = BODY_KINDS + 5;
const SLOT_HIGH: u8 = BODY_KINDS + 6;
const COMMIT: u8 = BODY_KINDS + 7;
const COMMIT_THIN: u8 = BODY_KINDS + 8;
const COMMITTED: u8 = BODY_KINDS + 9;

impl body::Body for Body {
    fn kind(&self) -> u8 {
        match self {
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
        }
    }

    fn is_write(&self) -> bool {
        matches!(self, Body::Propose { .. } | Body::Accept { .. } | Body::Commit { .. })
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Body::Accepted | Body::SlotHigh | Body::Committed => {}
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
        }
    }

    fn take(kind: u8, reader: &mut Reader<'_>) -> Result<Body, Malformed> {
        Ok(match kind {
            PROPOSE => Body::Propose {
                slot: take_number(reader)?,
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
                slot: take_number(reader)?,
                ballot: Stamp::decode(reader)?,
                answer: take_bool(reader)?,
            },
            COMMITTED => Body::Committed,
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use base::Millis;
    use types::{Incarnation, NodeId};

    use super::super::register::Decided;
    use super::*;
    use crate::toolkit::body::Body as _;
    use crate::toolkit::message::tests::come_back;
    use crate::toolkit::state::tests::state;

    #[test]
    fn slots_without_a_successor_are_malformed() {
        let ballot = Stamp { number: 300, writer: NodeId(2), incarnation: Incarnation(7) };
        let propose = |slot| Body::Propose { slot, ballot, base: None };
        let commit = |slot| Body::CommitThin { slot, ballot, answer: false };
        let comes_back = |body: Body| {
            let mut bytes = Vec::new();
            body.put(&mut bytes);
            Body::take(body.kind(), &mut Reader::new(&bytes)).is_ok()
        };
        let highest = (1 << 62) - 1;
        assert!(comes_back(propose(highest)) && comes_back(commit(highest)));
        assert!(!comes_back(propose(highest + 1)) && !comes_back(commit(highest + 1)));
    }

    #[test]
    fn messages_come_back_from_their_bytes() {
        let ballot = Stamp { number: 300, writer: NodeId(2), incarnation: Incarnation(7) };
        let one = Arc::new(state(4, Some(b"v")));
        let two = Arc::new(state(5, None));
        let report = Report {
            committed: Some(one.clone()),
            countdown: Countdown::Running(Millis(9)),
            promised: ballot,
            accepted: Some((ballot, two.clone(), Countdown::Over)),
        };
        let own = [
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
        ];
        let found = Decided { base: Some(one), promised: ballot };
        come_back(own, [report, Report::default()], found);
    }
}
