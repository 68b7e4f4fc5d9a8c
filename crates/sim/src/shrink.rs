//! Makes a failing run small: fewer operations, keys, clients and faults, as long as it still fails
//! in the same way.
//!
//! Each reduction moves all other events, and a failure that needs an unlikely order disappears
//! with that. So each smaller run is tried under several schedules. The effort is counted in events
//! of the world, never in time, so the same failure always shrinks to the same run.

use crate::cuts::Cuts;
use crate::faults::FaultSet;
use crate::medium::MediumKind;
use crate::profile::Speech;
use crate::run::{Failure, SimConfig, drawn, run};

/// Schedules tried for each smaller run.
const SCHEDULES: u64 = 24;
/// Events that shrinking costs by default, of a few hundred thousand per second.
pub const EVENTS_MAX: u64 = 12_000_000;
/// Letters of a failure's first line by which two failures count as the same.
const LETTERS: usize = 12;

/// Shrinks a failure for about `events_max` events. Returns the smallest failing run and its
/// failure.
#[must_use]
pub fn shrink(config: &SimConfig, failure: &Failure, events_max: u64) -> (SimConfig, Failure) {
    let mut shrinker = Shrinker {
        kind: kind(&failure.reason),
        best: config.clone(),
        failure: failure.clone(),
        events_left: events_max,
        salt: config.cuts.salt,
    };
    shrinker.simplify_surroundings();
    while shrinker.round() && shrinker.events_left > 0 {}
    (shrinker.best, shrinker.failure)
}

/// The topic of a failure, without numbers.
fn kind(reason: &str) -> String {
    let first = reason.lines().next().unwrap_or_default();
    first.chars().filter(char::is_ascii_alphabetic).take(LETTERS).collect()
}

struct Shrinker {
    kind: String,
    /// The smallest run so far that fails.
    best: SimConfig,
    failure: Failure,
    events_left: u64,
    salt: u64,
}

impl Shrinker {
    /// The model instead of an engine, and direct commands instead of sessions: each alone excludes
    /// a cause.
    fn simplify_surroundings(&mut self) {
        let profile = drawn(&self.best);
        if profile.medium != MediumKind::Model {
            self.keep_if_failing(SimConfig {
                medium: Some(MediumKind::Model),
                durability: Some(profile.durability),
                ..self.best.clone()
            });
        }
        if profile.speech != Speech::Direct && !profile.has_transactions() {
            self.keep_if_failing(SimConfig { speech: Some(Speech::Direct), ..self.best.clone() });
        }
    }

    /// Tries each reduction. True when any succeeded.
    fn round(&mut self) -> bool {
        let before = self.best.cuts;
        self.cut_key();
        self.cut_number(self.best.ops, |cuts| &mut cuts.ops);
        self.cut_number(64, |cuts| &mut cuts.faults);
        self.cut_faults();
        self.cut_clients();
        if !self.best.cuts.is_plain {
            self.try_cut(|cuts| cuts.is_plain = true);
        }
        Cuts { salt: 0, ..self.best.cuts } != Cuts { salt: 0, ..before }
    }

    fn cut_key(&mut self) {
        if let (None, Some(key)) = (self.best.cuts.key, self.failure.key)
            && drawn(&self.best).keys.len() > 1
        {
            self.try_cut(|cuts| cuts.key = Some(key));
        }
    }

    /// Smallest first: small runs cost little.
    fn cut_number(&mut self, most: u64, field: fn(&mut Cuts) -> &mut Option<u64>) {
        let of = field(&mut self.best.cuts.clone()).unwrap_or(most);
        for parts in [0, 1, 2, 4, 6, 7] {
            let number = of * parts / 8;
            if self.try_cut(|cuts| *field(cuts) = Some(number)) {
                return;
            }
        }
        if of > 0 {
            self.try_cut(|cuts| *field(cuts) = Some(of - 1));
        }
    }

    fn cut_faults(&mut self) {
        let there = drawn(&self.best).faults;
        let without = self.best.cuts.without;
        let all = there.iter().fold(without, FaultSet::with);
        if there == FaultSet::NONE || self.try_cut(|cuts| cuts.without = all) {
            return;
        }
        for fault in there.iter() {
            self.try_cut(|cuts| cuts.without = cuts.without.with(fault));
        }
    }

    fn cut_clients(&mut self) {
        let there = drawn(&self.best).clients;
        for clients in 1..there {
            if self.try_cut(|cuts| cuts.clients = Some(clients)) {
                return;
            }
        }
    }

    fn try_cut(&mut self, cut: impl FnOnce(&mut Cuts)) -> bool {
        let mut smaller = self.best.clone();
        cut(&mut smaller.cuts);
        self.keep_if_failing(smaller)
    }

    /// True when the run fails in the same way under one of some schedules; it becomes the best
    /// one.
    fn keep_if_failing(&mut self, mut smaller: SimConfig) -> bool {
        for _ in 0..SCHEDULES {
            if self.events_left == 0 {
                return false;
            }
            let (events, failure) = match run(&smaller) {
                Ok(report) => (report.counts.events, None),
                Err(failure) => (failure.events, Some(failure)),
            };
            self.events_left = self.events_left.saturating_sub(events);
            if let Some(failure) = failure.filter(|it| kind(&it.reason) == self.kind) {
                (self.best, self.failure) = (smaller, failure);
                return true;
            }
            self.salt += 1;
            smaller.cuts.salt = self.salt;
        }
        false
    }
}
