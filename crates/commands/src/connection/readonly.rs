//! `READONLY` and `READWRITE`, for cluster clients. Sessions execute them.

use super::LOCAL_FAST;
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: &[] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "readonly",
        arity: Exactly(1),
        since: "3.0.0",
        summary: "Accepted for cluster clients: every node serves reads and writes.",
        group: Group::Cluster,
        flags: LOCAL_FAST,
        execution: session(SessionVerb::ReadOnly),
        ..CONNECTION
    },
    CommandSpec {
        name: "readwrite",
        arity: Exactly(1),
        since: "3.0.0",
        summary: "Accepted for cluster clients: every node serves reads and writes.",
        group: Group::Cluster,
        flags: LOCAL_FAST,
        execution: session(SessionVerb::ReadWrite),
        ..CONNECTION
    },
];
