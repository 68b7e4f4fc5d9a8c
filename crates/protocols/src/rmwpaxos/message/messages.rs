//! The messages.

use std::sync::Arc;

use types::{AmnesiaCount, Ballot, Fence, Incarnation, Key, NodeId, Reader, Round, Shard, Wire};

use super::delta::Delta;
use super::kind;
use super::parts::{Digests, Forward, Held, Listing, Payload, Report, Verdict};
use crate::protocol::{Message as ProtocolMessage, Touches};
use crate::rmwpaxos::record::fences::Fences;
use crate::rmwpaxos::record::state::State;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Reads a register without changing it. `have`: the round whose state the asker holds already.
    Read { key: Key, id: u64, have: Round },
    /// Answers `Read`.
    State { key: Key, id: u64, report: Report },
    /// Phase 1. `fence`: an acceptor that promises the ballot raises it first.
    Prepare { key: Key, ballot: Ballot, have: Round, fence: Option<Fence> },
    /// Answers `Prepare`: this acceptor will accept no proposal below `ballot`.
    Promise { key: Key, ballot: Ballot, report: Report },
    /// Phase 2. `chosen_k`: proposals of this ballot up to it are chosen.
    Accept { key: Key, round: Round, chosen_k: u32, state: State },
    /// Phase 2, with the proposal as its change of the preceding state.
    AcceptDelta { key: Key, round: Round, chosen_k: u32, delta: Arc<Delta> },
    /// Phase 1 and the first proposal of phase 2 at once. The proposal follows the round `base`.
    /// Its proposer has promised the ballot and holds no higher round. Accepted if that makes a
    /// majority.
    PrepareAccept { key: Key, round: Round, base: Round, payload: Payload },
    /// Answers a proposal that does not follow the round held here, which was neither accepted nor
    /// refused. The ballot of a `PrepareAccept` was promised.
    NeedFull { key: Key, round: Round },
    /// Answers `Accept`, `AcceptDelta` and `PrepareAccept` with the round accepted here by now.
    Accepted { key: Key, round: Round },
    /// Answers a `Prepare` (`tried.k() == 0`) or a proposal that came too late. A hint, never
    /// evidence.
    Nack { key: Key, tried: Round, promised: Ballot, recovering: bool },
    /// Answers like `Nack`: a fence shuts out the ballot's incarnation, and all below this one.
    Fenced { key: Key, tried: Round, below: Incarnation },
    /// A late delivery of an accept, by any node that knows it. Only a refusal is answered, by
    /// `Nack`.
    Repair { key: Key, round: Round, state: State },
    /// A hint: `round` is chosen, and so are the earlier accepted rounds of its ballot.
    /// [corrections B2]
    Chosen { key: Key, round: Round },
    /// Every member accepted the tombstone `round`: forget it.
    Remove { key: Key, round: Round },
    /// Commands for the owner of the key.
    Forward { key: Key, forward: Forward },
    /// Answers `Forward`.
    Forwarded { key: Key, sequence: u64, verdict: Verdict },
    /// Asks another acceptor for its state of a register that was forgotten here. [spec 8.4]
    Recover { key: Key, id: u64 },
    /// Answers `Recover`, with the fences of the shard.
    Recovered { key: Key, id: u64, promised: Ballot, report: Box<Report>, fences: Fences },
    /// Asks which registers of a shard exist.
    List { shard: Shard, id: u64, from_hash: u64, limit: u32 },
    /// Answers `List`, with the floors read no earlier than the listing. [corrections B11]
    Listed { shard: Shard, id: u64, listing: Listing },
    /// Compares the registers in a range of hashes, whose end is excluded. Without an end it
    /// reaches to the end of the shard. A register that the sender does not hold may not be at or
    /// below `floor`.
    Compare {
        shard: Shard,
        id: u64,
        range: (u64, Option<u64>),
        floor: Ballot,
        digests: Box<Digests>,
    },
    /// Answers `Compare` for the range up to `until`: the buckets that differ, and the registers
    /// that they hold here.
    Compared {
        shard: Shard,
        id: u64,
        until: Option<u64>,
        floor: Ballot,
        buckets: u16,
        entries: Vec<Held>,
    },
    /// The sender holds `have` and knows of a higher round here. `insist`: a `Repair` did not help.
    Want { key: Key, have: Round, insist: bool },
    /// The receiver durably held `round` at amnesia count `amnesia`, and seems to hold less now. Or
    /// it held no register, with this floor, and seems to hold one below.
    Older { key: Key, round: Round, floor: Ballot, amnesia: AmnesiaCount },
    /// The receiver durably had this floor at amnesia count `amnesia`, and has named a lower one
    /// since.
    OlderFloor { shard: Shard, floor: Ballot, amnesia: AmnesiaCount },
    /// To this node itself: makes the register resident and starts its due action.
    Touch { key: Key, due: Due },
}

/// Messages are moved often.
const _: () = assert!(size_of::<Message>() <= 128);

/// The due action of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    Recover,
    Collect,
    Expire,
    Remind,
    Linger,
    /// A member seems to hold only `lower`.
    Deliver {
        to: NodeId,
        lower: Round,
        insist: bool,
    },
}

impl Message {
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        match self {
            Message::Read { key, .. }
            | Message::State { key, .. }
            | Message::Prepare { key, .. }
            | Message::Promise { key, .. }
            | Message::Accept { key, .. }
            | Message::AcceptDelta { key, .. }
            | Message::PrepareAccept { key, .. }
            | Message::NeedFull { key, .. }
            | Message::Accepted { key, .. }
            | Message::Nack { key, .. }
            | Message::Fenced { key, .. }
            | Message::Repair { key, .. }
            | Message::Remove { key, .. }
            | Message::Chosen { key, .. }
            | Message::Want { key, .. }
            | Message::Older { key, .. }
            | Message::Forward { key, .. }
            | Message::Forwarded { key, .. }
            | Message::Recover { key, .. }
            | Message::Recovered { key, .. }
            | Message::Touch { key, .. } => Some(key),
            Message::List { .. }
            | Message::Listed { .. }
            | Message::Compare { .. }
            | Message::Compared { .. }
            | Message::OlderFloor { .. } => None,
        }
    }
}

impl Message {
    /// True for messages that the core alone can handle.
    pub(crate) fn is_for_core(&self) -> bool {
        matches!(
            self,
            Message::Read { .. }
                | Message::State { .. }
                | Message::Prepare { .. }
                | Message::Promise { .. }
                | Message::Accept { .. }
                | Message::AcceptDelta { .. }
                | Message::Accepted { .. }
                | Message::Nack { .. }
                | Message::Fenced { .. }
                | Message::Repair { .. }
                | Message::Chosen { .. }
                | Message::Remove { .. }
        )
    }

    /// True for messages to acceptors, and for those of comparisons.
    pub(crate) fn is_for_replicas(&self) -> bool {
        match self {
            Message::Read { .. }
            | Message::Prepare { .. }
            | Message::Accept { .. }
            | Message::AcceptDelta { .. }
            | Message::PrepareAccept { .. }
            | Message::Repair { .. }
            | Message::Remove { .. }
            | Message::Chosen { .. }
            | Message::Recover { .. }
            | Message::Recovered { .. }
            | Message::List { .. }
            | Message::Compare { .. }
            | Message::Compared { .. }
            | Message::Want { .. }
            | Message::Older { .. }
            | Message::OlderFloor { .. } => true,
            Message::State { .. }
            | Message::Promise { .. }
            | Message::Accepted { .. }
            | Message::Nack { .. }
            | Message::Fenced { .. }
            | Message::NeedFull { .. }
            | Message::Forward { .. }
            | Message::Forwarded { .. }
            | Message::Listed { .. }
            | Message::Touch { .. } => false,
        }
    }
}

impl ProtocolMessage for Message {
    fn is_write(&self) -> bool {
        matches!(
            self,
            Message::Prepare { .. }
                | Message::Accept { .. }
                | Message::AcceptDelta { .. }
                | Message::PrepareAccept { .. }
                | Message::Repair { .. }
                | Message::Remove { .. }
                | Message::Recovered { .. }
        )
    }

    fn touches(&self) -> Touches<'_> {
        match self {
            Message::List { shard, .. }
            | Message::Listed { shard, .. }
            | Message::Compare { shard, .. }
            | Message::Compared { shard, .. }
            | Message::OlderFloor { shard, .. } => Touches::Shard(*shard),
            other => other.key().map_or(Touches::Nothing, Touches::Key),
        }
    }

    fn peek_key(bytes: &[u8]) -> Option<Key> {
        match bytes.split_first()? {
            (
                &kind::LIST | &kind::LISTED | &kind::COMPARE | &kind::COMPARED | &kind::OLDER_FLOOR,
                _,
            ) => None,
            (_, rest) => Key::decode(&mut Reader::new(rest)).ok(),
        }
    }
}
