//! The input of a transaction: its keys, and the function from their states to its changes.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use types::{Change, Clock, Database, Found, Key, Reply};

/// The states of the keys that are taken.
pub type States = BTreeMap<Key, Found>;

/// The function of a transaction. Pure: it may run any number of times.
pub trait Program: Debug + Send + Sync {
    fn run(&self, states: &States, clock: Clock) -> Ran;
}

/// The result of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ran {
    /// Changes of keys among the states; a key that stays may be left out.
    Done { changes: Vec<(Key, Change)>, reply: Reply },
    /// States of these keys are needed: they are taken, and the program runs again.
    Needs(Vec<Key>),
}

/// A transaction as a client asks for it.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub database: Database,
    /// At least one. The record lies in the shard of the first one.
    pub keys: Vec<Key>,
    /// Keys that must not have changed since: with the version that last changed them, `None`
    /// without a value. If one has, the reply is a null array.
    pub watched: Vec<(Key, Option<u64>)>,
    pub program: Arc<dyn Program>,
    pub clock: Clock,
}
