//! `/metrics`: the same facts for Prometheus.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::status::Status;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Peer {
    peer: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: String,
}

/// Renders a snapshot. Counters of the workers are exported as gauges: a process start sets them back, which
/// Prometheus takes for what it is.
pub(crate) fn render(status: &Status) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("palimpsest");
    let build = Family::<Build, Gauge>::default();
    registry.register("build_info", "Version of this node", build.clone());
    build.get_or_create(&Build { version: status.version.into() }).set(1);
    let mut gauge = |name: &str, help: &str, value: i64| {
        let gauge: Gauge = Gauge::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    gauge("ready", "A quorum can serve", i64::from(status.ready));
    gauge(
        "loading",
        "State of this node is forgotten and not recovered yet",
        i64::from(status.loading),
    );
    gauge("members", "Members of the cluster", status.members.len() as i64);
    gauge("failures_tolerated", "Members that may fail before nothing is served", status.tolerates);
    gauge("clients", "Client connections", status.clients as i64);
    gauge("uptime_milliseconds", "Since the process started", status.uptime_ms as i64);
    gauge("incarnation", "Starts of this node", i64::from(status.incarnation));
    gauge("loss", "Times that this node lost state", i64::from(status.loss));
    for (name, value) in &status.stats {
        gauge(name, "Counted by the workers since the process started", *value as i64);
    }
    let peers = Family::<Peer, Gauge>::default();
    registry.register("peer_up", "A connection to this member stands", peers.clone());
    for member in &status.members {
        peers.get_or_create(&Peer { peer: member.node }).set(i64::from(member.up));
    }
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}
