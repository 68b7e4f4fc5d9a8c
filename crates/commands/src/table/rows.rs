//! What most rows of a group have in common.

use crate::plan::{Execution, SessionVerb};
use crate::spec::{Arity, Category, CommandSpec, Group, KeyRange, LastKey};

/// Every field that a row may leave out.
const ANY: CommandSpec = CommandSpec {
    name: "",
    arity: Arity::AtLeast(1),
    since: "1.0.0",
    summary: "",
    complexity: "O(1)",
    group: Group::Server,
    arguments: &[],
    flags: &[],
    categories: &[],
    tips: &[],
    deprecated: None,
    keys: None,
    access: None,
    execution: Execution::Container,
    miss: None,
    subcommands: &[],
};

pub(super) const STRING: CommandSpec =
    CommandSpec { group: Group::String, categories: &[Category::String], ..ANY };

pub(super) const GENERIC: CommandSpec =
    CommandSpec { group: Group::Generic, categories: &[Category::Keyspace], ..ANY };

pub(super) const CONNECTION: CommandSpec =
    CommandSpec { group: Group::Connection, categories: &[Category::Connection], ..ANY };

pub(super) const TRANSACTION: CommandSpec =
    CommandSpec { group: Group::Transactions, categories: &[Category::Transaction], ..ANY };

pub(super) const SERVER: CommandSpec = ANY;

pub(super) const fn session(verb: SessionVerb) -> Execution {
    Execution::Session(verb)
}

/// The first argument is the only key.
pub(super) const fn one_key(flags: &'static [&'static str]) -> Option<KeyRange> {
    one_key_at(1, flags)
}

/// One argument is the only key.
pub(super) const fn one_key_at(first: usize, flags: &'static [&'static str]) -> Option<KeyRange> {
    Some(KeyRange { first, last: LastKey::First, step: 1, flags })
}

/// All arguments are keys.
pub(super) const fn all_keys(flags: &'static [&'static str]) -> Option<KeyRange> {
    Some(KeyRange { first: 1, last: LastKey::End, step: 1, flags })
}
