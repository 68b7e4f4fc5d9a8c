//! The messages between nodes. [`crate::toolkit::message`] has those that all protocols share.

use std::sync::Arc;

use types::{Malformed, Reader, Wire};

use super::register::Register;
use crate::toolkit::body::{self, BODY_KINDS};
use crate::toolkit::message;
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::State;

pub type Message = message::Message<Register>;
pub type About = message::About<Register>;

/// A message about one key. Go on here: the protocol's own questions and answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// Phase 1. A promise is the register of the replica.
    Prepare { ballot: Stamp },
    /// Phase 2.
    Accept { ballot: Stamp, state: Arc<State> },
    /// Go on here: [`crate::toolkit::acks`] answers the messages of a turn by one.
    Accepted,
    /// A higher ballot is promised.
    Refused { promised: Stamp },
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
            Body::Prepare { ballot } => ballot.encode(out),
            Body::Accept { ballot, state } => {
                ballot.encode(out);
                state.encode(out);
            }
            Body::Accepted => {}
            Body::Refused { promised } => promised.encode(out),
        }
    }

    fn take(kind: u8, reader: &mut Reader<'_>) -> Result<Body, Malformed> {
        Ok(match kind {
            PREPARE => Body::Prepare { ballot: Stamp::decode(reader)? },
            ACCEPT => Body::Accept { ballot: Stamp::decode(reader)?, state: Arc::decode(reader)? },
            ACCEPTED => Body::Accepted,
            REFUSED => Body::Refused { promised: Stamp::decode(reader)? },
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::register::tests::{ballot, voted};
    use super::*;
    use crate::toolkit::message::tests::come_back;

    #[test]
    fn messages_come_back_from_their_bytes() {
        let register = voted(3, 9);
        let state = register.state.clone().expect("it voted");
        let own = [
            Body::Prepare { ballot: ballot(9) },
            Body::Accept { ballot: ballot(9), state },
            Body::Accepted,
            Body::Refused { promised: ballot(9) },
        ];
        come_back(own, [register.clone(), Register::default()], register);
    }
}
