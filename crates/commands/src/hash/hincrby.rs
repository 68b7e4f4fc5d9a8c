//! `HINCRBY`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![IncrementField] };

const ROW: CommandSpec = CommandSpec {
    name: "hincrby",
    arity: Exactly(4),
    since: "2.0.0",
    summary: "Adds to the integer in a field of the hash at a key, which begins at 0.",
    arguments: &[Argument::key(), Argument::string("field"), Argument::integer("increment")],
    flags: &[Write, DenyOom, Fast],
    keys: one_key(&["RW", "access", "update"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..HASH
};

const VALUE_NOT_AN_INTEGER: ErrorReply = errors::fixed(b"ERR hash value is not an integer");

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let by = parse_i64(args.all[3]).ok_or(errors::NOT_AN_INTEGER)?;
    Ok(args.command(&IncrementField { by, name: args.all[2] }))
}

struct IncrementField<'a> {
    by: i64,
    name: &'a [u8],
}

impl<'a> Operation<'a> for IncrementField<'a> {
    const CODE: u8 = 37;
    const EXAMPLES: Examples = &[("HINCRBY k f 258", b"\x25\x02\x01\0\0\0\0\0\0f")];

    fn encode(&self, out: &mut impl Sink) {
        out.integer(self.by);
        out.bytes(self.name);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<IncrementField<'a>, Malformed> {
        let by = operation::integer(fields)?;
        Ok(IncrementField { by, name: operation::rest(fields)? })
    }

    fn names(&self) -> Option<Vec<&'a [u8]>> {
        Some(vec![self.name])
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let old = match cx.hash()?.get(self.name) {
            Some(field) => parse_i64(field.value).ok_or(VALUE_NOT_AN_INTEGER)?,
            None => 0,
        };
        let new = old.checked_add(self.by).ok_or(errors::INCREMENT_OVERFLOW)?;
        let mut text = itoa::Buffer::new();
        let mut draft = cx.draft(&[self.name])?;
        draft.set_value(self.name, text.format(new).as_bytes());
        cx.change_hash(&draft, Reply::Integer(new))
    }
}
