//! `QUIT`. Sessions execute it.

use super::ALWAYS;
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "quit",
    arity: AtLeast(1),
    summary: "Closes the connection.",
    flags: ALWAYS,
    execution: session(SessionVerb::Quit),
    ..CONNECTION
};
