//! `LATENCY` and its subcommands. Sessions execute them.

use super::{LOCAL, LOCAL_ADMIN};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const DIFFERENT: &[&str] =
    &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];

const EVENT: &[Argument] = &[Argument::string("event")];

const ROW: CommandSpec = CommandSpec {
    name: "latency",
    arity: AtLeast(2),
    since: "2.8.13",
    summary: "Holds commands about the time that commands take.",
    complexity: "Depends on subcommand.",
    subcommands: LATENCY,
    ..SERVER
};

const LATENCY: &[CommandSpec] = &[
    CommandSpec {
        name: "latency|doctor",
        arity: Exactly(2),
        since: "2.8.13",
        summary: "Answers a report about slow commands for people.",
        flags: LOCAL_ADMIN,
        tips: DIFFERENT,
        execution: session(SessionVerb::LatencyDoctor),
        ..SERVER
    },
    CommandSpec {
        name: "latency|graph",
        arity: Exactly(3),
        since: "2.8.13",
        summary: "Draws the samples of an event.",
        arguments: EVENT,
        flags: LOCAL_ADMIN,
        tips: DIFFERENT,
        execution: session(SessionVerb::LatencyGraph),
        ..SERVER
    },
    CommandSpec {
        name: "latency|help",
        arity: Exactly(2),
        since: "2.8.13",
        summary: "Shows this help.",
        flags: LOCAL,
        execution: HELP,
        ..SERVER
    },
    CommandSpec {
        name: "latency|histogram",
        arity: AtLeast(2),
        since: "7.0.0",
        summary: "Answers how long the calls of the given commands took, or of all, as cumulative histograms.",
        complexity: "O(N) where N is the number of commands with latency information being retrieved.",
        arguments: &[Argument::string("command").optional().multiple()],
        flags: LOCAL_ADMIN,
        tips: DIFFERENT,
        execution: session(SessionVerb::LatencyHistogram),
        ..SERVER
    },
    CommandSpec {
        name: "latency|history",
        arity: Exactly(3),
        since: "2.8.13",
        summary: "Answers the samples of an event: when, and how many milliseconds.",
        arguments: EVENT,
        flags: LOCAL_ADMIN,
        tips: DIFFERENT,
        execution: session(SessionVerb::LatencyHistory),
        ..SERVER
    },
    CommandSpec {
        name: "latency|latest",
        arity: Exactly(2),
        since: "2.8.13",
        summary: "Answers the last and the worst sample of each event.",
        flags: LOCAL_ADMIN,
        tips: DIFFERENT,
        execution: session(SessionVerb::LatencyLatest),
        ..SERVER
    },
    CommandSpec {
        name: "latency|reset",
        arity: AtLeast(2),
        since: "2.8.13",
        summary: "Forgets the samples of the given events, or of all.",
        arguments: &[Argument::string("event").optional().multiple()],
        flags: LOCAL_ADMIN,
        tips: &["request_policy:all_nodes", "response_policy:agg_sum"],
        execution: session(SessionVerb::LatencyReset),
        ..SERVER
    },
];
