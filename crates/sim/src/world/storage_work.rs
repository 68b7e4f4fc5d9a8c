//! Work that media have begun, and its end.

use super::*;

/// A read from the system's cache takes at most this.
const CACHED_READ_MAX: u64 = 20_000;

impl World {
    /// Plans the work that a worker, or a finished request, has begun.
    pub(super) fn plan_storage(&mut self, node: usize, worker: usize) {
        let mut works = std::mem::take(&mut self.work);
        self.nodes[node].medium.take_work(worker, &mut works);
        if let Some(process) = &self.nodes[node].process {
            let start = process.start;
            for work in works.drain(..) {
                let span = self.span_of(work);
                self.schedule(self.now + span, PlannedEvent::Worked { node, start, work });
            }
        }
        self.work = works;
    }

    fn span_of(&mut self, work: Work) -> u64 {
        let WorldConfig { flush_min, flush_max, ref medium, .. } = self.config;
        match work {
            // Most repeated reads hit the system's cache.
            Work::Read(_) if !self.rng.chance_ppm(medium.slow_read_ppm) => {
                self.rng.between(1_000, CACHED_READ_MAX)
            }
            Work::Rest { after, .. } => after,
            _ => self.rng.between(flush_min, flush_max),
        }
    }

    pub(super) fn on_worked(&mut self, node: usize, work: Work) {
        let mut awake = std::mem::take(&mut self.awake);
        let medium = &self.nodes[node].medium;
        medium.finish(work, &mut awake);
        if let Some(complaint) = medium.complaint() {
            self.failure.get_or_insert(format!("n{}: {complaint}", node + 1));
        }
        if self.trace.as_ref().is_some_and(|trace| !trace.is_of_one_key()) {
            self.note(|| format!("n{} finished {work:?}", node + 1));
        }
        for worker in awake.drain(..) {
            self.plan_turn(node, worker, self.now);
        }
        self.awake = awake;
        if !matches!(work, Work::Flush { .. } | Work::Reads { .. }) {
            self.plan_storage(node, 0);
        }
    }
}
