//! `HELLO`. Sessions execute it.

use super::ALWAYS;
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "hello",
    arity: AtLeast(1),
    since: "6.0.0",
    summary: "Agrees on the protocol's version, and authenticates and names the connection.",
    arguments: &[Argument::block(
        "arguments",
        &[
            Argument::integer("protover"),
            Argument::block("auth", &[Argument::string("username"), Argument::string("password")])
                .after("AUTH")
                .optional(),
            Argument::string("clientname").after("SETNAME").optional(),
        ],
    )
    .optional()],
    flags: ALWAYS,
    execution: session(SessionVerb::Hello),
    ..CONNECTION
};
