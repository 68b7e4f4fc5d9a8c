//! `DBSIZE`. Sessions execute it.

use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "dbsize",
    arity: Exactly(1),
    summary: "Answers how many keys the database has, above 100,000 about.",
    flags: &[Readonly, Fast],
    categories: &[Category::Keyspace],
    tips: &["request_policy:all_shards", "response_policy:agg_sum"],
    execution: session(SessionVerb::DbSize),
    ..SERVER
};
