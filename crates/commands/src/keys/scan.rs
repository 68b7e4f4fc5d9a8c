//! `SCAN`. Sessions execute it.

use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "scan",
    arity: AtLeast(2),
    since: "2.8.0",
    summary: "Lists the keys of the database step by step.",
    complexity: "O(1) for every call, O(N) for all, where N is the number of keys.",
    arguments: &[
        Argument::integer("cursor"),
        Argument::new("pattern", ArgumentKind::Pattern).after("MATCH").optional(),
        Argument::integer("count").after("COUNT").optional(),
        Argument::string("type").after("TYPE").optional().since("6.0.0"),
    ],
    flags: &[Readonly],
    tips: &["nondeterministic_output", "request_policy:special"],
    execution: session(SessionVerb::Scan),
    ..GENERIC
};
