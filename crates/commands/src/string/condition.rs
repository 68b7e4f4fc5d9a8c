//! Conditions of `SET` and `DELEX`: on the presence of a key, or on its value
//! (`IFEQ IFNE IFDEQ IFDNE`, Redis 8.4).

use types::wire::{Malformed, Reader};

use super::digest;
use crate::context::Context;
use crate::errors::{self, ErrorReply};
use crate::operation::Sink;
use crate::spec::Argument;

/// The comparisons as `COMMAND DOCS` lists them.
pub(super) const COMPARISONS: &[Argument] = &[
    Argument::string("ifeq-value").after("IFEQ"),
    Argument::string("ifne-value").after("IFNE"),
    Argument::string("ifdeq-digest").after("IFDEQ"),
    Argument::string("ifdne-digest").after("IFDNE"),
];

/// Hexadecimal digits of a digest.
const DIGEST_LEN: usize = 16;

/// Longest operand: a value is at most a bulk string.
const OPERAND_LEN_MAX: usize = 512 * 1024 * 1024;

/// A change happens only if it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition<'a> {
    Always,
    /// `NX`
    Absent,
    /// `XX`
    Present,
    Equal(&'a [u8]),
    NotEqual(&'a [u8]),
    DigestEqual(&'a [u8]),
    DigestNotEqual(&'a [u8]),
}

/// The condition on a value that `option` names.
pub(super) fn comparison<'a>(option: &[u8], operand: &'a [u8]) -> Option<Condition<'a>> {
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

impl<'a> Condition<'a> {
    pub(super) fn encode(self, out: &mut impl Sink) {
        let (tag, operand) = match self {
            Condition::Always => (0, None),
            Condition::Absent => (1, None),
            Condition::Present => (2, None),
            Condition::Equal(value) => (3, Some(value)),
            Condition::NotEqual(value) => (4, Some(value)),
            Condition::DigestEqual(digest) => (5, Some(digest)),
            Condition::DigestNotEqual(digest) => (6, Some(digest)),
        };
        out.byte(tag);
        if let Some(operand) = operand {
            out.blob(operand);
        }
    }

    pub(super) fn decode(fields: &mut Reader<'a>) -> Result<Condition<'a>, Malformed> {
        Ok(match fields.u8()? {
            0 => Condition::Always,
            1 => Condition::Absent,
            2 => Condition::Present,
            3 => Condition::Equal(fields.blob(OPERAND_LEN_MAX)?),
            4 => Condition::NotEqual(fields.blob(OPERAND_LEN_MAX)?),
            5 => Condition::DigestEqual(fields.blob(OPERAND_LEN_MAX)?),
            6 => Condition::DigestNotEqual(fields.blob(OPERAND_LEN_MAX)?),
            _ => return Err(Malformed),
        })
    }

    /// True if the state allows the change. An absent value differs from every operand.
    ///
    /// # Errors
    /// The key holds another type than a compared string, or a digest has another length.
    pub(super) fn holds(self, cx: &Context<'_>) -> Result<bool, ErrorReply> {
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
    Ok(digest::of(string).as_bytes().eq_ignore_ascii_case(expected))
}
