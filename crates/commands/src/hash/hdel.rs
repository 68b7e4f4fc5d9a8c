//! `HDEL`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::names;
use crate::context::{Context, RunResult};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![DeleteFields] };

const ROW: CommandSpec = CommandSpec {
    name: "hdel",
    arity: AtLeast(3),
    since: "2.0.0",
    summary: "Deletes fields of the hash at a key, and the key with its last field.",
    complexity: "O(N) where N is the number of fields.",
    arguments: &[Argument::key(), Argument::string("field").multiple()],
    flags: &[Write, Fast],
    keys: one_key(&["RW", "delete"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..HASH
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&DeleteFields { names: args.all[2..].to_vec() }))
}

struct DeleteFields<'a> {
    names: Vec<&'a [u8]>,
}

impl<'a> Operation<'a> for DeleteFields<'a> {
    const CODE: u8 = 36;
    const EXAMPLES: Examples = &[("HDEL k f gg", b"\x24\x01f\x02gg")];

    fn encode(&self, out: &mut impl Sink) {
        names::put(&self.names, out);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<DeleteFields<'a>, Malformed> {
        Ok(DeleteFields { names: names::take(fields)? })
    }

    fn names(&self) -> Option<Vec<&'a [u8]>> {
        Some(self.names.clone())
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let mut draft = cx.draft(&self.names)?;
        let deleted = self.names.iter().filter(|name| draft.remove(name)).count();
        cx.change_hash(&draft, Reply::Integer(deleted as i64))
    }
}
