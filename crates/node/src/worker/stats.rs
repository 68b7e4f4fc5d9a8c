//! A worker's counters and gauges by name.

use protocols::Stats;
use storage::Room;

use super::worker_state::WorkerState;
use crate::engine::Engine;

pub(super) fn add(shared: &WorkerState, engines: &[Box<dyn Engine>], stats: &mut Stats) {
    let counters = &shared.counters;
    stats.add("worker_turns", counters.turns);
    stats.add("worker_requests", counters.requests);
    stats.add("worker_requests_in_progress", shared.in_progress as u64);
    stats.add("worker_frames_in", counters.frames_in);
    stats.add("worker_frames_malformed", counters.frames_malformed);
    stats.add("worker_frames_stale", counters.frames_stale);
    stats.add("worker_messages_in", counters.messages_in);
    stats.add("worker_messages_out", counters.messages_out);
    stats.add("worker_messages_looped", counters.messages_looped);
    stats.add("worker_messages_malformed", counters.messages_malformed);
    stats.add("worker_messages_misrouted", counters.messages_misrouted);
    stats.add("worker_messages_shed", counters.messages_shed);
    stats.add("worker_messages_undeliverable", counters.messages_undeliverable);
    stats.add("worker_sends_gated", counters.sends_queued);
    stats.add("worker_events_refused", counters.events_refused);
    stats.add("worker_cells_loaded", counters.registers_loaded);
    stats.add("worker_cells_lost", counters.registers_lost);
    stats.add("worker_cells_evicted", counters.registers_evicted);
    stats.add("worker_cells_written", counters.registers_written);
    stats.add("worker_losses_raised", counters.amnesias_raised);
    stats.add("worker_shards_damaged", counters.shards_damaged);
    stats.add("worker_damage_covered", counters.damage_covered);
    stats.add("worker_loss_held", u64::from(shared.hold.is_on()));
    stats.add("worker_timers", shared.timers.len() as u64);
    for state in &shared.stores {
        stats.add("storage_full", u64::from(state.store.is_full()));
        stats.add("storage_lacks_room", u64::from(state.store.room() != Room::Enough));
        if let Some(staging) = state.store.staging() {
            stats.add("storage_ring_bytes", staging.len);
            stats.add("storage_ring_used_bytes", staging.used);
        }
    }
    for engine in engines {
        stats.add("worker_cells_resident", engine.resident() as u64);
        stats.add("worker_cells_bytes", engine.memory() as u64);
        stats.add("worker_events_parked", engine.load_waiters() as u64);
        engine.stats(stats);
    }
}
