//! `RESTORE`: the planner turns the dump into a value, so registers take values alone.

use base::Millis;
use base::decimal::parse_i64;
use bytes::Bytes;
use types::limits::RECORD_LEN_MAX;
use types::wire::{Malformed, Reader};
use types::{Applied, Change, Command, ExpiryChange, Reply, TimeToLive};
use values::Kind;
use values::rdb::{self, LoadError};

use crate::context::{Context, RunResult, deleted, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Restore] };

const ROW: CommandSpec = CommandSpec {
    name: "restore",
    arity: AtLeast(4),
    since: "2.6.0",
    summary: "Sets the value that DUMP wrote, here or in redis-server 5 to 7.4.",
    complexity: "O(N*log(N)) where N is the size of the value.",
    arguments: &[
        Argument::key(),
        Argument::integer("ttl"),
        Argument::string("serialized-value"),
        Argument::word("replace", "REPLACE").optional().since("3.0.0"),
        Argument::word("absttl", "ABSTTL").optional().since("5.0.0"),
        Argument::integer("seconds").after("IDLETIME").optional().since("5.0.0"),
        Argument::integer("frequency").after("FREQ").optional().since("5.0.0"),
    ],
    flags: &[Write, DenyOom],
    categories: &[Category::Keyspace, Category::Dangerous],
    keys: one_key(&["OW", "update"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..GENERIC
};

const NEGATIVE_IDLETIME: ErrorReply = errors::fixed(b"ERR Invalid IDLETIME value, must be >= 0");
const INVALID_FREQUENCY: ErrorReply =
    errors::fixed(b"ERR Invalid FREQ value, must be >= 0 and <= 255");
const NEGATIVE_TTL: ErrorReply = errors::fixed(b"ERR Invalid TTL value, must be >= 0");
const FOOTER: ErrorReply = errors::fixed(b"ERR DUMP payload version or checksum are wrong");
const FORMAT: ErrorReply = errors::fixed(b"ERR Bad data format");
const BUSY_KEY: ErrorReply = errors::fixed(b"BUSYKEY Target key name already exists.");

/// Bytes that reading a dump may allocate: several times the largest value.
const LOAD_LEN_MAX: usize = 4 * RECORD_LEN_MAX;

struct Options {
    replaces: bool,
    is_deadline: bool,
}

impl Options {
    /// Idle time and frequency are checked and ignored: this store keeps neither.
    fn parse(mut rest: &[&[u8]]) -> Result<Options, ErrorReply> {
        let mut options = Options { replaces: false, is_deadline: false };
        let (mut has_idle, mut has_frequency) = (false, false);
        while let [word, tail @ ..] = rest {
            rest = match (word.to_ascii_uppercase().as_slice(), tail) {
                (b"REPLACE", tail) => {
                    options.replaces = true;
                    tail
                }
                (b"ABSTTL", tail) => {
                    options.is_deadline = true;
                    tail
                }
                (b"IDLETIME", [seconds, tail @ ..]) if !has_frequency => {
                    has_idle = true;
                    check(seconds, 0..=i64::MAX, NEGATIVE_IDLETIME)?;
                    tail
                }
                (b"FREQ", [frequency, tail @ ..]) if !has_idle => {
                    has_frequency = true;
                    check(frequency, 0..=255, INVALID_FREQUENCY)?;
                    tail
                }
                _ => return Err(errors::SYNTAX),
            };
        }
        Ok(options)
    }
}

fn check(
    text: &[u8],
    range: std::ops::RangeInclusive<i64>,
    error: ErrorReply,
) -> Result<(), ErrorReply> {
    let number = parse_i64(text).ok_or(errors::NOT_AN_INTEGER)?;
    if range.contains(&number) { Ok(()) } else { Err(error) }
}

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let options = Options::parse(&args.all[4..])?;
    let loaded = load(args.all[2], args.all[3], options.is_deadline);
    let content = match &loaded {
        Ok((ttl, value)) => Content::Value { ttl: *ttl, value },
        Err(Refusal::Fault(fault)) => Content::Fault(*fault),
        Err(Refusal::TooLarge(max)) => return Err(errors::value_too_large(*max as u64 + 1, *max)),
    };
    Ok(args.command(&Restore { replaces: options.replaces, content }))
}

/// The time to live and the value that the arguments name.
fn load(ttl: &[u8], dump: &[u8], is_deadline: bool) -> Result<(TimeToLive, Bytes), Refusal> {
    let number = parse_i64(ttl).ok_or(Refusal::Fault(Fault::TtlText))?;
    let time = Millis(u64::try_from(number).map_err(|_| Refusal::Fault(Fault::NegativeTtl))?);
    let ttl = match time {
        Millis(0) => TimeToLive::Never,
        unix if is_deadline => TimeToLive::At { unix },
        span => TimeToLive::After(span),
    };
    let content = rdb::load(dump, LOAD_LEN_MAX).map_err(|error| match error {
        LoadError::Footer => Refusal::Fault(Fault::Footer),
        LoadError::Format => Refusal::Fault(Fault::Format),
        LoadError::TooLarge(max) => Refusal::TooLarge(max),
    })?;
    Ok((ttl, content.encode()))
}

enum Refusal {
    Fault(Fault),
    TooLarge(usize),
}

/// Puts a value, unless the key exists. Faults of the arguments come after that check, as in Redis.
struct Restore<'a> {
    replaces: bool,
    content: Content<'a>,
}

enum Content<'a> {
    Value { ttl: TimeToLive, value: &'a [u8] },
    Fault(Fault),
}

/// Variants stand in the order of their bytes, which begin behind that of a value.
#[derive(Clone, Copy)]
enum Fault {
    TtlText = 1,
    NegativeTtl,
    Footer,
    Format,
}

const FAULTS: [Fault; 4] = [Fault::TtlText, Fault::NegativeTtl, Fault::Footer, Fault::Format];
const VALUE: u8 = 0;

/// Forms of a time to live.
const NEVER: u8 = 0;
const SPAN: u8 = 1;
const DEADLINE: u8 = 2;

impl<'a> Operation<'a> for Restore<'a> {
    const CODE: u8 = 169;
    const EXAMPLES: Examples = &[
        ("RESTORE k 0 \0\x03ktp\x0c\0$}c-*04}", b"\xa9\x00\x00\x00\x00\x01ktp"),
        ("RESTORE k 9 \0\x03ktp\x0c\0$}c-*04} REPLACE", b"\xa9\x01\x00\x01\x09\x01ktp"),
        ("RESTORE k 9 \0\x03ktp\x0c\0$}c-*04} ABSTTL", b"\xa9\x00\x00\x02\x09\x01ktp"),
        ("RESTORE k x y", b"\xa9\x00\x01"),
        ("RESTORE k -1 y REPLACE", b"\xa9\x01\x02"),
        ("RESTORE k 0 y", b"\xa9\x00\x03"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(self.replaces.into());
        let (ttl, value) = match &self.content {
            Content::Fault(fault) => return out.byte(*fault as u8),
            Content::Value { ttl, value } => (ttl, value),
        };
        out.byte(VALUE);
        let (form, time) = match ttl {
            TimeToLive::Never => (NEVER, 0),
            TimeToLive::After(span) => (SPAN, span.0),
            TimeToLive::At { unix } => (DEADLINE, unix.0),
        };
        out.byte(form);
        out.varint(time);
        out.bytes(value);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<Restore<'a>, Malformed> {
        let replaces = operation::variant(&[false, true], fields.u8()?)?;
        let content = match fields.u8()? {
            VALUE => Content::Value { ttl: decode_ttl(fields)?, value: decode_value(fields)? },
            fault => Content::Fault(operation::variant(&FAULTS, fault - 1)?),
        };
        Ok(Restore { replaces, content })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        if cx.exists() && !self.replaces {
            return Err(BUSY_KEY);
        }
        let (ttl, value) = match &self.content {
            Content::Fault(fault) => return Err(fault.reply()),
            Content::Value { ttl, value } => (*ttl, *value),
        };
        if matches!(ttl, TimeToLive::At { unix } if unix <= cx.clock.unix) {
            return if cx.exists() { deleted(Reply::OK) } else { unchanged(Reply::OK) };
        }
        cx.check_len(0, counted_len(value)? as u64)?;
        let change =
            Change::Put { value: Bytes::copy_from_slice(value), expiry: ExpiryChange::Set(ttl) };
        Ok(Applied { change, reply: Reply::OK })
    }
}

fn decode_ttl(fields: &mut Reader<'_>) -> Result<TimeToLive, Malformed> {
    let form = fields.u8()?;
    match (form, fields.varint()?) {
        (NEVER, 0) => Ok(TimeToLive::Never),
        (SPAN, span) => Ok(TimeToLive::After(Millis(span))),
        (DEADLINE, unix) => Ok(TimeToLive::At { unix: Millis(unix) }),
        _ => Err(Malformed),
    }
}

fn decode_value<'a>(fields: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let value = operation::rest(fields)?;
    values::check(value).map_err(|_| Malformed)?;
    Ok(value)
}

/// Bytes of a value that count towards the limit: the text of a string, and all of a collection.
fn counted_len(value: &[u8]) -> Result<usize, ErrorReply> {
    Ok(match Kind::of(value)? {
        Kind::String => values::string::decode(value)?.len(),
        _ => value.len(),
    })
}

impl Fault {
    fn reply(self) -> ErrorReply {
        match self {
            Fault::TtlText => errors::NOT_AN_INTEGER,
            Fault::NegativeTtl => NEGATIVE_TTL,
            Fault::Footer => FOOTER,
            Fault::Format => FORMAT,
        }
    }
}
