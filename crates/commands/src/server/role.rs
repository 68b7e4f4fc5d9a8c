//! `ROLE`. Sessions execute it.

use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "role",
    arity: Exactly(1),
    since: "2.8.12",
    summary: "Answers that this node is a master, and which replicas it reaches.",
    categories: &[Category::Admin, Category::Dangerous],
    flags: &[NoScript, Loading, Stale, Fast],
    execution: session(SessionVerb::Role),
    ..SERVER
};
