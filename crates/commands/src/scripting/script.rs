//! `SCRIPT` and its subcommands. Sessions execute them.

use crate::row::*;
use crate::spec::Flag::AllowBusy;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "script",
    arity: AtLeast(2),
    since: "2.6.0",
    summary: "Holds commands about Lua scripts.",
    complexity: "Depends on subcommand.",
    categories: &[],
    subcommands: SUBCOMMANDS,
    ..SCRIPTING
};

const SUBCOMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "script|debug",
        arity: Exactly(3),
        since: "3.2.0",
        summary: "Refused: there is no debugger of scripts. NO is accepted.",
        arguments: &[Argument::one_of(
            "mode",
            &[
                Argument::word("yes", "YES"),
                Argument::word("sync", "SYNC"),
                Argument::word("no", "NO"),
            ],
        )],
        flags: &[NoScript],
        execution: session(SessionVerb::ScriptDebug),
        ..SCRIPTING
    },
    CommandSpec {
        name: "script|exists",
        arity: AtLeast(3),
        since: "2.6.0",
        summary: "Tells which scripts the cluster or this node knows.",
        complexity: "O(N) with N being the number of scripts to check (so checking a single script is an O(1) operation).",
        arguments: &[Argument::string("sha1").multiple()],
        flags: &[NoScript],
        tips: &["request_policy:all_shards", "response_policy:agg_logical_and"],
        execution: session(SessionVerb::ScriptExists),
        ..SCRIPTING
    },
    CommandSpec {
        name: "script|flush",
        arity: AtLeast(2),
        since: "2.6.0",
        summary: "Makes all nodes forget all scripts.",
        complexity: "O(N) with N being the number of scripts in cache",
        arguments: &[Argument::one_of(
            "flush-type",
            &[Argument::word("async", "ASYNC"), Argument::word("sync", "SYNC")],
        )
        .optional()
        .since("6.2.0")],
        flags: &[NoScript],
        tips: ALL_NODES,
        execution: session(SessionVerb::ScriptFlush),
        ..SCRIPTING
    },
    CommandSpec {
        name: "script|help",
        arity: Exactly(2),
        since: "5.0.0",
        summary: "Shows this help.",
        flags: &[Loading, Stale],
        execution: HELP,
        ..SCRIPTING
    },
    CommandSpec {
        name: "script|kill",
        arity: Exactly(2),
        since: "2.6.0",
        summary: "Ends the script that runs on this node's script thread.",
        flags: &[NoScript, AllowBusy],
        tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
        execution: session(SessionVerb::ScriptKill),
        ..SCRIPTING
    },
    CommandSpec {
        name: "script|load",
        arity: Exactly(3),
        since: "2.6.0",
        summary: "Stores a Lua script for all nodes, and answers its SHA1 digest.",
        complexity: "O(N) with N being the length in bytes of the script body.",
        arguments: &[Argument::string("script")],
        flags: &[NoScript, Stale],
        tips: ALL_NODES,
        execution: session(SessionVerb::ScriptLoad),
        ..SCRIPTING
    },
];

const ALL_NODES: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];
