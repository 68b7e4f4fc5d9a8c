//! `RESET`. Sessions execute it.

use super::ALWAYS;
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "reset",
    arity: Exactly(1),
    since: "6.2.0",
    summary: "Makes the connection as it was at its beginning.",
    flags: ALWAYS,
    execution: session(SessionVerb::Reset),
    ..CONNECTION
};
