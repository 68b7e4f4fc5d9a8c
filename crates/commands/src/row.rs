//! The vocabulary of rows, and the parts that most rows of a group share. A command's file imports
//! all of it.

pub(crate) use types::Access;

pub(crate) use crate::module::Module;
pub(crate) use crate::operation::handlers;
pub(crate) use crate::plan::Execution::{Key, PerKey, Table};
pub(crate) use crate::plan::{Arguments, Combine};
pub(crate) use crate::session_verb::SessionVerb;
pub(crate) use crate::spec::Arity::{AtLeast, Exactly};
pub(crate) use crate::spec::Flag::{
    Admin, DenyOom, Fast, Loading, NoScript, Readonly, SkipSlowlog, Stale, Write,
};
pub(crate) use crate::spec::{
    Argument, ArgumentKind, Category, CommandSpec, Deprecated, Flag, Group, Miss,
};

use crate::help;
use crate::plan::Execution;
use crate::spec::{KeyRange, LastKey};

/// Every field that a row may leave out.
const ANY: CommandSpec = CommandSpec {
    name: "",
    arity: AtLeast(1),
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

pub(crate) const STRING: CommandSpec =
    CommandSpec { group: Group::String, categories: &[Category::String], ..ANY };

pub(crate) const GENERIC: CommandSpec =
    CommandSpec { group: Group::Generic, categories: &[Category::Keyspace], ..ANY };

pub(crate) const CONNECTION: CommandSpec =
    CommandSpec { group: Group::Connection, categories: &[Category::Connection], ..ANY };

pub(crate) const TRANSACTION: CommandSpec =
    CommandSpec { group: Group::Transactions, categories: &[Category::Transaction], ..ANY };

pub(crate) const SERVER: CommandSpec = ANY;

/// The tips of commands that add up an integer of each key.
pub(crate) const SUM_TIPS: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];

pub(crate) const fn session(verb: SessionVerb) -> Execution {
    Execution::Session(verb)
}

/// `HELP` of a container.
pub(crate) const HELP: Execution = Table(help::reply);

/// The first argument is the only key.
pub(crate) const fn one_key(flags: &'static [&'static str]) -> Option<KeyRange> {
    one_key_at(1, flags)
}

/// One argument is the only key.
pub(crate) const fn one_key_at(first: usize, flags: &'static [&'static str]) -> Option<KeyRange> {
    Some(KeyRange { first, last: LastKey::First, step: 1, flags })
}

/// All arguments are keys.
pub(crate) const fn all_keys(flags: &'static [&'static str]) -> Option<KeyRange> {
    Some(KeyRange { first: 1, last: LastKey::End, step: 1, flags })
}
