//! How a request ends. Not knowing is an outcome.

use crate::explain::Explanation;
use crate::{Found, Key, Lock, Locked, Reply, TimeToLive};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The command ran.
    Reply(Reply),
    /// The command, safe to repeat, ran before, and its reply was too long to be remembered.
    AlreadyDone,
    /// The command, safe to repeat, did not run.
    Refused(Refusal),
    /// A listing step: keys that exist, in hash order; those on which no quorum agreed yet, which a
    /// read of each settles; and where to go on (`None`: the shard is done).
    Listed { keys: Vec<Key>, undecided: Vec<Key>, next_hash: Option<u64> },
    /// The record of each replica of a key.
    Explained(Box<Explanation>),
    /// The state that a transaction took or looked at.
    Held(Box<Found>),
    /// A transaction holds the key. The command did not run.
    Locked(Box<Locked>),
    /// Not enough replicas answered; surely no effect, now and for ever.
    NoQuorum,
    /// No quorum confirmed it; it may or may not take effect.
    Unknown,
    /// This node forgot its state and cannot answer yet, not even through others.
    Loading,
    /// The protocol of this database cannot run the command. Holds the protocol's name.
    Unsupported(&'static str),
    /// The same for a transaction, or a command that runs as one.
    NoTransactions(&'static str),
    /// The same for a command that is to be safe to repeat.
    NoRetries(&'static str),
    /// The same for a read of values that may not be committed.
    NoUncommittedReads(&'static str),
}

impl Outcome {
    /// The outcome of a command that this lock kept from running. It shows no state.
    #[must_use]
    pub fn not_run(lock: Lock) -> Outcome {
        let (value, ttl, ends) = (None, TimeToLive::Never, None);
        let version = lock.version;
        let found = Found { value, ttl, ends, version, mod_version: 0, absent: None };
        Outcome::Locked(Box::new(Locked { lock, found }))
    }
}

/// Why a command that is safe to repeat, or a transaction, was not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The key remembers as many sessions as it can.
    NoRoom,
    /// A command of this session with a higher number ran before.
    Older,
    /// Its time was over before it could run.
    TooLate,
    /// A transaction met others for too long. It had no effect.
    Conflict,
}
