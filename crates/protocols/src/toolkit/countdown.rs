//! Countdowns of times to live, in the uptime of one replica. [corrections F10]
//!
//! A replica counts from the first state with a deadline that it stored. A key expires once the
//! countdowns of a majority are over. So no two clocks need to agree, and one wrong clock expires
//! no key.

use std::num::NonZeroU64;

use base::Millis;
use types::wire::put_varint;
use types::{Malformed, Reader, TimeToLive, Wire};

use crate::uptime::Uptime;

/// A moment in uptime. Its niche keeps an optional one as small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Started(NonZeroU64);

impl Started {
    #[must_use]
    pub fn at(uptime: Millis) -> Started {
        Started(NonZeroU64::MIN.saturating_add(uptime.0))
    }

    /// The start of the countdown of a time to live that is new here. `None`: it has no countdown.
    #[must_use]
    pub fn anew(ttl: Option<TimeToLive>, uptime: &dyn Uptime) -> Option<Started> {
        match ttl? {
            TimeToLive::After(span) => Some(Started::at(uptime.start(span))),
            // A deadline goes by the wall clock.
            TimeToLive::At { .. } | TimeToLive::Never => None,
        }
    }

    #[must_use]
    pub fn uptime(self) -> Millis {
        Millis(self.0.get() - 1)
    }
}

/// The progress of a replica's countdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Countdown {
    /// The state does not expire.
    None,
    /// Estimated rest.
    Running(Millis),
    Over,
}

impl Countdown {
    /// The countdown of a time to live that started then.
    #[must_use]
    pub fn of(
        ttl: TimeToLive,
        started: Option<Started>,
        uptime: &dyn Uptime,
        unix: Millis,
    ) -> Countdown {
        let rest = match ttl {
            TimeToLive::Never => return Countdown::None,
            TimeToLive::After(span) => {
                let started = started.map_or_else(|| uptime.now(span), Started::uptime);
                uptime.rest(span, started).0
            }
            TimeToLive::At { unix: deadline } => deadline.0.saturating_sub(unix.0),
        };
        if rest == 0 { Countdown::Over } else { Countdown::Running(Millis(rest)) }
    }

    /// The estimated rest; `None` without a countdown.
    #[must_use]
    pub fn rest(self) -> Option<Millis> {
        match self {
            Countdown::None => None,
            Countdown::Running(rest) => Some(rest),
            Countdown::Over => Some(Millis(0)),
        }
    }
}

const NONE: u8 = 0;
const RUNNING: u8 = 1;
const OVER: u8 = 2;

impl Wire for Countdown {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Countdown::None => out.push(NONE),
            Countdown::Running(rest) => {
                out.push(RUNNING);
                put_varint(out, rest.0);
            }
            Countdown::Over => out.push(OVER),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Countdown, Malformed> {
        match reader.u8()? {
            NONE => Ok(Countdown::None),
            RUNNING => Ok(Countdown::Running(Millis(reader.varint()?))),
            OVER => Ok(Countdown::Over),
            _ => Err(Malformed),
        }
    }
}
