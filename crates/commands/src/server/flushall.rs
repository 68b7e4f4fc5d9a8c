//! `FLUSHALL` and `FLUSHDB`. Sessions execute them.

use super::ALL_SHARDS;
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: &[] };

const ASYNC_OR_SYNC: Argument = Argument::one_of(
    "flush-type",
    &[
        Argument::word("async", "ASYNC").since("4.0.0"),
        Argument::word("sync", "SYNC").since("6.2.0"),
    ],
)
.optional();

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "flushall",
        arity: AtLeast(1),
        summary: "Deletes all keys of all databases.",
        complexity: "O(N) where N is the number of keys.",
        arguments: &[ASYNC_OR_SYNC],
        flags: &[Write],
        categories: &[Category::Keyspace, Category::Dangerous],
        tips: ALL_SHARDS,
        execution: session(SessionVerb::FlushAll),
        ..SERVER
    },
    CommandSpec {
        name: "flushdb",
        arity: AtLeast(1),
        summary: "Deletes all keys of the connection's database.",
        complexity: "O(N) where N is the number of keys.",
        arguments: &[ASYNC_OR_SYNC],
        flags: &[Write],
        categories: &[Category::Keyspace, Category::Dangerous],
        tips: ALL_SHARDS,
        execution: session(SessionVerb::FlushDb),
        ..SERVER
    },
];
