//! `OBJECT ENCODING FREQ IDLETIME REFCOUNT` and `MEMORY USAGE`, on one key.
//!
//! Encodings and reference counts are those that redis-server gives a value that was just set: here
//! all strings are kept alike. Times of access are not kept, so `IDLETIME` is an error as it is in
//! redis-server while that does not keep them.

use base::decimal::parse_i64;
use types::limits::REGISTER_MEMORY;
use types::{Command, Reply};
use values::Kind;

use crate::errors::{self, ErrorReply};
use crate::interpreter::{Context, Ran, unchanged};
use crate::operation::{Inspect, Operation};
use crate::plan::Arguments;

/// Longest string that redis-server keeps in one piece with its header.
const EMBEDDED_LEN_MAX: usize = 44;
/// Integers below it are shared there.
const SHARED_INTEGERS: i64 = 10_000;
/// The reference count of what is shared there.
const SHARED_REFCOUNT: i64 = i32::MAX as i64;

pub(crate) fn plan_encoding(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::Inspect(Inspect::Encoding).body()))
}

pub(crate) fn plan_freq(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::Inspect(Inspect::Frequency).body()))
}

pub(crate) fn plan_idletime(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::Inspect(Inspect::IdleTime).body()))
}

pub(crate) fn plan_refcount(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::Inspect(Inspect::RefCount).body()))
}

/// `MEMORY USAGE key [SAMPLES count]`; a string has nothing to draw samples from.
pub(crate) fn plan_memory_usage(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let mut rest = args.all.get(3..).unwrap_or_default();
    while let Some((option, after)) = rest.split_first() {
        let (true, Some((count, more))) =
            (option.eq_ignore_ascii_case(b"samples"), after.split_first())
        else {
            return Err(errors::SYNTAX);
        };
        if parse_i64(count).ok_or(errors::NOT_AN_INTEGER)? < 0 {
            return Err(errors::SYNTAX);
        }
        rest = more;
    }
    let key_len = args.all[2].len() as u64;
    Ok(args.command(Operation::MemoryUsage { key_len }.body()))
}

pub(crate) fn inspect(cx: &Context<'_>, what: Inspect) -> Ran {
    let Some(value) = cx.view.value else { return unchanged(Reply::Null) };
    match what {
        Inspect::Encoding => unchanged(Reply::copy(encoding(value)?.as_bytes())),
        Inspect::RefCount => unchanged(Reply::Integer(refcount(value)?)),
        Inspect::Frequency => Err(errors::FREQUENCY_NOT_TRACKED),
        Inspect::IdleTime => Err(errors::IDLE_TIME_NOT_TRACKED),
    }
}

/// Bytes of memory that the key takes at a node that has it in memory.
pub(crate) fn memory_usage(cx: &Context<'_>, key_len: u64) -> Ran {
    let Some(value) = cx.view.value else { return unchanged(Reply::Null) };
    let bytes = REGISTER_MEMORY as u64 + key_len + value.len() as u64;
    unchanged(Reply::Integer(i64::try_from(bytes).unwrap_or(i64::MAX)))
}

fn encoding(value: &[u8]) -> Result<&'static str, ErrorReply> {
    Ok(match Kind::of(value)? {
        Kind::String => {
            let string = values::string::decode(value)?;
            match parse_i64(string) {
                Some(_) => "int",
                None if string.len() <= EMBEDDED_LEN_MAX => "embstr",
                None => "raw",
            }
        }
        other => other.name(),
    })
}

fn refcount(value: &[u8]) -> Result<i64, ErrorReply> {
    let number = match Kind::of(value)? {
        Kind::String => parse_i64(values::string::decode(value)?),
        _ => None,
    };
    let is_shared = number.is_some_and(|number| (0..SHARED_INTEGERS).contains(&number));
    Ok(if is_shared { SHARED_REFCOUNT } else { 1 })
}
