//! `GETRANGE` and its older name `SUBSTR`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![GetRange] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "getrange",
        arity: Exactly(4),
        since: "2.4.0",
        summary: "Answers a part of the string at a key.",
        complexity: "O(N) where N is the length of the answer.",
        arguments: &[Argument::key(), Argument::integer("start"), Argument::integer("end")],
        flags: &[Readonly],
        keys: one_key(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Key(plan),
        miss: Some(Miss::Empty),
        ..STRING
    },
    CommandSpec {
        name: "substr",
        arity: Exactly(4),
        summary: "Answers a part of the string at a key.",
        complexity: "O(N) where N is the length of the answer.",
        arguments: &[Argument::key(), Argument::integer("start"), Argument::integer("end")],
        flags: &[Readonly],
        deprecated: Some(Deprecated { since: "2.0.0", replaced_by: "`GETRANGE`" }),
        keys: one_key(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Key(plan),
        miss: Some(Miss::Empty),
        ..STRING
    },
];

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let start = parse_i64(args.all[2]).ok_or(errors::NOT_AN_INTEGER)?;
    let end = parse_i64(args.all[3]).ok_or(errors::NOT_AN_INTEGER)?;
    Ok(args.command(&GetRange { start, end }))
}

/// The range includes both ends. Negative ones count from the end of the string.
struct GetRange {
    start: i64,
    end: i64,
}

impl Operation<'_> for GetRange {
    const CODE: u8 = 5;
    const EXAMPLES: Examples =
        &[("GETRANGE k 1 -1", b"\x05\x01\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff")];

    fn encode(&self, out: &mut impl Sink) {
        out.integer(self.start);
        out.integer(self.end);
    }

    fn decode(fields: &mut Reader<'_>) -> Result<GetRange, Malformed> {
        Ok(GetRange { start: operation::integer(fields)?, end: operation::integer(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let &GetRange { start, end } = self;
        let string = cx.string()?.unwrap_or_default();
        let len = string.len() as i64;
        let from_end = |index: i64| if index < 0 { (len + index).max(0) } else { index };
        // redis-server 7 compares the ends before it raises both to zero.
        let is_reversed = start < 0 && end < 0 && start > end;
        let (start, end) = (from_end(start), from_end(end).min(len - 1));
        if is_reversed || start > end {
            return unchanged(Reply::EMPTY);
        }
        unchanged(Reply::copy(&string[start as usize..=end as usize]))
    }
}
