//! `INCRBYFLOAT`: sums of decimal fractions.

use types::wire::{Malformed, Reader};
use types::{Command, ExpiryChange, Reply};
use values::Extended;

use crate::context::{Context, RunResult};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![IncrementFloat] };

const ROW: CommandSpec = CommandSpec {
    name: "incrbyfloat",
    arity: Exactly(3),
    since: "2.6.0",
    summary: "Adds to the decimal fraction at a key, which begins at 0.",
    arguments: &[Argument::key(), Argument::new("increment", ArgumentKind::Double)],
    flags: &[Write, DenyOom, Fast],
    keys: one_key(&["RW", "access", "update"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..STRING
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let by = args.all[2];
    // Departure: redis-server reads the key's type first.
    Extended::parse(by).ok_or(errors::NOT_A_FLOAT)?;
    Ok(args.command(&IncrementFloat { by }))
}

struct IncrementFloat<'a> {
    /// The decimal digits of the request.
    by: &'a [u8],
}

impl<'a> Operation<'a> for IncrementFloat<'a> {
    const CODE: u8 = 12;
    const EXAMPLES: Examples = &[("INCRBYFLOAT k -1.5e3", b"\x0c-1.5e3")];

    fn encode(&self, out: &mut impl Sink) {
        out.bytes(self.by);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<IncrementFloat<'a>, Malformed> {
        Ok(IncrementFloat { by: operation::rest(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let old = match cx.string()? {
            Some(string) => Extended::parse(string).ok_or(errors::NOT_A_FLOAT)?,
            None => Extended::ZERO,
        };
        let by = Extended::parse(self.by).ok_or(errors::NOT_A_FLOAT)?;
        let new = old.plus(by).ok_or(errors::INCREMENT_NOT_FINITE)?.to_string();
        cx.put_string(&[new.as_bytes()], ExpiryChange::Keep, Reply::copy(new.as_bytes()))
    }
}
