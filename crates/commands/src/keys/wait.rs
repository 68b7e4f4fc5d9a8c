//! `WAIT`. Sessions execute it.

use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "wait",
    arity: Exactly(3),
    since: "3.0.0",
    summary: "Waits until other replicas have the connection's writes, and answers how many.",
    arguments: &[Argument::integer("numreplicas"), Argument::integer("timeout")],
    flags: &[NoScript],
    categories: &[Category::Connection],
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    execution: session(SessionVerb::Wait),
    ..GENERIC
};
