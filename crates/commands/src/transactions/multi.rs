//! `MULTI EXEC DISCARD`. Sessions execute them.

use super::LOCAL;
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: &[] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "discard",
        arity: Exactly(1),
        since: "2.0.0",
        summary: "Ends a transaction without running it.",
        flags: LOCAL,
        execution: session(SessionVerb::Discard),
        ..TRANSACTION
    },
    CommandSpec {
        name: "exec",
        arity: Exactly(1),
        since: "1.2.0",
        summary: "Runs the queued commands at one time. Answers EXECABORT if one was refused.",
        complexity: "Depends on commands in the transaction",
        flags: &[NoScript, Loading, Stale, SkipSlowlog],
        execution: session(SessionVerb::Exec),
        ..TRANSACTION
    },
    CommandSpec {
        name: "multi",
        arity: Exactly(1),
        since: "1.2.0",
        summary: "Begins a transaction: commands are queued until EXEC.",
        flags: LOCAL,
        execution: session(SessionVerb::Multi),
        ..TRANSACTION
    },
];
