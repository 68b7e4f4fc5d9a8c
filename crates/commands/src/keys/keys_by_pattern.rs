//! `KEYS`. Sessions execute it.

use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "keys",
    arity: Exactly(2),
    summary: "Answers all keys that fit a pattern.",
    complexity: "O(N) where N is the number of keys in the database.",
    arguments: &[Argument::new("pattern", ArgumentKind::Pattern)],
    flags: &[Readonly],
    categories: &[Category::Keyspace, Category::Dangerous],
    tips: &["request_policy:all_shards", "nondeterministic_output_order"],
    execution: session(SessionVerb::Keys),
    ..GENERIC
};
