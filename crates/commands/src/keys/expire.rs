//! `EXPIRE PEXPIRE EXPIREAT PEXPIREAT` with `NX XX GT LT`.

use base::Millis;
use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply, TimeToLive};

use super::time::{FORMS, Form, Unit};
use crate::context::{Context, RunResult, deleted, expires, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![Expire] };

const CONDITION: Argument = Argument::one_of(
    "condition",
    &[
        Argument::word("nx", "NX"),
        Argument::word("xx", "XX"),
        Argument::word("gt", "GT"),
        Argument::word("lt", "LT"),
    ],
)
.optional()
.since("7.0.0");

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "expire",
        arity: AtLeast(3),
        summary: "Sets the time to live of a key in seconds.",
        arguments: &[Argument::key(), Argument::integer("seconds"), CONDITION],
        flags: &[Write, Fast],
        keys: one_key(&["RW", "update"]),
        access: Some(Access::Update),
        execution: Key(plan_expire),
        ..GENERIC
    },
    CommandSpec {
        name: "expireat",
        arity: AtLeast(3),
        since: "1.2.0",
        summary: "Sets the time at which a key expires, in seconds of Unix time.",
        arguments: &[Argument::key(), Argument::unix_time("unix-time-seconds"), CONDITION],
        flags: &[Write, Fast],
        keys: one_key(&["RW", "update"]),
        access: Some(Access::Update),
        execution: Key(plan_expireat),
        ..GENERIC
    },
    CommandSpec {
        name: "pexpire",
        arity: AtLeast(3),
        since: "2.6.0",
        summary: "Sets the time to live of a key in milliseconds.",
        arguments: &[Argument::key(), Argument::integer("milliseconds"), CONDITION],
        flags: &[Write, Fast],
        keys: one_key(&["RW", "update"]),
        access: Some(Access::Update),
        execution: Key(plan_pexpire),
        ..GENERIC
    },
    CommandSpec {
        name: "pexpireat",
        arity: AtLeast(3),
        since: "2.6.0",
        summary: "Sets the time at which a key expires, in milliseconds of Unix time.",
        arguments: &[Argument::key(), Argument::unix_time("unix-time-milliseconds"), CONDITION],
        flags: &[Write, Fast],
        keys: one_key(&["RW", "update"]),
        access: Some(Access::Update),
        execution: Key(plan_pexpireat),
        ..GENERIC
    },
];

fn plan_expire(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Seconds, Form::Span)
}

fn plan_pexpire(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Milliseconds, Form::Span)
}

fn plan_expireat(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Seconds, Form::Deadline)
}

fn plan_pexpireat(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Milliseconds, Form::Deadline)
}

/// Reads the options before the time, as redis-server does.
fn plan(args: &Arguments<'_>, unit: Unit, form: Form) -> Result<Command, ErrorReply> {
    let only_if = conditions(args.all.get(3..).unwrap_or_default())?;
    let number = parse_i64(args.all[2]).ok_or(errors::NOT_AN_INTEGER)?;
    let invalid = || errors::invalid_expire_time(args.spec.name);
    let millis = match unit {
        Unit::Seconds => number.checked_mul(1000).ok_or_else(invalid)?,
        Unit::Milliseconds => number,
    };
    if form == Form::Span {
        // The deadline must fit, too.
        millis.checked_add_unsigned(args.clock.unix.0).ok_or_else(invalid)?;
    }
    Ok(args.command(&Expire { form, millis, only_if }))
}

fn conditions(options: &[&[u8]]) -> Result<Conditions, ErrorReply> {
    let mut only_if = Conditions::default();
    for option in options {
        let condition = match option.to_ascii_uppercase().as_slice() {
            b"NX" => &mut only_if.without,
            b"XX" => &mut only_if.with,
            b"GT" => &mut only_if.longer,
            b"LT" => &mut only_if.shorter,
            _ => return Err(errors::unsupported_option(option)),
        };
        *condition = true;
    }
    if only_if.without && (only_if.with || only_if.longer || only_if.shorter) {
        return Err(errors::EXPIRE_NX_AND_OTHERS);
    }
    if only_if.longer && only_if.shorter {
        return Err(errors::EXPIRE_GT_AND_LT);
    }
    Ok(only_if)
}

#[derive(Clone, Copy)]
struct Expire {
    form: Form,
    /// A negative time deletes the key at once.
    millis: i64,
    only_if: Conditions,
}

impl Operation<'_> for Expire {
    const CODE: u8 = 19;
    const EXAMPLES: Examples = &[
        ("EXPIRE k 1", b"\x13\x00\x00\xe8\x03\0\0\0\0\0\0"),
        ("PEXPIRE k 5 XX LT", b"\x13\x00\x0a\x05\0\0\0\0\0\0\0"),
        ("EXPIREAT k -1 NX", b"\x13\x01\x01\x18\xfc\xff\xff\xff\xff\xff\xff"),
        ("PEXPIREAT k 5 GT", b"\x13\x01\x04\x05\0\0\0\0\0\0\0"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(self.form as u8);
        out.byte(self.only_if.bits());
        out.integer(self.millis);
    }

    fn decode(fields: &mut Reader<'_>) -> Result<Expire, Malformed> {
        Ok(Expire {
            form: operation::variant(&FORMS, fields.u8()?)?,
            only_if: Conditions::from_bits(fields.u8()?)?,
            millis: operation::integer(fields)?,
        })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let (ttl, deadline) = self.target(cx.clock.unix);
        if !cx.exists() || !self.only_if.hold(cx.deadline(), deadline) {
            return unchanged(Reply::count(false));
        }
        match ttl {
            Some(ttl) => expires(ttl, Reply::count(true)),
            None => deleted(Reply::count(true)),
        }
    }
}

impl Expire {
    /// The new time to live, `None` if it is over already, and its end in Unix time.
    ///
    /// A deadline before this node's time stays: the clock may be wrong, and a quorum of clocks
    /// ends the key. A deadline before 1970 has passed on every clock.
    fn target(self, now: Millis) -> (Option<TimeToLive>, i64) {
        let unix =
            |millis: i64| u64::try_from(millis).ok().filter(|&millis| millis > 0).map(Millis);
        match self.form {
            Form::Span => {
                let deadline = self.millis.saturating_add_unsigned(now.0);
                (unix(self.millis).map(TimeToLive::After), deadline)
            }
            Form::Deadline => (unix(self.millis).map(|unix| TimeToLive::At { unix }), self.millis),
        }
    }
}

/// All of them must hold.
#[derive(Clone, Copy, Default)]
struct Conditions {
    /// `NX`: the key has no time to live yet.
    without: bool,
    /// `XX`: the key has one.
    with: bool,
    /// `GT`: the new one is longer.
    longer: bool,
    /// `LT`: the new one is shorter.
    shorter: bool,
}

impl Conditions {
    fn bits(self) -> u8 {
        let bit = |is_set: bool, at: u8| u8::from(is_set) << at;
        bit(self.without, 0) | bit(self.with, 1) | bit(self.longer, 2) | bit(self.shorter, 3)
    }

    fn from_bits(bits: u8) -> Result<Conditions, Malformed> {
        let has = |at: u8| bits >> at & 1 == 1;
        let conditions =
            Conditions { without: has(0), with: has(1), longer: has(2), shorter: has(3) };
        if conditions.bits() == bits { Ok(conditions) } else { Err(Malformed) }
    }

    /// A key without a time to live outlives every other.
    fn hold(self, current: Option<u64>, new: i64) -> bool {
        let current = current.map(|current| i64::try_from(current).unwrap_or(i64::MAX));
        let is_longer = current.is_some_and(|current| new > current);
        let is_shorter = current.is_none_or(|current| new < current);
        (!self.without || current.is_none())
            && (!self.with || current.is_some())
            && (!self.longer || is_longer)
            && (!self.shorter || is_shorter)
    }
}

#[cfg(test)]
mod tests {
    use types::{Change, Clock, ExpiryChange, Update, View};

    use super::*;
    use crate::Interpreter;
    use crate::plan::Plan;

    fn change(args: &[&[u8]], unix: u64) -> Change {
        let clock = Clock { unix: Millis(unix), seed: 0 };
        let Ok((_, Plan::Key { command, .. })) = crate::plan(args, clock) else {
            panic!("{args:?} is a command on one key")
        };
        let value = values::string::encode(b"v");
        let view = View { value: Some(&value), ttl: TimeToLive::Never, ends: None };
        Interpreter::default().apply(view, &command.body, clock).change
    }

    #[test]
    fn deadline_in_the_past_stays() {
        let kept = Change::Expire(ExpiryChange::Set(TimeToLive::At { unix: Millis(5_000) }));
        assert_eq!(change(&[b"PEXPIREAT", b"k", b"5000"], 9_000), kept);
        assert_eq!(change(&[b"EXPIREAT", b"k", b"5"], 9_000), kept);
        assert_eq!(change(&[b"GETEX", b"k", b"PXAT", b"5000"], 9_000), kept);
        assert_eq!(change(&[b"EXPIREAT", b"k", b"-5"], 9_000), Change::Delete);
        assert_eq!(change(&[b"EXPIRE", b"k", b"-5"], 9_000), Change::Delete);
    }
}
