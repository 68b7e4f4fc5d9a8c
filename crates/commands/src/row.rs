//! The vocabulary of rows, and the parts that most rows of a group share. A command's file imports
//! all of it.

#![allow(dead_code, reason = "a vocabulary: a group may leave words unused")]

pub(crate) use types::Access;

pub(crate) use crate::module::Module;
pub(crate) use crate::operation::handlers;
pub(crate) use crate::plan::Execution::{Around, Key, Keys, PerKey, Table};
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
    more_keys: &[],
    access: None,
    execution: Execution::Container,
    miss: None,
    is_heavy: false,
    subcommands: &[],
};

pub(crate) const STRING: CommandSpec =
    CommandSpec { group: Group::String, categories: &[Category::String], ..ANY };

pub(crate) const BITMAP: CommandSpec =
    CommandSpec { group: Group::Bitmap, categories: &[Category::Bitmap], ..ANY };

pub(crate) const HYPERLOGLOG: CommandSpec =
    CommandSpec { group: Group::HyperLogLog, categories: &[Category::HyperLogLog], ..ANY };

pub(crate) const HASH: CommandSpec =
    CommandSpec { group: Group::Hash, categories: &[Category::Hash], ..ANY };

pub(crate) const LIST: CommandSpec =
    CommandSpec { group: Group::List, categories: &[Category::List], ..ANY };

pub(crate) const SET: CommandSpec =
    CommandSpec { group: Group::Set, categories: &[Category::Set], ..ANY };

pub(crate) const SORTED_SET: CommandSpec =
    CommandSpec { group: Group::SortedSet, categories: &[Category::SortedSet], ..ANY };

pub(crate) const GENERIC: CommandSpec =
    CommandSpec { group: Group::Generic, categories: &[Category::Keyspace], ..ANY };

pub(crate) const CONNECTION: CommandSpec =
    CommandSpec { group: Group::Connection, categories: &[Category::Connection], ..ANY };

pub(crate) const TRANSACTION: CommandSpec =
    CommandSpec { group: Group::Transactions, categories: &[Category::Transaction], ..ANY };

pub(crate) const CLUSTER: CommandSpec = CommandSpec { group: Group::Cluster, ..ANY };

pub(crate) const SCRIPTING: CommandSpec =
    CommandSpec { group: Group::Scripting, categories: &[Category::Scripting], ..ANY };

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
    Some(KeyRange { first, last: LastKey::First, step: 1, flags, notes: "" })
}

/// [`one_key`] with a remark on its use.
pub(crate) const fn one_key_noted(
    flags: &'static [&'static str],
    notes: &'static str,
) -> Option<KeyRange> {
    Some(KeyRange { first: 1, last: LastKey::First, step: 1, flags, notes })
}

/// The first two arguments are the keys.
pub(crate) const fn two_keys(flags: &'static [&'static str]) -> Option<KeyRange> {
    Some(KeyRange { first: 1, last: LastKey::Next, step: 1, flags, notes: "" })
}

/// All arguments are keys.
pub(crate) const fn all_keys(flags: &'static [&'static str]) -> Option<KeyRange> {
    Some(KeyRange { first: 1, last: LastKey::End, step: 1, flags, notes: "" })
}

/// The argument at `first - 1` is the number of keys.
pub(crate) const fn counted_keys(first: usize, flags: &'static [&'static str]) -> Option<KeyRange> {
    Some(counted(first, flags))
}

/// [`counted_keys`], as a range beside others.
pub(crate) const fn counted(first: usize, flags: &'static [&'static str]) -> KeyRange {
    KeyRange { first, last: LastKey::Counted, step: 1, flags, notes: "" }
}

/// All arguments from `first` on are keys.
pub(crate) const fn keys_from(first: usize, flags: &'static [&'static str]) -> KeyRange {
    KeyRange { first, last: LastKey::End, step: 1, flags, notes: "" }
}

/// One argument is a key.
pub(crate) const fn key_at(first: usize, flags: &'static [&'static str]) -> KeyRange {
    KeyRange { first, last: LastKey::First, step: 1, flags, notes: "" }
}

/// A key may stand behind `word`, which is the argument at `first` or a later one.
pub(crate) const fn key_after(
    word: &'static str,
    first: usize,
    flags: &'static [&'static str],
) -> KeyRange {
    KeyRange { first, last: LastKey::After(word), step: 1, flags, notes: "" }
}

/// Values name these keys, no argument does. Such a command has its options from argument 2 on.
pub(crate) const fn hidden_keys(flags: &'static [&'static str], notes: &'static str) -> KeyRange {
    KeyRange { first: 2, last: LastKey::Hidden, step: 1, flags, notes }
}
