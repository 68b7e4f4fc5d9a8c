//! `DEL UNLINK EXISTS TOUCH TYPE`, on one key.

use types::{Command, Reply};
use values::Kind;

use crate::errors::ErrorReply;
use crate::interpreter::{Context, Ran, deleted, unchanged};
use crate::operation::Operation;
use crate::plan::Arguments;

pub(crate) fn plan_del(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::Delete.body()))
}

pub(crate) fn plan_exists(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::Exists.body()))
}

pub(crate) fn plan_type(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::Type.body()))
}

pub(crate) fn delete(cx: &Context<'_>) -> Ran {
    if cx.exists() { deleted(Reply::count(true)) } else { unchanged(Reply::count(false)) }
}

pub(crate) fn exists(cx: &Context<'_>) -> Ran {
    unchanged(Reply::count(cx.exists()))
}

pub(crate) fn type_name(cx: &Context<'_>) -> Ran {
    let name = match cx.view.value {
        Some(value) => Kind::of(value)?.name(),
        None => "none",
    };
    unchanged(Reply::simple(name))
}
