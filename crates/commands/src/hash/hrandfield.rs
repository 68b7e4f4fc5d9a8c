//! `HRANDFIELD`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::hash::Field;

use crate::context::{Context, RunResult, unchanged};
use crate::elements;
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![RandomFields] };

const ROW: CommandSpec = CommandSpec {
    name: "hrandfield",
    arity: AtLeast(2),
    since: "6.2.0",
    summary: "Answers random fields of the hash at a key, with their values if wanted.",
    complexity: "O(N) where N is the number of fields.",
    arguments: &[
        Argument::key(),
        Argument::block(
            "options",
            &[Argument::integer("count"), Argument::word("withvalues", "WITHVALUES").optional()],
        )
        .optional(),
    ],
    flags: &[Readonly],
    tips: &["nondeterministic_output"],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    execution: Key(plan),
    ..HASH
};

/// [`Reply::len`] of an empty string.
const BULK_LEN: usize = 16;

const COUNT_OUT_OF_RANGE: ErrorReply = errors::fixed(
    b"ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
);
const PAIRS_OUT_OF_RANGE: ErrorReply = errors::fixed(b"ERR value is out of range");

/// `HRANDFIELD key [count [WITHVALUES]]`.
fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let Some((count, options)) = args.all[2..].split_first() else {
        return Ok(args.command(&RandomFields::One));
    };
    let count = parse_i64(count).ok_or(errors::NOT_AN_INTEGER)?;
    if count == i64::MIN {
        return Err(COUNT_OUT_OF_RANGE);
    }
    let with_values = match options {
        [] => false,
        [word] if word.eq_ignore_ascii_case(b"WITHVALUES") => true,
        _ => return Err(errors::SYNTAX),
    };
    if with_values && count.unsigned_abs() > i64::MAX.unsigned_abs() / 2 {
        return Err(PAIRS_OUT_OF_RANGE);
    }
    Ok(args.command(&RandomFields::Many { count, with_values }))
}

enum RandomFields {
    One,
    /// A negative count may name a field several times.
    Many {
        count: i64,
        with_values: bool,
    },
}

impl Operation<'_> for RandomFields {
    const CODE: u8 = 39;
    const EXAMPLES: Examples = &[
        ("HRANDFIELD k", b"\x27\x00"),
        ("HRANDFIELD k 3", b"\x27\x01\x03\0\0\0\0\0\0\0"),
        ("HRANDFIELD k -2 withvalues", b"\x27\x02\xfe\xff\xff\xff\xff\xff\xff\xff"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        match *self {
            RandomFields::One => out.byte(0),
            RandomFields::Many { count, with_values } => {
                out.byte(1 + u8::from(with_values));
                out.integer(count);
            }
        }
    }

    fn decode(fields: &mut Reader<'_>) -> Result<RandomFields, Malformed> {
        Ok(match fields.u8()? {
            0 => RandomFields::One,
            form @ 1..=2 => {
                let count = operation::integer(fields)?;
                RandomFields::Many { count, with_values: form == 2 }
            }
            _ => return Err(Malformed),
        })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let fields: Vec<Field<'_>> = cx.hash()?.iter().collect();
        let (count, with_values) = match *self {
            RandomFields::One => (1, false),
            RandomFields::Many { count, with_values } => (count, with_values),
        };
        let reply_len = |index: usize| {
            let Field { name, value, .. } = fields[index];
            let value_len = if with_values { BULK_LEN + value.len() } else { 0 };
            BULK_LEN + name.len() + value_len
        };
        let drawn = elements::draw(fields.len(), count, cx.clock.seed, reply_len)?;
        let mut drawn = drawn.into_iter().map(|index| fields[index]);
        let name = |field: Field<'_>| Reply::copy(field.name);
        unchanged(match self {
            RandomFields::One => drawn.next().map_or(Reply::Null, name),
            RandomFields::Many { with_values: false, .. } => Reply::array(drawn.map(name)),
            RandomFields::Many { .. } => {
                Reply::Pairs(drawn.map(|field| (name(field), Reply::copy(field.value))).collect())
            }
        })
    }
}
