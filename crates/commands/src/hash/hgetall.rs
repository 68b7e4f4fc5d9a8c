//! Reads of all fields: `HGETALL HKEYS HVALS`, and `HLEN`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![ReadAll] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "hgetall",
        summary: "Answers all fields and values of the hash at a key.",
        execution: Key(plan_hgetall),
        ..ON_ALL
    },
    CommandSpec {
        name: "hkeys",
        summary: "Answers all fields of the hash at a key.",
        execution: Key(plan_hkeys),
        ..ON_ALL
    },
    CommandSpec {
        name: "hlen",
        summary: "Answers the number of fields of the hash at a key.",
        complexity: "O(N) where N is the number of fields.",
        flags: &[Readonly, Fast],
        tips: &[],
        keys: one_key(&["RO"]),
        execution: Key(plan_hlen),
        miss: Some(Miss::Integer(0)),
        ..ON_ALL
    },
    CommandSpec {
        name: "hvals",
        summary: "Answers all values of the hash at a key.",
        execution: Key(plan_hvals),
        ..ON_ALL
    },
];

const ON_ALL: CommandSpec = CommandSpec {
    arity: Exactly(2),
    since: "2.0.0",
    complexity: "O(N) where N is the number of fields.",
    arguments: &[Argument::key()],
    flags: &[Readonly],
    tips: &["nondeterministic_output_order"],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    miss: Some(Miss::Empty),
    ..HASH
};

fn plan_hgetall(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&ReadAll { parts: Parts::Pairs }))
}

fn plan_hkeys(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&ReadAll { parts: Parts::Names }))
}

fn plan_hvals(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&ReadAll { parts: Parts::Values }))
}

fn plan_hlen(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&ReadAll { parts: Parts::Count }))
}

struct ReadAll {
    parts: Parts,
}

/// Variants stand in the order of their bytes.
#[derive(Clone, Copy)]
enum Parts {
    Pairs,
    Names,
    Values,
    Count,
}

const PARTS: [Parts; 4] = [Parts::Pairs, Parts::Names, Parts::Values, Parts::Count];

impl Operation<'_> for ReadAll {
    const CODE: u8 = 35;
    const EXAMPLES: Examples = &[
        ("HGETALL k", b"\x23\x00"),
        ("HKEYS k", b"\x23\x01"),
        ("HVALS k", b"\x23\x02"),
        ("HLEN k", b"\x23\x03"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(self.parts as u8);
    }

    fn decode(fields: &mut Reader<'_>) -> Result<ReadAll, Malformed> {
        Ok(ReadAll { parts: operation::variant(&PARTS, fields.u8()?)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let hash = cx.hash()?;
        let fields = hash.iter();
        unchanged(match self.parts {
            Parts::Pairs => {
                let pair = |name, value| (Reply::copy(name), Reply::copy(value));
                Reply::Map(fields.map(|field| pair(field.name, field.value)).collect())
            }
            Parts::Names => Reply::array(fields.map(|field| Reply::copy(field.name))),
            Parts::Values => Reply::array(fields.map(|field| Reply::copy(field.value))),
            Parts::Count => Reply::Integer(hash.len() as i64),
        })
    }
}
