//! `TTL PTTL EXPIRETIME PEXPIRETIME`.
//!
//! The time left of a span is an estimate. The end is constant: the node that set the span fixed it by its wall clock,
//! and countdowns that stood still do not move it.

use types::{Command, Reply};

use crate::errors::ErrorReply;
use crate::interpreter::{Context, Ran, unchanged};
use crate::operation::{Form, Operation, Unit};
use crate::plan::Arguments;

/// There is no key.
const NO_KEY: i64 = -2;
/// It does not expire.
const NEVER: i64 = -1;

pub(crate) fn plan_ttl(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Seconds, Form::Span)
}

pub(crate) fn plan_pttl(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Milliseconds, Form::Span)
}

pub(crate) fn plan_expiretime(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Seconds, Form::Deadline)
}

pub(crate) fn plan_pexpiretime(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Milliseconds, Form::Deadline)
}

fn plan(args: &Arguments<'_>, unit: Unit, form: Form) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::TimeLeft { unit, form }.body()))
}

pub(crate) fn time_left(cx: &Context<'_>, unit: Unit, form: Form) -> Ran {
    if !cx.exists() {
        return unchanged(Reply::Integer(NO_KEY));
    }
    let found = match form {
        Form::Deadline => cx.deadline(),
        Form::Span => cx.time_left(),
    };
    let Some(millis) = found else { return unchanged(Reply::Integer(NEVER)) };
    let time = match unit {
        Unit::Milliseconds => millis,
        // Redis rounds to the nearest second.
        Unit::Seconds => millis.saturating_add(500) / 1000,
    };
    unchanged(Reply::Integer(i64::try_from(time).unwrap_or(i64::MAX)))
}
