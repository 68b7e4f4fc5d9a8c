//! `RANDOMKEY`. Sessions execute it.

use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "randomkey",
    arity: Exactly(1),
    summary: "Answers a random key of the database.",
    flags: &[Readonly],
    tips: &["request_policy:all_shards", "nondeterministic_output"],
    execution: session(SessionVerb::RandomKey),
    ..GENERIC
};
