//! `LOLWUT`.

use types::Reply;

use crate::errors::ErrorReply;
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "lolwut",
    arity: AtLeast(1),
    since: "5.0.0",
    summary: "Answers a picture and the version.",
    complexity: "",
    arguments: &[Argument::integer("version").after("VERSION").optional()],
    flags: &[Readonly, Fast],
    execution: Table(reply),
    ..SERVER
};

fn reply(_: &Arguments<'_>) -> Result<Reply, ErrorReply> {
    // As from redis-server, the last line has the version.
    let version = crate::REDIS_VERSION;
    Ok(Reply::text(format!("Scraped and written over, again and again.\nRedis ver. {version}\n")))
}
