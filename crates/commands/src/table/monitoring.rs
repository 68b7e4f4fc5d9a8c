//! Rows of commands that show what this node's clients do; sessions execute them.

use super::rows::{SERVER, session};
use crate::plan::SessionVerb;
use crate::spec::Arity::{AtLeast, Exactly};
use crate::spec::Flag::{Admin, Loading, NoScript, Stale};
use crate::spec::{Argument, CommandSpec, Flag};

const HELP: &[Flag] = &[Loading, Stale];
const LOG: &[Flag] = &[Admin, Loading, Stale];
const LATENCY_FLAGS: &[Flag] = &[Admin, NoScript, Loading, Stale];
const DIFFERENT: &[&str] =
    &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];
const ON_ALL_NODES: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

const EVENT: &[Argument] = &[Argument::string("event")];

pub(super) const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "latency",
        arity: AtLeast(2),
        since: "2.8.13",
        summary: "Holds commands about the time that commands take.",
        complexity: "Depends on subcommand.",
        subcommands: LATENCY,
        ..SERVER
    },
    CommandSpec {
        name: "monitor",
        arity: Exactly(1),
        summary: "Shows the commands of all clients of this node, as they are executed.",
        complexity: "",
        flags: LATENCY_FLAGS,
        execution: session(SessionVerb::Monitor),
        ..SERVER
    },
    CommandSpec {
        name: "slowlog",
        arity: AtLeast(2),
        since: "2.2.12",
        summary: "Holds commands about the log of slow requests.",
        complexity: "Depends on subcommand.",
        subcommands: SLOWLOG,
        ..SERVER
    },
];

const LATENCY: &[CommandSpec] = &[
    CommandSpec {
        name: "latency|doctor",
        arity: Exactly(2),
        since: "2.8.13",
        summary: "Answers a report about slow commands for people.",
        flags: LATENCY_FLAGS,
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
        flags: LATENCY_FLAGS,
        tips: DIFFERENT,
        execution: session(SessionVerb::LatencyGraph),
        ..SERVER
    },
    CommandSpec {
        name: "latency|help",
        arity: Exactly(2),
        since: "2.8.13",
        summary: "Shows this help.",
        flags: HELP,
        execution: session(SessionVerb::LatencyHelp),
        ..SERVER
    },
    CommandSpec {
        name: "latency|histogram",
        arity: AtLeast(2),
        since: "7.0.0",
        summary: "Answers how long the calls of the given commands took, or of all, as cumulative histograms.",
        complexity: "O(N) where N is the number of commands with latency information being retrieved.",
        arguments: &[Argument::string("command").optional().multiple()],
        flags: LATENCY_FLAGS,
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
        flags: LATENCY_FLAGS,
        tips: DIFFERENT,
        execution: session(SessionVerb::LatencyHistory),
        ..SERVER
    },
    CommandSpec {
        name: "latency|latest",
        arity: Exactly(2),
        since: "2.8.13",
        summary: "Answers the last and the worst sample of each event.",
        flags: LATENCY_FLAGS,
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
        flags: LATENCY_FLAGS,
        tips: ON_ALL_NODES,
        execution: session(SessionVerb::LatencyReset),
        ..SERVER
    },
];

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
        flags: HELP,
        execution: session(SessionVerb::SlowlogHelp),
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
