//! How long a store takes to make batches durable.

use std::collections::VecDeque;

use base::Nanos;
use base::histogram::Histogram;
use types::Ticket;

/// Batches measured at a time; a medium with more in flight is measured by these.
const IN_FLIGHT_MAX: usize = 256;

/// Batches of one store, from the event-loop iteration that submits a batch to the one that learns
/// of its end.
#[derive(Debug, Default)]
pub(crate) struct CommitTimes {
    in_flight: VecDeque<(Ticket, Nanos)>,
    /// When the batches that became durable within the current iteration were submitted.
    ended_at_once: Vec<Nanos>,
    latency: Histogram,
}

impl CommitTimes {
    pub(crate) fn submitted(&mut self, ticket: Ticket, now: Nanos) {
        if self.in_flight.len() < IN_FLIGHT_MAX {
            self.in_flight.push_back((ticket, now));
        }
    }

    pub(crate) fn durable(&mut self, upto: Ticket, now: Nanos) {
        while let Some((_, at)) = self.in_flight.pop_front_if(|(ticket, _)| *ticket <= upto) {
            if at == now {
                self.ended_at_once.push(at);
            } else {
                self.latency.record(now.since(at));
            }
        }
    }

    /// Within an iteration time stands still for the worker: a medium that is faster is measured at
    /// its end.
    pub(crate) fn iteration_ended(&mut self, now: Nanos) {
        for at in self.ended_at_once.drain(..) {
            self.latency.record(now.since(at));
        }
    }

    pub(crate) fn latency(&self) -> &Histogram {
        &self.latency
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn one_completion_ends_all_batches_before_it() {
        let mut commits = CommitTimes::default();
        for ticket in 1..=3 {
            commits.submitted(Ticket(ticket), Nanos(ticket * MS));
        }
        commits.durable(Ticket(2), Nanos(5 * MS));
        assert_eq!((commits.latency().count(), commits.latency().sum()), (2, Nanos(7 * MS)));
        commits.durable(Ticket(3), Nanos(5 * MS));
        assert_eq!((commits.latency().count(), commits.latency().sum()), (3, Nanos(9 * MS)));
    }

    #[test]
    fn a_batch_durable_at_once_takes_one_iteration() {
        let mut commits = CommitTimes::default();
        commits.submitted(Ticket(1), Nanos(MS));
        commits.durable(Ticket(1), Nanos(MS));
        assert_eq!(commits.latency().count(), 0);
        commits.iteration_ended(Nanos(2 * MS));
        assert_eq!((commits.latency().count(), commits.latency().sum()), (1, Nanos(MS)));
    }

    #[test]
    fn batches_in_flight_are_bounded() {
        let mut commits = CommitTimes::default();
        for ticket in 1..=2 * IN_FLIGHT_MAX as u64 {
            commits.submitted(Ticket(ticket), Nanos::ZERO);
        }
        commits.durable(Ticket(u64::MAX), Nanos(MS));
        assert_eq!(commits.latency().count(), IN_FLIGHT_MAX as u64);
    }
}
