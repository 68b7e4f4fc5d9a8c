//! Rows of commands on keys of any type, and on the whole keyspace.

use types::Access;

use super::rows::{GENERIC, all_keys, one_key, one_key_at, session};
use crate::keys::{expire, inspect, key, time_left};
use crate::once;
use crate::plan::Execution::{Key, PerKey};
use crate::plan::{Combine, SessionVerb};
use crate::spec::Arity::{AtLeast, Exactly};
use crate::spec::Flag::{DenyOom, Fast, Loading, NoScript, Readonly, Stale, Write};
use crate::spec::{Argument, ArgumentKind, Category, CommandSpec, Miss};

const EXPIRE_CONDITION: Argument = Argument::one_of(
    "condition",
    &[
        Argument::word("nx", "NX"),
        Argument::word("xx", "XX"),
        Argument::word("gt", "GT"),
        Argument::word("lt", "LT"),
    ],
)
.optional()
.since("7.0.0");

const PER_KEY_TIPS: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];

pub(super) const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "del",
        arity: AtLeast(2),
        summary: "Deletes keys, each on its own, and answers how many there were.",
        complexity: "O(N) where N is the number of keys.",
        arguments: &[Argument::key().multiple()],
        flags: &[Write],
        tips: PER_KEY_TIPS,
        keys: all_keys(&["RM", "delete"]),
        access: Some(Access::Update),
        execution: PerKey(key::plan_del, Combine::Sum),
        ..GENERIC
    },
    CommandSpec {
        name: "exists",
        arity: AtLeast(2),
        summary: "Answers how many of the given keys exist, each read on its own.",
        complexity: "O(N) where N is the number of keys.",
        arguments: &[Argument::key().multiple()],
        flags: &[Readonly, Fast],
        tips: PER_KEY_TIPS,
        keys: all_keys(&["RO"]),
        access: Some(Access::Read),
        execution: PerKey(key::plan_exists, Combine::Sum),
        miss: Some(Miss::Integer(0)),
        ..GENERIC
    },
    CommandSpec {
        name: "expire",
        arity: AtLeast(3),
        summary: "Sets the time to live of a key in seconds.",
        arguments: &[Argument::key(), Argument::integer("seconds"), EXPIRE_CONDITION],
        flags: &[Write, Fast],
        keys: one_key(&["RW", "update"]),
        access: Some(Access::Update),
        execution: Key(expire::plan_expire),
        ..GENERIC
    },
    CommandSpec {
        name: "expireat",
        arity: AtLeast(3),
        since: "1.2.0",
        summary: "Sets the time at which a key expires, in seconds of Unix time.",
        arguments: &[Argument::key(), Argument::unix_time("unix-time-seconds"), EXPIRE_CONDITION],
        flags: &[Write, Fast],
        keys: one_key(&["RW", "update"]),
        access: Some(Access::Update),
        execution: Key(expire::plan_expireat),
        ..GENERIC
    },
    CommandSpec {
        name: "expiretime",
        arity: Exactly(2),
        since: "7.0.0",
        summary: "Answers when a key expires, in seconds of Unix time: -1 never, -2 no key.",
        arguments: &[Argument::key()],
        flags: &[Readonly, Fast],
        keys: one_key(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Key(time_left::plan_expiretime),
        miss: Some(Miss::Integer(-2)),
        ..GENERIC
    },
    CommandSpec {
        name: "key.explain",
        arity: Exactly(2),
        since: "7.4.0",
        summary: "Answers the record of each replica of a key: round, version, checksum (Palimpsest only).",
        complexity: "One message to each node.",
        arguments: &[Argument::key()],
        flags: &[Readonly],
        keys: one_key(&["RO"]),
        execution: session(SessionVerb::KeyExplain),
        ..GENERIC
    },
    CommandSpec {
        name: "keys",
        arity: Exactly(2),
        summary: "Answers all keys that fit a pattern.",
        complexity: "O(N) where N is the number of keys in the database.",
        arguments: &[Argument::new("pattern", ArgumentKind::Pattern)],
        flags: &[Readonly],
        categories: &[Category::Keyspace, Category::Dangerous],
        tips: &["request_policy:all_shards", "nondeterministic_output_order"],
        execution: session(SessionVerb::Keys),
        ..GENERIC
    },
    CommandSpec {
        name: "object",
        arity: AtLeast(2),
        since: "2.2.3",
        summary: "Holds commands about the values at keys.",
        complexity: "Depends on subcommand.",
        categories: &[],
        subcommands: OBJECT,
        ..GENERIC
    },
    CommandSpec {
        name: "once",
        arity: AtLeast(5),
        since: "7.4.0",
        summary: "Runs a command on one key at most once, however often the line is sent (Palimpsest only).",
        complexity: "Depends on the command.",
        arguments: &[
            Argument::string("session"),
            Argument::integer("seq"),
            Argument::string("command"),
            Argument::key(),
            Argument::string("argument").optional().multiple(),
        ],
        flags: &[Write, DenyOom],
        keys: one_key_at(once::KEY, &["RW", "access", "update"]),
        access: Some(Access::Update),
        execution: Key(once::plan_once),
        ..GENERIC
    },
    CommandSpec {
        name: "persist",
        arity: Exactly(2),
        since: "2.2.0",
        summary: "Removes the time to live of a key.",
        arguments: &[Argument::key()],
        flags: &[Write, Fast],
        keys: one_key(&["RW", "update"]),
        access: Some(Access::Update),
        execution: Key(expire::plan_persist),
        ..GENERIC
    },
    CommandSpec {
        name: "pexpire",
        arity: AtLeast(3),
        since: "2.6.0",
        summary: "Sets the time to live of a key in milliseconds.",
        arguments: &[Argument::key(), Argument::integer("milliseconds"), EXPIRE_CONDITION],
        flags: &[Write, Fast],
        keys: one_key(&["RW", "update"]),
        access: Some(Access::Update),
        execution: Key(expire::plan_pexpire),
        ..GENERIC
    },
    CommandSpec {
        name: "pexpireat",
        arity: AtLeast(3),
        since: "2.6.0",
        summary: "Sets the time at which a key expires, in milliseconds of Unix time.",
        arguments: &[
            Argument::key(),
            Argument::unix_time("unix-time-milliseconds"),
            EXPIRE_CONDITION,
        ],
        flags: &[Write, Fast],
        keys: one_key(&["RW", "update"]),
        access: Some(Access::Update),
        execution: Key(expire::plan_pexpireat),
        ..GENERIC
    },
    CommandSpec {
        name: "pexpiretime",
        arity: Exactly(2),
        since: "7.0.0",
        summary: "Answers when a key expires, in milliseconds of Unix time: -1 never, -2 no key.",
        arguments: &[Argument::key()],
        flags: &[Readonly, Fast],
        keys: one_key(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Key(time_left::plan_pexpiretime),
        miss: Some(Miss::Integer(-2)),
        ..GENERIC
    },
    CommandSpec {
        name: "pttl",
        arity: Exactly(2),
        since: "2.6.0",
        summary: "Answers the time that a key has to live, in milliseconds: -1 for ever, -2 no key.",
        arguments: &[Argument::key()],
        flags: &[Readonly, Fast],
        tips: &["nondeterministic_output"],
        keys: one_key(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Key(time_left::plan_pttl),
        miss: Some(Miss::Integer(-2)),
        ..GENERIC
    },
    CommandSpec {
        name: "randomkey",
        arity: Exactly(1),
        summary: "Answers a random key of the database.",
        flags: &[Readonly],
        tips: &["request_policy:all_shards", "nondeterministic_output"],
        execution: session(SessionVerb::RandomKey),
        ..GENERIC
    },
    CommandSpec {
        name: "scan",
        arity: AtLeast(2),
        since: "2.8.0",
        summary: "Lists the keys of the database step by step.",
        complexity: "O(1) for every call, O(N) for all, where N is the number of keys.",
        arguments: &[
            Argument::integer("cursor"),
            Argument::new("pattern", ArgumentKind::Pattern).after("MATCH").optional(),
            Argument::integer("count").after("COUNT").optional(),
            Argument::string("type").after("TYPE").optional().since("6.0.0"),
        ],
        flags: &[Readonly],
        tips: &["nondeterministic_output", "request_policy:special"],
        execution: session(SessionVerb::Scan),
        ..GENERIC
    },
    CommandSpec {
        name: "touch",
        arity: AtLeast(2),
        since: "3.2.1",
        summary: "Answers how many of the given keys exist, each read on its own.",
        complexity: "O(N) where N is the number of keys.",
        arguments: &[Argument::key().multiple()],
        flags: &[Readonly, Fast],
        tips: PER_KEY_TIPS,
        keys: all_keys(&["RO"]),
        access: Some(Access::Read),
        execution: PerKey(key::plan_exists, Combine::Sum),
        miss: Some(Miss::Integer(0)),
        ..GENERIC
    },
    CommandSpec {
        name: "ttl",
        arity: Exactly(2),
        summary: "Answers the time that a key has to live, in seconds: -1 for ever, -2 no key.",
        arguments: &[Argument::key()],
        flags: &[Readonly, Fast],
        tips: &["nondeterministic_output"],
        keys: one_key(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Key(time_left::plan_ttl),
        miss: Some(Miss::Integer(-2)),
        ..GENERIC
    },
    CommandSpec {
        name: "type",
        arity: Exactly(2),
        summary: "Answers the type of the value at a key.",
        arguments: &[Argument::key()],
        flags: &[Readonly, Fast],
        keys: one_key(&["RO"]),
        access: Some(Access::Read),
        execution: Key(key::plan_type),
        miss: Some(Miss::Simple("none")),
        ..GENERIC
    },
    CommandSpec {
        name: "unlink",
        arity: AtLeast(2),
        since: "4.0.0",
        summary: "Deletes keys, each on its own, and answers how many there were.",
        complexity: "O(N) where N is the number of keys.",
        arguments: &[Argument::key().multiple()],
        flags: &[Write, Fast],
        tips: PER_KEY_TIPS,
        keys: all_keys(&["RM", "delete"]),
        access: Some(Access::Update),
        execution: PerKey(key::plan_del, Combine::Sum),
        ..GENERIC
    },
    CommandSpec {
        name: "wait",
        arity: Exactly(3),
        since: "3.0.0",
        summary: "Waits until other replicas have the connection's writes, and answers how many.",
        arguments: &[Argument::integer("numreplicas"), Argument::integer("timeout")],
        flags: &[NoScript],
        categories: &[Category::Connection],
        tips: &["request_policy:all_shards", "response_policy:agg_min"],
        execution: session(SessionVerb::Wait),
        ..GENERIC
    },
];

const OBJECT: &[CommandSpec] = &[
    CommandSpec {
        name: "object|encoding",
        since: "2.2.3",
        summary: "Answers how redis-server would keep the value at a key: int, embstr or raw.",
        execution: Key(inspect::plan_encoding),
        ..ABOUT_VALUE
    },
    CommandSpec {
        name: "object|freq",
        since: "4.0.0",
        summary: "Refused for a key that exists: how often it is used is not counted.",
        execution: Key(inspect::plan_freq),
        ..ABOUT_VALUE
    },
    CommandSpec {
        name: "object|help",
        arity: Exactly(2),
        since: "6.2.0",
        summary: "Shows this help.",
        flags: &[Loading, Stale],
        execution: session(SessionVerb::ObjectHelp),
        ..GENERIC
    },
    CommandSpec {
        name: "object|idletime",
        since: "2.2.3",
        summary: "Refused for a key that exists: when it was used last is not kept.",
        execution: Key(inspect::plan_idletime),
        ..ABOUT_VALUE
    },
    CommandSpec {
        name: "object|refcount",
        since: "2.2.3",
        summary: "Answers 1, or what redis-server answers for the small integers that it shares.",
        execution: Key(inspect::plan_refcount),
        ..ABOUT_VALUE
    },
];

const ABOUT_VALUE: CommandSpec = CommandSpec {
    arity: Exactly(3),
    arguments: &[Argument::key()],
    flags: &[Readonly],
    tips: &["nondeterministic_output"],
    keys: one_key_at(2, &["RO"]),
    access: Some(Access::Read),
    ..GENERIC
};
