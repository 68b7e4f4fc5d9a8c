//! The messages between Hermes nodes.

use types::{Key, Malformed, Reader, Wire};

use super::register::Register;
use super::version::Version;
use crate::protocol;
use crate::protocol::Touches;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Hold this value or a newer one, and do not read it yet. Also tells a read-modify-write that
    /// it lost.
    Invalidate { key: Key, register: Register },
    /// This version or a newer one is held durably.
    Ack { key: Key, version: Version },
    /// Every member has acknowledged: read it.
    Validate { key: Key, version: Version },
    /// To the writer of a read-modify-write: has it ended?
    Nudge { key: Key, version: Version },
    /// To this node itself: look after this key, for which no request waits.
    Look { key: Key },
}

impl Message {
    fn key(&self) -> &Key {
        match self {
            Message::Invalidate { key, .. }
            | Message::Ack { key, .. }
            | Message::Validate { key, .. }
            | Message::Nudge { key, .. }
            | Message::Look { key } => key,
        }
    }
}

impl protocol::Message for Message {
    fn is_write(&self) -> bool {
        matches!(self, Message::Invalidate { .. })
    }

    fn touches(&self) -> Touches<'_> {
        Touches::Key(self.key())
    }
}

const INVALIDATE: u8 = 1;
const ACK: u8 = 2;
const VALIDATE: u8 = 3;
const NUDGE: u8 = 4;
const LOOK: u8 = 5;

impl Wire for Message {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Message::Invalidate { .. } => INVALIDATE,
            Message::Ack { .. } => ACK,
            Message::Validate { .. } => VALIDATE,
            Message::Nudge { .. } => NUDGE,
            Message::Look { .. } => LOOK,
        });
        self.key().encode(out);
        match self {
            Message::Invalidate { register, .. } => register.encode(out),
            Message::Ack { version, .. }
            | Message::Validate { version, .. }
            | Message::Nudge { version, .. } => version.encode(out),
            Message::Look { .. } => {}
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Message, Malformed> {
        let kind = reader.u8()?;
        let key = Key::decode(reader)?;
        Ok(match kind {
            INVALIDATE => Message::Invalidate { key, register: Register::decode(reader)? },
            ACK => Message::Ack { key, version: Version::decode(reader)? },
            VALIDATE => Message::Validate { key, version: Version::decode(reader)? },
            NUDGE => Message::Nudge { key, version: Version::decode(reader)? },
            LOOK => Message::Look { key },
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use types::Serial;

    use super::*;
    use crate::toolkit::content::tests::contents;

    #[test]
    fn messages_round_trip_and_reject_truncation() {
        let key = Key::new(b"k");
        let version = Version { number: 300, writer: Serial(2), step: 1, stepper: Serial(3) };
        let content = contents(version).swap_remove(2);
        let register = Register { version, content, is_valid: false };
        let messages = [
            Message::Invalidate { key: key.clone(), register },
            Message::Ack { key: key.clone(), version },
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
