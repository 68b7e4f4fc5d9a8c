//! Many seeds, spread over cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::run::{Failure, RunReport, SimConfig, run};

/// Seeds to run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// `seed` is the first one.
    pub config: SimConfig,
    pub seeds: u64,
    pub threads: usize,
    /// Stop after so many failures.
    pub failures_max: usize,
}

/// The result of a campaign.
#[derive(Clone, Debug, Default)]
pub struct CampaignReport {
    /// Seeds that were run to their end.
    pub seeds: u64,
    pub ops: u64,
    pub returned: u64,
    pub failed: u64,
    pub refused: u64,
    pub unknown: u64,
    pub undecided: u64,
    /// Runs whose group lost its last whole copy.
    pub lost: u64,
    pub events: u64,
    pub frames: u64,
    /// With their seeds, lowest first.
    pub failures: Vec<(u64, Failure)>,
}

impl CampaignReport {
    fn add(&mut self, report: &RunReport) {
        self.ops += report.ops;
        self.returned += report.returned;
        self.failed += report.failed;
        self.refused += report.refused;
        self.unknown += report.unknown;
        self.undecided += report.undecided;
        self.lost += u64::from(report.is_lost);
        self.events += report.counts.events;
        self.frames += report.counts.frames;
    }
}

/// Runs the seeds; calls `progress` after each with the number done.
///
/// # Panics
/// If the configuration does not pass [`validate`](crate::validate).
pub fn campaign(campaign: &Campaign, progress: impl Fn(u64) + Sync) -> CampaignReport {
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let total = Mutex::new(CampaignReport::default());
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= campaign.seeds {
                return;
            }
            let seed = campaign.config.seed.wrapping_add(index);
            let result = run(&SimConfig { seed, ..campaign.config.clone() });
            let mut total = total.lock().expect("no thread panics while it adds up");
            total.seeds += 1;
            match result {
                Ok(report) => total.add(&report),
                Err(failure) => {
                    total.failures.push((seed, failure));
                    if total.failures.len() >= campaign.failures_max {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            }
            drop(total);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..campaign.threads {
            scope.spawn(work);
        }
        work();
    });
    let mut report = total.into_inner().expect("no thread panicked");
    report.failures.sort_by_key(|(seed, _)| *seed);
    report
}
