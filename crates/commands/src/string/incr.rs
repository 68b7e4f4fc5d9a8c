//! Counters: `INCR DECR INCRBY DECRBY`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, ExpiryChange, Reply};

use crate::context::{Context, RunResult};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![Increment] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "decr",
        arity: Exactly(2),
        summary: "Takes one from the integer at a key, which begins at 0.",
        arguments: &[Argument::key()],
        flags: &[Write, DenyOom, Fast],
        keys: one_key(&["RW", "access", "update"]),
        access: Some(Access::Update),
        execution: Key(plan_decr),
        ..STRING
    },
    CommandSpec {
        name: "decrby",
        arity: Exactly(3),
        summary: "Takes a number from the integer at a key, which begins at 0.",
        arguments: &[Argument::key(), Argument::integer("decrement")],
        flags: &[Write, DenyOom, Fast],
        keys: one_key(&["RW", "access", "update"]),
        access: Some(Access::Update),
        execution: Key(plan_decrby),
        ..STRING
    },
    CommandSpec {
        name: "incr",
        arity: Exactly(2),
        summary: "Adds one to the integer at a key, which begins at 0.",
        arguments: &[Argument::key()],
        flags: &[Write, DenyOom, Fast],
        keys: one_key(&["RW", "access", "update"]),
        access: Some(Access::Update),
        execution: Key(plan_incr),
        ..STRING
    },
    CommandSpec {
        name: "incrby",
        arity: Exactly(3),
        summary: "Adds a number to the integer at a key, which begins at 0.",
        arguments: &[Argument::key(), Argument::integer("increment")],
        flags: &[Write, DenyOom, Fast],
        keys: one_key(&["RW", "access", "update"]),
        access: Some(Access::Update),
        execution: Key(plan_incrby),
        ..STRING
    },
];

fn plan_incr(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Increment { by: 1 }))
}

fn plan_decr(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Increment { by: -1 }))
}

fn plan_incrby(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let by = parse_i64(args.all[2]).ok_or(errors::NOT_AN_INTEGER)?;
    Ok(args.command(&Increment { by }))
}

fn plan_decrby(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let by = parse_i64(args.all[2]).ok_or(errors::NOT_AN_INTEGER)?;
    let by = by.checked_neg().ok_or(errors::DECREMENT_OVERFLOW)?;
    Ok(args.command(&Increment { by }))
}

struct Increment {
    by: i64,
}

impl Operation<'_> for Increment {
    const CODE: u8 = 11;
    const EXAMPLES: Examples = &[
        ("INCR k", b"\x0b\x01\0\0\0\0\0\0\0"),
        ("DECR k", b"\x0b\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("INCRBY k 258", b"\x0b\x02\x01\0\0\0\0\0\0"),
        ("DECRBY k 2", b"\x0b\xfe\xff\xff\xff\xff\xff\xff\xff"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        out.integer(self.by);
    }

    fn decode(fields: &mut Reader<'_>) -> Result<Increment, Malformed> {
        Ok(Increment { by: operation::integer(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let old = match cx.string()? {
            Some(string) => parse_i64(string).ok_or(errors::NOT_AN_INTEGER)?,
            None => 0,
        };
        let new = old.checked_add(self.by).ok_or(errors::INCREMENT_OVERFLOW)?;
        let mut text = itoa::Buffer::new();
        let text = text.format(new).as_bytes();
        cx.put_string(&[text], ExpiryChange::Keep, Reply::Integer(new))
    }
}
