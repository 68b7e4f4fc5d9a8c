//! `CLIENT` and its subcommands. Sessions execute them.

use super::{LOCAL, LOCAL_ADMIN};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ON_OFF: &[Argument] = &[Argument::word("on", "ON"), Argument::word("off", "OFF")];

const TYPES: &[Argument] = &[
    Argument::word("normal", "NORMAL"),
    Argument::word("master", "MASTER"),
    Argument::word("replica", "REPLICA"),
    Argument::word("pubsub", "PUBSUB"),
];

const ROW: CommandSpec = CommandSpec {
    name: "client",
    arity: AtLeast(2),
    since: "2.4.0",
    summary: "Holds commands about client connections.",
    complexity: "Depends on subcommand.",
    categories: &[],
    subcommands: CLIENT,
    ..CONNECTION
};

const CLIENT: &[CommandSpec] = &[
    CommandSpec {
        name: "client|consistency",
        arity: Exactly(3),
        since: "7.4.0",
        summary: "Chooses how the connection's reads are ordered (Palimpsest only).",
        arguments: &[Argument::one_of(
            "level",
            &[
                Argument::word("linearizable", "LINEARIZABLE"),
                Argument::word("local", "LOCAL"),
                Argument::word("uncommitted", "UNCOMMITTED"),
            ],
        )],
        flags: LOCAL,
        execution: session(SessionVerb::ClientConsistency),
        ..CONNECTION
    },
    CommandSpec {
        name: "client|getname",
        arity: Exactly(2),
        since: "2.6.9",
        summary: "Answers the connection's name.",
        flags: LOCAL,
        execution: session(SessionVerb::ClientGetName),
        ..CONNECTION
    },
    CommandSpec {
        name: "client|getredir",
        arity: Exactly(2),
        since: "6.0.0",
        summary: "Answers where tracking notifications go: -1, there are none.",
        flags: LOCAL,
        execution: session(SessionVerb::ClientGetRedir),
        ..CONNECTION
    },
    CommandSpec {
        name: "client|help",
        arity: Exactly(2),
        since: "5.0.0",
        summary: "Shows this help.",
        flags: &[Loading, Stale],
        execution: HELP,
        ..CONNECTION
    },
    CommandSpec {
        name: "client|id",
        arity: Exactly(2),
        since: "5.0.0",
        summary: "Answers the connection's id.",
        flags: LOCAL,
        execution: session(SessionVerb::ClientId),
        ..CONNECTION
    },
    CommandSpec {
        name: "client|info",
        arity: Exactly(2),
        since: "6.2.0",
        summary: "Describes the connection.",
        flags: LOCAL,
        tips: &["nondeterministic_output"],
        execution: session(SessionVerb::ClientInfo),
        ..CONNECTION
    },
    CommandSpec {
        name: "client|kill",
        arity: AtLeast(3),
        since: "2.4.0",
        summary: "Closes connections.",
        complexity: "O(N) where N is the number of connections.",
        arguments: &[Argument::one_of(
            "filter",
            &[
                Argument::string("old-format").shown("ip:port"),
                Argument::one_of(
                    "new-format",
                    &[
                        Argument::integer("client-id").after("ID").optional(),
                        Argument::one_of("client-type", TYPES).after("TYPE").optional(),
                        Argument::string("username").after("USER").optional(),
                        Argument::string("addr").after("ADDR").optional(),
                        Argument::string("laddr").after("LADDR").optional(),
                        Argument::one_of(
                            "skipme",
                            &[Argument::word("yes", "YES"), Argument::word("no", "NO")],
                        )
                        .after("SKIPME")
                        .optional(),
                    ],
                )
                .multiple(),
            ],
        )],
        flags: LOCAL_ADMIN,
        execution: session(SessionVerb::ClientKill),
        ..CONNECTION
    },
    CommandSpec {
        name: "client|list",
        arity: AtLeast(2),
        since: "2.4.0",
        summary: "Describes the connections of this node.",
        complexity: "O(N) where N is the number of connections.",
        arguments: &[
            Argument::one_of("client-type", TYPES).after("TYPE").optional().since("5.0.0"),
            Argument::integer("client-id").after("ID").optional().multiple().since("6.2.0"),
        ],
        flags: LOCAL_ADMIN,
        tips: &["nondeterministic_output"],
        execution: session(SessionVerb::ClientList),
        ..CONNECTION
    },
    CommandSpec {
        name: "client|no-evict",
        arity: Exactly(3),
        since: "7.0.0",
        summary: "Accepted: connections are not evicted.",
        arguments: &[Argument::one_of("enabled", ON_OFF)],
        flags: LOCAL_ADMIN,
        execution: session(SessionVerb::ClientNoEvict),
        ..CONNECTION
    },
    CommandSpec {
        name: "client|no-touch",
        arity: Exactly(3),
        since: "7.2.0",
        summary: "Accepted: access times are not kept.",
        arguments: &[Argument::one_of("enabled", ON_OFF)],
        flags: LOCAL,
        execution: session(SessionVerb::ClientNoTouch),
        ..CONNECTION
    },
    CommandSpec {
        name: "client|pause",
        arity: AtLeast(3),
        since: "3.0.0",
        summary: "Holds back the commands of this node's clients for some time.",
        arguments: &[
            Argument::integer("timeout"),
            Argument::one_of(
                "mode",
                &[Argument::word("write", "WRITE"), Argument::word("all", "ALL")],
            )
            .optional()
            .since("6.2.0"),
        ],
        flags: LOCAL_ADMIN,
        execution: session(SessionVerb::ClientPause),
        ..CONNECTION
    },
    CommandSpec {
        name: "client|reply",
        arity: Exactly(3),
        since: "3.2.0",
        summary: "Turns replies to the connection on or off.",
        arguments: &[Argument::one_of(
            "action",
            &[
                Argument::word("on", "ON"),
                Argument::word("off", "OFF"),
                Argument::word("skip", "SKIP"),
            ],
        )],
        flags: LOCAL,
        execution: session(SessionVerb::ClientReply),
        ..CONNECTION
    },
    CommandSpec {
        name: "client|setinfo",
        arity: Exactly(4),
        since: "7.2.0",
        summary: "Notes the name or version of the client's library.",
        arguments: &[Argument::one_of(
            "attr",
            &[
                Argument::string("libname").after("LIB-NAME"),
                Argument::string("libver").after("LIB-VER"),
            ],
        )],
        flags: LOCAL,
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        execution: session(SessionVerb::ClientSetInfo),
        ..CONNECTION
    },
    CommandSpec {
        name: "client|setname",
        arity: Exactly(3),
        since: "2.6.9",
        summary: "Names the connection.",
        arguments: &[Argument::string("connection-name")],
        flags: LOCAL,
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        execution: session(SessionVerb::ClientSetName),
        ..CONNECTION
    },
    CommandSpec {
        name: "client|trackinginfo",
        arity: Exactly(2),
        since: "6.2.0",
        summary: "Describes the tracking of keys for client-side caches: it is off.",
        flags: LOCAL,
        execution: session(SessionVerb::ClientTrackingInfo),
        ..CONNECTION
    },
    CommandSpec {
        name: "client|unblock",
        arity: AtLeast(3),
        since: "5.0.0",
        summary: "Ends the wait of a client in a blocking command.",
        arguments: &[
            Argument::integer("client-id"),
            Argument::one_of(
                "unblock-type",
                &[Argument::word("timeout", "TIMEOUT"), Argument::word("error", "ERROR")],
            )
            .optional(),
        ],
        flags: LOCAL_ADMIN,
        execution: session(SessionVerb::ClientUnblock),
        ..CONNECTION
    },
    CommandSpec {
        name: "client|unpause",
        arity: Exactly(2),
        since: "6.2.0",
        summary: "Ends a pause of this node's clients.",
        flags: LOCAL_ADMIN,
        execution: session(SessionVerb::ClientUnpause),
        ..CONNECTION
    },
];
