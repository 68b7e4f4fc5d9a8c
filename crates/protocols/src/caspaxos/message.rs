//! The messages between nodes.

use std::sync::Arc;

use types::{Malformed, Reader, Wire};

use super::register::Report;
use crate::toolkit::body::{self, BODY_KINDS};
use crate::toolkit::message;
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::State;

pub type Message = message::Message<Report>;
pub type About = message::About<Report>;

/// A message of this protocol about one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// The answer is the register.
    Prepare {
        ballot: Stamp,
    },
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
}

const PREPARE: u8 = BODY_KINDS;
const ACCEPT: u8 = BODY_KINDS + 1;
const ACCEPTED: u8 = BODY_KINDS + 2;
const REFUSED: u8 = BODY_KINDS + 3;

impl body::Body for Body {
    fn kind(&self) -> u8 {
        match self {
            Body::Prepare { .. } => PREPARE,
            Body::Accept { .. } => ACCEPT,
            Body::Accepted => ACCEPTED,
            Body::Refused { .. } => REFUSED,
        }
    }

    fn is_write(&self) -> bool {
        matches!(self, Body::Prepare { .. } | Body::Accept { .. })
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Body::Accepted => {}
            Body::Prepare { ballot } => ballot.encode(out),
            Body::Accept { ballot, next, state } => {
                ballot.encode(out);
                next.encode(out);
                state.encode(out);
            }
            Body::Refused { promised } => promised.encode(out),
        }
    }

    fn take(kind: u8, reader: &mut Reader<'_>) -> Result<Body, Malformed> {
        Ok(match kind {
            PREPARE => Body::Prepare { ballot: Stamp::decode(reader)? },
            ACCEPT => Body::Accept {
                ballot: Stamp::decode(reader)?,
                next: Stamp::decode(reader)?,
                state: Arc::decode(reader)?,
            },
            ACCEPTED => Body::Accepted,
            REFUSED => Body::Refused { promised: Stamp::decode(reader)? },
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::register::tests::ballot;
    use super::*;
    use crate::toolkit::message::tests::come_back;
    use crate::toolkit::state::tests::state;

    #[test]
    fn messages_come_back_from_their_bytes() {
        let state = Arc::new(state(4, Some(b"v")));
        let (promised, next) = (ballot(9), ballot(9));
        let report =
            Report { promised, ballot: ballot(8), state: Some(state.clone()), countdown: None };
        let own = [
            Body::Prepare { ballot: next },
            Body::Accept { ballot: ballot(8), next, state },
            Body::Accepted,
            Body::Refused { promised },
        ];
        come_back(own, [report.clone(), Report::default()], report);
    }
}
