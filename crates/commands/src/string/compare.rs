//! Conditions on the value: `IFEQ IFNE IFDEQ IFDNE` of `SET` and `DELEX` (Redis 8.4), `DELIFEQ` (Valkey 9.0).

use types::{Command, Reply};

use crate::errors::{self, ErrorReply};
use crate::interpreter::{Context, Ran, deleted, unchanged};
use crate::operation::{Condition, Operation};
use crate::plan::Arguments;

/// Hexadecimal digits of a digest.
const DIGEST_LEN: usize = 16;

/// `DELEX key [IFEQ v | IFNE v | IFDEQ d | IFDNE d]`.
pub(crate) fn plan_delex(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let condition = match args.all {
        [_, _] => Condition::Always,
        // Departure: redis-server answers 0 for a missing key before it looks at the condition's name.
        [_, _, option, operand] => comparison(option, operand).ok_or(errors::CONDITION_UNKNOWN)?,
        _ => return Err(errors::wrong_arity(args.spec.name)),
    };
    Ok(args.command(Operation::DeleteIf(condition).body()))
}

pub(crate) fn plan_delifeq(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::DeleteIfEqual(args.all[2]).body()))
}

/// The condition that `option` names.
pub(crate) fn comparison<'a>(option: &[u8], operand: &'a [u8]) -> Option<Condition<'a>> {
    let named = |name: &[u8]| option.eq_ignore_ascii_case(name);
    if named(b"IFEQ") {
        Some(Condition::Equal(operand))
    } else if named(b"IFNE") {
        Some(Condition::NotEqual(operand))
    } else if named(b"IFDEQ") {
        Some(Condition::DigestEqual(operand))
    } else if named(b"IFDNE") {
        Some(Condition::DigestNotEqual(operand))
    } else {
        None
    }
}

/// XXH3 of 64 bits, as `DIGEST` writes it.
pub(crate) fn digest(string: &[u8]) -> String {
    format!("{:016x}", base::checksum::hash(string))
}

impl Condition<'_> {
    /// Whether the state allows the change. Nothing is equal to no value, so everything differs from it.
    ///
    /// # Errors
    /// The value is no string where one is compared, or a digest has another length.
    pub(crate) fn holds(self, cx: &Context<'_>) -> Result<bool, ErrorReply> {
        let found = match self {
            Condition::Always => return Ok(true),
            Condition::Absent => return Ok(!cx.exists()),
            Condition::Present => return Ok(cx.exists()),
            _ => cx.string()?,
        };
        let Some(string) = found else {
            return Ok(matches!(self, Condition::NotEqual(_) | Condition::DigestNotEqual(_)));
        };
        match self {
            Condition::Equal(value) => Ok(string == value),
            Condition::NotEqual(value) => Ok(string != value),
            Condition::DigestEqual(expected) => has_digest(string, expected),
            Condition::DigestNotEqual(expected) => Ok(!has_digest(string, expected)?),
            Condition::Always | Condition::Absent | Condition::Present => Ok(true),
        }
    }
}

fn has_digest(string: &[u8], expected: &[u8]) -> Result<bool, ErrorReply> {
    if expected.len() != DIGEST_LEN {
        return Err(errors::DIGEST_LEN);
    }
    Ok(digest(string).as_bytes().eq_ignore_ascii_case(expected))
}

pub(crate) fn delete_if(cx: &Context<'_>, condition: Condition<'_>) -> Ran {
    if !cx.exists() {
        return unchanged(Reply::count(false));
    }
    if condition != Condition::Always && cx.string().is_err() {
        return Err(errors::CONDITION_NEEDS_STRING);
    }
    delete_when(condition.holds(cx)?)
}

pub(crate) fn delete_if_equal(cx: &Context<'_>, value: &[u8]) -> Ran {
    delete_when(Condition::Equal(value).holds(cx)?)
}

fn delete_when(holds: bool) -> Ran {
    if holds { deleted(Reply::count(true)) } else { unchanged(Reply::count(false)) }
}
