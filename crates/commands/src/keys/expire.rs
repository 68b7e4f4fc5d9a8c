//! `EXPIRE PEXPIRE EXPIREAT PEXPIREAT` with `NX XX GT LT`, and `PERSIST`.

use base::Millis;
use base::decimal::parse_i64;
use types::{Command, Reply, TimeToLive};

use crate::errors::{self, ErrorReply};
use crate::interpreter::{Context, Ran, deleted, expires, unchanged};
use crate::operation::{Expire, ExpireConditions, Form, Operation, Unit};
use crate::plan::Arguments;

pub(crate) fn plan_expire(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Seconds, Form::Span)
}

pub(crate) fn plan_pexpire(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Milliseconds, Form::Span)
}

pub(crate) fn plan_expireat(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Seconds, Form::Deadline)
}

pub(crate) fn plan_pexpireat(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Unit::Milliseconds, Form::Deadline)
}

pub(crate) fn plan_persist(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(Operation::Persist.body()))
}

/// Options first, then the time: Redis' order.
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
    Ok(args.command(Operation::Expire(Expire { form, millis, only_if }).body()))
}

fn conditions(options: &[&[u8]]) -> Result<ExpireConditions, ErrorReply> {
    let mut only_if = ExpireConditions::default();
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

pub(crate) fn expire(cx: &Context<'_>, what: Expire) -> Ran {
    let (ttl, deadline) = what.target(cx.clock.unix);
    if !cx.exists() || !what.only_if.hold(cx.deadline(), deadline) {
        return unchanged(Reply::count(false));
    }
    match ttl {
        Some(ttl) => expires(ttl, Reply::count(true)),
        None => deleted(Reply::count(true)),
    }
}

pub(crate) fn persist(cx: &Context<'_>) -> Ran {
    if !cx.exists() || cx.view.ttl == TimeToLive::Never {
        return unchanged(Reply::count(false));
    }
    expires(TimeToLive::Never, Reply::count(true))
}

impl Expire {
    /// The new time to live, `None` when it is over already; and its end in Unix time.
    ///
    /// A deadline that has passed by this node's clock is kept like any other: the clock may be wrong, and a quorum of
    /// clocks ends the key. One before 1970 has passed for everybody.
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

impl ExpireConditions {
    /// No time to live is longer than every other.
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

    use crate::{Interpreter, Plan, plan};

    use super::*;

    fn change(args: &[&[u8]], unix: u64) -> Change {
        let clock = Clock { unix: Millis(unix), seed: 0 };
        let Ok((_, Plan::Key { command: set, .. })) = plan(&[b"SET", b"k", b"v"], clock) else {
            panic!("SET is a command on one key")
        };
        let Ok((_, Plan::Key { command, .. })) = plan(args, clock) else {
            panic!("{args:?} is a command on one key")
        };
        let interpreter = Interpreter::default();
        let nothing = View { value: None, ttl: TimeToLive::Never, ends: None };
        let Change::Put { value, .. } = interpreter.apply(nothing, &set.body, clock).change else {
            panic!("SET puts a value")
        };
        let view = View { value: Some(&value), ttl: TimeToLive::Never, ends: None };
        interpreter.apply(view, &command.body, clock).change
    }

    #[test]
    fn a_deadline_behind_one_clock_is_left_to_a_quorum_of_clocks() {
        let kept = Change::Expire(ExpiryChange::Set(TimeToLive::At { unix: Millis(5_000) }));
        assert_eq!(change(&[b"PEXPIREAT", b"k", b"5000"], 9_000), kept);
        assert_eq!(change(&[b"EXPIREAT", b"k", b"5"], 9_000), kept);
        assert_eq!(change(&[b"GETEX", b"k", b"PXAT", b"5000"], 9_000), kept);
        assert_eq!(change(&[b"EXPIREAT", b"k", b"-5"], 9_000), Change::Delete);
        assert_eq!(change(&[b"EXPIRE", b"k", b"-5"], 9_000), Change::Delete);
    }
}
