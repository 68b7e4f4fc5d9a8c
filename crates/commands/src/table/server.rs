//! Rows of commands about the server; sessions execute them.

use types::Access;

use super::rows::{SERVER, one_key_at, session};
use crate::keys::inspect;
use crate::plan::Execution::Key;
use crate::plan::SessionVerb;
use crate::spec::Arity::{AtLeast, Exactly};
use crate::spec::Flag::{Admin, Fast, Loading, NoScript, Readonly, Stale, Write};
use crate::spec::{Argument, ArgumentKind, Category, CommandSpec, Flag};

const LOCAL: &[Flag] = &[Loading, Stale];
const LOCAL_ADMIN: &[Flag] = &[Admin, NoScript, Loading, Stale];
const ALL_SHARDS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];
const ALL_SHARDS_SPECIAL: &[&str] =
    &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"];
const UNORDERED: &[&str] = &["nondeterministic_output_order"];

const ASYNC_OR_SYNC: Argument = Argument::one_of(
    "async",
    &[
        Argument::word("async", "ASYNC").since("4.0.0"),
        Argument::word("sync", "SYNC").since("6.2.0"),
    ],
)
.optional();

pub(super) const ROWS: &[CommandSpec] = &[
    CommandSpec {
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
    },
    CommandSpec {
        name: "config",
        arity: AtLeast(2),
        since: "2.0.0",
        summary: "Holds commands about the configuration.",
        complexity: "Depends on subcommand.",
        subcommands: CONFIG,
        ..SERVER
    },
    CommandSpec {
        name: "dbsize",
        arity: Exactly(1),
        summary: "Answers how many keys the database has, above 100,000 about.",
        flags: &[Readonly, Fast],
        categories: &[Category::Keyspace],
        tips: &["request_policy:all_shards", "response_policy:agg_sum"],
        execution: session(SessionVerb::DbSize),
        ..SERVER
    },
    CommandSpec {
        name: "flushall",
        arity: AtLeast(1),
        summary: "Deletes all keys of all databases.",
        complexity: "O(N) where N is the number of keys.",
        arguments: &[ASYNC_OR_SYNC],
        flags: &[Write],
        categories: &[Category::Keyspace, Category::Dangerous],
        tips: ALL_SHARDS,
        execution: session(SessionVerb::FlushAll),
        ..SERVER
    },
    CommandSpec {
        name: "flushdb",
        arity: AtLeast(1),
        summary: "Deletes all keys of the connection's database.",
        complexity: "O(N) where N is the number of keys.",
        arguments: &[ASYNC_OR_SYNC],
        flags: &[Write],
        categories: &[Category::Keyspace, Category::Dangerous],
        tips: ALL_SHARDS,
        execution: session(SessionVerb::FlushDb),
        ..SERVER
    },
    CommandSpec {
        name: "info",
        arity: AtLeast(1),
        summary: "Describes the server and counts what it does.",
        arguments: &[Argument::string("section").optional().multiple()],
        flags: LOCAL,
        categories: &[Category::Dangerous],
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        execution: session(SessionVerb::Info),
        ..SERVER
    },
    CommandSpec {
        name: "lolwut",
        arity: AtLeast(1),
        since: "5.0.0",
        summary: "Answers a picture and the version.",
        complexity: "",
        arguments: &[Argument::integer("version").after("VERSION").optional()],
        flags: &[Readonly, Fast],
        execution: session(SessionVerb::Lolwut),
        ..SERVER
    },
    CommandSpec {
        name: "memory",
        arity: AtLeast(2),
        since: "4.0.0",
        summary: "Holds commands about memory.",
        complexity: "Depends on subcommand.",
        subcommands: MEMORY,
        ..SERVER
    },
    CommandSpec {
        name: "time",
        arity: Exactly(1),
        since: "2.6.0",
        summary: "Answers this node's wall clock: seconds of Unix time, and microseconds, of which it knows the thousands.",
        flags: &[Loading, Stale, Fast],
        tips: &["nondeterministic_output"],
        execution: session(SessionVerb::Time),
        ..SERVER
    },
];

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

const CONFIG: &[CommandSpec] = &[
    CommandSpec {
        name: "config|get",
        arity: AtLeast(3),
        since: "2.0.0",
        summary: "Answers the parameters that fit the given patterns.",
        complexity: "O(N) where N is the number of patterns.",
        arguments: &[Argument::block("parameter", &[Argument::string("parameter")]).multiple()],
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
        execution: session(SessionVerb::ConfigHelp),
        ..SERVER
    },
    CommandSpec {
        name: "config|resetstat",
        arity: Exactly(2),
        since: "2.0.0",
        summary: "Sets the counters of INFO to zero.",
        flags: LOCAL_ADMIN,
        execution: session(SessionVerb::ConfigResetStat),
        ..SERVER
    },
    CommandSpec {
        name: "config|rewrite",
        arity: Exactly(2),
        since: "2.8.0",
        summary: "Refused: the configuration file belongs to its author.",
        flags: LOCAL_ADMIN,
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
            "parameter_value",
            &[Argument::string("parameter"), Argument::string("value")],
        )
        .multiple()],
        flags: LOCAL_ADMIN,
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        execution: session(SessionVerb::ConfigSet),
        ..SERVER
    },
];

const MEMORY: &[CommandSpec] = &[
    CommandSpec {
        name: "memory|doctor",
        arity: Exactly(2),
        since: "4.0.0",
        summary: "Answers that there is nothing to report, as redis-server says it.",
        tips: ALL_SHARDS_SPECIAL,
        execution: session(SessionVerb::MemoryDoctor),
        ..SERVER
    },
    CommandSpec {
        name: "memory|help",
        arity: Exactly(2),
        since: "4.0.0",
        summary: "Shows this help.",
        flags: LOCAL,
        execution: session(SessionVerb::MemoryHelp),
        ..SERVER
    },
    CommandSpec {
        name: "memory|malloc-stats",
        arity: Exactly(2),
        since: "4.0.0",
        summary: "Answers that the allocator's statistics are not supported.",
        tips: ALL_SHARDS_SPECIAL,
        execution: session(SessionVerb::MemoryMallocStats),
        ..SERVER
    },
    CommandSpec {
        name: "memory|purge",
        arity: Exactly(2),
        since: "4.0.0",
        summary: "Answers OK: the allocator gives memory back in the background.",
        tips: ALL_SHARDS,
        execution: session(SessionVerb::MemoryPurge),
        ..SERVER
    },
    CommandSpec {
        name: "memory|stats",
        arity: Exactly(2),
        since: "4.0.0",
        summary: "Answers what the process and its keys take, by name.",
        tips: ALL_SHARDS_SPECIAL,
        execution: session(SessionVerb::MemoryStats),
        ..SERVER
    },
    CommandSpec {
        name: "memory|usage",
        arity: AtLeast(3),
        since: "4.0.0",
        summary: "Answers how many bytes of memory a key and its value take, about.",
        arguments: &[Argument::key(), Argument::integer("count").after("SAMPLES").optional()],
        flags: &[Readonly],
        keys: one_key_at(2, &["RO"]),
        access: Some(Access::Read),
        execution: Key(inspect::plan_memory_usage),
        ..SERVER
    },
];
