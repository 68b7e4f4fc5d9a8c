//! `SELECT`. Sessions execute it.

use super::LOCAL_FAST;
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "select",
    arity: Exactly(2),
    summary: "Selects the connection's database.",
    arguments: &[Argument::integer("index")],
    flags: LOCAL_FAST,
    execution: session(SessionVerb::Select),
    ..CONNECTION
};
