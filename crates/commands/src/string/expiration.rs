//! The options `EX PX EXAT PXAT KEEPTTL PERSIST` of `SET` and `GETEX`.

use base::Millis;
use base::decimal::parse_i64;
use types::Clock;

use crate::errors::{self, ErrorReply};
use crate::operation::Expiry;

/// How a time is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Time {
    Ex,
    Px,
    ExAt,
    PxAt,
}

/// The option that stands for no time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bare {
    /// `KEEPTTL`, of `SET`.
    Keep,
    /// `PERSIST`, of `GETEX`.
    Persist,
}

/// What the options so far say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expiration<'a> {
    allowed: Bare,
    bare: bool,
    time: Option<(Time, &'a [u8])>,
}

impl<'a> Expiration<'a> {
    pub(crate) fn new(allowed: Bare) -> Expiration<'a> {
        Expiration { allowed, bare: false, time: None }
    }

    /// Takes `option`, whose operand would be `next`. Answers how many arguments it took; `None` for
    /// another option, for one that does not go with those before, and for a missing operand. The same
    /// option may come again; the last one counts.
    pub(crate) fn take(&mut self, option: &[u8], next: Option<&'a [u8]>) -> Option<usize> {
        if option.eq_ignore_ascii_case(self.allowed.word()) {
            self.bare = true;
            return self.time.is_none().then_some(1);
        }
        let time = Time::named(option)?;
        let fits = !self.bare && self.time.is_none_or(|(other, _)| other == time);
        self.time = Some((time, next?));
        fits.then_some(2)
    }

    /// What becomes of the time to live; `None` when no option said so.
    ///
    /// # Errors
    /// The time is no integer or out of range.
    pub(crate) fn expiry(&self, name: &str, clock: Clock) -> Result<Option<Expiry>, ErrorReply> {
        match (self.time, self.bare, self.allowed) {
            (Some((time, text)), ..) => expiry(name, time, text, clock).map(Some),
            (None, true, Bare::Keep) => Ok(Some(Expiry::Keep)),
            (None, true, Bare::Persist) => Ok(Some(Expiry::Never)),
            (None, false, _) => Ok(None),
        }
    }
}

impl Bare {
    fn word(self) -> &'static [u8] {
        match self {
            Bare::Keep => b"KEEPTTL",
            Bare::Persist => b"PERSIST",
        }
    }
}

impl Time {
    fn named(option: &[u8]) -> Option<Time> {
        let names: [(&[u8], Time); 4] =
            [(b"EX", Time::Ex), (b"PX", Time::Px), (b"EXAT", Time::ExAt), (b"PXAT", Time::PxAt)];
        names.iter().find(|(name, _)| option.eq_ignore_ascii_case(name)).map(|&(_, time)| time)
    }
}

/// Reads a time, which must be positive and, in milliseconds of Unix time, fit 64 bits with a sign.
///
/// # Errors
/// Redis' texts; `name` is the command's.
pub(crate) fn expiry(
    name: &str,
    time: Time,
    text: &[u8],
    clock: Clock,
) -> Result<Expiry, ErrorReply> {
    let number = parse_i64(text).ok_or(errors::NOT_AN_INTEGER)?;
    let invalid = || errors::invalid_expire_time(name);
    let millis = match time {
        Time::Ex | Time::ExAt => number.checked_mul(1000).ok_or_else(invalid)?,
        Time::Px | Time::PxAt => number,
    };
    let positive = u64::try_from(millis).ok().filter(|&millis| millis > 0).ok_or_else(invalid)?;
    match time {
        Time::ExAt | Time::PxAt => Ok(Expiry::At { unix: Millis(positive) }),
        Time::Ex | Time::Px => {
            let end = positive.checked_add(clock.unix.0).filter(|&end| end <= i64::MAX as u64);
            end.map(|_| Expiry::After(Millis(positive))).ok_or_else(invalid)
        }
    }
}
