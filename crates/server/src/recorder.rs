//! Records the calls of one session.

use std::sync::Arc;

use base::Nanos;
use commands::spec::Miss;
use commands::trace::Calls;
use commands::{Combine, CommandSpec, Execution};
use node::session::SessionContext;
use types::{Outcome, Reply};

use crate::counts::{Counts, Verdict, WorkerCounts};
use crate::outcomes;
use crate::session_factory::Shared;

/// A request from the moment a session takes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub spec: &'static CommandSpec,
    pub began: Nanos,
}

pub(crate) struct Recorder {
    shared: Arc<Shared>,
    counts: Arc<WorkerCounts>,
}

impl Recorder {
    pub(crate) fn new(shared: &Arc<Shared>, worker: usize) -> Recorder {
        Recorder { shared: Arc::clone(shared), counts: shared.counts.of_worker(worker) }
    }

    fn all(&self) -> &Counts {
        &self.shared.counts
    }

    /// Counts a request that is refused before it runs.
    pub(crate) fn reject(&self, spec: &'static CommandSpec) {
        self.counts.ended(self.all().place_of(spec), Verdict::Rejected, Nanos::ZERO);
    }

    /// Counts a call whose reply is ready.
    pub(crate) fn end(&self, spec: &'static CommandSpec, verdict: Verdict, time: Nanos) {
        self.counts.ended(self.all().place_of(spec), verdict, time);
    }

    /// Counts the calls of a command by a script.
    pub(crate) fn end_calls(&self, calls: &Calls) {
        self.counts.ended_calls(self.all().place_of(calls.spec), calls);
    }

    /// Counts whether a read has found its keys.
    pub(crate) fn look_up(&self, spec: &'static CommandSpec, outcome: &Outcome) {
        let (Some(miss), Outcome::Reply(reply)) = (spec.miss, outcome) else { return };
        match (spec.execution, reply) {
            (Execution::PerKey(_, Combine::Array), Reply::Array(all)) => {
                all.iter().for_each(|reply| self.look_up_one(miss, reply));
            }
            _ => self.look_up_one(miss, reply),
        }
    }

    fn look_up_one(&self, miss: Miss, reply: &Reply) {
        match reply {
            reply if miss.is(reply) => self.counts.misses.add(1),
            reply if !reply.is_error() => self.counts.hits.add(1),
            _ => {}
        }
    }
}

/// How a call ended.
pub(crate) fn verdict(outcome: &Outcome) -> Verdict {
    match outcome {
        Outcome::Loading => Verdict::Rejected,
        other if outcomes::is_error(other) => Verdict::Failed,
        _ => Verdict::Answered,
    }
}

/// The time now, as finely as the node tells.
pub(crate) fn read_clock(cx: &SessionContext<'_>) -> Nanos {
    cx.node.clock().unwrap_or(cx.moment)
}
