//! The messages of Zab: between nodes, and between the sequencer and the workers of one node.

use types::{Command, Key, Malformed, NodeId, Reader, Shard, Wire};

use super::epoch::{Epoch, Zxid};
use super::register::Register;
use super::txn::{Effect, Entry, Stream, Txn};
use crate::protocol;
use crate::protocol::Touches;
use crate::toolkit::fields::{Field, wire_enum, wire_struct};
use types::Reply;

/// Entries of one proposal.
pub const ENTRIES_MAX: usize = 64;

/// A message, by its receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// The worker of shard 0, which keeps the log.
    Sequencer(ToSequencer),
    /// The worker of a shard.
    Worker(Shard, ToWorker),
    /// The worker of a key, with its register.
    Register(Key, ToRegister),
}

wire_enum! {
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum ToSequencer {
        /// How the sender stands, while one of both has no leader.
        1: Look {
            accepted: Epoch,
            current: Epoch,
            last: Zxid,
            is_looking: bool,
            votes: bool,
            asks: bool,
        },
        /// Of a leader: join this epoch.
        2: NewEpoch { epoch: Epoch },
        /// The sender joins no earlier epoch any more. A later attempt of it to join replaces an
        /// earlier one. Its history by the last entry of each epoch,
        /// oldest first; none that counts while its state is partial.
        3: AckEpoch {
            epoch: Epoch,
            current: Epoch,
            votes: bool,
            attempt: u64,
            first: u64,
            ends: Option<Vec<Zxid>>,
        },
        /// Drop all behind `keep`. Entries up to `last` follow; those up to `committed` may be
        /// applied meanwhile, or the log has no room for others.
        4: Sync { epoch: Epoch, attempt: u64, keep: u64, last: u64, committed: u64 },
        /// Drop everything, and copy the leader's state, which includes `base`.
        5: Snap { epoch: Epoch, attempt: u64, base: Zxid, last: u64 },
        /// The sender has the leader's history, durably.
        6: AckLeader { epoch: Epoch, attempt: u64 },
        /// The epoch stands.
        7: UpToDate { epoch: Epoch, committed: u64 },
        8: Propose { epoch: Epoch, first: u64, entries: Vec<Entry> },
        /// The sender has every entry up to this index, durably.
        9: Ack { epoch: Epoch, attempt: u64, upto: u64 },
        /// A majority has every entry up to this index, durably. Also a sign of life.
        10: Commit { epoch: Epoch, upto: u64 },
        /// Of a node that lost its state: which epochs may it have promised?
        11: Recall { id: u64 },
        12: Recalled { id: u64, accepted: Epoch },
        /// To the leader: the next write of a stream.
        13: Write { epoch: Epoch, stream: Stream, number: u64, key: Key, command: Command },

        /// Of this node itself, as all that follow.
        20: Start {},
        /// The log is durable up to here, and with so many changes.
        21: Logged { generation: u64, changes: u64, upto: u64 },
        /// The state before a step is durable.
        22: Persisted { generation: u64 },
        23: Executed { epoch: Epoch, index: u64, txn: Txn },
        /// A worker has applied everything up to here, durably.
        24: Kept { copy: u64, worker: u64, upto: u64 },
        25: Erased { copy: u64, worker: u64 },
        26: Copied { copy: u64, worker: u64 },
        /// A worker lost registers.
        27: Lost {},
        /// A worker dropped messages of this node that waited for their registers.
        28: Dropped {},
    }
}

wire_struct! {
    /// The node's place in the order, as its workers know it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct View {
        pub epoch: Epoch,
        /// The node whose sequencer leads.
        pub leader: Option<NodeId>,
        /// The leader's history up to here was there before this node joined it.
        pub upto: u64,
        /// Reads wait until so much is applied.
        pub committed: u64,
        /// Counts the states that the node has copied: each may include any write of this node.
        pub copies: u64,
        /// Bytes of an entry at most.
        pub len_max: u64,
    }
}

wire_enum! {
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum ToWorker {
        /// Of this node itself, as all but pages.
        1: View { view: View },
        /// The entries up to `index` were handed over, up to `place` to this worker.
        2: Upto { copy: u64, place: u64, index: u64 },
        /// Drop all registers, and copy those of the leader.
        3: Copy { copy: u64, epoch: Epoch, donor: NodeId, base: u64 },
        /// All workers have copied.
        4: Whole { copy: u64 },
        /// Entries are handed over again.
        8: Again { copy: u64 },
        /// Another worker lost registers.
        5: Forget {},
        /// For a page of the leader's registers once they include `base`.
        6: AskPage { id: u64, epoch: Epoch, base: u64, from_hash: u64 },
        7: Page { id: u64, entries: Vec<(Key, Register)>, next_hash: Option<u64> },
    }
}

impl ToSequencer {
    /// The length of the command that a write carries.
    pub fn command_len(&self) -> usize {
        match self {
            ToSequencer::Write { command, .. } => command.body.len(),
            _ => 0,
        }
    }
}

wire_enum! {
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum ToRegister {
        /// Of this node itself, as all but explanations: run a command at this place.
        1: Execute { at: Zxid, stream: Stream, number: u64, command: Command },
        2: Apply {
            copy: u64,
            place: u64,
            at: Zxid,
            stream: Stream,
            number: u64,
            effect: Effect,
            reply: Reply,
        },
        /// Remove it, before the leader's registers are copied.
        3: Drop { id: u64 },
        4: Adopt { id: u64, register: Register },
        /// Its time to live may be over.
        5: End {},
        6: Explain { id: u64 },
        7: Explained { id: u64, held: HeldRegister },
    }
}

wire_enum! {
    /// The report of a replica on a register.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum HeldRegister {
        1: Present { register: Register, rest: Option<u64> },
        2: Absent {},
        3: Lost {},
    }
}

impl From<ToSequencer> for Message {
    fn from(body: ToSequencer) -> Message {
        Message::Sequencer(body)
    }
}

impl protocol::Message for Message {
    fn is_write(&self) -> bool {
        match self {
            Message::Sequencer(body) => {
                matches!(body, ToSequencer::Write { .. } | ToSequencer::Propose { .. })
            }
            Message::Worker(_, body) => matches!(body, ToWorker::Page { .. }),
            Message::Register(..) => false,
        }
    }

    fn shard(&self) -> Option<Shard> {
        Some(match self {
            Message::Sequencer(_) => Shard(0),
            Message::Worker(shard, _) => *shard,
            Message::Register(key, _) => key.shard(),
        })
    }

    fn touches(&self) -> Touches<'_> {
        match self {
            Message::Sequencer(_) => Touches::Shard(Shard(0)),
            Message::Worker(shard, ToWorker::AskPage { .. } | ToWorker::Page { .. }) => {
                Touches::Shard(*shard)
            }
            Message::Worker(..) => Touches::Nothing,
            Message::Register(key, _) => Touches::Key(key),
        }
    }
}

const SEQUENCER: u8 = 1;
const WORKER: u8 = 2;
const REGISTER: u8 = 3;

impl Wire for Message {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Message::Sequencer(body) => {
                out.push(SEQUENCER);
                body.put(out);
            }
            Message::Worker(shard, body) => {
                out.push(WORKER);
                shard.put(out);
                body.put(out);
            }
            Message::Register(key, body) => {
                out.push(REGISTER);
                key.put(out);
                body.put(out);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Message, Malformed> {
        Ok(match reader.u8()? {
            SEQUENCER => Message::Sequencer(Field::take(reader)?),
            WORKER => Message::Worker(Field::take(reader)?, Field::take(reader)?),
            REGISTER => Message::Register(Field::take(reader)?, Field::take(reader)?),
            _ => return Err(Malformed),
        })
    }
}
