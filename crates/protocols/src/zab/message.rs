//! The messages between Zab nodes, and a transaction of the total order.

use base::Millis;
use bytes::Bytes;
use types::wire::put_varint;
use types::{Access, Clock, Command, Key, Malformed, NodeId, Reader, Wire};

use crate::protocol;
use crate::protocol::Touches;

/// A command with every input of its effect besides the state, so that all nodes apply the same
/// change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Txn {
    pub origin: NodeId,
    /// Counts the writes of its origin from one.
    pub number: u64,
    pub key: Key,
    pub command: Command,
    /// The leader's.
    pub clock: Clock,
}

/// Transactions of one [`Message::Propose`]; one of more is malformed.
pub const TXNS_MAX: usize = 64;

/// A transaction's index is the counter of its zxid; the epoch is fixed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// To the leader: the sender's write of this number.
    Write { number: u64, key: Key, command: Command },
    /// Transactions from index `first` on.
    Propose { first: u64, txns: Vec<Txn> },
    /// The sender has every transaction up to this index.
    Ack { upto: u64 },
    /// A majority has every transaction up to this index.
    Commit { upto: u64 },
    /// To the leader: how far is it committed?
    Ask,
}

impl protocol::Message for Message {
    fn is_write(&self) -> bool {
        matches!(self, Message::Write { .. } | Message::Propose { .. })
    }

    fn touches(&self) -> Touches<'_> {
        Touches::Nothing
    }
}

fn put_command(out: &mut Vec<u8>, command: &Command) {
    command.access.encode(out);
    command.body.encode(out);
}

fn take_command(reader: &mut Reader<'_>) -> Result<Command, Malformed> {
    let access = Access::decode(reader)?;
    Ok(Command::new(access, Bytes::decode(reader)?))
}

impl Wire for Txn {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.origin.0));
        put_varint(out, self.number);
        self.key.encode(out);
        put_command(out, &self.command);
        put_varint(out, self.clock.unix.0);
        put_varint(out, self.clock.seed);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Txn, Malformed> {
        Ok(Txn {
            origin: NodeId(u16::try_from(reader.varint()?).map_err(|_| Malformed)?),
            number: reader.varint()?,
            key: Key::decode(reader)?,
            command: take_command(reader)?,
            clock: Clock { unix: Millis(reader.varint()?), seed: reader.varint()? },
        })
    }
}

const WRITE: u8 = 1;
const PROPOSE: u8 = 2;
const ACK: u8 = 3;
const COMMIT: u8 = 4;
const ASK: u8 = 5;

impl Wire for Message {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Message::Write { number, key, command } => {
                out.push(WRITE);
                put_varint(out, *number);
                key.encode(out);
                put_command(out, command);
            }
            Message::Propose { first, txns } => {
                out.push(PROPOSE);
                put_varint(out, *first);
                put_varint(out, txns.len() as u64);
                for txn in txns {
                    txn.encode(out);
                }
            }
            Message::Ack { upto } => {
                out.push(ACK);
                put_varint(out, *upto);
            }
            Message::Commit { upto } => {
                out.push(COMMIT);
                put_varint(out, *upto);
            }
            Message::Ask => out.push(ASK),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Message, Malformed> {
        Ok(match reader.u8()? {
            WRITE => Message::Write {
                number: reader.varint()?,
                key: Key::decode(reader)?,
                command: take_command(reader)?,
            },
            PROPOSE => {
                let first = reader.varint()?;
                let count = reader.varint()?;
                if count > TXNS_MAX as u64 {
                    return Err(Malformed);
                }
                let mut txns = Vec::new();
                for _ in 0..count {
                    txns.push(Txn::decode(reader)?);
                }
                Message::Propose { first, txns }
            }
            ACK => Message::Ack { upto: reader.varint()? },
            COMMIT => Message::Commit { upto: reader.varint()? },
            ASK => Message::Ask,
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_and_reject_truncation() {
        let key = Key::new(b"k");
        let command = Command::new(Access::Update, Bytes::from_static(b"incr"));
        let clock = Clock { unix: Millis(1_700_000_000_000), seed: u64::MAX };
        let (origin, number) = (NodeId(300), 300);
        let txn = Txn { origin, number, key: key.clone(), command: command.clone(), clock };
        let messages = [
            Message::Write { number: 7, key, command },
            Message::Propose { first: 1, txns: vec![txn.clone(), txn] },
            Message::Propose { first: 300, txns: Vec::new() },
            Message::Ack { upto: 300 },
            Message::Commit { upto: u64::MAX },
            Message::Ask,
        ];
        for message in messages {
            let bytes = message.to_bytes();
            for len in 0..bytes.len() {
                assert_eq!(Message::from_bytes(&bytes[..len]), Err(Malformed), "{message:?}");
            }
            assert_eq!(Message::from_bytes(&bytes), Ok(message));
        }
    }

    #[test]
    fn proposals_of_too_many_are_malformed() {
        let mut bytes = vec![PROPOSE, 1];
        put_varint(&mut bytes, TXNS_MAX as u64 + 1);
        bytes.extend([0; 4096]);
        assert_eq!(Message::from_bytes(&bytes), Err(Malformed));
    }
}
