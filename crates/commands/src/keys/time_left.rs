//! `TTL PTTL EXPIRETIME PEXPIRETIME`. What is left of a span is an estimate (see [`types::View`]).

use types::Command;

use crate::errors::ErrorReply;
use crate::interpreter::{Context, Ran, unchanged};
use crate::operation::{Form, Operation, Unit};
use crate::plan::Arguments;
use crate::replies;

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
        return unchanged(replies::integer(NO_KEY));
    }
    let Some(deadline) = cx.deadline() else { return unchanged(replies::integer(NEVER)) };
    let millis = match form {
        Form::Deadline => deadline,
        Form::Span => deadline.saturating_sub(cx.clock.unix.0),
    };
    let time = match unit {
        Unit::Milliseconds => millis,
        // Redis rounds to the nearest second.
        Unit::Seconds => millis.saturating_add(500) / 1000,
    };
    unchanged(replies::integer(i64::try_from(time).unwrap_or(i64::MAX)))
}
