//! `LINSERT`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::{encode, encoding};
use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![LInsert] };

const ROW: CommandSpec = CommandSpec {
    name: "linsert",
    arity: Exactly(5),
    since: "2.2.0",
    summary: "Adds an element before or after the first one that equals a value.",
    complexity: "O(N) where N is the length of the list.",
    arguments: &[
        Argument::key(),
        Argument::one_of(
            "where",
            &[Argument::word("before", "BEFORE"), Argument::word("after", "AFTER")],
        ),
        Argument::string("pivot"),
        Argument::string("element"),
    ],
    flags: &[Write, DenyOom],
    keys: one_key(&["RW", "insert"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..LIST
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let place = match args.all[2] {
        word if word.eq_ignore_ascii_case(b"before") => Place::Before,
        word if word.eq_ignore_ascii_case(b"after") => Place::After,
        _ => return Err(errors::SYNTAX),
    };
    Ok(args.command(&LInsert { place, pivot: args.all[3], element: args.all[4] }))
}

struct LInsert<'a> {
    place: Place,
    pivot: &'a [u8],
    element: &'a [u8],
}

/// Variants stand in the order of their bytes.
#[derive(Clone, Copy)]
enum Place {
    Before,
    After,
}

impl<'a> Operation<'a> for LInsert<'a> {
    const CODE: u8 = 72;
    const EXAMPLES: Examples = &[
        ("LINSERT k BEFORE pivot element", b"\x48\x00\x05pivotelement"),
        ("LINSERT k AFTER pivot element", b"\x48\x01\x05pivotelement"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(self.place as u8);
        out.blob(self.pivot);
        out.bytes(self.element);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<LInsert<'a>, Malformed> {
        let place = operation::variant(&[Place::Before, Place::After], fields.u8()?)?;
        let pivot = fields.blob(types::limits::RECORD_LEN_MAX)?;
        Ok(LInsert { place, pivot, element: operation::rest(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let Some(list) = cx.list()? else { return unchanged(Reply::Integer(0)) };
        let Some(pivot) = list.elements.iter().position(|element| element == self.pivot) else {
            return unchanged(Reply::Integer(-1));
        };
        let (head, tail) = list.elements.split_at(pivot + self.place as usize);
        let element = encode(self.element);
        let encoding = encoding::grown(list, self.element.len());
        let reply = Reply::Integer(list.elements.len() as i64 + 1);
        cx.put_list(encoding, &[head.bytes(), &element, tail.bytes()], reply)
    }
}
