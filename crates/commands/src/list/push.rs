//! `LPUSH RPUSH LPUSHX RPUSHX`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::{List, blobs};

use super::{Side, encoding, joined};
use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![Push] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "lpush",
        summary: "Adds elements at the head of the list at a key, which begins empty.",
        execution: Key(|args| plan(args, Form::Left)),
        ..PUSH
    },
    CommandSpec {
        name: "lpushx",
        since: "2.2.0",
        summary: "Adds elements at the head of the list at a key, if it exists.",
        execution: Key(|args| plan(args, Form::LeftOfExisting)),
        ..PUSH
    },
    CommandSpec {
        name: "rpush",
        summary: "Adds elements at the tail of the list at a key, which begins empty.",
        execution: Key(|args| plan(args, Form::Right)),
        ..PUSH
    },
    CommandSpec {
        name: "rpushx",
        since: "2.2.0",
        summary: "Adds elements at the tail of the list at a key, if it exists.",
        execution: Key(|args| plan(args, Form::RightOfExisting)),
        ..PUSH
    },
];

const PUSH: CommandSpec = CommandSpec {
    arity: AtLeast(3),
    complexity: "O(N+M) where N is the length of the list and M the number of elements added.",
    arguments: &[Argument::key(), Argument::string("element").multiple()],
    flags: &[Write, DenyOom, Fast],
    keys: one_key(&["RW", "insert"]),
    access: Some(Access::Update),
    ..LIST
};

fn plan(args: &Arguments<'_>, form: Form) -> Result<Command, ErrorReply> {
    Ok(args.command(&Push { form, elements: args.all[2..].to_vec() }))
}

struct Push<'a> {
    form: Form,
    /// At least one.
    elements: Vec<&'a [u8]>,
}

/// Variants stand in the order of their bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Left,
    Right,
    LeftOfExisting,
    RightOfExisting,
}

const FORMS: [Form; 4] = [Form::Left, Form::Right, Form::LeftOfExisting, Form::RightOfExisting];

impl Form {
    fn side(self) -> Side {
        match self {
            Form::Left | Form::LeftOfExisting => Side::Left,
            Form::Right | Form::RightOfExisting => Side::Right,
        }
    }

    fn begins_list(self) -> bool {
        matches!(self, Form::Left | Form::Right)
    }
}

impl<'a> Operation<'a> for Push<'a> {
    const CODE: u8 = 64;
    const EXAMPLES: Examples = &[
        ("LPUSH k a", b"\x40\x00\x01a"),
        ("RPUSH k a bc", b"\x40\x01\x01a\x02bc"),
        ("LPUSHX k ", b"\x40\x02\x00"),
        ("RPUSHX k a", b"\x40\x03\x01a"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(self.form as u8);
        self.elements.iter().for_each(|element| out.blob(element));
    }

    fn decode(fields: &mut Reader<'a>) -> Result<Push<'a>, Malformed> {
        let form = operation::variant(&FORMS, fields.u8()?)?;
        let mut elements = vec![fields.blob(types::limits::RECORD_LEN_MAX)?];
        while !fields.is_empty() {
            elements.push(fields.blob(types::limits::RECORD_LEN_MAX)?);
        }
        Ok(Push { form, elements })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let list = match cx.list()? {
            Some(list) => list,
            None if self.form.begins_list() => List::EMPTY,
            None => return unchanged(Reply::Integer(0)),
        };
        let encoding = encoding::grown(list, self.elements.iter().map(|one| one.len()).sum());
        let side = self.form.side();
        let len = list.elements.len() + self.elements.len();
        let new = self.encoded(side);
        let parts = joined(list.elements, side, &new);
        cx.put_list(encoding, &parts, Reply::Integer(len as i64))
    }
}

impl Push<'_> {
    /// The last element ends outermost.
    fn encoded(&self, side: Side) -> Vec<u8> {
        let len = self.elements.iter().map(|element| blobs::encoded_len(element.len())).sum();
        let mut encoded = Vec::with_capacity(len);
        let put = |element: &&[u8]| blobs::put(&mut encoded, element);
        match side {
            Side::Left => self.elements.iter().rev().for_each(put),
            Side::Right => self.elements.iter().for_each(put),
        }
        encoded
    }
}
