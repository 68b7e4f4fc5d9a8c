//! `ECHO`.

use types::Reply;

use super::LOCAL_FAST;
use crate::errors::ErrorReply;
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "echo",
    arity: Exactly(2),
    summary: "Answers the given string.",
    arguments: &[Argument::string("message")],
    flags: LOCAL_FAST,
    execution: Table(reply),
    ..CONNECTION
};

fn reply(args: &Arguments<'_>) -> Result<Reply, ErrorReply> {
    Ok(Reply::copy(args.all[1]))
}
