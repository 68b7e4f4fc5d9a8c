//! The messages between Hermes nodes.

use types::{Key, Shard};

use super::register::Register;
use super::version::Version;
use crate::protocol;
use crate::protocol::Touches;
use crate::toolkit::acks::Numbered;
use crate::toolkit::asks::Ask;
use crate::toolkit::fields::{wire_enum, wire_fields};

wire_fields!(Register, Version);

wire_enum! {
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Message {
        /// Hold this value or a newer one, and do not read it yet. Without `ask` it tells a
        /// read-modify-write that it lost.
        1: Invalidate { ask: Option<Ask>, key: Key, register: Register },
        /// The versions of these asks or newer ones are held durably.
        2: Ack { acks: Numbered },
        /// Every member has acknowledged these asks: read them.
        3: ValidateAsked { asked: Numbered },
        /// Every member has acknowledged: read it.
        4: Validate { key: Key, version: Version },
        /// To the writer of a read-modify-write: has it ended?
        5: Nudge { key: Key, version: Version },
        /// To this node itself: look after this key, for which no request waits.
        6: Look { key: Key },
    }
}

impl protocol::Message for Message {
    fn is_write(&self) -> bool {
        matches!(self, Message::Invalidate { .. })
    }

    fn touches(&self) -> Touches<'_> {
        match self {
            Message::Invalidate { key, .. }
            | Message::Validate { key, .. }
            | Message::Nudge { key, .. }
            | Message::Look { key } => Touches::Key(key),
            Message::Ack { .. } | Message::ValidateAsked { .. } => Touches::Nothing,
        }
    }

    fn shard(&self) -> Option<Shard> {
        match self {
            Message::Ack { acks: numbered } | Message::ValidateAsked { asked: numbered } => {
                Some(numbered.shard)
            }
            _ => self.touches().shard(),
        }
    }
}

#[cfg(test)]
mod tests {
    use types::{Incarnation, Malformed, NodeId, Serial, Ticket, Wire};

    use super::*;
    use crate::toolkit::acks::Collector;
    use crate::toolkit::asks::Stream;
    use crate::toolkit::content::tests::contents;

    #[test]
    fn messages_round_trip_and_reject_truncation() {
        let key = Key::new(b"k");
        let version = Version { number: 300, writer: Serial(2), step: 1, stepper: Serial(3) };
        let content = contents(version).swap_remove(2);
        let register = Register { version, content, is_valid: false };
        let stream = Stream { incarnation: Incarnation(3), worker: 1 };
        let ask = Ask { stream, number: 300 };
        let mut collector = Collector::new(2);
        collector.add(NodeId(2), ask, key.shard(), Ticket::DURABLE);
        let numbered = collector.take().swap_remove(0).numbered;
        let messages = [
            Message::Invalidate { ask: Some(ask), key: key.clone(), register: register.clone() },
            Message::Invalidate { ask: None, key: key.clone(), register },
            Message::Ack { acks: numbered.clone() },
            Message::ValidateAsked { asked: numbered },
            Message::Validate { key: key.clone(), version },
            Message::Nudge { key: key.clone(), version },
            Message::Look { key },
        ];
        for message in messages {
            let bytes = message.to_bytes();
            for len in 0..bytes.len() {
                assert_eq!(Message::from_bytes(&bytes[..len]), Err(Malformed), "{message:?}");
            }
            assert_eq!(Message::from_bytes(&bytes), Ok(message));
        }
    }
}
