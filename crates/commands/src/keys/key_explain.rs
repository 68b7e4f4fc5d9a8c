//! `KEY.EXPLAIN`, for operators. Sessions execute it.

use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "key.explain",
    arity: Exactly(2),
    since: "7.4.0",
    summary: "Answers the record of each replica of a key: round, version, checksum (Palimpsest only).",
    complexity: "One message to each node.",
    arguments: &[Argument::key()],
    flags: &[Readonly],
    keys: one_key(&["RO"]),
    execution: session(SessionVerb::KeyExplain),
    ..GENERIC
};
