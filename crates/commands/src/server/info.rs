//! `INFO`. Sessions execute it.

use super::LOCAL;
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "info",
    arity: AtLeast(1),
    summary: "Describes the server and counts what it does.",
    arguments: &[Argument::string("section").optional().multiple()],
    flags: LOCAL,
    categories: &[Category::Dangerous],
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    execution: session(SessionVerb::Info),
    ..SERVER
};
