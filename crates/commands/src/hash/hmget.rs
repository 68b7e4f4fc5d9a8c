//! `HMGET`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::names;
use crate::context::{Context, RunResult, unchanged};
use crate::elements;
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![ReadFields] };

const ROW: CommandSpec = CommandSpec {
    name: "hmget",
    arity: AtLeast(3),
    since: "2.0.0",
    summary: "Answers the values of fields of the hash at a key.",
    complexity: "O(N) where N is the number of fields.",
    arguments: &[Argument::key(), Argument::string("field").multiple()],
    flags: &[Readonly, Fast],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    execution: Key(plan),
    ..HASH
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&ReadFields { names: args.all[2..].to_vec() }))
}

struct ReadFields<'a> {
    names: Vec<&'a [u8]>,
}

impl<'a> Operation<'a> for ReadFields<'a> {
    const CODE: u8 = 34;
    const EXAMPLES: Examples = &[("HMGET k f", b"\x22\x01f"), ("HMGET k f ", b"\x22\x01f\x00")];

    fn encode(&self, out: &mut impl Sink) {
        names::put(&self.names, out);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<ReadFields<'a>, Malformed> {
        Ok(ReadFields { names: names::take(fields)? })
    }

    fn names(&self) -> Option<Vec<&'a [u8]>> {
        Some(self.names.clone())
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let fields = cx.draft(&self.names)?;
        let value = |name| fields.get(name).map(|field| field.value);
        let mut len = 0;
        for name in &self.names {
            len += value(name).unwrap_or_default().len();
            elements::check_reply_len(len)?;
        }
        unchanged(Reply::array(self.names.iter().map(|name| Reply::copy_or_null(value(name)))))
    }
}
