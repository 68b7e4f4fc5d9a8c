//! `HPERSIST`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::{NO_END, NO_FIELD, names};
use crate::context::{Context, RunResult};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![PersistFields] };

const ROW: CommandSpec = CommandSpec {
    name: "hpersist",
    arity: AtLeast(5),
    since: "7.4.0",
    summary: "Removes the time to live of fields of a hash.",
    complexity: "O(N) where N is the number of fields.",
    arguments: &[Argument::key(), names::FIELDS],
    flags: &[Write, Fast],
    keys: one_key(&["RW", "update"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..HASH
};

/// `HPERSIST key FIELDS numfields field [field …]`.
fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let names = names::parse(&args.all[2..], names::NOT_POSITIVE)?;
    Ok(args.command(&PersistFields { names }))
}

struct PersistFields<'a> {
    names: Vec<&'a [u8]>,
}

impl<'a> Operation<'a> for PersistFields<'a> {
    const CODE: u8 = 43;
    const EXAMPLES: Examples = &[("HPERSIST k FIELDS 2 f gg", b"\x2b\x01f\x02gg")];

    fn encode(&self, out: &mut impl Sink) {
        names::put(&self.names, out);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<PersistFields<'a>, Malformed> {
        Ok(PersistFields { names: names::take(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let mut draft = cx.draft(&self.names)?;
        let replies = self.names.iter().map(|name| {
            Reply::Integer(match draft.get(name).map(|field| field.end) {
                None => NO_FIELD,
                Some(None) => NO_END,
                Some(Some(_)) => {
                    draft.set_end(name, None);
                    1
                }
            })
        });
        let reply = Reply::array(replies);
        cx.change_hash(&draft, reply)
    }
}
