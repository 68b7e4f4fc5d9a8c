//! `MONITOR`. Sessions execute it.

use super::LOCAL_ADMIN;
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "monitor",
    arity: Exactly(1),
    summary: "Shows the commands of all clients of this node, as they are executed.",
    complexity: "",
    flags: LOCAL_ADMIN,
    execution: session(SessionVerb::Monitor),
    ..SERVER
};
