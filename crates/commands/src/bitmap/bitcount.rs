//! `BITCOUNT`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::range::{self, BitRange, Unit};
use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![BitCount] };

const ROW: CommandSpec = CommandSpec {
    name: "bitcount",
    arity: AtLeast(2),
    since: "2.6.0",
    summary: "Counts the bits that are set in the string at a key, or in a part of it.",
    complexity: "O(N) where N is the length of that part.",
    arguments: &[
        Argument::key(),
        Argument::block(
            "range",
            &[
                Argument::integer("start"),
                Argument::integer("end"),
                Argument::one_of(
                    "unit",
                    &[Argument::word("byte", "BYTE"), Argument::word("bit", "BIT")],
                )
                .optional()
                .since("7.0.0"),
            ],
        )
        .optional(),
    ],
    flags: &[Readonly],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    execution: Key(plan),
    miss: Some(Miss::Integer(0)),
    ..BITMAP
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let range = match &args.all[2..] {
        [] => BitRange::WHOLE,
        [start, end, unit @ ..] if unit.len() <= 1 => {
            let (start, end) = (BitRange::parse_end(start)?, BitRange::parse_end(end)?);
            let unit = unit.first().map_or(Ok(Unit::Byte), |unit| Unit::parse(unit))?;
            BitRange { start, end, unit }
        }
        _ => return Err(errors::SYNTAX),
    };
    Ok(args.command(&BitCount { range }))
}

struct BitCount {
    range: BitRange,
}

impl Operation<'_> for BitCount {
    const CODE: u8 = 146;
    const EXAMPLES: Examples = &[
        ("BITCOUNT k", b"\x92\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("BITCOUNT k 1 2 BIT", b"\x92\x01\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        self.range.encode(out);
    }

    fn decode(fields: &mut Reader<'_>) -> Result<BitCount, Malformed> {
        Ok(BitCount { range: BitRange::decode(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let string = cx.string()?.unwrap_or_default();
        let BitRange { start, end, .. } = self.range;
        // As for `GETRANGE`, redis-server compares the ends before it raises both to zero.
        if start < 0 && end < 0 && start > end {
            return unchanged(Reply::Integer(0));
        }
        let ones = range::count_ones(string, self.range.bits(string.len()));
        unchanged(Reply::Integer(ones as i64))
    }
}
