//! `SET` with all its options, and its older forms `SETNX SETEX PSETEX GETSET`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::condition::{self, Condition};
use super::expiration::{self, Bare, Expiration, Expiry, Time};
use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![Set] };

const EXPIRATIONS: &[Argument] = &[
    Argument::integer("seconds").after("EX").since("2.6.12"),
    Argument::integer("milliseconds").after("PX").since("2.6.12"),
    Argument::unix_time("unix-time-seconds").after("EXAT").since("6.2.0"),
    Argument::unix_time("unix-time-milliseconds").after("PXAT").since("6.2.0"),
    Argument::word("keepttl", "KEEPTTL").since("6.0.0"),
];

const SET_CONDITIONS: &[Argument] = &[
    Argument::word("nx", "NX").since("2.6.12"),
    Argument::word("xx", "XX").since("2.6.12"),
    Argument::string("ifeq-value").after("IFEQ").since("8.4.0"),
    Argument::string("ifne-value").after("IFNE").since("8.4.0"),
    Argument::string("ifdeq-digest").after("IFDEQ").since("8.4.0"),
    Argument::string("ifdne-digest").after("IFDNE").since("8.4.0"),
];

const ROWS: &[CommandSpec] = &[
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
        execution: Key(plan_getset),
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
        deprecated: Some(Deprecated {
            since: "2.6.12",
            replaced_by: "`SET` with the `PX` argument",
        }),
        keys: one_key(&["OW", "update"]),
        access: Some(Access::Write),
        execution: Key(plan_psetex),
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
            Argument::one_of("condition", SET_CONDITIONS).optional().since("2.6.12"),
            Argument::word("get", "GET").optional().since("6.2.0"),
            Argument::one_of("expiration", EXPIRATIONS).optional(),
        ],
        flags: &[Write, DenyOom],
        keys: one_key_noted(
            &["RW", "access", "update", "variable_flags"],
            "RW and ACCESS due to the optional `GET` argument",
        ),
        access: Some(Access::Update),
        execution: Key(plan_set),
        ..STRING
    },
    CommandSpec {
        name: "setex",
        arity: Exactly(4),
        since: "2.0.0",
        summary: "Sets the string at a key and its time to live in seconds.",
        arguments: &[Argument::key(), Argument::integer("seconds"), Argument::string("value")],
        flags: &[Write, DenyOom],
        deprecated: Some(Deprecated {
            since: "2.6.12",
            replaced_by: "`SET` with the `EX` argument",
        }),
        keys: one_key(&["OW", "update"]),
        access: Some(Access::Write),
        execution: Key(plan_setex),
        ..STRING
    },
    CommandSpec {
        name: "setnx",
        arity: Exactly(3),
        summary: "Sets the string at a key that does not exist.",
        arguments: &[Argument::key(), Argument::string("value")],
        flags: &[Write, DenyOom, Fast],
        deprecated: Some(Deprecated {
            since: "2.6.12",
            replaced_by: "`SET` with the `NX` argument",
        }),
        keys: one_key(&["OW", "insert"]),
        access: Some(Access::Update),
        execution: Key(plan_setnx),
        ..STRING
    },
];

/// `SET key value [NX | XX | IFEQ v | IFNE v | IFDEQ d | IFDNE d] [GET] [EX s | … | KEEPTTL]`.
fn plan_set(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let [_, _, value, options @ ..] = args.all else { return Err(errors::SYNTAX) };
    let mut set = Set { value, ..PLAIN };
    let mut expiration = Expiration::new(Bare::Keep);
    let mut rest = options;
    while let [option, tail @ ..] = rest {
        let next = tail.first().copied();
        let taken = if option.eq_ignore_ascii_case(b"GET") {
            set.reply = SetReply::Old;
            1
        } else if let Some((condition, taken)) = condition(option, next) {
            if set.condition != Condition::Always && !repeats(set.condition, condition) {
                return Err(errors::SYNTAX);
            }
            set.condition = condition;
            taken
        } else {
            expiration.take(option, next).ok_or(errors::SYNTAX)?
        };
        rest = &rest[taken..];
    }
    if let Some(expiry) = expiration.expiry(args.spec.name, args.clock)? {
        set.expiry = expiry;
    }
    Ok(set.command())
}

fn plan_setnx(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let value = args.all[2];
    Ok(Set { condition: Condition::Absent, reply: SetReply::Count, value, ..PLAIN }.command())
}

fn plan_setex(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan_with_time(args, Time::Ex)
}

fn plan_psetex(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan_with_time(args, Time::Px)
}

fn plan_with_time(args: &Arguments<'_>, time: Time) -> Result<Command, ErrorReply> {
    let expiry = expiration::expiry(args.spec.name, time, args.all[2], args.clock)?;
    Ok(Set { expiry, value: args.all[3], ..PLAIN }.command())
}

fn plan_getset(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(Set { reply: SetReply::Old, value: args.all[2], ..PLAIN }.command())
}

/// The condition that `option` names, and the number of its arguments.
fn condition<'a>(option: &[u8], next: Option<&'a [u8]>) -> Option<(Condition<'a>, usize)> {
    if option.eq_ignore_ascii_case(b"NX") {
        return Some((Condition::Absent, 1));
    }
    if option.eq_ignore_ascii_case(b"XX") {
        return Some((Condition::Present, 1));
    }
    Some((condition::comparison(option, next?)?, 2))
}

/// True for `NX NX`. Two comparisons exclude each other.
fn repeats(one: Condition<'_>, other: Condition<'_>) -> bool {
    matches!(one, Condition::Absent | Condition::Present) && one == other
}

#[derive(Clone, Copy)]
struct Set<'a> {
    condition: Condition<'a>,
    reply: SetReply,
    expiry: Expiry,
    value: &'a [u8],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SetReply {
    /// `OK`, or null if the condition does not hold.
    Done,
    /// The old value in any case.
    Old,
    /// 1, or 0 if the condition does not hold.
    Count,
}

const SET_REPLIES: [SetReply; 3] = [SetReply::Done, SetReply::Old, SetReply::Count];

/// Overwrites any state and removes its time to live.
const PLAIN: Set<'static> =
    Set { condition: Condition::Always, reply: SetReply::Done, expiry: Expiry::Never, value: b"" };

impl Set<'_> {
    fn command(&self) -> Command {
        let is_blind = self.condition == Condition::Always
            && self.reply == SetReply::Done
            && self.expiry != Expiry::Keep;
        let access = if is_blind { Access::Write } else { Access::Update };
        Command::new(access, self.body())
    }
}

impl<'a> Operation<'a> for Set<'a> {
    const CODE: u8 = 8;
    const EXAMPLES: Examples = &[
        ("SET k v", b"\x08\x00\x00\x01v"),
        ("SET k v KEEPTTL", b"\x08\x00\x00\x00v"),
        ("SET k v NX PX 300", b"\x08\x01\x00\x02\xac\x02v"),
        ("SET k v XX PXAT 300", b"\x08\x02\x00\x03\xac\x02v"),
        ("SET k  IFEQ old GET PX 300", b"\x08\x03\x03old\x01\x02\xac\x02"),
        ("SETNX k v", b"\x08\x01\x02\x01v"),
        ("SETEX k 1 v", b"\x08\x00\x00\x02\xe8\x07v"),
        ("PSETEX k 300 v", b"\x08\x00\x00\x02\xac\x02v"),
        ("GETSET k v", b"\x08\x00\x01\x01v"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        self.condition.encode(out);
        out.byte(self.reply as u8);
        self.expiry.encode(out);
        out.bytes(self.value);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<Set<'a>, Malformed> {
        Ok(Set {
            condition: Condition::decode(fields)?,
            reply: operation::variant(&SET_REPLIES, fields.u8()?)?,
            expiry: Expiry::decode(fields)?,
            value: operation::rest(fields)?,
        })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        // A reply with the old value needs a string, even if the condition does not hold.
        let old = match self.reply {
            SetReply::Old => Reply::copy_or_null(cx.string()?),
            SetReply::Done | SetReply::Count => Reply::Null,
        };
        if !self.condition.holds(cx)? {
            return unchanged(match self.reply {
                SetReply::Done | SetReply::Old => old,
                SetReply::Count => Reply::count(false),
            });
        }
        let reply = match self.reply {
            SetReply::Done => Reply::OK,
            SetReply::Old => old,
            SetReply::Count => Reply::count(true),
        };
        cx.put_string(&[self.value], self.expiry.change(), reply)
    }
}
