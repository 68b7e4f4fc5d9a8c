//! `LINDEX`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::position;
use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![LIndex] };

const ROW: CommandSpec = CommandSpec {
    name: "lindex",
    arity: Exactly(3),
    summary: "Answers the element of a list at an index. Negative ones count from the tail.",
    complexity: "O(N) where N is the length of the list.",
    arguments: &[Argument::key(), Argument::integer("index")],
    flags: &[Readonly],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    execution: Key(plan),
    miss: Some(Miss::Null),
    ..LIST
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&LIndex { index: args.all[2] }))
}

struct LIndex<'a> {
    /// As text: redis-server answers null for a missing key even if this is no number.
    index: &'a [u8],
}

impl<'a> Operation<'a> for LIndex<'a> {
    const CODE: u8 = 68;
    const EXAMPLES: Examples = &[("LINDEX k -1", b"\x44-1")];

    fn encode(&self, out: &mut impl Sink) {
        out.bytes(self.index);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<LIndex<'a>, Malformed> {
        Ok(LIndex { index: operation::rest(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let Some(list) = cx.list()? else { return unchanged(Reply::Null) };
        let index = parse_i64(self.index).ok_or(errors::NOT_AN_INTEGER)?;
        let index = position::index(index, list.elements.len());
        unchanged(Reply::copy_or_null(index.and_then(|index| list.elements.iter().nth(index))))
    }
}
