//! A sweep over all registers of a worker, in paced scans.
//!
//! It finds registers that need work and that no message names. They are from before a start, or
//! found no room in memory.

use std::collections::VecDeque;

use base::Nanos;
use types::Shard;

use super::ends::Ends;
use crate::effects::{Scan, TimerId};
use crate::protocol::{Env, Scanned, Scope};

/// The numbers of its scans have this bit, those of other scans do not.
pub const SWEEP_SCAN: u64 = 1 << 63;
/// Registers of a scan, and of a step between two pauses.
const STEP: usize = 128;
/// The cost of a scan, in registers.
const SCAN_COST: usize = 8;
const PAUSE: Nanos = Nanos::from_millis(20);
/// The time before a sweep for registers that the last one could not serve.
const REST: Nanos = Nanos::from_secs(60);

#[derive(Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// The scan of this number is in progress.
    Scanning(u64),
    PausedUntil(Nanos),
    /// The next sweep begins then.
    RestingUntil(Nanos),
}

/// At most one sweep at a time.
#[derive(Debug)]
pub struct Sweep {
    timer: TimerId,
    last_scan: u64,
    state: State,
    /// Where the scans of this sweep go on, by shard.
    to_do: VecDeque<u64>,
    /// The cost since the last pause.
    cost: usize,
}

impl Sweep {
    #[must_use]
    pub fn new(timer: TimerId) -> Sweep {
        Sweep { timer, last_scan: SWEEP_SCAN, state: State::Idle, to_do: VecDeque::new(), cost: 0 }
    }

    /// True unless a sweep is in progress.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle | State::RestingUntil(_))
    }

    /// Ends the sweep in progress, and the plan of another.
    pub fn stop(&mut self) {
        self.state = State::Idle;
    }

    /// Begins a sweep, in the place of one in progress. Timers that were set may be lost.
    pub fn begin<R, S, M>(&mut self, cx: &mut Scope<'_, R, S, M>, env: &Env) {
        let own = (0..=u8::MAX).map(Shard).filter(|&shard| env.owns(shard));
        self.to_do = own.map(Shard::first_hash).collect();
        self.go_on(cx);
    }

    /// Begins another sweep before the nearest end that found no room. A sweep in progress may have
    /// passed it.
    pub fn plan_if_short<R, S, M>(&mut self, cx: &mut Scope<'_, R, S, M>, ends: &mut Ends) {
        if self.is_idle()
            && let Some(missed) = ends.take_missed()
        {
            self.plan(cx, Nanos(missed.0.saturating_sub(REST.0)));
        }
    }

    /// Begins another sweep at this time, but not soon, and not later than planned.
    pub fn plan<R, S, M>(&mut self, cx: &mut Scope<'_, R, S, M>, at: Nanos) {
        let at = at.max(cx.now + REST);
        let is_sooner = match self.state {
            State::Idle => true,
            State::RestingUntil(planned) => at < planned,
            State::Scanning(_) | State::PausedUntil(_) => false,
        };
        if is_sooner {
            self.state = State::RestingUntil(at);
            cx.fx.timer(self.timer, at);
        }
    }

    fn go_on<R, S, M>(&mut self, cx: &mut Scope<'_, R, S, M>) {
        if self.cost >= STEP {
            let at = cx.now + PAUSE;
            self.state = State::PausedUntil(at);
            return cx.fx.timer(self.timer, at);
        }
        self.state = match self.to_do.front() {
            None => State::Idle,
            Some(&from_hash) => {
                self.last_scan += 1;
                cx.fx.scan(Scan { id: self.last_scan, from_hash, limit: STEP });
                State::Scanning(self.last_scan)
            }
        };
    }

    /// Pauses once more at the end of a pause. False if none ends now.
    #[must_use]
    pub fn put_off<R, S, M>(&mut self, cx: &mut Scope<'_, R, S, M>) -> bool {
        let is_over = matches!(self.state, State::PausedUntil(at) if at <= cx.now);
        if is_over {
            let at = cx.now + PAUSE;
            self.state = State::PausedUntil(at);
            cx.fx.timer(self.timer, at);
        }
        is_over
    }

    pub fn on_timer<R, S, M>(&mut self, cx: &mut Scope<'_, R, S, M>, env: &Env) {
        match self.state {
            State::PausedUntil(at) if at <= cx.now => {
                self.cost = 0;
                self.go_on(cx);
            }
            State::RestingUntil(at) if at <= cx.now => {
                self.cost = 0;
                self.begin(cx, env);
            }
            _ => {}
        }
    }

    /// Takes the answer to a scan. False if it is not the one of this sweep.
    #[must_use]
    pub fn on_scanned<R, S, M, T>(
        &mut self,
        cx: &mut Scope<'_, R, S, M>,
        scanned: &Scanned<T>,
    ) -> bool {
        if self.state != State::Scanning(scanned.id) {
            return false;
        }
        let from_hash = self.to_do.pop_front().unwrap_or_default();
        let next = scanned.next_hash.filter(|next| next >> 56 == from_hash >> 56);
        if let Some(next) = next {
            self.to_do.push_front(next);
        }
        // A scan of few registers that is not the shard's last one was cut by their bytes.
        let is_long = next.is_some();
        self.cost += if is_long { STEP } else { scanned.records.len() + SCAN_COST };
        self.go_on(cx);
        true
    }
}
