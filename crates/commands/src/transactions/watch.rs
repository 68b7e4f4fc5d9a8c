//! `WATCH` and `UNWATCH`. Sessions execute them.

use super::LOCAL;
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: &[] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "unwatch",
        arity: Exactly(1),
        since: "2.2.0",
        summary: "Forgets the watched keys.",
        flags: LOCAL,
        execution: session(SessionVerb::Unwatch),
        ..TRANSACTION
    },
    CommandSpec {
        name: "watch",
        arity: AtLeast(2),
        since: "2.2.0",
        summary: "Makes the next EXEC run nothing if one of these keys changes before.",
        complexity: "O(1) for every key.",
        arguments: &[Argument::key().multiple()],
        flags: LOCAL,
        keys: all_keys(&["RO"]),
        execution: session(SessionVerb::Watch),
        ..TRANSACTION
    },
];
