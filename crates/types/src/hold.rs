//! Transactions at one key: taking it, finding it taken, ending a hold.

use base::Millis;
use bytes::Bytes;

use crate::wire::{Malformed, Reader, Wire, put_blob, put_varint};
use crate::{Ballot, Change, ExpiryChange, NodeId, Once, Reply, TimeToLive, Txid, Under};

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
    pub under: Under,
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
    /// The transaction that the key remembers from now on, and its reply, unless that is too long.
    pub once: Option<Box<(Once, Option<Reply>)>>,
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
    /// Where a quorum reported no register.
    pub absent: Option<Absence>,
}

/// Reports of absence.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Absence {
    /// Replicas that reported it, with their ballot floors.
    pub at: Vec<(NodeId, Ballot)>,
    /// Replicas that make a quorum.
    pub quorum: usize,
}

impl Absence {
    /// The key was absent at all times between two reads. A replica whose floor stayed had no
    /// register in between, since it raises the floor when it removes one. If a quorum had none, no
    /// other quorum accepted one. \[T8\]
    fn stays_until(&self, later: &Absence) -> bool {
        let stayed = self.at.iter().filter(|seen| later.at.contains(seen));
        stayed.count() >= later.quorum
    }

    /// Adds earlier reports of other replicas.
    fn add_earlier(&mut self, earlier: &Absence) {
        let is_new = |seen: &&(NodeId, Ballot)| self.at.iter().all(|(node, _)| *node != seen.0);
        let others: Vec<_> = earlier.at.iter().filter(is_new).copied().collect();
        self.at.extend(others);
    }
}

impl Found {
    /// True if the key had this state at all times between two reads of it, `self` and `later`.
    ///
    /// Versions never repeat.
    #[must_use]
    pub fn stays_until(&self, later: &Found) -> bool {
        match (&self.absent, &later.absent) {
            (None, None) => self.version == later.version,
            (Some(absent), Some(later)) => absent.stays_until(later),
            _ => false,
        }
    }

    /// Adds the reports of absence of an earlier read.
    pub fn add_earlier(&mut self, earlier: &Found) {
        if let (Some(absent), Some(earlier)) = (&mut self.absent, &earlier.absent) {
            absent.add_earlier(earlier);
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

    fn absent(at: &[(u16, u64)]) -> Found {
        let floor = |n: u64| Ballot::new(crate::Epoch(1), n, NodeId(1), crate::Incarnation(1));
        let at = at.iter().map(|&(node, n)| (NodeId(node), floor(n))).collect();
        Found {
            value: None,
            ttl: TimeToLive::Never,
            ends: None,
            version: 0,
            mod_version: 0,
            absent: Some(Absence { at, quorum: 2 }),
        }
    }

    #[test]
    fn key_stays_absent_at_a_quorum_of_floors() {
        let before = absent(&[(1, 5), (2, 3)]);
        assert!(before.stays_until(&absent(&[(2, 3), (1, 5)])));
        assert!(!before.stays_until(&absent(&[(1, 5), (3, 3)])), "one replica is no quorum");
        assert!(!before.stays_until(&absent(&[(1, 5), (2, 4)])), "it removed a register");
        let present = Found { absent: None, ..before.clone() };
        assert!(!before.stays_until(&present) && !present.stays_until(&before));
    }

    #[test]
    fn earlier_reports_of_other_replicas_count() {
        let mut second = absent(&[(1, 5), (3, 3)]);
        second.add_earlier(&absent(&[(1, 4), (2, 3)]));
        assert!(second.stays_until(&absent(&[(1, 5), (2, 3)])));
        assert!(!second.stays_until(&absent(&[(1, 4), (2, 2)])));
    }

    proptest! {
        #[test]
        fn changes_come_back(change in changes()) {
            prop_assert_eq!(Change::from_bytes(&change.to_bytes()), Ok(change));
        }
    }
}
