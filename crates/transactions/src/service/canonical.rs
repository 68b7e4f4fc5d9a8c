//! The same service under other numbers and at another time, for searches over all its states.

use super::*;

impl Service {
    /// Leaves each transaction so many runs.
    pub(crate) fn limit_runs(&mut self, left: u32) {
        let runs = coordinator::RUNS_MAX - left;
        self.coordinators.values_mut().for_each(|it| it.runs = runs);
    }

    /// Moves all times back by so much, deadlines excepted. `now`: the present after that.
    pub(crate) fn shift(&mut self, span: Nanos, now: Nanos) {
        self.coordinators.values_mut().for_each(|it| it.shift(span, now));
        self.resolvers.values_mut().for_each(|it| it.shift(span, now));
        let moved = |(at, timer): (Nanos, Timer)| match timer {
            Timer::Coordinator(_, None) | Timer::Snapshot(_) => (at, timer),
            _ => (Nanos(at.0 - span.0), timer),
        };
        self.timers = std::mem::take(&mut self.timers).into_iter().map(moved).collect();
    }

    /// Numbers coordinators, patrols and requests anew, in an order that does not depend on the
    /// past. Returns the new numbers of requests.
    pub(crate) fn renumber(&mut self) -> BTreeMap<u64, u64> {
        assert!(self.snapshots.is_empty() && self.computing.is_empty(), "none is in a search");
        let mut old: Vec<(Txid, u64)> =
            self.coordinators.iter().map(|(id, it)| (it.txid, *id)).collect();
        old.sort_unstable();
        let mut ids: BTreeMap<u64, u64> = (1..).zip(old).map(|(id, (_, old))| (old, id)).collect();
        for (id, _) in self.patrols.values_mut() {
            let new = ids.len() as u64 + 1;
            ids.insert(std::mem::replace(id, new), new);
        }
        self.last_id = ids.len() as u64;
        let coordinators = std::mem::take(&mut self.coordinators).into_iter();
        self.coordinators = coordinators.map(|(id, it)| (ids[&id], it)).collect();
        // Timers of coordinators that ended have no effect.
        let timer = |timer| match timer {
            Timer::Coordinator(id, key) => Some(Timer::Coordinator(*ids.get(&id)?, key)),
            other => Some(other),
        };
        let timers = std::mem::take(&mut self.timers).into_iter();
        self.timers = timers.filter_map(|(at, it)| Some((at, timer(it)?))).collect();
        self.renumber_requests(&ids)
    }

    fn renumber_requests(&mut self, ids: &BTreeMap<u64, u64>) -> BTreeMap<u64, u64> {
        // Outcomes for owners that ended have no effect.
        let id = |id: u64| ids.get(&id).copied().unwrap_or(0);
        let renamed = |asked: Asked| match asked {
            Asked::Coordinator(it, purpose) => Asked::Coordinator(id(it), purpose),
            Asked::Patrol(place, it, purpose) => Asked::Patrol(place, id(it), purpose),
            other => other,
        };
        let asked = std::mem::take(&mut self.asked).into_iter();
        let mut asked: Vec<(String, u64, Asked)> = asked
            .map(|(token, it)| (token, renamed(it)))
            .map(|(token, it)| (format!("{it:?}"), token, it))
            .collect();
        asked.sort_unstable_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        self.last_token = asked.len() as u64;
        let tokens = (1..).zip(&asked).map(|(new, (_, old, _))| (*old, new)).collect();
        self.asked = (1..).zip(asked).map(|(new, (.., it))| (new, it)).collect();
        tokens
    }
}
