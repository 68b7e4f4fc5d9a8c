//! `ASKING`. Sessions execute it.

use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "asking",
    arity: Exactly(1),
    since: "3.0.0",
    summary: "Accepted for cluster clients: no key is ever on its way to another node.",
    group: Group::Cluster,
    flags: &[Fast],
    execution: session(SessionVerb::Asking),
    ..CONNECTION
};
