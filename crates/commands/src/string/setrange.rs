//! `SETRANGE`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, ExpiryChange, Reply};

use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![SetRange] };

const ROW: CommandSpec = CommandSpec {
    name: "setrange",
    arity: Exactly(4),
    since: "2.2.0",
    summary: "Overwrites a part of the string at a key, with zero bytes before it as needed.",
    complexity: "O(N) where N is the length of the resulting string.",
    arguments: &[Argument::key(), Argument::integer("offset"), Argument::string("value")],
    flags: &[Write, DenyOom],
    keys: one_key(&["RW", "update"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..STRING
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let offset = parse_i64(args.all[2]).ok_or(errors::NOT_AN_INTEGER)?;
    let offset = u64::try_from(offset).map_err(|_| errors::OFFSET_OUT_OF_RANGE)?;
    Ok(args.command(&SetRange { offset, patch: args.all[3] }))
}

/// An empty patch changes neither bytes nor length.
struct SetRange<'a> {
    offset: u64,
    patch: &'a [u8],
}

impl<'a> Operation<'a> for SetRange<'a> {
    const CODE: u8 = 10;
    const EXAMPLES: Examples = &[("SETRANGE k 300 ab", b"\x0a\xac\x02ab")];

    fn encode(&self, out: &mut impl Sink) {
        out.varint(self.offset);
        out.bytes(self.patch);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<SetRange<'a>, Malformed> {
        Ok(SetRange { offset: fields.varint()?, patch: operation::rest(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let &SetRange { offset, patch } = self;
        let string = cx.string()?.unwrap_or_default();
        if patch.is_empty() {
            return unchanged(Reply::Integer(string.len() as i64));
        }
        let end = offset.saturating_add(patch.len() as u64);
        let len = end.max(string.len() as u64);
        // Checks the length before it allocates as many bytes.
        cx.check_string(string, len)?;
        let mut new = vec![0; len as usize];
        new[..string.len()].copy_from_slice(string);
        new[offset as usize..end as usize].copy_from_slice(patch);
        cx.change_string(string, &[&new], ExpiryChange::Keep, Reply::Integer(len as i64))
    }
}
