//! `LASTSAVE`. Sessions execute it.

use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "lastsave",
    arity: Exactly(1),
    since: "1.0.0",
    summary: "Answers when the process started, in seconds of Unix time: there are no snapshots.",
    categories: &[Category::Admin, Category::Dangerous],
    flags: &[Loading, Stale, Fast],
    tips: &["nondeterministic_output"],
    execution: session(SessionVerb::LastSave),
    ..SERVER
};
