//! `ECHO`. Sessions execute it.

use super::LOCAL_FAST;
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "echo",
    arity: Exactly(2),
    summary: "Answers the given string.",
    arguments: &[Argument::string("message")],
    flags: LOCAL_FAST,
    execution: session(SessionVerb::Echo),
    ..CONNECTION
};
