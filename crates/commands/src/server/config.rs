//! `CONFIG` and its subcommands. Sessions execute them.

use super::{LOCAL, LOCAL_ADMIN};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "config",
    arity: AtLeast(2),
    since: "2.0.0",
    summary: "Holds commands about the configuration.",
    complexity: "Depends on subcommand.",
    subcommands: CONFIG,
    ..SERVER
};

const CONFIG: &[CommandSpec] = &[
    CommandSpec {
        name: "config|get",
        arity: AtLeast(3),
        since: "2.0.0",
        summary: "Answers the parameters that fit the given patterns.",
        complexity: "O(N) where N is the number of patterns.",
        arguments: &[Argument::string("parameter").multiple()],
        flags: LOCAL_ADMIN,
        execution: session(SessionVerb::ConfigGet),
        ..SERVER
    },
    CommandSpec {
        name: "config|help",
        arity: Exactly(2),
        since: "5.0.0",
        summary: "Shows this help.",
        flags: LOCAL,
        execution: HELP,
        ..SERVER
    },
    CommandSpec {
        name: "config|resetstat",
        arity: Exactly(2),
        since: "2.0.0",
        summary: "Sets the counters of INFO to zero.",
        flags: LOCAL_ADMIN,
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        execution: session(SessionVerb::ConfigResetStat),
        ..SERVER
    },
    CommandSpec {
        name: "config|rewrite",
        arity: Exactly(2),
        since: "2.8.0",
        summary: "Refused: the configuration file belongs to its author.",
        flags: LOCAL_ADMIN,
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        execution: session(SessionVerb::ConfigRewrite),
        ..SERVER
    },
    CommandSpec {
        name: "config|set",
        arity: AtLeast(4),
        since: "2.0.0",
        summary: "Sets parameters of this node until it ends.",
        complexity: "O(N) where N is the number of parameters.",
        arguments: &[Argument::block(
            "data",
            &[Argument::string("parameter"), Argument::string("value")],
        )
        .multiple()],
        flags: LOCAL_ADMIN,
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        execution: session(SessionVerb::ConfigSet),
        ..SERVER
    },
];
