//! `QUIT`. Sessions execute it.

use super::ALWAYS;
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "quit",
    arity: AtLeast(1),
    summary: "Closes the connection.",
    flags: ALWAYS,
    deprecated: Some(Deprecated { since: "7.2.0", replaced_by: "just closing the connection" }),
    execution: session(SessionVerb::Quit),
    ..CONNECTION
};
