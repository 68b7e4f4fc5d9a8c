//! `SET` with all its options, and its older forms `SETNX SETEX PSETEX GETSET`.

use types::{Access, Command, Reply};

use super::compare;
use super::expiration::{self, Bare, Expiration, Time};
use crate::errors::{self, ErrorReply};
use crate::interpreter::{Context, Ran, unchanged};
use crate::operation::{Condition, Expiry, Operation, PLAIN_SET, Set, SetReply};
use crate::plan::Arguments;

/// `SET key value [NX | XX | IFEQ v | IFNE v | IFDEQ d | IFDNE d] [GET] [EX s | … | KEEPTTL]`.
pub(crate) fn plan_set(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let [_, _, value, options @ ..] = args.all else { return Err(errors::SYNTAX) };
    let mut set = Set { value, ..PLAIN_SET };
    let mut expiration = Expiration::new(Bare::Keep);
    let mut rest = options;
    while let [option, tail @ ..] = rest {
        let next = tail.first().copied();
        let taken = if option.eq_ignore_ascii_case(b"GET") {
            set.reply = SetReply::Old;
            1
        } else if let Some((condition, taken)) = condition(option, next) {
            if set.condition != Condition::Always && !repeats(set.condition, condition) {
                return Err(errors::SYNTAX);
            }
            set.condition = condition;
            taken
        } else {
            expiration.take(option, next).ok_or(errors::SYNTAX)?
        };
        rest = &rest[taken..];
    }
    if let Some(expiry) = expiration.expiry(args.spec.name, args.clock)? {
        set.expiry = expiry;
    }
    Ok(set.command())
}

pub(crate) fn plan_setnx(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let value = args.all[2];
    let set = Set { condition: Condition::Absent, reply: SetReply::Count, value, ..PLAIN_SET };
    Ok(set.command())
}

pub(crate) fn plan_setex(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan_with_time(args, Time::Ex)
}

pub(crate) fn plan_psetex(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan_with_time(args, Time::Px)
}

fn plan_with_time(args: &Arguments<'_>, time: Time) -> Result<Command, ErrorReply> {
    let expiry = expiration::expiry(args.spec.name, time, args.all[2], args.clock)?;
    Ok(Set { expiry, value: args.all[3], ..PLAIN_SET }.command())
}

pub(crate) fn plan_getset(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(Set { reply: SetReply::Old, value: args.all[2], ..PLAIN_SET }.command())
}

/// The condition that `option` names, and how many arguments it takes.
fn condition<'a>(option: &[u8], next: Option<&'a [u8]>) -> Option<(Condition<'a>, usize)> {
    if option.eq_ignore_ascii_case(b"NX") {
        return Some((Condition::Absent, 1));
    }
    if option.eq_ignore_ascii_case(b"XX") {
        return Some((Condition::Present, 1));
    }
    Some((compare::comparison(option, next?)?, 2))
}

/// `NX NX` says the same twice; two comparisons never do.
fn repeats(one: Condition<'_>, other: Condition<'_>) -> bool {
    matches!(one, Condition::Absent | Condition::Present) && one == other
}

impl Set<'_> {
    fn command(&self) -> Command {
        let is_blind = self.condition == Condition::Always
            && self.reply == SetReply::Done
            && self.expiry != Expiry::Keep;
        let access = if is_blind { Access::Write } else { Access::Update };
        Command::new(access, Operation::Set(*self).body())
    }
}

pub(crate) fn set(cx: &Context<'_>, set: Set<'_>) -> Ran {
    // The old value's type is checked first where it is to be answered.
    let old = match set.reply {
        SetReply::Old => Reply::copy_or_null(cx.string()?),
        SetReply::Done | SetReply::Count => Reply::Null,
    };
    if !set.condition.holds(cx)? {
        return unchanged(match set.reply {
            SetReply::Done | SetReply::Old => old,
            SetReply::Count => Reply::count(false),
        });
    }
    let reply = match set.reply {
        SetReply::Done => Reply::OK,
        SetReply::Old => old,
        SetReply::Count => Reply::count(true),
    };
    cx.put(&[set.value], set.expiry.change(), reply)
}
