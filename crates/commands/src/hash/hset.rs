//! `HSET` and its older forms `HMSET HSETNX`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::names;
use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![SetFields] };

const DATA: Argument =
    Argument::block("data", &[Argument::string("field"), Argument::string("value")]).multiple();

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "hmset",
        arity: AtLeast(4),
        since: "2.0.0",
        summary: "Sets fields of the hash at a key.",
        complexity: "O(N) where N is the number of fields.",
        arguments: &[Argument::key(), DATA],
        flags: &[Write, DenyOom, Fast],
        deprecated: Some(Deprecated {
            since: "4.0.0",
            replaced_by: "`HSET` with multiple field-value pairs",
        }),
        keys: one_key(&["RW", "update"]),
        access: Some(Access::Update),
        execution: Key(plan_hmset),
        ..HASH
    },
    CommandSpec {
        name: "hset",
        arity: AtLeast(4),
        since: "2.0.0",
        summary: "Sets fields of the hash at a key, and answers how many are new.",
        complexity: "O(N) where N is the number of fields.",
        arguments: &[Argument::key(), DATA],
        flags: &[Write, DenyOom, Fast],
        keys: one_key(&["RW", "update"]),
        access: Some(Access::Update),
        execution: Key(plan_hset),
        ..HASH
    },
    CommandSpec {
        name: "hsetnx",
        arity: Exactly(4),
        since: "2.0.0",
        summary: "Sets a field of the hash at a key, unless the field exists.",
        arguments: &[Argument::key(), Argument::string("field"), Argument::string("value")],
        flags: &[Write, DenyOom, Fast],
        keys: one_key(&["RW", "insert"]),
        access: Some(Access::Update),
        execution: Key(plan_hsetnx),
        ..HASH
    },
];

fn plan_hset(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Form::Count)
}

fn plan_hmset(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Form::Ok)
}

fn plan_hsetnx(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Form::IfAbsent)
}

fn plan(args: &Arguments<'_>, form: Form) -> Result<Command, ErrorReply> {
    let pairs = args.all[2..].to_vec();
    if !pairs.len().is_multiple_of(2) {
        return Err(errors::wrong_arity(args.spec.name));
    }
    Ok(args.command(&SetFields { form, pairs }))
}

struct SetFields<'a> {
    form: Form,
    /// Names and values in turn.
    pairs: Vec<&'a [u8]>,
}

/// Variants stand in the order of their bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Answers the number of new fields.
    Count,
    /// Answers `OK`.
    Ok,
    /// Answers whether the field is new; an old one stays.
    IfAbsent,
}

const FORMS: [Form; 3] = [Form::Count, Form::Ok, Form::IfAbsent];

impl<'a> Operation<'a> for SetFields<'a> {
    const CODE: u8 = 32;
    const EXAMPLES: Examples = &[
        ("HSET k f v", b"\x20\x00\x01f\x01v"),
        ("HMSET k f v g w", b"\x20\x01\x01f\x01v\x01g\x01w"),
        ("HSETNX k f ", b"\x20\x02\x01f\x00"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(self.form as u8);
        names::put(&self.pairs, out);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<SetFields<'a>, Malformed> {
        let form = operation::variant(&FORMS, fields.u8()?)?;
        let pairs = names::take(fields)?;
        let is_whole = !pairs.is_empty() && pairs.len().is_multiple_of(2);
        if is_whole { Ok(SetFields { form, pairs }) } else { Err(Malformed) }
    }

    fn names(&self) -> Option<Vec<&'a [u8]>> {
        Some(self.pairs.iter().step_by(2).copied().collect())
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let names: Vec<&[u8]> = self.pairs.iter().step_by(2).copied().collect();
        let mut draft = cx.draft(&names)?;
        if self.form == Form::IfAbsent && draft.get(names[0]).is_some() {
            return unchanged(Reply::count(false));
        }
        draft.expect_fields(names.len());
        let pairs = self.pairs.chunks_exact(2);
        let added = pairs.filter(|pair| draft.set(pair[0], pair[1])).count();
        let reply = match self.form {
            Form::Ok => Reply::OK,
            Form::Count | Form::IfAbsent => Reply::Integer(added as i64),
        };
        cx.change_hash(&draft, reply)
    }
}
