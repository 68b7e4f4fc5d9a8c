//! `LPOP` and `RPOP`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::{Side, encoding, popped, split_off};
use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![Pop] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "lpop",
        summary: "Takes elements off the head of the list at a key and answers them.",
        execution: Key(|args| plan(args, Side::Left)),
        ..POP
    },
    CommandSpec {
        name: "rpop",
        summary: "Takes elements off the tail of the list at a key and answers them.",
        execution: Key(|args| plan(args, Side::Right)),
        ..POP
    },
];

const POP: CommandSpec = CommandSpec {
    arity: AtLeast(2),
    complexity: "O(N) where N is the length of the list.",
    arguments: &[Argument::key(), Argument::integer("count").optional().since("6.2.0")],
    flags: &[Write, Fast],
    keys: one_key(&["RW", "access", "delete"]),
    access: Some(Access::Update),
    ..LIST
};

const NOT_POSITIVE: ErrorReply = errors::fixed(b"ERR value is out of range, must be positive");

fn plan(args: &Arguments<'_>, side: Side) -> Result<Command, ErrorReply> {
    let count = match args.all[2..] {
        [] => None,
        [count] => Some(parse_i64(count).filter(|&count| count >= 0).ok_or(NOT_POSITIVE)?),
        _ => return Err(errors::wrong_arity(args.spec.name)),
    };
    Ok(args.command(&Pop { side, count }))
}

struct Pop {
    side: Side,
    /// Not negative. Elements are answered one by one without it, and as an array with it.
    count: Option<i64>,
}

impl Operation<'_> for Pop {
    const CODE: u8 = 65;
    const EXAMPLES: Examples =
        &[("LPOP k", b"\x41\x00"), ("RPOP k 258", b"\x41\x01\x02\x01\0\0\0\0\0\0")];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(self.side as u8);
        if let Some(count) = self.count {
            out.integer(count);
        }
    }

    fn decode(fields: &mut Reader<'_>) -> Result<Pop, Malformed> {
        let side = Side::decode(fields.u8()?)?;
        let count = match fields.is_empty() {
            true => None,
            false => Some(operation::integer(fields)?),
        };
        if count.is_some_and(|count| count < 0) { Err(Malformed) } else { Ok(Pop { side, count }) }
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let Some(list) = cx.list()? else {
            let is_single = self.count.is_none();
            return unchanged(if is_single { Reply::Null } else { Reply::NullArray });
        };
        let count = self.count.map_or(1, |count| usize::try_from(count).unwrap_or(usize::MAX));
        if count == 0 {
            return unchanged(Reply::Array(Vec::new()));
        }
        let (taken, rest) = split_off(list, self.side, count);
        let reply = match self.count {
            None => Reply::copy_or_null(taken.iter().next()),
            Some(_) => popped(taken, self.side),
        };
        let rest = &[rest.bytes()];
        cx.put_list(encoding::shrunk(list.encoding, rest), rest, reply)
    }
}
