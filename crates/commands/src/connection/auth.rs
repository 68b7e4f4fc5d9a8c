//! `AUTH`. Sessions execute it.

use super::ALWAYS;
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "auth",
    arity: AtLeast(2),
    summary: "Authenticates the connection.",
    arguments: &[
        Argument::string("username").optional().since("6.0.0"),
        Argument::string("password"),
    ],
    flags: ALWAYS,
    execution: session(SessionVerb::Auth),
    ..CONNECTION
};
