//! The options `EX PX EXAT PXAT KEEPTTL PERSIST` of `SET` and `GETEX`.

use base::Millis;
use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Clock, ExpiryChange, TimeToLive};

use crate::errors::{self, ErrorReply};
use crate::operation::Sink;

/// The change of a time to live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expiry {
    Keep,
    Never,
    After(Millis),
    At { unix: Millis },
}

impl Expiry {
    pub(super) fn change(self) -> ExpiryChange {
        match self {
            Expiry::Keep => ExpiryChange::Keep,
            Expiry::Never => ExpiryChange::Set(TimeToLive::Never),
            Expiry::After(span) => ExpiryChange::Set(TimeToLive::After(span)),
            Expiry::At { unix } => ExpiryChange::Set(TimeToLive::At { unix }),
        }
    }

    pub(super) fn encode(self, out: &mut impl Sink) {
        let (tag, time) = match self {
            Expiry::Keep => (0, None),
            Expiry::Never => (1, None),
            Expiry::After(span) => (2, Some(span)),
            Expiry::At { unix } => (3, Some(unix)),
        };
        out.byte(tag);
        if let Some(time) = time {
            out.varint(time.0);
        }
    }

    pub(super) fn decode(fields: &mut Reader<'_>) -> Result<Expiry, Malformed> {
        Ok(match fields.u8()? {
            0 => Expiry::Keep,
            1 => Expiry::Never,
            2 => Expiry::After(Millis(fields.varint()?)),
            3 => Expiry::At { unix: Millis(fields.varint()?) },
            _ => return Err(Malformed),
        })
    }
}

/// The unit and the origin of a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Time {
    Ex,
    Px,
    ExAt,
    PxAt,
}

/// The option that takes no time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bare {
    /// `KEEPTTL`, of `SET`.
    Keep,
    /// `PERSIST`, of `GETEX`.
    Persist,
}

/// The options read so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expiration<'a> {
    allowed: Bare,
    bare: bool,
    time: Option<(Time, &'a [u8])>,
}

impl<'a> Expiration<'a> {
    pub(super) fn new(allowed: Bare) -> Expiration<'a> {
        Expiration { allowed, bare: false, time: None }
    }

    /// Takes `option`, whose operand would be `next`, and returns the number of arguments taken.
    /// `None` for another option, for one that contradicts the options before, and for a missing
    /// operand. An option may come twice: the last one counts.
    pub(super) fn take(&mut self, option: &[u8], next: Option<&'a [u8]>) -> Option<usize> {
        if option.eq_ignore_ascii_case(self.allowed.word()) {
            self.bare = true;
            return self.time.is_none().then_some(1);
        }
        let time = Time::named(option)?;
        let fits = !self.bare && self.time.is_none_or(|(other, _)| other == time);
        self.time = Some((time, next?));
        fits.then_some(2)
    }

    /// The change of the time to live, `None` without an option.
    ///
    /// # Errors
    /// The time is no integer or out of range.
    pub(super) fn expiry(&self, name: &str, clock: Clock) -> Result<Option<Expiry>, ErrorReply> {
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

/// Reads a time. It must be positive, and its end in milliseconds of Unix time must fit `i64`.
///
/// # Errors
/// Redis' texts; `name` is the command's.
pub(super) fn expiry(
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
