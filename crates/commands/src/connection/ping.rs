//! `PING`. Sessions execute it.

use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "ping",
    arity: AtLeast(1),
    summary: "Answers PONG, or the given string.",
    arguments: &[Argument::string("message").optional()],
    flags: &[Fast],
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    execution: session(SessionVerb::Ping),
    ..CONNECTION
};
