//! `HINCRBYFLOAT`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::Extended;

use crate::context::{Context, RunResult};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module =
    Module { rows: &[ROW], operations: handlers![IncrementFieldFloat] };

const ROW: CommandSpec = CommandSpec {
    name: "hincrbyfloat",
    arity: Exactly(4),
    since: "2.6.0",
    summary: "Adds to the decimal fraction in a field of the hash at a key, which begins at 0.",
    arguments: &[
        Argument::key(),
        Argument::string("field"),
        Argument::new("increment", ArgumentKind::Double),
    ],
    flags: &[Write, DenyOom, Fast],
    keys: one_key(&["RW", "access", "update"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..HASH
};

const VALUE_NOT_A_FLOAT: ErrorReply = errors::fixed(b"ERR hash value is not a float");
const INCREMENT_INFINITE: ErrorReply = errors::fixed(b"ERR value is NaN or Infinity");

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let by = args.all[3];
    if !Extended::parse(by).ok_or(errors::NOT_A_FLOAT)?.is_finite() {
        return Err(INCREMENT_INFINITE);
    }
    Ok(args.command(&IncrementFieldFloat { name: args.all[2], by }))
}

struct IncrementFieldFloat<'a> {
    name: &'a [u8],
    /// The decimal digits of the request.
    by: &'a [u8],
}

impl<'a> Operation<'a> for IncrementFieldFloat<'a> {
    const CODE: u8 = 38;
    const EXAMPLES: Examples = &[("HINCRBYFLOAT k f -1.5e3", b"\x26\x01f-1.5e3")];

    fn encode(&self, out: &mut impl Sink) {
        out.blob(self.name);
        out.bytes(self.by);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<IncrementFieldFloat<'a>, Malformed> {
        let name = fields.blob(types::limits::RECORD_LEN_MAX)?;
        Ok(IncrementFieldFloat { name, by: operation::rest(fields)? })
    }

    fn names(&self) -> Option<Vec<&'a [u8]>> {
        Some(vec![self.name])
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let old = match cx.hash()?.get(self.name) {
            Some(field) => Extended::parse(field.value).ok_or(VALUE_NOT_A_FLOAT)?,
            None => Extended::ZERO,
        };
        let by = Extended::parse(self.by).ok_or(errors::NOT_A_FLOAT)?;
        let text = old.plus(by).ok_or(errors::INCREMENT_NOT_FINITE)?.to_string();
        let mut draft = cx.draft(&[self.name])?;
        draft.set_value(self.name, text.as_bytes());
        cx.change_hash(&draft, Reply::copy(text.as_bytes()))
    }
}
