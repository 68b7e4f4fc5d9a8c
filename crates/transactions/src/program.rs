//! The input of a transaction: its keys, and the function from their states to its changes.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use base::Nanos;

use crate::mutation::{self, Mutation};
use types::limits::{SNAPSHOT_KEYS_MAX, TRANSACTION_KEYS_MAX};
use types::{Change, Clock, Database, Found, Key, Once, Reply};

/// The states of the keys that are taken.
pub type States = BTreeMap<Key, Found>;

/// The function of a transaction. Pure: it may run any number of times.
pub trait Program: Debug + Send + Sync {
    fn run(&self, states: &States, clock: Clock) -> Ran;

    /// Runs it after [`Ran::TooLong`], on a thread that may be held up.
    fn run_long(&self, states: &States, clock: Clock, _stop: &Arc<dyn Stop>) -> Ran {
        self.run(states, clock)
    }

    /// Its long run may be endless, and holds up no program that is not.
    fn is_scripted(&self) -> bool {
        false
    }
}

/// Ends a long run.
pub trait Stop: Debug + Send + Sync {
    /// The error with which the run ends now.
    fn reason(&self) -> Option<&'static str>;
}

/// A run that is too long for a worker. Its result goes to
/// [`Service::on_computed`](crate::Service::on_computed).
#[derive(Clone, Debug)]
pub struct Computation {
    pub token: u64,
    pub program: Arc<dyn Program>,
    pub states: States,
    pub clock: Clock,
    /// The transaction is given up then.
    pub deadline: Nanos,
}

/// The result of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ran {
    /// Changes of keys among the states; a key that stays may be left out.
    Done { changes: Vec<(Key, Change)>, reply: Reply },
    /// It could not run here and now. It ends so, without effect.
    Refused(Reply),
    /// States of these keys are needed: they are taken, and the program runs again.
    Needs(Vec<Key>),
    /// It would hold up a worker: it runs elsewhere.
    TooLong,
}

/// A transaction as a client asks for it.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub database: Database,
    /// The record lies in the shard of the first one. Without any, a first run names them.
    pub keys: Vec<Key>,
    /// Keys that must not have changed since: with the version that last changed them, `None`
    /// without a value. If one has, the reply is a null array.
    pub watched: Vec<(Key, Option<u64>)>,
    pub program: Arc<dyn Program>,
    pub clock: Clock,
    pub mode: Mode,
    /// Set where it is safe to repeat; it then locks its keys, and commits even an error.
    pub once: Option<Once>,
}

/// How a transaction comes to the states of its keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// It locks them.
    Update,
    /// It reads them until all held at the same time. Its program should change none.
    Snapshot,
    /// It reads each once. Its program changes none.
    PerKey,
}

impl Transaction {
    /// The same, safe to repeat.
    #[must_use]
    pub fn under(self, once: Option<Once>) -> Transaction {
        let mode = if once.is_some() { Mode::Update } else { self.mode };
        Transaction { once, mode, ..self }
    }

    /// The key that remembers it, if one does: the first in byte order of those that it names. A
    /// key that is found later never replaces it. \[T6\]
    #[must_use]
    pub fn remembering(&self) -> Option<(&Key, &Once)> {
        let first = self.keys.iter().min_by_key(|key| key.bytes());
        first.zip(self.once.as_ref())
    }

    /// Keys that it may touch.
    #[must_use]
    pub fn keys_max(&self) -> usize {
        match self.mode {
            Mode::Update => TRANSACTION_KEYS_MAX,
            Mode::Snapshot | Mode::PerKey => SNAPSHOT_KEYS_MAX,
        }
    }

    /// The answer to one that touches more.
    #[must_use]
    pub fn too_many_keys(&self) -> Reply {
        let max = self.keys_max();
        Reply::error(format!("ERR transaction touches too many keys (max {max})"))
    }

    /// A watched key has changed. Absent matches absent; present matches by the version that
    /// changed it last. \[T7\]
    #[must_use]
    pub fn is_overtaken(&self, states: &States) -> bool {
        self.watched.iter().any(|(key, version)| {
            let now = states.get(key).filter(|found| found.value.is_some());
            let is_by_any = mutation::is(Mutation::WatchAnyVersion);
            let of = |found: &Found| if is_by_any { found.version } else { found.mod_version };
            now.map(of) != *version && !mutation::is(Mutation::WatchIgnored)
        })
    }
}
