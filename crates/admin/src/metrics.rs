//! `/metrics`: a node's facts for Prometheus.
//!
//! Names follow Prometheus' conventions: counters end in `_total`, times are in seconds, sizes in
//! bytes. Labels have few values. [`table`] names the counters of the workers; everything else is
//! named here.

mod format;
mod process;
mod table;
mod writer;

use std::fmt::Error;

use node::config::NodeConfig;
use node::group_view::{GroupState, GroupView, role_name};
use node::status::{CommandFacts, CommandReading, DatabaseFigures, Facts, Measures, NodeStatus};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use types::Role;

pub(crate) use format::Format;

use crate::health;
use crate::status::{Disk, disk, helpful};
use table::ROWS;
use writer::{Durations, Family, Kind, Labels, Unit, Writer};

/// The node at the moment of a scrape.
#[derive(Debug)]
struct Snapshot {
    version: &'static str,
    config: std::sync::Arc<NodeConfig>,
    status: NodeStatus,
    measures: Measures,
    disk: Option<Disk>,
    commands: Vec<CommandReading>,
    errors: Vec<(String, u64)>,
}

/// The whole page.
pub(crate) fn render(
    facts: &dyn Facts,
    commands: &dyn CommandFacts,
    version: &'static str,
    format: Format,
) -> Result<String, Error> {
    let snapshot = Snapshot {
        version,
        config: facts.config().clone(),
        status: facts.status(),
        measures: facts.measures(),
        disk: disk(facts),
        commands: commands.commands(),
        errors: commands.errors(),
    };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(format.convert(text))
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut writer = Writer(encoder);
        self.node(&mut writer)?;
        self.members(&mut writer)?;
        self.clients(&mut writer)?;
        self.commands(&mut writer)?;
        self.databases(&mut writer)?;
        self.groups(&mut writer)?;
        self.storage(&mut writer)?;
        self.counters(&mut writer)?;
        process::write(&mut writer)
    }
}

fn plain<'a>(name: &'a str, help: &'a str) -> Family<'a> {
    Family { name, unit: Unit::None, help }
}

fn bytes<'a>(name: &'a str, help: &'a str) -> Family<'a> {
    Family { name, unit: Unit::Bytes, help }
}

fn seconds<'a>(name: &'a str, help: &'a str) -> Family<'a> {
    Family { name, unit: Unit::Seconds, help }
}

fn label(name: &'static str, value: impl ToString) -> Labels {
    vec![(name, value.to_string())]
}

impl Snapshot {
    fn node(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let status = &self.status;
        let help = "Always 1; the label names the version";
        let build = [(label("version", self.version), 1_u64.into())];
        writer.each(Kind::Gauge, plain("palimpsest_build_info", help), build)?;
        let help = "Always 1; the labels name this node and its cluster";
        let mut labels = label("node", status.id);
        labels.push(("cluster", status.cluster.clone().unwrap_or_default()));
        writer.each(Kind::Gauge, plain("palimpsest_node_info", help), [(labels, 1_u64.into())])?;
        let help = "Always 1; the labels name the protocol and durability of each database";
        let databases = self.config.databases.iter().map(|one| {
            let mut labels = label("database", one.database);
            labels.push(("protocol", one.protocol.into()));
            labels.push(("durability", one.durability.to_string()));
            (labels, 1_u64.into())
        });
        writer.each(Kind::Gauge, plain("palimpsest_database_info", help), databases)?;
        let help = "1 if this node reaches a quorum and serves, as /readyz says";
        writer.one(Kind::Gauge, plain("palimpsest_ready", help), status.ready)?;
        let help = "1 if this node has not joined its cluster or not recovered its state yet";
        writer.one(Kind::Gauge, plain("palimpsest_loading", help), status.loading)?;
        let help = "1 for the reason why this node refuses writes, if it does";
        let reasons = health::refusals(status)
            .map(|(reason, is)| (label("reason", reason.to_string().replace(' ', "_")), is.into()));
        writer.each(Kind::Gauge, plain("palimpsest_writes_refused", help), reasons)?;
        let help = "Since the process started; falls back to 0 with a restart";
        let uptime = status.up.0 as f64 / 1e3;
        writer.one(Kind::Gauge, seconds("palimpsest_uptime", help), uptime)?;
        let help = "Starts of this node with its data directory";
        let starts = u64::from(status.incarnation.0);
        writer.one(Kind::Counter, plain("palimpsest_starts", help), starts)?;
        let help = "Times that this node lost state and recovered it from the others. With volatile databases each \
                    start is one; with durable ones each is a fault of the medium";
        let losses = u64::from(status.amnesia.0);
        writer.one(Kind::Counter, plain("palimpsest_state_losses", help), losses)
    }

    fn members(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let members = &self.status.members;
        let quorum = members.len() / 2 + 1;
        let margin = helpful(&self.status) as f64 - quorum as f64;
        writer.one(
            Kind::Gauge,
            plain("palimpsest_members", "Members of the cluster"),
            members.len(),
        )?;
        let help = "Members that may still fail before this node serves no more; below 0 there is no quorum";
        writer.one(Kind::Gauge, plain("palimpsest_failures_tolerated", help), margin)?;
        let others = || members.iter().filter(|member| member.node != self.status.id);
        let up = others().map(|one| (label("peer", one.node), one.up.into()));
        let help = "1 if all connections to this member stand";
        writer.each(Kind::Gauge, plain("palimpsest_peer_up", help), up)?;
        let loading = others().map(|one| (label("peer", one.node), one.loading.into()));
        let help = "1 if this member recovers its state and does not count for a quorum";
        writer.each(Kind::Gauge, plain("palimpsest_peer_loading", help), loading)?;
        let slow = &self.measures.slow;
        let slow = others().map(|one| (label("peer", one.node), slow.contains(&one.node).into()));
        let help = "1 if this member takes messages too slowly: its link is narrow, or it has too little CPU";
        writer.each(Kind::Gauge, plain("palimpsest_peer_slow", help), slow)?;
        let trips = &self.measures.round_trips;
        let trips = trips.iter().map(|(peer, times)| (label("peer", peer), times.into()));
        let help = "From a frame to this peer until its event loop has acknowledged it, queues included; sampled up to \
                    ten times per second and connection";
        writer.histograms(seconds("palimpsest_peer_round_trip", help), trips)
    }

    fn clients(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let status = &self.status;
        writer.one(
            Kind::Gauge,
            plain("palimpsest_clients", "Client connections"),
            status.clients,
        )?;
        let help = "Client connections that this node takes at most";
        writer.one(Kind::Gauge, plain("palimpsest_clients_max", help), self.config.clients_max)?;
        let help = "Client connections taken, refused ones among them";
        writer.one(
            Kind::Counter,
            plain("palimpsest_clients_connected", help),
            status.clients_total,
        )?;
        let help = "Client connections refused because there were too many";
        writer.one(Kind::Counter, plain("palimpsest_clients_refused", help), status.clients_refused)
    }

    fn commands(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let of = |one: &CommandReading| label("command", one.name);
        let durations = self.commands.iter().map(|one| (of(one), one.into()));
        let help = "From the moment when a command is taken until its reply is ready, failed commands included";
        writer.histograms(seconds("palimpsest_command_duration", help), durations)?;
        let failed = self.commands.iter().map(|one| (of(one), one.failed.into()));
        let help = "Commands that ended with an error";
        writer.each(Kind::Counter, plain("palimpsest_command_failures", help), failed)?;
        let rejected = self.commands.iter().map(|one| (of(one), one.rejected.into()));
        let help = "Commands refused before they ran: wrong arguments, no authentication, no room";
        writer.each(Kind::Counter, plain("palimpsest_command_rejections", help), rejected)?;
        let errors = self.errors.iter();
        let errors = errors.map(|(error, count)| (label("error", error), (*count).into()));
        let help = "Error replies by their first word. CLUSTERDOWN and LOADING mean that nothing was done, UNKNOWN that \
                    a write may have happened";
        writer.each(Kind::Counter, plain("palimpsest_error_replies", help), errors)
    }

    fn databases(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let each = |figure: fn(&DatabaseFigures) -> u64| {
            let databases = self.status.databases.iter();
            databases.map(move |one| (label("database", one.index), figure(one).into()))
        };
        let help = "Keys that this node's replica holds, about";
        writer.each(Kind::Gauge, plain("palimpsest_keys", help), each(|one| one.keys))?;
        let help = "Keys with a time to live that this node's replica holds, about";
        let expiring = each(|one| one.expiring);
        writer.each(Kind::Gauge, plain("palimpsest_expiring_keys", help), expiring)?;
        let help = "Bytes of the keys and values that this node's replica holds, about";
        writer.each(Kind::Gauge, bytes("palimpsest_data", help), each(|one| one.bytes))
    }

    fn groups(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let of = |group: &GroupView| label("database", group.database);
        let each = |figure: fn(&GroupView) -> u64| {
            self.status.groups.iter().map(move |group| (of(group), figure(group).into()))
        };
        let help = "Epoch of the last active configuration of the database's group";
        let epochs = each(|group| u64::from(group.epoch.0));
        writer.each(Kind::Gauge, plain("palimpsest_group_epoch", help), epochs)?;
        let help = "Members that the database's group wants";
        let wanted = each(|group| group.wanted as u64);
        writer.each(Kind::Gauge, plain("palimpsest_group_members_wanted", help), wanted)?;
        let help =
            "Members of the last active configuration: full ones, and shadows that still copy";
        let members = self.status.groups.iter().flat_map(|group| {
            [Role::Full, Role::Shadow].map(|role| {
                let mut labels = of(group);
                labels.push(("role", role_name(role).to_owned()));
                (labels, group.with_role(role).count().into())
            })
        });
        writer.each(Kind::Gauge, plain("palimpsest_group_members", help), members)?;
        let help = "1 for the state of the database's group, as /api/v1/status says";
        let states = self.status.groups.iter().flat_map(|group| {
            GroupState::ALL.map(|state| {
                let mut labels = of(group);
                labels.push(("state", state.name().to_owned()));
                (labels, (group.state == state).into())
            })
        });
        writer.each(Kind::Gauge, plain("palimpsest_group_state", help), states)?;
        let help = "1 if this node is a full member of the database's group";
        let full = each(|group| u64::from(group.role == Some(Role::Full)));
        writer.each(Kind::Gauge, plain("palimpsest_group_full", help), full)?;
        let help = "1 if this node holds a lease and reads locally";
        let leases = each(|group| u64::from(group.has_lease));
        writer.each(Kind::Gauge, plain("palimpsest_group_lease", help), leases)
    }

    fn storage(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let commits = self.measures.commits.iter();
        let commits =
            commits.map(|(kind, times)| (label("durability", kind), Durations::from(times)));
        let help = "From a change until this node's medium has made it durable";
        writer.histograms(seconds("palimpsest_commit_duration", help), commits)?;
        let help = "Memory for the register cache at most, as --cache-size sets it";
        writer.one(Kind::Gauge, bytes("palimpsest_cache_size", help), self.config.cache_memory)?;
        let Some(disk) = self.disk else { return Ok(()) };
        let help = "Disk space that the data directory takes";
        writer.one(Kind::Gauge, bytes("palimpsest_disk_used", help), disk.used_bytes)?;
        let help = "Free space of the file system of the data directory. Below 256 MiB, or a sixteenth of a small one, \
                    writes that need room are refused";
        writer.one(Kind::Gauge, bytes("palimpsest_disk_free", help), disk.free_bytes)?;
        let help = "Size of the file system of the data directory";
        writer.one(Kind::Gauge, bytes("palimpsest_disk_size", help), disk.size_bytes)
    }

    fn counters(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let values = &self.status.stats.values;
        for rows in ROWS.chunk_by(|a, b| a.name == b.name) {
            let series = rows.iter().filter_map(|row| {
                let known: Vec<u64> =
                    row.stats.iter().filter_map(|stat| values.get(stat).copied()).collect();
                let labels = row.label.map(|(name, value)| label(name, value)).unwrap_or_default();
                (!known.is_empty()).then(|| (labels, known.iter().sum::<u64>().into()))
            });
            let first = &rows[0];
            let name = format!("palimpsest_{}", first.name);
            let family = Family { name: &name, unit: first.unit, help: first.help };
            writer.each(first.kind, family, series)?;
        }
        Ok(())
    }
}

/// The counters of the workers that have a series, or are hidden on purpose.
#[cfg(test)]
pub(crate) fn known_counters() -> impl Iterator<Item = &'static str> {
    let hidden = table::HIDDEN.iter().copied();
    ROWS.iter().flat_map(|row| row.stats.iter().copied()).chain(hidden)
}
