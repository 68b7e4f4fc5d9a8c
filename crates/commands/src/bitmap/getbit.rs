//! `GETBIT`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::{byte_at, mask_of, parse_offset, read_offset};
use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![GetBit] };

const ROW: CommandSpec = CommandSpec {
    name: "getbit",
    arity: Exactly(3),
    since: "2.2.0",
    summary: "Answers one bit of the string at a key, 0 behind its end.",
    arguments: &[Argument::key(), Argument::integer("offset")],
    flags: &[Readonly, Fast],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    execution: Key(plan),
    ..BITMAP
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&GetBit { offset: parse_offset(args.all[2])? }))
}

struct GetBit {
    offset: u64,
}

impl Operation<'_> for GetBit {
    const CODE: u8 = 145;
    const EXAMPLES: Examples = &[("GETBIT k 300", b"\x91\xac\x02")];

    fn encode(&self, out: &mut impl Sink) {
        out.varint(self.offset);
    }

    fn decode(fields: &mut Reader<'_>) -> Result<GetBit, Malformed> {
        Ok(GetBit { offset: read_offset(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let string = cx.string()?.unwrap_or_default();
        let byte = byte_at(string, (self.offset / 8) as usize);
        unchanged(Reply::count(byte & mask_of(self.offset) != 0))
    }
}
