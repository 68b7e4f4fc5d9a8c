//! Decides how many threads run the workers of a node.
//!
//! At first one thread runs them all: handing an event to another thread means waking it, which
//! costs more than most iterations. A thread that uses most of a core gives half of its workers to
//! an unused thread. Two threads that together use much less than a core become one again.
//!
//! The input is the CPU time of the threads alone. On a crowded machine a thread gets less of it,
//! so it gives workers away only where cores are left.

use base::Nanos;

use super::sync::{Ordering, Wake};
use super::worker_assignment::WorkerAssignment;

/// How often a thread measures its load.
const LOOK_EVERY: Nanos = Nanos::from_millis(100);
/// Thousandths of a core above which a thread gives workers away.
const BUSY: u32 = 850;
/// Thousandths of a core that two threads may use together to become one.
const QUIET: u32 = 650;
/// Measurements in a row that must ask for the same.
const LOOKS: u32 = 4;

/// Workers to hand over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HandOver {
    /// The index of the thread that gets them.
    pub(super) to: usize,
    pub(super) count: usize,
}

/// Measures the load of one thread and decides about its workers.
#[derive(Default)]
pub(super) struct Balance {
    looked_at: Nanos,
    cpu_at: Nanos,
    /// The thread that the last measurements would give workers to, and how many they were.
    wish: Option<(usize, u32)>,
}

impl Balance {
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now >= self.looked_at + LOOK_EVERY
    }

    /// Publishes the load of the thread `index`, which runs `workers`; returns a hand-over.
    ///
    /// `cpu` is the CPU time that this thread has used.
    pub(super) fn look<T, W: Wake>(
        &mut self,
        (now, cpu): (Nanos, Nanos),
        index: usize,
        workers: usize,
        assignments: &[WorkerAssignment<T, W>],
    ) -> Option<HandOver> {
        let (wall, spent) = (now.since(self.looked_at).0, cpu.since(self.cpu_at).0);
        (self.looked_at, self.cpu_at) = (now, cpu);
        let load = (spent.saturating_mul(1000) / wall.max(1)).min(1000) as u32;
        assignments[index].load.store(load, Ordering::Relaxed);
        let wish = wish(load, index, workers, assignments);
        let looks = match (wish, self.wish) {
            (Some(wish), Some((before, looks))) if wish.to == before => looks + 1,
            _ => 1,
        };
        let is_firm = looks >= LOOKS;
        self.wish = wish.filter(|_| !is_firm).map(|wish| (wish.to, looks));
        wish.filter(|_| is_firm)
    }
}

fn wish<T, W: Wake>(
    load: u32,
    index: usize,
    workers: usize,
    assignments: &[WorkerAssignment<T, W>],
) -> Option<HandOver> {
    let is_used =
        |assignment: &WorkerAssignment<T, W>| assignment.count.load(Ordering::Relaxed) > 0;
    if load > BUSY && workers > 1 {
        let to = assignments.iter().position(|assignment| !is_used(assignment))?;
        return Some(HandOver { to, count: workers / 2 });
    }
    // Only towards the first thread, which always has workers.
    let joins = |assignment: &WorkerAssignment<T, W>| {
        is_used(assignment) && assignment.load.load(Ordering::Relaxed) + load < QUIET
    };
    let to = assignments[..index].iter().position(joins).filter(|_| workers > 0)?;
    Some(HandOver { to, count: workers })
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    struct NoWaker;

    impl Wake for NoWaker {
        fn wake(&self) {}
    }

    /// Threads that run so many workers, with the loads of their last measurements.
    fn assignments(threads: &[(usize, u32)]) -> Vec<WorkerAssignment<(), NoWaker>> {
        let assignment = |&(workers, load): &(usize, u32)| {
            let assignment = WorkerAssignment::new(NoWaker);
            assignment.give(vec![(); workers]);
            assignment.load.store(load, Ordering::Relaxed);
            assignment
        };
        threads.iter().map(assignment).collect()
    }

    /// The hand-over of a thread after each measurement of its load.
    fn looks(index: usize, threads: &[(usize, u32)], loads: &[u32]) -> Vec<Option<HandOver>> {
        let (mut balance, mut cpu) = (Balance::default(), Nanos::ZERO);
        let look = |(number, &load): (usize, &u32)| {
            let now = Nanos(LOOK_EVERY.0 * (number as u64 + 1));
            assert!(balance.is_due(now) && !balance.is_due(Nanos(now.0 - 1)));
            cpu += Nanos(LOOK_EVERY.0 * u64::from(load) / 1000);
            balance.look((now, cpu), index, threads[index].0, &assignments(threads))
        };
        loads.iter().enumerate().map(look).collect()
    }

    #[test]
    fn busy_thread_gives_half_of_its_workers() {
        let given = Some(HandOver { to: 1, count: 2 });
        assert_eq!(looks(0, &[(4, 0), (0, 0)], &[900; 5]), [None, None, None, given, None]);
        assert_eq!(looks(0, &[(5, 0), (1, 0), (0, 0)], &[900; 4])[3].expect("some").to, 2);
    }

    #[test]
    fn busy_thread_keeps_what_none_can_take() {
        assert_eq!(looks(0, &[(1, 0), (0, 0)], &[1000; 9]), [None; 9]);
        assert_eq!(looks(0, &[(2, 0), (2, 0)], &[1000; 9]), [None; 9]);
    }

    #[test]
    fn short_peaks_move_no_worker() {
        let loads = [900, 900, 900, 800, 900, 900, 900, 800];
        assert_eq!(looks(0, &[(4, 0), (0, 0)], &loads), [None; 8]);
    }

    #[test]
    fn quiet_threads_become_one() {
        let given = Some(HandOver { to: 0, count: 2 });
        assert_eq!(looks(1, &[(2, 300), (2, 0)], &[300; 4])[3], given);
        assert_eq!(looks(1, &[(2, 300), (2, 0)], &[400; 9]), [None; 9]);
        assert_eq!(looks(0, &[(2, 0), (2, 300)], &[100; 9]), [None; 9], "the first one stays");
        assert_eq!(looks(1, &[(4, 0), (0, 0)], &[0; 9]), [None; 9], "it has no workers");
    }

    #[test]
    fn workers_given_away_do_not_return_at_once() {
        // Each half of a load that is just too much for one thread.
        let half = BUSY / 2 + 1;
        assert_eq!(looks(1, &[(2, half), (2, 0)], &[half; 9]), [None; 9]);
    }
}
