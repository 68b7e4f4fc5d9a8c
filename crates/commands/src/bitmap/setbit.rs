//! `SETBIT`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, ExpiryChange, Reply};

use super::{byte_at, mask_of, parse_offset, read_offset};
use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![SetBit] };

const ROW: CommandSpec = CommandSpec {
    name: "setbit",
    arity: Exactly(4),
    since: "2.2.0",
    summary: "Sets one bit of the string at a key, with zero bytes before it as needed, and answers the old bit.",
    complexity: "O(N) where N is the length of the resulting string.",
    arguments: &[Argument::key(), Argument::integer("offset"), Argument::integer("value")],
    flags: &[Write, DenyOom],
    keys: one_key(&["RW", "access", "update"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..BITMAP
};

const NO_BIT: ErrorReply = errors::fixed(b"ERR bit is not an integer or out of range");

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let offset = parse_offset(args.all[2])?;
    let is_set = match parse_i64(args.all[3]) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(NO_BIT),
    };
    Ok(args.command(&SetBit { offset, is_set }))
}

struct SetBit {
    offset: u64,
    is_set: bool,
}

impl Operation<'_> for SetBit {
    const CODE: u8 = 144;
    const EXAMPLES: Examples =
        &[("SETBIT k 300 1", b"\x90\x01\xac\x02"), ("SETBIT k 7 0", b"\x90\x00\x07")];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(u8::from(self.is_set));
        out.varint(self.offset);
    }

    fn decode(fields: &mut Reader<'_>) -> Result<SetBit, Malformed> {
        let is_set = match fields.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed),
        };
        Ok(SetBit { offset: read_offset(fields)?, is_set })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let string = cx.string()?.unwrap_or_default();
        let index = (self.offset / 8) as usize;
        let (old, mask) = (byte_at(string, index), mask_of(self.offset));
        let new = if self.is_set { old | mask } else { old & !mask };
        let reply = Reply::count(old & mask != 0);
        let (before, after) = match string.get(index + 1..) {
            Some(_) if old == new => return unchanged(reply),
            Some(after) => (&string[..index], after),
            None => (string, &[][..]),
        };
        // Checks the length before it allocates as many bytes.
        cx.check_string(string, string.len().max(index + 1) as u64)?;
        let gap = vec![0; index - before.len()];
        cx.change_string(string, &[before, &gap, &[new], after], ExpiryChange::Keep, reply)
    }
}
