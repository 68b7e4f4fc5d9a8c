//! `LSET`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::{encode, encoding, position};
use crate::context::{Context, RunResult};
use crate::errors::{self, ErrorReply};
use crate::keys::NO_SUCH_KEY;
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![LSet] };

const ROW: CommandSpec = CommandSpec {
    name: "lset",
    arity: Exactly(4),
    summary: "Replaces the element of a list at an index. Negative ones count from the tail.",
    complexity: "O(N) where N is the length of the list.",
    arguments: &[Argument::key(), Argument::integer("index"), Argument::string("element")],
    flags: &[Write, DenyOom],
    keys: one_key(&["RW", "update"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..LIST
};

const INDEX_OUT_OF_RANGE: ErrorReply = errors::fixed(b"ERR index out of range");

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&LSet { index: args.all[2], element: args.all[3] }))
}

struct LSet<'a> {
    /// As text: redis-server looks at the key before it reads the number.
    index: &'a [u8],
    element: &'a [u8],
}

impl<'a> Operation<'a> for LSet<'a> {
    const CODE: u8 = 69;
    const EXAMPLES: Examples = &[("LSET k -1 element", b"\x45\x02-1element")];

    fn encode(&self, out: &mut impl Sink) {
        out.blob(self.index);
        out.bytes(self.element);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<LSet<'a>, Malformed> {
        let index = fields.blob(types::limits::RECORD_LEN_MAX)?;
        Ok(LSet { index, element: operation::rest(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let list = cx.list()?.ok_or(NO_SUCH_KEY)?;
        let index = parse_i64(self.index).ok_or(errors::NOT_AN_INTEGER)?;
        let index = position::index(index, list.elements.len()).ok_or(INDEX_OUT_OF_RANGE)?;
        let (head, rest) = list.elements.split_at(index);
        let (_, tail) = rest.split_at(1);
        let element = encode(self.element);
        let parts = &[head.bytes(), &element, tail.bytes()];
        let encoding = encoding::shrunk(encoding::grown(list, self.element.len()), parts);
        cx.put_list(encoding, parts, Reply::OK)
    }
}
