//! Rows of commands on strings.

use types::Access;

use super::rows::{STRING, all_keys, one_key};
use crate::plan::Combine;
use crate::plan::Execution::{Key, PerKey};
use crate::spec::Arity::{AtLeast, Exactly};
use crate::spec::Flag::{DenyOom, Fast, Readonly, Write};
use crate::spec::{Argument, ArgumentKind, CommandSpec, Deprecated, Miss};
use crate::string;

const EXPIRATIONS: &[Argument] = &[
    Argument::integer("seconds").after("EX").since("2.6.12"),
    Argument::integer("milliseconds").after("PX").since("2.6.12"),
    Argument::unix_time("unix-time-seconds").after("EXAT").since("6.2.0"),
    Argument::unix_time("unix-time-milliseconds").after("PXAT").since("6.2.0"),
    Argument::word("keepttl", "KEEPTTL").since("6.0.0"),
];

const EXPIRATIONS_OR_PERSIST: &[Argument] = &[
    Argument::integer("seconds").after("EX"),
    Argument::integer("milliseconds").after("PX"),
    Argument::unix_time("unix-time-seconds").after("EXAT"),
    Argument::unix_time("unix-time-milliseconds").after("PXAT"),
    Argument::word("persist", "PERSIST"),
];

const COMPARISONS: &[Argument] = &[
    Argument::string("ifeq-value").after("IFEQ"),
    Argument::string("ifne-value").after("IFNE"),
    Argument::string("ifdeq-digest").after("IFDEQ"),
    Argument::string("ifdne-digest").after("IFDNE"),
];

const SET_CONDITIONS: &[Argument] = &[
    Argument::word("nx", "NX").since("2.6.12"),
    Argument::word("xx", "XX").since("2.6.12"),
    Argument::string("ifeq-value").after("IFEQ").since("8.4.0"),
    Argument::string("ifne-value").after("IFNE").since("8.4.0"),
    Argument::string("ifdeq-digest").after("IFDEQ").since("8.4.0"),
    Argument::string("ifdne-digest").after("IFDNE").since("8.4.0"),
];

pub(super) const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "append",
        arity: Exactly(3),
        since: "2.0.0",
        summary: "Appends to the string at a key, which begins empty, and answers its length.",
        complexity: "O(N) where N is the length of the resulting string.",
        arguments: &[Argument::key(), Argument::string("value")],
        flags: &[Write, DenyOom, Fast],
        keys: one_key(&["RW", "insert"]),
        access: Some(Access::Update),
        execution: Key(string::range::plan_append),
        ..STRING
    },
    CommandSpec {
        name: "decr",
        arity: Exactly(2),
        summary: "Takes one from the integer at a key, which begins at 0.",
        arguments: &[Argument::key()],
        flags: &[Write, DenyOom, Fast],
        keys: one_key(&["RW", "access", "update"]),
        access: Some(Access::Update),
        execution: Key(string::increment::plan_decr),
        ..STRING
    },
    CommandSpec {
        name: "decrby",
        arity: Exactly(3),
        summary: "Takes a number from the integer at a key, which begins at 0.",
        arguments: &[Argument::key(), Argument::integer("decrement")],
        flags: &[Write, DenyOom, Fast],
        keys: one_key(&["RW", "access", "update"]),
        access: Some(Access::Update),
        execution: Key(string::increment::plan_decrby),
        ..STRING
    },
    CommandSpec {
        name: "delex",
        arity: AtLeast(2),
        since: "8.4.0",
        summary: "Deletes a key if its value, or the digest of it, fits a condition.",
        complexity: "O(N) where N is the length of the value, with a condition on it.",
        arguments: &[Argument::key(), Argument::one_of("condition", COMPARISONS).optional()],
        flags: &[Write, Fast],
        keys: one_key(&["RM", "delete"]),
        access: Some(Access::Update),
        execution: Key(string::compare::plan_delex),
        ..STRING
    },
    CommandSpec {
        name: "delifeq",
        arity: Exactly(3),
        since: "9.0.0",
        summary: "Deletes a key if its value is equal to the given one (Valkey 9.0).",
        complexity: "O(N) where N is the length of the value.",
        arguments: &[Argument::key(), Argument::string("value")],
        flags: &[Write, Fast],
        keys: one_key(&["RM", "delete"]),
        access: Some(Access::Update),
        execution: Key(string::compare::plan_delifeq),
        ..STRING
    },
    CommandSpec {
        name: "digest",
        arity: Exactly(2),
        since: "8.4.0",
        summary: "Answers the XXH3 digest of the string at a key, in 16 hexadecimal digits.",
        complexity: "O(N) where N is the length of the value.",
        arguments: &[Argument::key()],
        flags: &[Readonly, Fast],
        keys: one_key(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Key(string::get::plan_digest),
        miss: Some(Miss::Null),
        ..STRING
    },
    CommandSpec {
        name: "get",
        arity: Exactly(2),
        summary: "Answers the string at a key.",
        arguments: &[Argument::key()],
        flags: &[Readonly, Fast],
        keys: one_key(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Key(string::get::plan_get),
        miss: Some(Miss::Null),
        ..STRING
    },
    CommandSpec {
        name: "getdel",
        arity: Exactly(2),
        since: "6.2.0",
        summary: "Answers the string at a key and deletes the key.",
        arguments: &[Argument::key()],
        flags: &[Write, Fast],
        keys: one_key(&["RW", "access", "delete"]),
        access: Some(Access::Update),
        execution: Key(string::get::plan_getdel),
        miss: Some(Miss::Null),
        ..STRING
    },
    CommandSpec {
        name: "getex",
        arity: AtLeast(2),
        since: "6.2.0",
        summary: "Answers the string at a key and sets or removes its time to live.",
        arguments: &[
            Argument::key(),
            Argument::one_of("expiration", EXPIRATIONS_OR_PERSIST).optional(),
        ],
        flags: &[Write, Fast],
        keys: one_key(&["RW", "access", "update"]),
        access: Some(Access::Update),
        execution: Key(string::get::plan_getex),
        miss: Some(Miss::Null),
        ..STRING
    },
    CommandSpec {
        name: "getrange",
        arity: Exactly(4),
        since: "2.4.0",
        summary: "Answers a part of the string at a key.",
        complexity: "O(N) where N is the length of the answer.",
        arguments: &[Argument::key(), Argument::integer("start"), Argument::integer("end")],
        flags: &[Readonly],
        keys: one_key(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Key(string::range::plan_getrange),
        miss: Some(Miss::Empty),
        ..STRING
    },
    CommandSpec {
        name: "getset",
        arity: Exactly(3),
        summary: "Sets the string at a key and answers the old one.",
        arguments: &[Argument::key(), Argument::string("value")],
        flags: &[Write, DenyOom, Fast],
        deprecated: Some(Deprecated {
            since: "6.2.0",
            replaced_by: "`SET` with the `!GET` argument",
        }),
        keys: one_key(&["RW", "access", "update"]),
        access: Some(Access::Update),
        execution: Key(string::set::plan_getset),
        miss: Some(Miss::Null),
        ..STRING
    },
    CommandSpec {
        name: "incr",
        arity: Exactly(2),
        summary: "Adds one to the integer at a key, which begins at 0.",
        arguments: &[Argument::key()],
        flags: &[Write, DenyOom, Fast],
        keys: one_key(&["RW", "access", "update"]),
        access: Some(Access::Update),
        execution: Key(string::increment::plan_incr),
        ..STRING
    },
    CommandSpec {
        name: "incrby",
        arity: Exactly(3),
        summary: "Adds a number to the integer at a key, which begins at 0.",
        arguments: &[Argument::key(), Argument::integer("increment")],
        flags: &[Write, DenyOom, Fast],
        keys: one_key(&["RW", "access", "update"]),
        access: Some(Access::Update),
        execution: Key(string::increment::plan_incrby),
        ..STRING
    },
    CommandSpec {
        name: "incrbyfloat",
        arity: Exactly(3),
        since: "2.6.0",
        summary: "Adds to the decimal fraction at a key, which begins at 0.",
        arguments: &[Argument::key(), Argument::new("increment", ArgumentKind::Double)],
        flags: &[Write, DenyOom, Fast],
        keys: one_key(&["RW", "access", "update"]),
        access: Some(Access::Update),
        execution: Key(string::increment::plan_incrbyfloat),
        ..STRING
    },
    CommandSpec {
        name: "mget",
        arity: AtLeast(2),
        summary: "Answers the strings at all the given keys, each read on its own.",
        complexity: "O(N) where N is the number of keys.",
        arguments: &[Argument::key().multiple()],
        flags: &[Readonly, Fast],
        tips: &["request_policy:multi_shard"],
        keys: all_keys(&["RO", "access"]),
        access: Some(Access::Read),
        execution: PerKey(string::get::plan_mget, Combine::Array),
        miss: Some(Miss::Null),
        ..STRING
    },
    CommandSpec {
        name: "psetex",
        arity: Exactly(4),
        since: "2.6.0",
        summary: "Sets the string at a key and its time to live in milliseconds.",
        arguments: &[Argument::key(), Argument::integer("milliseconds"), Argument::string("value")],
        flags: &[Write, DenyOom],
        keys: one_key(&["OW", "update"]),
        access: Some(Access::Write),
        execution: Key(string::set::plan_psetex),
        ..STRING
    },
    CommandSpec {
        name: "set",
        arity: AtLeast(3),
        summary: "Sets the string at a key, on condition if wanted, with a time to live if wanted.",
        complexity: "O(1); O(N) with a condition on the value, where N is its length.",
        arguments: &[
            Argument::key(),
            Argument::string("value"),
            Argument::one_of("condition", SET_CONDITIONS).optional(),
            Argument::word("get", "GET").optional().since("6.2.0"),
            Argument::one_of("expiration", EXPIRATIONS).optional(),
        ],
        flags: &[Write, DenyOom],
        keys: one_key(&["RW", "access", "update", "variable_flags"]),
        access: Some(Access::Update),
        execution: Key(string::set::plan_set),
        ..STRING
    },
    CommandSpec {
        name: "setex",
        arity: Exactly(4),
        since: "2.0.0",
        summary: "Sets the string at a key and its time to live in seconds.",
        arguments: &[Argument::key(), Argument::integer("seconds"), Argument::string("value")],
        flags: &[Write, DenyOom],
        keys: one_key(&["OW", "update"]),
        access: Some(Access::Write),
        execution: Key(string::set::plan_setex),
        ..STRING
    },
    CommandSpec {
        name: "setnx",
        arity: Exactly(3),
        summary: "Sets the string at a key that does not exist.",
        arguments: &[Argument::key(), Argument::string("value")],
        flags: &[Write, DenyOom, Fast],
        keys: one_key(&["OW", "insert"]),
        access: Some(Access::Update),
        execution: Key(string::set::plan_setnx),
        ..STRING
    },
    CommandSpec {
        name: "setrange",
        arity: Exactly(4),
        since: "2.2.0",
        summary: "Overwrites a part of the string at a key, with zero bytes before it as needed.",
        complexity: "O(N) where N is the length of the resulting string.",
        arguments: &[Argument::key(), Argument::integer("offset"), Argument::string("value")],
        flags: &[Write, DenyOom],
        keys: one_key(&["RW", "update"]),
        access: Some(Access::Update),
        execution: Key(string::range::plan_setrange),
        ..STRING
    },
    CommandSpec {
        name: "strlen",
        arity: Exactly(2),
        since: "2.2.0",
        summary: "Answers the length of the string at a key, 0 if there is none.",
        arguments: &[Argument::key()],
        flags: &[Readonly, Fast],
        keys: one_key(&["RO"]),
        access: Some(Access::Read),
        execution: Key(string::get::plan_strlen),
        miss: Some(Miss::Integer(0)),
        ..STRING
    },
    CommandSpec {
        name: "substr",
        arity: Exactly(4),
        summary: "Answers a part of the string at a key.",
        complexity: "O(N) where N is the length of the answer.",
        arguments: &[Argument::key(), Argument::integer("start"), Argument::integer("end")],
        flags: &[Readonly],
        deprecated: Some(Deprecated { since: "2.0.0", replaced_by: "`GETRANGE`" }),
        keys: one_key(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Key(string::range::plan_getrange),
        miss: Some(Miss::Empty),
        ..STRING
    },
];
