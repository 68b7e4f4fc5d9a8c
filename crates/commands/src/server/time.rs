//! `TIME`. Sessions execute it.

use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "time",
    arity: Exactly(1),
    since: "2.6.0",
    summary: "Answers this node's wall clock: seconds of Unix time, and microseconds, of which it knows the thousands.",
    flags: &[Loading, Stale, Fast],
    tips: &["nondeterministic_output"],
    execution: session(SessionVerb::Time),
    ..SERVER
};
