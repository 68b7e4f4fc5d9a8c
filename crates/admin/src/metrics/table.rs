//! The counters of the workers, and the names under which Prometheus gets them.
//!
//! One row per series. Rows of one name stand together and differ in their label. A counter that
//! helps to find faults in Palimpsest itself, but no operator, is named `debug_…`.

use super::writer::{Kind, Unit};

/// One series: the sum of some counters of [`protocols::Stats`].
pub(super) struct Row {
    pub(super) stats: &'static [&'static str],
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) kind: Kind,
    pub(super) label: Option<(&'static str, &'static str)>,
    pub(super) help: &'static str,
}

const fn row(
    stats: &'static [&'static str],
    name: &'static str,
    unit: Unit,
    kind: Kind,
    help: &'static str,
) -> Row {
    Row { stats, name, unit, kind, label: None, help }
}

const fn counter(stat: &'static [&'static str], name: &'static str, help: &'static str) -> Row {
    row(stat, name, Unit::None, Kind::Counter, help)
}

const fn gauge(stat: &'static [&'static str], name: &'static str, help: &'static str) -> Row {
    row(stat, name, Unit::None, Kind::Gauge, help)
}

const fn labelled(label: (&'static str, &'static str), row: Row) -> Row {
    Row { label: Some(label), ..row }
}

const RECEIVED: &str = "Bytes received, from clients or from other nodes";
const SENT: &str = "Bytes sent, to clients or to other nodes";

/// Counters without a series: other metrics tell the same better.
#[cfg(test)]
pub(super) const HIDDEN: &[&str] = &["storage_lacks_room"];

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    counter(&["passwords_wrong"], "wrong_passwords", "Wrong passwords of clients and at the admin port"),
    // Requests.
    counter(&["worker_requests"], "requests", "Keys that commands asked for; a command with three keys counts three times"),
    gauge(&["client_requests_in_progress"], "requests_in_progress", "Requests of this node's clients without an answer yet. A number that only grows means that no quorum answers"),
    counter(&["rmw_unknown"], "requests_unknown", "Requests answered with -UNKNOWN: no quorum confirmed them in time. A few around the death of a node are normal"),
    counter(&["worker_events_refused"], "requests_refused", "Requests and messages refused because too many waited for the medium. Above zero the medium is too slow for the load"),
    counter(&["expired_keys"], "expired_keys", "Keys whose time to live ended at this node"),
    // Agreement.
    counter(&["rmw_reads"], "quorum_reads", "Reads that asked a quorum"),
    counter(&["rmw_proposals"], "proposals", "States that this node proposed; commands that wait for one key share a proposal"),
    counter(&["rmw_phase_ones"], "proposal_prepares", "Proposals that needed a first phase, which costs a round trip. Many mean that several nodes write the same keys"),
    counter(&["rmw_conflicts"], "proposal_conflicts", "Proposals that lost against another node and were repeated. Many mean hot keys"),
    counter(&["rmw_forwards"], "proposal_forwards", "Commands handed to the node that proposed last for their key"),
    counter(&["rmw_proposals_spared"], "proposals_spared", "Proposals not sent to a slow peer; it gets the states later"),
    // The network.
    labelled(("link", "clients"), row(&["client_bytes_in"], "network_received", Unit::Bytes, Kind::Counter, RECEIVED)),
    labelled(("link", "peers"), row(&["link_bytes_in"], "network_received", Unit::Bytes, Kind::Counter, RECEIVED)),
    labelled(("link", "clients"), row(&["client_bytes_out"], "network_sent", Unit::Bytes, Kind::Counter, SENT)),
    labelled(("link", "peers"), row(&["link_bytes_out"], "network_sent", Unit::Bytes, Kind::Counter, SENT)),
    counter(&["client_reads"], "client_reads", "Reads of clients' sockets that brought bytes; many requests may come with one"),
    counter(&["client_writes"], "client_writes", "Writes to clients' sockets; many replies may leave with one"),
    gauge(&["links"], "peer_connections", "Connections to workers of other nodes"),
    counter(&["link_resets"], "peer_connection_resets", "Connections to other nodes that ended. Steady growth means a bad network"),
    counter(&["link_frames_dropped"], "peer_frames_dropped", "Frames dropped because a peer reads too slowly; they are repeated"),
    counter(&["handshakes_refused"], "peer_handshakes_refused", "Connections refused because a node of another cluster, or without the secret, asked. Look at the log"),
    counter(&["frames_malformed", "worker_frames_malformed", "worker_messages_malformed"], "peer_messages_malformed", "Messages of other nodes that could not be decoded. Above zero versions differ, or the network damages data"),
    counter(&["worker_messages_shed"], "peer_writes_shed", "Writes of other nodes not taken in because this node's medium cannot keep up; they are made up for later"),
    // The medium.
    row(&["storage_ring_bytes"], "ring_size", Unit::Bytes, Kind::Gauge, "Length of the staging ring of the disk store"),
    row(&["storage_ring_used_bytes"], "ring_used", Unit::Bytes, Kind::Gauge, "Bytes of the staging ring that wait to be written to their places. Above nine tenths the disk limits writes"),
    gauge(&["storage_full"], "storage_stalled_workers", "Workers that hold back clients' writes because the medium cannot keep up"),
    counter(&["worker_cells_written"], "registers_written", "Registers handed to the medium"),
    counter(&["worker_shards_damaged"], "shards_damaged", "Shards forgotten because a record was damaged; they are recovered from the others. A medium that does this twice should be replaced"),
    counter(&["worker_damage_covered"], "damage_covered", "Damage on the medium that cost no record. The log says where"),
    row(&["scrub_bytes"], "scrubbed", Unit::Bytes, Kind::Counter, "Bytes of the medium verified in the background"),
    counter(&["scrub_registers"], "scrubbed_registers", "Registers verified in the background"),
    counter(&["scrub_damaged"], "scrub_damaged", "Damaged places that the background check found"),
    counter(&["scrub_passes"], "scrub_passes", "Complete passes of the background check over the medium"),
    row(&["scrub_passed_unix"], "scrub_last_pass_timestamp", Unit::Seconds, Kind::Gauge, "When the last complete pass ended, as a Unix time; 0 before the first"),
    // The cache.
    gauge(&["worker_cells_resident"], "cache_registers", "Registers in memory, known absent ones among them"),
    row(&["worker_cells_bytes"], "cache_used", Unit::Bytes, Kind::Gauge, "Memory that the registers in the cache take"),
    counter(&["worker_cells_loaded"], "cache_misses", "Registers read from the medium because they were not in memory"),
    counter(&["worker_cells_evicted"], "cache_evictions", "Registers dropped from memory to make room. With many misses a larger --cache-size helps"),
    // Recovery.
    gauge(&["recovering_shards", "shards_recovering"], "recovery_remaining_shards", "Shards of 256 per database that this node has yet to recover from the others; 0 at rest"),
    gauge(&["recovering_keys"], "recovery_remaining_keys", "Single keys that this node has yet to recover from the others; 0 at rest"),
    gauge(&["recovering_in_vain"], "recovery_stuck", "Shards and keys that could not be recovered although a majority answered. Above zero a majority has lost them"),
    counter(&["recovered_keys"], "recovered_keys", "Keys recovered from the others"),
    // Anti-entropy.
    counter(&["rmw_repairs"], "repairs_sent", "States sent once more to peers that had missed them"),
    counter(&["rmw_repaired"], "repairs_applied", "States that this node had missed and got once more"),
    counter(&["rmw_shards_compared"], "anti_entropy_shards", "Shards compared with other replicas"),
    counter(&["rmw_shards_different"], "anti_entropy_shards_different", "Shards that differed and were compared key by key"),
    counter(&["rmw_keys_compared"], "anti_entropy_keys", "Keys compared with other replicas"),
    counter(&["rmw_keys_different"], "anti_entropy_keys_different", "Keys that differed and were repaired. Growth without failures of nodes deserves a look"),
    counter(&["rmw_keys_older"], "rollbacks_detected", "Keys that were older on the medium than it had confirmed. Above zero replace the medium: it lies"),
    counter(&["rmw_compare_passes"], "anti_entropy_passes", "Complete comparisons of all shards with the other replicas"),
    row(&["rmw_compare_passed_unix"], "anti_entropy_last_pass_timestamp", Unit::Seconds, Kind::Gauge, "When the last complete comparison ended, as a Unix time; 0 before the first"),
    gauge(&["tombstones"], "tombstones", "Deleted keys whose registers all replicas must agree to forget. Grows while a member is away"),
    counter(&["tombstones_collected"], "tombstones_collected", "Registers of deleted keys that all replicas forgot"),
    // The log.
    counter(&["log_lines_dropped"], "log_lines_dropped", "Log lines dropped because standard error took nothing: a full disk, or a pipe without a reader"),
    // For developers.
    counter(&["worker_turns"], "debug_event_loop_iterations", "Iterations of the workers' event loops"),
    gauge(&["worker_requests_in_progress"], "debug_worker_requests_in_progress", "Requests in the workers, those of the node itself included"),
    counter(&["worker_frames_in"], "debug_frames_received", "Frames from other nodes"),
    counter(&["worker_frames_stale"], "debug_frames_stale", "Frames of connections that had ended"),
    counter(&["worker_messages_in"], "debug_messages_received", "Protocol messages from other nodes"),
    counter(&["worker_messages_out"], "debug_messages_sent", "Protocol messages to other nodes"),
    counter(&["worker_messages_looped"], "debug_messages_to_self", "Protocol messages of a node to itself"),
    counter(&["worker_messages_misrouted"], "debug_messages_misrouted", "Protocol messages handed to another worker"),
    counter(&["worker_messages_undeliverable"], "debug_messages_undeliverable", "Protocol messages to nodes without a connection"),
    counter(&["worker_sends_gated"], "debug_sends_gated", "Protocol messages that waited for the medium"),
    gauge(&["worker_events_parked"], "debug_events_parked", "Requests and messages that wait for a register from the medium"),
    counter(&["worker_cells_lost"], "debug_registers_lost", "Registers that were asked for and are forgotten"),
    counter(&["worker_losses_raised"], "debug_losses_raised", "Times that a worker found state forgotten"),
    gauge(&["worker_loss_held"], "debug_loss_held", "Workers that wait until a loss is recorded"),
    gauge(&["worker_timers"], "debug_timers", "Timers of the workers"),
    gauge(&["operations_in_progress"], "debug_operations_in_progress", "Operations of protocols other than the default"),
    gauge(&["operations_waiting"], "debug_operations_waiting", "Operations behind another one on their key, of protocols other than the default"),
    counter(&["classic_proposals"], "debug_classic_proposals", "Proposals of classic-paxos"),
    counter(&["classic_helped"], "debug_classic_helped", "Proposals of others that classic-paxos completed"),
    counter(&["classic_duels"], "debug_classic_duels", "Proposals of classic-paxos that lost against others"),
    counter(&["caspaxos_proposals"], "debug_caspaxos_proposals", "Proposals of caspaxos"),
    counter(&["caspaxos_direct"], "debug_caspaxos_direct", "Of those the proposals without a first phase"),
    counter(&["caspaxos_helped"], "debug_caspaxos_helped", "States that caspaxos proposed again to have them chosen"),
    counter(&["caspaxos_duels"], "debug_caspaxos_duels", "Proposals of caspaxos that lost against others"),
    counter(&["entries_applied"], "debug_log_entries_applied", "Entries of zab's log, those of before a copy among them"),
    gauge(&["entries_waiting"], "debug_log_entries_waiting", "Entries of zab's log that are not applied"),
    gauge(&["leads"], "log_leaders", "Databases of zab that this node leads"),
    // Groups of configured databases.
    gauge(&["requests_parked"], "group_requests_parked", "Requests that wait for a group's next epoch or lease, or behind one that is passed on"),
    gauge(&["requests_passed_on"], "group_requests_passed_on", "Requests that full members run for this node now"),
    gauge(&["messages_held"], "group_messages_held", "Messages of epochs that have not begun here"),
    gauge(&["copies_in_progress"], "group_copies_in_progress", "Copies of groups that this node's workers take from full members"),
    gauge(&["copies_served"], "group_copies_served", "Pages of copies that this node reads for others now"),
    gauge(&["erasures_in_progress"], "group_erasures_in_progress", "Void copies of groups that this node's workers remove"),
    counter(&["rmw_joint_phases"], "debug_combined_phases", "Proposals sent together with their first phase"),
    counter(&["rmw_joint_phases_failed"], "debug_combined_phases_failed", "Of those the proposals that another state displaced"),
    counter(&["rmw_chosen_hints"], "debug_decided_hints", "Messages that tell a peer what is decided"),
    counter(&["tombstones_found"], "debug_tombstones_found", "Deleted registers of other nodes that this node met"),
    counter(&["rmw_deltas"], "debug_deltas", "Proposals sent as a difference"),
    counter(&["rmw_needed_full"], "debug_deltas_refused", "Differences that a peer could not apply"),
    gauge(&["keys_remembering"], "debug_keys_remembering", "Keys that remember commands sent under ONCE"),
    counter(&["expiring_states"], "debug_expiring_states", "States with a time to live that this node accepted"),
    gauge(&["active_keys"], "debug_active_keys", "Keys with a proposal or a read under way"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_counter_has_two_rows() {
        let mut seen = BTreeSet::new();
        let hidden = HIDDEN.iter().copied();
        for stat in ROWS.iter().flat_map(|row| row.stats.iter().copied()).chain(hidden) {
            assert!(seen.insert(stat), "{stat}");
        }
    }

    #[test]
    fn rows_of_one_name_stand_together_and_agree() {
        let mut seen = BTreeSet::new();
        for rows in ROWS.chunk_by(|a, b| a.name == b.name) {
            let first = &rows[0];
            assert!(seen.insert(first.name), "{}", first.name);
            for row in rows {
                assert_eq!((row.unit, row.kind, row.help), (first.unit, first.kind, first.help));
                assert!(rows.len() == 1 || row.label.is_some(), "{}", row.name);
            }
        }
    }

    #[test]
    fn names_and_help_follow_the_conventions() {
        for row in ROWS {
            let name = row.name;
            let is_plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(name.chars().all(is_plain), "{name}");
            // The encoder appends them.
            for suffix in ["_total", "_bytes", "_seconds"] {
                assert!(!name.ends_with(suffix), "{name}");
            }
            assert!(row.help.len() > 15 && !row.help.ends_with('.'), "{name}: {}", row.help);
            assert!(!row.help.contains(['"', '\\', '\n']), "{name}: {}", row.help);
        }
    }
}
