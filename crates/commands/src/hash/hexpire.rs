//! `HEXPIRE HPEXPIRE HEXPIREAT HPEXPIREAT` with `NX XX GT LT`: ends of fields.
//!
//! An end is Unix time by the clock of the node that runs the command. Any node whose clock is past
//! it ends the field.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::Hash;
use values::hash::Draft;

use super::{NO_FIELD, names};
use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::keys::time::{FORMS, Form, Unit};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![ExpireFields] };

const CONDITION: Argument = Argument::one_of(
    "condition",
    &[
        Argument::word("nx", "NX"),
        Argument::word("xx", "XX"),
        Argument::word("gt", "GT"),
        Argument::word("lt", "LT"),
    ],
)
.optional();

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "hexpire",
        summary: "Sets the time to live of fields of a hash in seconds.",
        arguments: &[Argument::key(), Argument::integer("seconds"), CONDITION, names::FIELDS],
        execution: Key(plan_hexpire),
        ..ON_ENDS
    },
    CommandSpec {
        name: "hexpireat",
        summary: "Sets the time at which fields of a hash expire, in seconds of Unix time.",
        arguments: &[
            Argument::key(),
            Argument::unix_time("unix-time-seconds"),
            CONDITION,
            names::FIELDS,
        ],
        execution: Key(plan_hexpireat),
        ..ON_ENDS
    },
    CommandSpec {
        name: "hpexpire",
        summary: "Sets the time to live of fields of a hash in milliseconds.",
        arguments: &[Argument::key(), Argument::integer("milliseconds"), CONDITION, names::FIELDS],
        execution: Key(plan_hpexpire),
        ..ON_ENDS
    },
    CommandSpec {
        name: "hpexpireat",
        summary: "Sets the time at which fields of a hash expire, in milliseconds of Unix time.",
        arguments: &[
            Argument::key(),
            Argument::unix_time("unix-time-milliseconds"),
            CONDITION,
            names::FIELDS,
        ],
        execution: Key(plan_hpexpireat),
        ..ON_ENDS
    },
];

const ON_ENDS: CommandSpec = CommandSpec {
    arity: AtLeast(6),
    since: "7.4.0",
    complexity: "O(N) where N is the number of fields.",
    flags: &[Write, DenyOom, Fast],
    keys: one_key(&["RW", "update"]),
    access: Some(Access::Update),
    ..HASH
};

/// Latest end, in Unix milliseconds (Redis 7.4).
const END_MAX: i64 = (1 << 46) - 1;

const NEGATIVE: ErrorReply = errors::fixed(b"ERR invalid expire time, must be >= 0");
const NOT_POSITIVE: ErrorReply =
    errors::fixed(b"ERR Parameter `numFields` should be greater than 0");

fn plan_hexpire(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Seconds, Form::Span)
}

fn plan_hpexpire(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Milliseconds, Form::Span)
}

fn plan_hexpireat(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Seconds, Form::Deadline)
}

fn plan_hpexpireat(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Milliseconds, Form::Deadline)
}

/// `HEXPIRE key time [NX | XX | GT | LT] FIELDS numfields field [field …]`.
fn plan(args: &Arguments<'_>, unit: Unit, form: Form) -> Result<Command, ErrorReply> {
    let millis = time(args, unit, form)?;
    let (only_if, rest) = match condition(args.all[3]) {
        Some(only_if) => (only_if, &args.all[4..]),
        None => (Condition::Always, &args.all[3..]),
    };
    let names = names::parse(rest, NOT_POSITIVE)?;
    Ok(args.command(&ExpireFields { form, millis, only_if, names }))
}

fn time(args: &Arguments<'_>, unit: Unit, form: Form) -> Result<u64, ErrorReply> {
    let number = parse_i64(args.all[2]).ok_or(errors::NOT_AN_INTEGER)?;
    if number < 0 {
        return Err(NEGATIVE);
    }
    let now = match form {
        Form::Span => i64::try_from(args.clock.unix.0).unwrap_or(i64::MAX),
        Form::Deadline => 0,
    };
    let factor = if unit == Unit::Seconds { 1000 } else { 1 };
    let millis = number.checked_mul(factor).filter(|&millis| millis <= END_MAX.saturating_sub(now));
    let millis = millis.ok_or_else(|| errors::invalid_expire_time(args.spec.name))?;
    Ok(millis.cast_unsigned())
}

fn condition(word: &[u8]) -> Option<Condition> {
    Some(match word.to_ascii_uppercase().as_slice() {
        b"NX" => Condition::Without,
        b"XX" => Condition::With,
        b"GT" => Condition::Later,
        b"LT" => Condition::Earlier,
        _ => return None,
    })
}

struct ExpireFields<'a> {
    form: Form,
    millis: u64,
    only_if: Condition,
    names: Vec<&'a [u8]>,
}

/// Variants stand in the order of their bytes.
#[derive(Clone, Copy)]
enum Condition {
    Always,
    /// `NX`: the field has no end yet.
    Without,
    /// `XX`: the field has one.
    With,
    /// `GT`: the new one is later.
    Later,
    /// `LT`: the new one is earlier.
    Earlier,
}

const CONDITIONS: [Condition; 5] =
    [Condition::Always, Condition::Without, Condition::With, Condition::Later, Condition::Earlier];

impl<'a> Operation<'a> for ExpireFields<'a> {
    const CODE: u8 = 41;
    const EXAMPLES: Examples = &[
        ("HEXPIRE k 1 FIELDS 1 f", b"\x29\x00\x00\xe8\x07\x01f"),
        ("HPEXPIRE k 5 NX FIELDS 2 f g", b"\x29\x00\x01\x05\x01f\x01g"),
        ("HEXPIREAT k 0 XX FIELDS 1 f", b"\x29\x01\x02\x00\x01f"),
        ("HPEXPIREAT k 5 GT FIELDS 1 f", b"\x29\x01\x03\x05\x01f"),
        ("HPEXPIREAT k 5 lt fields 1 ", b"\x29\x01\x04\x05\x00"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(self.form as u8);
        out.byte(self.only_if as u8);
        out.varint(self.millis);
        names::put(&self.names, out);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<ExpireFields<'a>, Malformed> {
        Ok(ExpireFields {
            form: operation::variant(&FORMS, fields.u8()?)?,
            only_if: operation::variant(&CONDITIONS, fields.u8()?)?,
            millis: fields.varint()?,
            names: names::take(fields)?,
        })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let hash = cx.hash()?;
        if hash.is_empty() {
            return unchanged(Reply::array(self.names.iter().map(|_| Reply::Integer(NO_FIELD))));
        }
        if hash.encoding().has_ends() {
            let (draft, reply) = self.expire(hash, cx);
            return cx.change_hash(&draft, reply);
        }
        let with_ends = hash.with_ends();
        let (draft, reply) = self.expire(Hash::decode(&with_ends)?, cx);
        // Redis changes the encoding even if it ends no field.
        cx.put_hash(&draft, reply)
    }
}

impl<'a> ExpireFields<'a> {
    fn expire<'h>(&self, hash: Hash<'h>, cx: &Context<'_>) -> (Draft<'h>, Reply)
    where
        'a: 'h,
    {
        let now = cx.clock.unix.0;
        let end = match self.form {
            Form::Span => now.saturating_add(self.millis),
            Form::Deadline => self.millis,
        };
        let mut draft = Draft::new(hash, self.names.iter().copied(), cx.clock.seed);
        let replies = self.names.iter().map(|name| {
            Reply::Integer(match draft.get(name) {
                None => NO_FIELD,
                Some(field) if !self.only_if.holds(field.end, end) => 0,
                Some(_) if end <= now => {
                    draft.remove(name);
                    2
                }
                Some(_) => {
                    draft.set_end(name, Some(end));
                    1
                }
            })
        });
        let reply = Reply::array(replies);
        (draft, reply)
    }
}

impl Condition {
    /// A field without an end outlives every other.
    fn holds(self, current: Option<u64>, new: u64) -> bool {
        match self {
            Condition::Always => true,
            Condition::Without => current.is_none(),
            Condition::With => current.is_some(),
            Condition::Later => current.is_some_and(|current| new > current),
            Condition::Earlier => current.is_none_or(|current| new < current),
        }
    }
}
