//! The messages between Hermes nodes.

use types::{Key, Shard};

use super::register::Register;
use super::version::{Era, Version};
use crate::protocol;
use crate::protocol::Touches;
use crate::toolkit::acks::Numbered;
use crate::toolkit::asks::Ask;
use crate::toolkit::fields::{wire_enum, wire_fields};

wire_fields!(Register, Version, Era);

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
        /// The version is of an earlier life: this era has begun, and the key has no register here.
        7: Stale { key: Key, version: Version, era: Era },
        /// Begin this era. Do you hold this tombstone, or no register?
        8: Raise { key: Key, version: Version, era: Era },
        /// Yes, and the era has begun.
        9: Raised { key: Key, version: Version },
        /// Every member has said so: remove this tombstone.
        10: Bury { key: Key, version: Version },
    }
}

impl Message {
    /// True for a message that shows that its sender hears others.
    pub fn is_answer(&self) -> bool {
        !matches!(
            self,
            Message::Invalidate { ask: Some(_), .. }
                | Message::Nudge { .. }
                | Message::Look { .. }
                | Message::Raise { .. }
        )
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
            | Message::Look { key }
            | Message::Stale { key, .. }
            | Message::Raise { key, .. }
            | Message::Bury { key, .. } => Touches::Key(key),
            Message::Ack { .. } | Message::ValidateAsked { .. } | Message::Raised { .. } => {
                Touches::Nothing
            }
        }
    }

    fn shard(&self) -> Option<Shard> {
        match self {
            Message::Ack { acks: numbered } | Message::ValidateAsked { asked: numbered } => {
                Some(numbered.shard)
            }
            Message::Raised { key, .. } => Some(key.shard()),
            _ => self.touches().shard(),
        }
    }
}

#[cfg(test)]
mod tests {
    use types::{Epoch, Incarnation, Malformed, NodeId, Serial, Ticket, Wire};

    use super::*;
    use crate::toolkit::acks::Collector;
    use crate::toolkit::asks::Stream;
    use crate::toolkit::content::tests::contents;

    #[test]
    fn messages_round_trip_and_reject_truncation() {
        let key = Key::new(b"k");
        let era = Era { epoch: Epoch(200), round: 300 };
        let start = Version::before(era);
        let version =
            Version { number: 300, writer: Serial(2), step: 1, stepper: Serial(3), ..start };
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
            Message::Look { key: key.clone() },
            Message::Stale { key: key.clone(), version, era },
            Message::Raise { key: key.clone(), version, era },
            Message::Raised { key: key.clone(), version },
            Message::Bury { key, version },
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
