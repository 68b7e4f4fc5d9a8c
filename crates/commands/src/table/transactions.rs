//! Rows of transactions. They are refused so far, and the session sees to it that none runs in part.

use super::rows::{TRANSACTION, all_keys, session};
use crate::plan::SessionVerb;
use crate::spec::Arity::{AtLeast, Exactly};
use crate::spec::Flag::{AllowBusy, Fast, Loading, NoScript, SkipSlowlog, Stale};
use crate::spec::{Argument, CommandSpec, Flag};

const LOCAL: &[Flag] = &[NoScript, Loading, Stale, Fast, AllowBusy];

pub(super) const ROWS: &[CommandSpec] = &[
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
        summary: "Ends a transaction; answers EXECABORT if a command was refused in it, as all are so far.",
        complexity: "Depends on commands in the transaction",
        flags: &[NoScript, Loading, Stale, SkipSlowlog],
        execution: session(SessionVerb::Exec),
        ..TRANSACTION
    },
    CommandSpec {
        name: "multi",
        arity: Exactly(1),
        since: "1.2.0",
        summary: "Begins a transaction, in which every command is refused so far: nothing runs.",
        flags: LOCAL,
        execution: session(SessionVerb::Multi),
        ..TRANSACTION
    },
    CommandSpec {
        name: "unwatch",
        arity: Exactly(1),
        since: "2.2.0",
        summary: "Forgets the watched keys, of which there are none so far.",
        flags: LOCAL,
        execution: session(SessionVerb::Unwatch),
        ..TRANSACTION
    },
    CommandSpec {
        name: "watch",
        arity: AtLeast(2),
        since: "2.2.0",
        summary: "Refused so far: transactions are not supported yet.",
        complexity: "O(1) for every key.",
        arguments: &[Argument::key().multiple()],
        flags: LOCAL,
        keys: all_keys(&["RO"]),
        execution: session(SessionVerb::Watch),
        ..TRANSACTION
    },
];
