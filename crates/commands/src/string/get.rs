//! Reading a string: `GET`, `MGET`, `STRLEN`, `DIGEST`; and reading with a change: `GETDEL`, `GETEX`.

use types::{Access, Command, Reply, TimeToLive};

use super::compare;
use super::expiration::{Bare, Expiration};
use crate::errors::{self, ErrorReply};
use crate::interpreter::{Context, Ran, deleted, expires, unchanged};
use crate::operation::{Expiry, Operation};
use crate::plan::Arguments;

pub(crate) fn plan_get(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::Get.body()))
}

pub(crate) fn plan_mget(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::GetOrNull.body()))
}

pub(crate) fn plan_strlen(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::StrLen.body()))
}

pub(crate) fn plan_digest(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::Digest.body()))
}

pub(crate) fn plan_getdel(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::GetDelete.body()))
}

/// `GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]`; without an option it is a `GET`.
pub(crate) fn plan_getex(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let mut expiration = Expiration::new(Bare::Persist);
    let mut rest = args.all.get(2..).unwrap_or_default();
    while let [option, tail @ ..] = rest {
        let taken = expiration.take(option, tail.first().copied()).ok_or(errors::SYNTAX)?;
        rest = &rest[taken..];
    }
    // Departure: redis-server answers null for a missing key before it looks at the time.
    Ok(match expiration.expiry(args.spec.name, args.clock)? {
        Some(expiry) => args.command(Operation::GetExpire(expiry).body()),
        None => Command::new(Access::Read, Operation::Get.body()),
    })
}

pub(crate) fn get(cx: &Context<'_>) -> Ran {
    unchanged(Reply::copy_or_null(cx.string()?))
}

pub(crate) fn get_or_null(cx: &Context<'_>) -> Ran {
    unchanged(Reply::copy_or_null(cx.string().unwrap_or(None)))
}

pub(crate) fn str_len(cx: &Context<'_>) -> Ran {
    unchanged(Reply::Integer(cx.string()?.map_or(0, |string| string.len() as i64)))
}

pub(crate) fn digest(cx: &Context<'_>) -> Ran {
    let digest = cx.string()?.map(compare::digest);
    unchanged(Reply::copy_or_null(digest.as_ref().map(String::as_bytes)))
}

pub(crate) fn get_delete(cx: &Context<'_>) -> Ran {
    match cx.string()? {
        Some(string) => deleted(Reply::copy(string)),
        None => unchanged(Reply::Null),
    }
}

pub(crate) fn get_expire(cx: &Context<'_>, expiry: Expiry) -> Ran {
    let Some(string) = cx.string()? else { return unchanged(Reply::Null) };
    let reply = Reply::copy(string);
    match expiry {
        Expiry::Keep => unchanged(reply),
        Expiry::Never if cx.view.ttl == TimeToLive::Never => unchanged(reply),
        Expiry::Never => expires(TimeToLive::Never, reply),
        Expiry::After(span) => expires(TimeToLive::After(span), reply),
        Expiry::At { unix } => expires(TimeToLive::At { unix }, reply),
    }
}
