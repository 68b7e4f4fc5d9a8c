//! `LREM`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::{Blobs, blobs};

use super::{OUT_OF_RANGE, encoding};
use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![LRem] };

const ROW: CommandSpec = CommandSpec {
    name: "lrem",
    arity: Exactly(4),
    summary: "Removes elements that equal a value: the first ones, the last ones, or all.",
    complexity: "O(N) where N is the length of the list.",
    arguments: &[Argument::key(), Argument::integer("count"), Argument::string("element")],
    flags: &[Write],
    keys: one_key(&["RW", "delete"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..LIST
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let count = parse_i64(args.all[2]).ok_or(errors::NOT_AN_INTEGER)?;
    if count == i64::MIN {
        return Err(OUT_OF_RANGE);
    }
    Ok(args.command(&LRem { count, element: args.all[3] }))
}

struct LRem<'a> {
    /// Counts from the tail if negative. 0: all.
    count: i64,
    element: &'a [u8],
}

impl<'a> Operation<'a> for LRem<'a> {
    const CODE: u8 = 70;
    const EXAMPLES: Examples = &[("LREM k -2 a", b"\x46\xfe\xff\xff\xff\xff\xff\xff\xffa")];

    fn encode(&self, out: &mut impl Sink) {
        out.integer(self.count);
        out.bytes(self.element);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<LRem<'a>, Malformed> {
        Ok(LRem { count: operation::integer(fields)?, element: operation::rest(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let Some(list) = cx.list()? else { return unchanged(Reply::Integer(0)) };
        let (kept, removed) = self.remove(list.elements);
        if removed == 0 {
            return unchanged(Reply::Integer(0));
        }
        let kept: &[&[u8]] = &[&kept];
        let encoding = encoding::shrunk(list.encoding, kept);
        cx.put_list(encoding, kept, Reply::Integer(removed as i64))
    }
}

impl LRem<'_> {
    /// The encoded elements that stay, and the number of the others.
    fn remove(&self, elements: Blobs<'_>) -> (Vec<u8>, usize) {
        let found = elements.iter().filter(|&element| element == self.element).count();
        let wanted = match usize::try_from(self.count.unsigned_abs()) {
            Ok(0) | Err(_) => found,
            Ok(count) => count.min(found),
        };
        let first = if self.count < 0 { found - wanted } else { 0 };
        let removed = first..first + wanted;
        let (mut kept, mut number) = (Vec::with_capacity(elements.bytes().len()), 0);
        for element in elements {
            let is_found = element == self.element;
            if !(is_found && removed.contains(&number)) {
                blobs::put(&mut kept, element);
            }
            number += usize::from(is_found);
        }
        (kept, wanted)
    }
}
