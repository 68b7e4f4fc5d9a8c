//! `BITPOS`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::range::{self, BitRange, Unit};
use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![BitPos] };

const ROW: CommandSpec = CommandSpec {
    name: "bitpos",
    arity: AtLeast(3),
    since: "2.8.7",
    summary: "Finds the first bit that is set, or clear, in the string at a key or in a part of it.",
    complexity: "O(N) where N is the length of that part.",
    arguments: &[
        Argument::key(),
        Argument::integer("bit"),
        Argument::block("range", &[Argument::integer("start"), END]).optional(),
    ],
    flags: &[Readonly],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    execution: Key(plan),
    ..BITMAP
};

const END: Argument = Argument::block(
    "end-unit-block",
    &[
        Argument::integer("end"),
        Argument::one_of("unit", &[Argument::word("byte", "BYTE"), Argument::word("bit", "BIT")])
            .optional()
            .since("7.0.0"),
    ],
)
.optional();

const NO_BIT: ErrorReply = errors::fixed(b"ERR The bit argument must be 1 or 0.");

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let is_set = match parse_i64(args.all[2]) {
        Some(0) => false,
        Some(1) => true,
        Some(_) => return Err(NO_BIT),
        None => return Err(errors::NOT_AN_INTEGER),
    };
    let rest = &args.all[3..];
    let range = match rest {
        [] => BitRange::WHOLE,
        [start, end @ ..] if end.len() <= 2 => {
            let start = BitRange::parse_end(start)?;
            let unit = end.get(1).map_or(Ok(Unit::Byte), |unit| Unit::parse(unit))?;
            let end = end.first().map_or(Ok(-1), |end| BitRange::parse_end(end))?;
            BitRange { start, end, unit }
        }
        _ => return Err(errors::SYNTAX),
    };
    Ok(args.command(&BitPos { is_set, has_end: rest.len() > 1, range }))
}

/// A string without a given end continues with zeros.
struct BitPos {
    is_set: bool,
    has_end: bool,
    range: BitRange,
}

impl BitPos {
    fn position(&self, string: &[u8]) -> Option<usize> {
        let bits = self.range.bits(string.len());
        if bits.is_empty() {
            return None;
        }
        let found = range::find(string, bits.clone(), self.is_set);
        let continues = !self.is_set && !self.has_end;
        found.or(continues.then_some(bits.end))
    }
}

impl Operation<'_> for BitPos {
    const CODE: u8 = 147;
    const EXAMPLES: Examples = &[
        ("BITPOS k 1", b"\x93\x01\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("BITPOS k 0 1 2 BIT", b"\x93\x02\x01\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(u8::from(self.is_set) | u8::from(self.has_end) << 1);
        self.range.encode(out);
    }

    fn decode(fields: &mut Reader<'_>) -> Result<BitPos, Malformed> {
        let marks = fields.u8()?;
        if marks > 3 {
            return Err(Malformed);
        }
        let range = BitRange::decode(fields)?;
        Ok(BitPos { is_set: marks & 1 != 0, has_end: marks & 2 != 0, range })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let position = match cx.string()? {
            Some(string) => self.position(string),
            None => (!self.is_set).then_some(0),
        };
        unchanged(Reply::Integer(position.map_or(-1, |position| position as i64)))
    }
}
