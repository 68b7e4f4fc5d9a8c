//! `HTTL HPTTL HEXPIRETIME HPEXPIRETIME`: ends of fields.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::{NO_END, NO_FIELD, names};
use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::keys::time::{FORMS, Form, UNITS, Unit};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![FieldTimes] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "hexpiretime",
        summary: "Answers when fields expire, in seconds of Unix time: -1 never, -2 no field.",
        execution: Key(plan_hexpiretime),
        ..ON_ENDS
    },
    CommandSpec {
        name: "hpexpiretime",
        summary: "Answers when fields expire, in milliseconds of Unix time: -1 never, -2 no field.",
        execution: Key(plan_hpexpiretime),
        ..ON_ENDS
    },
    CommandSpec {
        name: "hpttl",
        summary: "Answers how long fields have to live, in milliseconds: -1 for ever, -2 no field.",
        execution: Key(plan_hpttl),
        ..ON_ENDS
    },
    CommandSpec {
        name: "httl",
        summary: "Answers how long fields have to live, in seconds: -1 for ever, -2 no field.",
        execution: Key(plan_httl),
        ..ON_ENDS
    },
];

const ON_ENDS: CommandSpec = CommandSpec {
    arity: AtLeast(5),
    since: "7.4.0",
    complexity: "O(N) where N is the number of fields.",
    arguments: &[Argument::key(), names::FIELDS],
    flags: &[Readonly, Fast],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    ..HASH
};

fn plan_httl(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Seconds, Form::Span)
}

fn plan_hpttl(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Milliseconds, Form::Span)
}

fn plan_hexpiretime(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Seconds, Form::Deadline)
}

fn plan_hpexpiretime(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Milliseconds, Form::Deadline)
}

/// `HTTL key FIELDS numfields field [field …]`.
fn plan(args: &Arguments<'_>, unit: Unit, form: Form) -> Result<Command, ErrorReply> {
    let names = names::parse(&args.all[2..], names::NOT_POSITIVE)?;
    Ok(args.command(&FieldTimes { unit, form, names }))
}

struct FieldTimes<'a> {
    unit: Unit,
    form: Form,
    names: Vec<&'a [u8]>,
}

impl<'a> Operation<'a> for FieldTimes<'a> {
    const CODE: u8 = 42;
    const EXAMPLES: Examples = &[
        ("HTTL k FIELDS 1 f", b"\x2a\x00\x00\x01f"),
        ("HEXPIRETIME k FIELDS 1 f", b"\x2a\x00\x01\x01f"),
        ("HPTTL k FIELDS 2 f g", b"\x2a\x01\x00\x01f\x01g"),
        ("HPEXPIRETIME k fields 1 ", b"\x2a\x01\x01\x00"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(self.unit as u8);
        out.byte(self.form as u8);
        names::put(&self.names, out);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<FieldTimes<'a>, Malformed> {
        Ok(FieldTimes {
            unit: operation::variant(&UNITS, fields.u8()?)?,
            form: operation::variant(&FORMS, fields.u8()?)?,
            names: names::take(fields)?,
        })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let fields = cx.draft(&self.names)?;
        let now = match self.form {
            Form::Span => cx.clock.unix.0,
            Form::Deadline => 0,
        };
        let time = |end: u64| {
            let millis = end.saturating_sub(now);
            // Redis rounds up.
            let time = if self.unit == Unit::Seconds { millis.div_ceil(1000) } else { millis };
            i64::try_from(time).unwrap_or(i64::MAX)
        };
        unchanged(Reply::array(self.names.iter().map(|name| {
            Reply::Integer(match fields.get(name) {
                None => NO_FIELD,
                Some(field) => field.end.map_or(NO_END, time),
            })
        })))
    }
}
