//! Counters: `INCR DECR INCRBY DECRBY`, and decimal fractions: `INCRBYFLOAT`.

use base::decimal::parse_i64;
use types::{Command, ExpiryChange, Reply};
use values::Extended;

use crate::errors::{self, ErrorReply};
use crate::interpreter::{Context, Ran};
use crate::operation::Operation;
use crate::plan::Arguments;

pub(crate) fn plan_incr(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::Increment(1).body()))
}

pub(crate) fn plan_decr(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::Increment(-1).body()))
}

pub(crate) fn plan_incrby(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let by = parse_i64(args.all[2]).ok_or(errors::NOT_AN_INTEGER)?;
    Ok(args.command(Operation::Increment(by).body()))
}

pub(crate) fn plan_decrby(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let by = parse_i64(args.all[2]).ok_or(errors::NOT_AN_INTEGER)?;
    let by = by.checked_neg().ok_or(errors::DECREMENT_OVERFLOW)?;
    Ok(args.command(Operation::Increment(by).body()))
}

pub(crate) fn plan_incrbyfloat(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let by = args.all[2];
    // Departure: redis-server looks at the key's type first.
    Extended::parse(by).ok_or(errors::NOT_A_FLOAT)?;
    Ok(args.command(Operation::IncrementFloat(by).body()))
}

pub(crate) fn increment(cx: &Context<'_>, by: i64) -> Ran {
    let old = match cx.string()? {
        Some(string) => parse_i64(string).ok_or(errors::NOT_AN_INTEGER)?,
        None => 0,
    };
    let new = old.checked_add(by).ok_or(errors::INCREMENT_OVERFLOW)?;
    let mut text = itoa::Buffer::new();
    cx.put(&[text.format(new).as_bytes()], ExpiryChange::Keep, Reply::Integer(new))
}

pub(crate) fn increment_float(cx: &Context<'_>, by: &[u8]) -> Ran {
    let old = match cx.string()? {
        Some(string) => Extended::parse(string).ok_or(errors::NOT_A_FLOAT)?,
        None => Extended::ZERO,
    };
    let by = Extended::parse(by).ok_or(errors::NOT_A_FLOAT)?;
    let new = old.plus(by).ok_or(errors::INCREMENT_NOT_FINITE)?.to_string();
    cx.put(&[new.as_bytes()], ExpiryChange::Keep, Reply::copy(new.as_bytes()))
}
