//! Reads of one field: `HGET HEXISTS HSTRLEN`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![ReadField] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "hexists",
        summary: "Answers whether the hash at a key has a field.",
        keys: one_key(&["RO"]),
        execution: Key(plan_hexists),
        miss: Some(Miss::Integer(0)),
        ..ON_FIELD
    },
    CommandSpec {
        name: "hget",
        summary: "Answers the value of a field of the hash at a key.",
        keys: one_key(&["RO", "access"]),
        execution: Key(plan_hget),
        miss: Some(Miss::Null),
        ..ON_FIELD
    },
    CommandSpec {
        name: "hstrlen",
        since: "3.2.0",
        summary: "Answers the length of the value of a field of the hash at a key.",
        keys: one_key(&["RO"]),
        execution: Key(plan_hstrlen),
        miss: Some(Miss::Integer(0)),
        ..ON_FIELD
    },
];

const ON_FIELD: CommandSpec = CommandSpec {
    arity: Exactly(3),
    since: "2.0.0",
    arguments: &[Argument::key(), Argument::string("field")],
    flags: &[Readonly, Fast],
    access: Some(Access::Read),
    ..HASH
};

fn plan_hget(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&ReadField { property: Property::Value, name: args.all[2] }))
}

fn plan_hexists(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&ReadField { property: Property::Existence, name: args.all[2] }))
}

fn plan_hstrlen(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&ReadField { property: Property::Length, name: args.all[2] }))
}

struct ReadField<'a> {
    property: Property,
    name: &'a [u8],
}

/// Variants stand in the order of their bytes.
#[derive(Clone, Copy)]
enum Property {
    Value,
    Existence,
    Length,
}

const PROPERTIES: [Property; 3] = [Property::Value, Property::Existence, Property::Length];

impl<'a> Operation<'a> for ReadField<'a> {
    const CODE: u8 = 33;
    const EXAMPLES: Examples =
        &[("HGET k f", b"\x21\x00f"), ("HEXISTS k f", b"\x21\x01f"), ("HSTRLEN k ", b"\x21\x02")];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(self.property as u8);
        out.bytes(self.name);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<ReadField<'a>, Malformed> {
        let property = operation::variant(&PROPERTIES, fields.u8()?)?;
        Ok(ReadField { property, name: operation::rest(fields)? })
    }

    fn names(&self) -> Option<Vec<&'a [u8]>> {
        Some(vec![self.name])
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let value = cx.hash()?.get(self.name).map(|field| field.value);
        unchanged(match self.property {
            Property::Value => Reply::copy_or_null(value),
            Property::Existence => Reply::count(value.is_some()),
            Property::Length => Reply::Integer(value.unwrap_or_default().len() as i64),
        })
    }
}
