//! Whether a node's workers turn.

/// A worker that was nudged and has not looked for work for this long hangs.
const HANGS_AFTER_MS: u64 = 30_000;

/// The workers' counts at earlier looks.
#[derive(Default)]
pub(crate) struct Liveness {
    workers: Vec<Seen>,
}

/// A worker's count, and when it was first seen.
#[derive(Clone, Copy)]
struct Seen {
    looks: u64,
    since_ms: u64,
}

impl Liveness {
    /// True while every worker's count, as it is at `now_ms`, has changed lately. The caller nudges
    /// the workers after it has read the counts, so that one without work moves before the next
    /// call, too.
    pub(crate) fn note(&mut self, looks: &[u64], now_ms: u64) -> bool {
        self.workers.resize(looks.len(), Seen { looks: 0, since_ms: now_ms });
        for (seen, &looks) in self.workers.iter_mut().zip(looks) {
            if seen.looks != looks {
                *seen = Seen { looks, since_ms: now_ms };
            }
        }
        self.workers.iter().all(|seen| now_ms.saturating_sub(seen.since_ms) < HANGS_AFTER_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_that_hangs_among_others_is_noticed() {
        let mut liveness = Liveness::default();
        for second in 0..30 {
            assert!(liveness.note(&[second, 7], second * 1_000), "after {second} s");
        }
        assert!(!liveness.note(&[30, 7], 30_000));
        assert!(liveness.note(&[31, 8], 31_000), "it turns again");
    }

    #[test]
    fn workers_that_turn_are_live_however_rarely_somebody_looks() {
        let mut liveness = Liveness::default();
        for hour in 0..5 {
            assert!(liveness.note(&[hour], hour * 3_600_000));
        }
    }

    #[test]
    fn the_first_look_finds_nobody_hanging() {
        assert!(Liveness::default().note(&[0, 0], 1_000_000));
    }
}
