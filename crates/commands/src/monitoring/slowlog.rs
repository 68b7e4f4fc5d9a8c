//! `SLOWLOG` and its subcommands. Sessions execute them.

use super::{LOCAL, ON_ALL_NODES};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const LOG: &[Flag] = &[Admin, Loading, Stale];

const ROW: CommandSpec = CommandSpec {
    name: "slowlog",
    arity: AtLeast(2),
    since: "2.2.12",
    summary: "Holds commands about the log of slow requests.",
    complexity: "Depends on subcommand.",
    subcommands: SLOWLOG,
    ..SERVER
};

const SLOWLOG: &[CommandSpec] = &[
    CommandSpec {
        name: "slowlog|get",
        arity: AtLeast(2),
        since: "2.2.12",
        summary: "Answers the newest slow requests: 10 or as many as given, -1 for all.",
        complexity: "O(N) where N is the number of entries returned",
        arguments: &[Argument::integer("count").optional()],
        flags: LOG,
        tips: &["request_policy:all_nodes", "nondeterministic_output"],
        execution: session(SessionVerb::SlowlogGet),
        ..SERVER
    },
    CommandSpec {
        name: "slowlog|help",
        arity: Exactly(2),
        since: "6.2.0",
        summary: "Shows this help.",
        flags: LOCAL,
        execution: HELP,
        ..SERVER
    },
    CommandSpec {
        name: "slowlog|len",
        arity: Exactly(2),
        since: "2.2.12",
        summary: "Answers how many slow requests the log holds.",
        flags: LOG,
        tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
        execution: session(SessionVerb::SlowlogLen),
        ..SERVER
    },
    CommandSpec {
        name: "slowlog|reset",
        arity: Exactly(2),
        since: "2.2.12",
        summary: "Empties the log.",
        flags: LOG,
        tips: ON_ALL_NODES,
        execution: session(SessionVerb::SlowlogReset),
        ..SERVER
    },
];
