//! Transactions at one key: taking it, finding it taken, ending a hold.

use base::Millis;
use bytes::Bytes;

use crate::wire::{Malformed, Reader, Wire, put_blob, put_varint};
use crate::{Ballot, Change, ExpiryChange, NodeId, Once, Reply, TimeToLive, Txid};

/// Bytes of the key of a transaction's record, at most.
pub const RECORD_KEY_LEN_MAX: usize = 64;

/// A transaction's hold on a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lock {
    pub txid: Txid,
    /// Key of the register, in the hidden keyspace, that records how the transaction ended.
    pub record: Bytes,
    /// Version of the state that the transaction locked.
    pub version: u64,
    /// Reset generation of the database in which it was taken.
    pub generation: u64,
}

/// The part of a command that is about locks. Such a command stays at its node: no other one
/// proposes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hold {
    /// Ends a hold before the command runs. Both are one transition, so no other command comes in
    /// between.
    pub settle: Option<Settle>,
    pub then: Then,
}

impl Hold {
    /// It waits for the end of another transaction's hold, as commands without a hold do.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.settle.is_none() && self.then == Then::Look { waits: true }
    }
}

/// The action of a command behind its [`Settle`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Then {
    /// It runs its body, if it has one.
    #[default]
    Run,
    /// It takes the key for a transaction. The outcome is [`Outcome::Held`](crate::Outcome::Held).
    Take(Take),
    /// It reads the state. The outcome is [`Outcome::Held`](crate::Outcome::Held). One that `waits`
    /// is no command about locks: it waits for the end of a transaction as other commands do.
    Look { waits: bool },
}

/// Takes a key for a transaction. Without effect where the transaction holds it already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Take {
    pub txid: Txid,
    pub record: Bytes,
    pub generation: u64,
    /// Set at the key that remembers the transaction. One that it remembers already is not taken:
    /// the outcome is that of a command that ran before.
    pub once: Option<Box<Once>>,
}

/// Ends the hold of a transaction. Without effect where another one holds the key, or none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settle {
    pub txid: Txid,
    /// Version of the state that the transaction locked. A lock of another version is a stray: it
    /// is cleared, and the value stays.
    pub version: u64,
    /// The transaction's change of the value.
    pub install: Change,
    /// The transaction that the key remembers from now on, and its reply.
    pub once: Option<Box<(Once, Reply)>>,
}

impl Settle {
    /// Ends the hold without a change.
    #[must_use]
    pub fn aborted(txid: Txid, version: u64) -> Settle {
        Settle { txid, version, install: Change::None, once: None }
    }
}

/// A key's state as a transaction finds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    pub value: Option<Bytes>,
    pub ttl: TimeToLive,
    pub ends: Option<Millis>,
    /// Version of the state; of a lock that was taken, the version that it has.
    pub version: u64,
    /// Version whose transition last changed the value or its time to live. Zero without a value.
    pub mod_version: u64,
    /// Replicas that reported no register, with their ballot floors, where a quorum did.
    pub absent_at: Vec<(NodeId, Ballot)>,
}

impl Found {
    /// True if the key had this state at all times between two reads of it, `self` and `later`.
    ///
    /// Versions never repeat. Between two reports of absence a register may have come and gone.
    /// It did not where one replica's floor stayed: each raises it when it removes one. \[T8\]
    #[must_use]
    pub fn stays_until(&self, later: &Found) -> bool {
        match (self.absent_at.is_empty(), later.absent_at.is_empty()) {
            (true, true) => self.version == later.version,
            (false, false) => self.absent_at.iter().any(|seen| later.absent_at.contains(seen)),
            _ => false,
        }
    }
}

/// A command met a lock, and had no effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Locked {
    pub lock: Lock,
    /// The state under the lock.
    pub found: Found,
}

mod tag {
    pub(super) const NEVER: u8 = 0;
    pub(super) const AFTER: u8 = 1;
    pub(super) const AT: u8 = 2;
    pub(super) const KEEP: u8 = 3;

    pub(super) const NONE: u8 = 0;
    pub(super) const PUT: u8 = 1;
    pub(super) const EXPIRE: u8 = 2;
    pub(super) const DELETE: u8 = 3;
}

/// `txid, record blob, version, generation`
impl Wire for Lock {
    fn encode(&self, out: &mut Vec<u8>) {
        self.txid.encode(out);
        put_blob(out, &self.record);
        put_varint(out, self.version);
        put_varint(out, self.generation);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Lock, Malformed> {
        let txid = Txid::decode(reader)?;
        let record = Bytes::copy_from_slice(reader.blob(RECORD_KEY_LEN_MAX)?);
        Ok(Lock { txid, record, version: reader.varint()?, generation: reader.varint()? })
    }
}

impl Wire for TimeToLive {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            TimeToLive::Never => out.push(tag::NEVER),
            TimeToLive::After(span) => {
                out.push(tag::AFTER);
                put_varint(out, span.0);
            }
            TimeToLive::At { unix } => {
                out.push(tag::AT);
                put_varint(out, unix.0);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<TimeToLive, Malformed> {
        Ok(match reader.u8()? {
            tag::NEVER => TimeToLive::Never,
            tag::AFTER => TimeToLive::After(Millis(reader.varint()?)),
            tag::AT => TimeToLive::At { unix: Millis(reader.varint()?) },
            _ => return Err(Malformed),
        })
    }
}

impl Wire for ExpiryChange {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ExpiryChange::Keep => out.push(tag::KEEP),
            ExpiryChange::Set(ttl) => ttl.encode(out),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<ExpiryChange, Malformed> {
        if reader.rest().first() == Some(&tag::KEEP) {
            reader.u8()?;
            return Ok(ExpiryChange::Keep);
        }
        TimeToLive::decode(reader).map(ExpiryChange::Set)
    }
}

impl Wire for Change {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Change::None => out.push(tag::NONE),
            Change::Put { value, expiry } => {
                out.push(tag::PUT);
                put_blob(out, value);
                expiry.encode(out);
            }
            Change::Expire(expiry) => {
                out.push(tag::EXPIRE);
                expiry.encode(out);
            }
            Change::Delete => out.push(tag::DELETE),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Change, Malformed> {
        Ok(match reader.u8()? {
            tag::NONE => Change::None,
            tag::PUT => {
                let value = reader.blob(crate::limits::RECORD_LEN_MAX)?;
                let value = Bytes::copy_from_slice(value);
                Change::Put { value, expiry: ExpiryChange::decode(reader)? }
            }
            tag::EXPIRE => Change::Expire(ExpiryChange::decode(reader)?),
            tag::DELETE => Change::Delete,
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ttls() -> impl Strategy<Value = TimeToLive> {
        prop_oneof![
            Just(TimeToLive::Never),
            any::<u64>().prop_map(|span| TimeToLive::After(Millis(span))),
            any::<u64>().prop_map(|unix| TimeToLive::At { unix: Millis(unix) }),
        ]
    }

    fn bytes(len: usize) -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..len).prop_map(Bytes::from)
    }

    fn changes() -> impl Strategy<Value = Change> {
        let expiry = || prop_oneof![Just(ExpiryChange::Keep), ttls().prop_map(ExpiryChange::Set)];
        prop_oneof![
            Just(Change::None),
            Just(Change::Delete),
            expiry().prop_map(Change::Expire),
            (bytes(20), expiry()).prop_map(|(value, expiry)| Change::Put { value, expiry }),
        ]
    }

    proptest! {
        #[test]
        fn changes_come_back(change in changes()) {
            prop_assert_eq!(Change::from_bytes(&change.to_bytes()), Ok(change));
        }
    }
}
