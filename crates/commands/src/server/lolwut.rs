//! `LOLWUT`. Sessions execute it.

use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "lolwut",
    arity: AtLeast(1),
    since: "5.0.0",
    summary: "Answers a picture and the version.",
    complexity: "",
    arguments: &[Argument::integer("version").after("VERSION").optional()],
    flags: &[Readonly, Fast],
    execution: session(SessionVerb::Lolwut),
    ..SERVER
};
