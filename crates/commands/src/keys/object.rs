//! `OBJECT ENCODING FREQ IDLETIME REFCOUNT`.
//!
//! Encodings and reference counts are those that redis-server gives a value that was just set: this
//! store keeps all strings alike. It keeps no times of access, so `IDLETIME` is an error, as in a
//! redis-server without such times.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::Kind;

use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Inspect] };

const ROW: CommandSpec = CommandSpec {
    name: "object",
    arity: AtLeast(2),
    since: "2.2.3",
    summary: "Holds commands about the values at keys.",
    complexity: "Depends on subcommand.",
    categories: &[],
    subcommands: OBJECT,
    ..GENERIC
};

const OBJECT: &[CommandSpec] = &[
    CommandSpec {
        name: "object|encoding",
        since: "2.2.3",
        summary: "Answers how redis-server would keep the value at a key.",
        execution: Key(plan_encoding),
        ..ON_VALUE
    },
    CommandSpec {
        name: "object|freq",
        since: "4.0.0",
        summary: "Refused for a key that exists: how often it is used is not counted.",
        execution: Key(plan_freq),
        ..ON_VALUE
    },
    CommandSpec {
        name: "object|help",
        arity: Exactly(2),
        since: "6.2.0",
        summary: "Shows this help.",
        flags: &[Loading, Stale],
        execution: HELP,
        ..GENERIC
    },
    CommandSpec {
        name: "object|idletime",
        since: "2.2.3",
        summary: "Refused for a key that exists: when it was used last is not kept.",
        execution: Key(plan_idletime),
        ..ON_VALUE
    },
    CommandSpec {
        name: "object|refcount",
        since: "2.2.3",
        summary: "Answers 1, or what redis-server answers for the small integers that it shares.",
        execution: Key(plan_refcount),
        ..ON_VALUE
    },
];

const ON_VALUE: CommandSpec = CommandSpec {
    arity: Exactly(3),
    arguments: &[Argument::key()],
    flags: &[Readonly],
    tips: &["nondeterministic_output"],
    keys: one_key_at(2, &["RO"]),
    access: Some(Access::Read),
    ..GENERIC
};

/// Longest string that redis-server keeps in one piece with its header.
const EMBEDDED_LEN_MAX: usize = 44;
/// redis-server shares the integers below it.
const SHARED_INTEGERS: i64 = 10_000;
/// The reference count of a shared integer.
const SHARED_REFCOUNT: i64 = i32::MAX as i64;

fn plan_encoding(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Inspect { property: Property::Encoding }))
}

fn plan_freq(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Inspect { property: Property::Frequency }))
}

fn plan_idletime(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Inspect { property: Property::IdleTime }))
}

fn plan_refcount(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Inspect { property: Property::RefCount }))
}

struct Inspect {
    property: Property,
}

/// Variants stand in the order of their bytes.
#[derive(Clone, Copy)]
enum Property {
    Encoding,
    Frequency,
    IdleTime,
    RefCount,
}

const PROPERTIES: [Property; 4] =
    [Property::Encoding, Property::Frequency, Property::IdleTime, Property::RefCount];

impl Operation<'_> for Inspect {
    const CODE: u8 = 21;
    const EXAMPLES: Examples = &[
        ("OBJECT ENCODING k", b"\x15\x00"),
        ("OBJECT FREQ k", b"\x15\x01"),
        ("OBJECT IDLETIME k", b"\x15\x02"),
        ("OBJECT REFCOUNT k", b"\x15\x03"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(self.property as u8);
    }

    fn decode(fields: &mut Reader<'_>) -> Result<Inspect, Malformed> {
        Ok(Inspect { property: operation::variant(&PROPERTIES, fields.u8()?)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let Some(value) = cx.view.value else { return unchanged(Reply::Null) };
        match self.property {
            Property::Encoding => unchanged(Reply::copy(encoding(value)?.as_bytes())),
            Property::RefCount => unchanged(Reply::Integer(refcount(value)?)),
            Property::Frequency => Err(errors::FREQUENCY_NOT_TRACKED),
            Property::IdleTime => Err(errors::IDLE_TIME_NOT_TRACKED),
        }
    }
}

fn encoding(value: &[u8]) -> Result<&'static str, ErrorReply> {
    Ok(match Kind::of(value)? {
        Kind::String => {
            let string = values::string::decode(value)?;
            match parse_i64(string) {
                Some(_) => "int",
                None if string.len() <= EMBEDDED_LEN_MAX => "embstr",
                None => "raw",
            }
        }
        Kind::Hash => values::Hash::decode(value)?.encoding().name(),
        Kind::List => values::list::decode(value)?.encoding.name(),
        Kind::Set => values::set::decode(value)?.encoding().name(),
        Kind::SortedSet => values::SortedSet::decode(value)?.encoding().name(),
        other => other.name(),
    })
}

fn refcount(value: &[u8]) -> Result<i64, ErrorReply> {
    let number = match Kind::of(value)? {
        Kind::String => parse_i64(values::string::decode(value)?),
        _ => None,
    };
    let is_shared = number.is_some_and(|number| (0..SHARED_INTEGERS).contains(&number));
    Ok(if is_shared { SHARED_REFCOUNT } else { 1 })
}
