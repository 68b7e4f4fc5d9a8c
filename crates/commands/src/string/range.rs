//! Parts of strings: `GETRANGE SUBSTR SETRANGE APPEND`.

use base::decimal::parse_i64;
use types::{Command, ExpiryChange, Reply};

use crate::errors::{self, ErrorReply};
use crate::interpreter::{Context, Ran, unchanged};
use crate::operation::Operation;
use crate::plan::Arguments;

pub(crate) fn plan_getrange(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let start = parse_i64(args.all[2]).ok_or(errors::NOT_AN_INTEGER)?;
    let end = parse_i64(args.all[3]).ok_or(errors::NOT_AN_INTEGER)?;
    Ok(args.command(Operation::GetRange { start, end }.body()))
}

pub(crate) fn plan_setrange(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let offset = parse_i64(args.all[2]).ok_or(errors::NOT_AN_INTEGER)?;
    let offset = u64::try_from(offset).map_err(|_| errors::OFFSET_OUT_OF_RANGE)?;
    Ok(args.command(Operation::SetRange { offset, patch: args.all[3] }.body()))
}

pub(crate) fn plan_append(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::Append(args.all[2]).body()))
}

/// Both ends are included; negative ones count from the end of the string.
pub(crate) fn get_range(cx: &Context<'_>, start: i64, end: i64) -> Ran {
    let string = cx.string()?.unwrap_or_default();
    let len = string.len() as i64;
    let from_end = |index: i64| if index < 0 { (len + index).max(0) } else { index };
    // As in redis-server 7, this is asked before both are moved up to zero.
    let is_reversed = start < 0 && end < 0 && start > end;
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    if is_reversed || start > end {
        return unchanged(Reply::EMPTY);
    }
    unchanged(Reply::copy(&string[start as usize..=end as usize]))
}

/// An empty patch changes nothing, not even the length.
pub(crate) fn set_range(cx: &Context<'_>, offset: u64, patch: &[u8]) -> Ran {
    let string = cx.string()?.unwrap_or_default();
    if patch.is_empty() {
        return unchanged(Reply::Integer(string.len() as i64));
    }
    let end = offset.saturating_add(patch.len() as u64);
    let len = end.max(string.len() as u64);
    // Before anything of that size is allocated.
    cx.check_growth(string, len)?;
    let mut new = vec![0; len as usize];
    new[..string.len()].copy_from_slice(string);
    new[offset as usize..end as usize].copy_from_slice(patch);
    cx.put_in_place_of(string, &[&new], ExpiryChange::Keep, Reply::Integer(len as i64))
}

pub(crate) fn append(cx: &Context<'_>, tail: &[u8]) -> Ran {
    let string = cx.string()?.unwrap_or_default();
    let len = string.len() + tail.len();
    let reply = Reply::Integer(len as i64);
    cx.put_in_place_of(string, &[string, tail], ExpiryChange::Keep, reply)
}
