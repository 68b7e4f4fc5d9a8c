//! `COMMAND` and its subcommands: the table as clients read it.

use super::LOCAL;
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const UNORDERED: &[&str] = &["nondeterministic_output_order"];

const ROW: CommandSpec = CommandSpec {
    name: "command",
    arity: AtLeast(1),
    since: "2.8.13",
    summary: "Answers details about all commands.",
    complexity: "O(N) where N is the number of commands.",
    flags: LOCAL,
    categories: &[Category::Connection],
    tips: UNORDERED,
    execution: session(SessionVerb::Command),
    subcommands: COMMAND,
    ..SERVER
};

const COMMAND: &[CommandSpec] = &[
    CommandSpec {
        name: "command|count",
        arity: Exactly(2),
        since: "2.8.13",
        summary: "Answers how many commands there are.",
        flags: LOCAL,
        categories: &[Category::Connection],
        execution: session(SessionVerb::CommandCount),
        ..SERVER
    },
    CommandSpec {
        name: "command|docs",
        arity: AtLeast(2),
        since: "7.0.0",
        summary: "Answers the documentation of the given commands, or of all.",
        complexity: "O(N) where N is the number of commands to look up.",
        arguments: &[Argument::string("command-name").optional().multiple()],
        flags: LOCAL,
        categories: &[Category::Connection],
        tips: UNORDERED,
        execution: session(SessionVerb::CommandDocs),
        ..SERVER
    },
    CommandSpec {
        name: "command|getkeys",
        arity: AtLeast(3),
        since: "2.8.13",
        summary: "Answers the keys among the arguments of a whole command.",
        complexity: "O(N) where N is the number of arguments.",
        flags: LOCAL,
        categories: &[Category::Connection],
        execution: session(SessionVerb::CommandGetKeys),
        ..SERVER
    },
    CommandSpec {
        name: "command|getkeysandflags",
        arity: AtLeast(3),
        since: "7.0.0",
        summary: "Answers the keys among the arguments of a whole command, and what it does to them.",
        complexity: "O(N) where N is the number of arguments.",
        flags: LOCAL,
        categories: &[Category::Connection],
        execution: session(SessionVerb::CommandGetKeysAndFlags),
        ..SERVER
    },
    CommandSpec {
        name: "command|help",
        arity: Exactly(2),
        since: "5.0.0",
        summary: "Shows this help.",
        flags: LOCAL,
        categories: &[Category::Connection],
        execution: session(SessionVerb::CommandHelp),
        ..SERVER
    },
    CommandSpec {
        name: "command|info",
        arity: AtLeast(2),
        since: "2.8.13",
        summary: "Answers details about the given commands, or about all.",
        complexity: "O(N) where N is the number of commands to look up.",
        arguments: &[Argument::string("command-name").optional().multiple()],
        flags: LOCAL,
        categories: &[Category::Connection],
        tips: UNORDERED,
        execution: session(SessionVerb::CommandInfo),
        ..SERVER
    },
    CommandSpec {
        name: "command|list",
        arity: AtLeast(2),
        since: "7.0.0",
        summary: "Answers the names of commands.",
        complexity: "O(N) where N is the number of commands.",
        arguments: &[Argument::one_of(
            "filterby",
            &[
                Argument::string("module-name").after("MODULE"),
                Argument::string("category").after("ACLCAT"),
                Argument::new("pattern", ArgumentKind::Pattern).after("PATTERN"),
            ],
        )
        .after("FILTERBY")
        .optional()],
        flags: LOCAL,
        categories: &[Category::Connection],
        tips: UNORDERED,
        execution: session(SessionVerb::CommandList),
        ..SERVER
    },
];
