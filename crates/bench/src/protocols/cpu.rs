//! Processor time of nodes that run in this process.

use rustix::time::{ClockId, clock_gettime};

/// Time of all threads but the calling one, in nanoseconds.
///
/// The calling thread starts and reads measurements; all others belong to nodes.
#[derive(Clone, Copy)]
pub(super) struct CpuReading(u64);

impl CpuReading {
    pub(super) fn take() -> CpuReading {
        let own = nanos(ClockId::ThreadCPUTime);
        CpuReading(nanos(ClockId::ProcessCPUTime).saturating_sub(own))
    }

    pub(super) fn seconds_since(self, earlier: CpuReading) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / 1e9
    }
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_other_threads_counts() {
        let before = CpuReading::take();
        let spin = || {
            let begin = nanos(ClockId::ThreadCPUTime);
            while nanos(ClockId::ThreadCPUTime) < begin + 20_000_000 {}
        };
        std::thread::spawn(spin).join().expect("the thread ends");
        assert!(CpuReading::take().seconds_since(before) >= 0.02);
    }
}
