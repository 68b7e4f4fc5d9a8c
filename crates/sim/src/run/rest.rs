//! Invariants of an idle cluster.

use super::*;

/// Gauges that are zero in an idle node.
const GAUGES: &[&str] = &[
    "worker_requests_in_progress",
    "worker_events_parked",
    "worker_loss_held",
    "operations_in_progress",
    "shards_recovering",
    "active_keys",
    "recovering_keys",
    "recovering_shards",
    "recovering_in_vain",
    "tombstones",
    "keys_remembering",
];
/// The same for nodes that keep registers of configurations.
const GROUP_GAUGES: &[&str] = &[
    "worker_requests_in_progress",
    "operations_in_progress",
    "operations_waiting",
    "shards_recovering",
    "requests_parked",
    "requests_passed_on",
    "copies_in_progress",
    "copies_served",
    "erasures_in_progress",
];
/// Stale timers that a worker may have left. RMWPaxos leaves none.
const TIMERS_MAX: u64 = 16;

impl Run {
    /// Replicas of idle registers send no messages.
    pub(super) fn be_silent(&mut self) -> Result<(), Wrong> {
        if self.protocol != RmwPaxos::NAME {
            return Ok(());
        }
        // The last messages may still be answered.
        self.run_for(4 * self.profile.links.distance)?;
        let before = self.world.counts.frames;
        self.run_for(IDLE_MAX)?;
        match self.world.counts.frames - before {
            0 => Ok(()),
            said => Err(format!("at rest: {said} frames").into()),
        }
    }

    /// Idle nodes hold only the values of keys.
    pub(super) fn leave_nothing(&mut self) -> Result<(), Wrong> {
        let stats = self.world.stats().values;
        let gauges = if self.world.has_groups() { GROUP_GAUGES } else { GAUGES };
        for gauge in gauges {
            if let Some(&left) = stats.get(gauge).filter(|&&left| left > 0) {
                return Err(format!("at rest: {gauge} is {left}").into());
            }
        }
        // The registers of configurations never rest.
        if self.world.has_groups() {
            return self.leave_no_messages();
        }
        let timers = stats.get("worker_timers").copied().unwrap_or(0);
        let workers = self.world.worker_count() as u64;
        let most = if self.protocol == RmwPaxos::NAME { 0 } else { TIMERS_MAX * workers };
        if timers > most {
            return Err(format!("at rest: {timers} timers of {workers} workers").into());
        }
        let resident = stats.get("worker_cells_resident").copied().unwrap_or(0);
        let most = self.resident_max().map_or(u64::MAX, |most| most as u64);
        if resident > most {
            return Err(format!("at rest: {resident} registers in memory, {most} can be").into());
        }
        let pinned = self.world.pinned();
        if pinned > 0 {
            return Err(format!("at rest: {pinned} registers are pinned").into());
        }
        self.leave_no_messages()
    }

    fn leave_no_messages(&self) -> Result<(), Wrong> {
        match self.world.kept_frames() + self.clients.requests_of_sessions() {
            0 => Ok(()),
            left => Err(format!("at rest: {left} frames or requests of sessions are left").into()),
        }
    }
}
