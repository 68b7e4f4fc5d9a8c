//! `TTL PTTL EXPIRETIME PEXPIRETIME`.
//!
//! The rest of a span is an estimate. The deadline is constant: the node that set the span read its
//! own wall clock, and a stopped countdown does not move the deadline.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::time::{FORMS, Form, UNITS, Unit};
use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![TimeLeft] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "expiretime",
        arity: Exactly(2),
        since: "7.0.0",
        summary: "Answers when a key expires, in seconds of Unix time: -1 never, -2 no key.",
        arguments: &[Argument::key()],
        flags: &[Readonly, Fast],
        keys: one_key(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Key(plan_expiretime),
        miss: Some(Miss::Integer(-2)),
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
        execution: Key(plan_pexpiretime),
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
        execution: Key(plan_pttl),
        miss: Some(Miss::Integer(-2)),
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
        execution: Key(plan_ttl),
        miss: Some(Miss::Integer(-2)),
        ..GENERIC
    },
];

/// The reply for a missing key.
const NO_KEY: i64 = -2;
/// The reply for a key that does not expire.
const NEVER: i64 = -1;

fn plan_ttl(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&TimeLeft { unit: Unit::Seconds, form: Form::Span }))
}

fn plan_pttl(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&TimeLeft { unit: Unit::Milliseconds, form: Form::Span }))
}

fn plan_expiretime(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&TimeLeft { unit: Unit::Seconds, form: Form::Deadline }))
}

fn plan_pexpiretime(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&TimeLeft { unit: Unit::Milliseconds, form: Form::Deadline }))
}

struct TimeLeft {
    unit: Unit,
    form: Form,
}

impl Operation<'_> for TimeLeft {
    const CODE: u8 = 18;
    const EXAMPLES: Examples = &[
        ("TTL k", b"\x12\x00\x00"),
        ("EXPIRETIME k", b"\x12\x00\x01"),
        ("PTTL k", b"\x12\x01\x00"),
        ("PEXPIRETIME k", b"\x12\x01\x01"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(self.unit as u8);
        out.byte(self.form as u8);
    }

    fn decode(fields: &mut Reader<'_>) -> Result<TimeLeft, Malformed> {
        Ok(TimeLeft {
            unit: operation::variant(&UNITS, fields.u8()?)?,
            form: operation::variant(&FORMS, fields.u8()?)?,
        })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        if !cx.exists() {
            return unchanged(Reply::Integer(NO_KEY));
        }
        let found = match self.form {
            Form::Deadline => cx.deadline(),
            Form::Span => cx.time_left(),
        };
        let Some(millis) = found else { return unchanged(Reply::Integer(NEVER)) };
        let time = match self.unit {
            Unit::Milliseconds => millis,
            // Redis rounds to the nearest second.
            Unit::Seconds => millis.saturating_add(500) / 1000,
        };
        unchanged(Reply::Integer(i64::try_from(time).unwrap_or(i64::MAX)))
    }
}
