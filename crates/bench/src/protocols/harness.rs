//! A cluster of whole nodes in this process, and the windows of load on it.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base::Millis;
use hdrhistogram::Histogram;
use node::config::{Announced, DatabaseConfig, DiskConfig, MemberAddress, NodeConfig, ScrubConfig};
use node::dev::LocalCluster;
use node::node::Node;
use node::registry::Registration;
use types::{Database, NodeId, Update};

use super::cpu::CpuReading;
use super::draws::{Distribution, Draws};
use super::samples::{self, Sampled};
use super::session::LoadFactory;
use super::window::{CHECKED_KEYS, Load, Mix, Totals, Work};
use super::{Config, Links, Reads};
use crate::process::{self, ScratchDir};
use crate::{Error, Result};

/// Time-out for a cluster to serve, and for requests in progress to end.
const READY_MAX: Duration = Duration::from_secs(60);
const END_MAX: Duration = Duration::from_secs(30);

/// Time-out for writing all keys once, per thousand keys.
const FILL_MAX: Duration = Duration::from_secs(2);

/// Memory for registers of one node: beyond the need of a million keys.
const CACHE_MEMORY: usize = 4 << 30;

enum Nodes {
    Local(LocalCluster),
    Tcp(Vec<Node>),
}

/// A cluster with sessions that make requests.
pub(super) struct Harness {
    nodes: Nodes,
    load: Arc<Load>,
    registration: &'static Registration,
    keys: u64,
    /// The first key that no window has used as a checked one.
    checked_from: u64,
    rest: Duration,
    /// Clients, each of which has a session. They send and receive no bytes.
    _clients: Vec<TcpStream>,
    _scratch: ScratchDir,
}

/// A window of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requests {
    pub(super) distribution: Distribution,
    /// Of a hundred.
    pub(super) writes: u32,
    pub(super) reads: Reads,
    /// Only clients of this node make requests.
    pub(super) only_node: Option<usize>,
    /// Of all nodes together in a second; none: as many as they can.
    pub(super) rate: Option<f64>,
}

/// The result of a window.
pub(super) struct Measured {
    pub(super) seconds: f64,
    pub(super) totals: Totals,
    pub(super) cpu_seconds: f64,
    /// Over the whole window, warm-up included.
    pub(super) messages_per_operation: f64,
    pub(super) bytes_per_operation: f64,
    /// Reads that a node answered without asking others; none if the protocol does not count them.
    pub(super) local_reads: Option<f64>,
    /// In nanoseconds.
    pub(super) latencies: Histogram<u64>,
    pub(super) sample: usize,
    pub(super) sampled: Sampled,
}

/// Sums of nodes' counters.
#[derive(Clone, Copy, Default)]
struct Traffic {
    messages: u64,
    bytes: u64,
    local_reads: Option<u64>,
}

impl Harness {
    /// Starts a cluster and writes every key once.
    pub(super) fn start(
        config: &Config,
        registration: &'static Registration,
        links: Links,
        workers: usize,
        update: &Arc<dyn Update>,
    ) -> Result<Harness> {
        let scratch = ScratchDir::new(&config.dir, "palimpsest-protocols")?;
        let load = Load::new(config.value_bytes, config.nodes, workers, config.seed);
        let load = Arc::new(load);
        let configs = node_configs(config, registration, links, workers, &scratch)?;
        let nodes = start_nodes(configs, links, &load, update)?;
        let is_ready = wait_ready(&nodes);
        let clients = connect(&nodes, workers * config.sessions)?;
        let harness = Harness {
            nodes,
            load,
            registration,
            keys: config.keys,
            checked_from: config.keys,
            rest: config.rest,
            _clients: clients,
            _scratch: scratch,
        };
        if !is_ready {
            return Err(harness.not_ready("was not ready"));
        }
        let sessions = config.nodes * workers * config.sessions;
        if !process::wait_until(READY_MAX, || harness.load.sessions() == sessions) {
            return Err(harness.not_ready("did not take its sessions"));
        }
        harness.fill()?;
        Ok(harness)
    }

    fn all(&self) -> &[Node] {
        match &self.nodes {
            Nodes::Local(cluster) => cluster.nodes(),
            Nodes::Tcp(nodes) => nodes,
        }
    }

    fn not_ready(&self, text: &str) -> Error {
        let status: Vec<String> = self
            .all()
            .iter()
            .map(|node| node.status())
            .map(|status| format!("node {}: ready {}, {:?}", status.id, status.ready, status.phase))
            .collect();
        let text = format!("a cluster of {} {text}: {}", self.registration.name, status.join("; "));
        Error::Protocol(text)
    }

    /// Lets every session look at the window again.
    fn step(&self) {
        self.all().iter().for_each(|node| node.facts().step_sessions());
    }

    fn fill(&self) -> Result<()> {
        let keys = self.keys;
        let most = READY_MAX + FILL_MAX * (keys / 1_000 + 1) as u32;
        for (work, text) in [
            (Work::Fill { keys }, "did not write all keys"),
            (Work::Settle { keys }, "did not read after all keys were written"),
        ] {
            let window = self.load.begin(work, keys);
            self.step();
            let end = Instant::now() + most;
            while window.wait(Duration::from_secs(1)).is_none() {
                self.check_alive()?;
                if Instant::now() > end {
                    let failures = self.load.take_failures();
                    let text = format!("{text} in {} s: {failures:?}", most.as_secs());
                    return Err(self.not_ready(&text));
                }
            }
        }
        self.load.take_failures();
        self.check_replies()
    }

    fn check_alive(&self) -> Result<()> {
        match self.all().iter().any(Node::is_stopping) {
            true => Err(self.not_ready("stopped")),
            false => Ok(()),
        }
    }

    fn check_replies(&self) -> Result<()> {
        match self.load.wrong() {
            (0, _) => Ok(()),
            (count, texts) => Err(Error::Protocol(format!(
                "{}: {count} wrong replies, among them: {}",
                self.registration.name,
                texts.join("; ")
            ))),
        }
    }

    /// Failed requests by kind, since the last call.
    pub(super) fn take_failures(&self) -> String {
        let failures = self.load.take_failures();
        let texts = failures.iter().map(|(kind, count)| format!("{count} {kind}"));
        texts.collect::<Vec<_>>().join(", ")
    }

    /// Runs one window.
    ///
    /// # Errors
    /// If a reply is wrong, or no order explains the replies on the checked keys.
    pub(super) fn run(&mut self, config: &Config, requests: Requests) -> Result<Measured> {
        let Requests { distribution, writes, reads, only_node, rate } = requests;
        let sessions = self.load.sessions() as f64;
        let pause = rate.map(|rate| Duration::from_secs_f64(sessions / rate.max(1.0)));
        let draws = Draws::new(distribution, self.keys)?;
        let work = Work::Requests { draws, mix: Mix { writes, reads, only_node, pause } };
        let before = (self.traffic(), self.load.totals());
        let window = self.load.begin(work, self.checked_from);
        self.checked_from += CHECKED_KEYS as u64;
        self.step();
        std::thread::sleep(config.warm_up);
        let from = (Instant::now(), CpuReading::take(), self.load.totals());
        window.is_measured.store(true, Ordering::Relaxed);
        std::thread::sleep(config.window);
        // On a machine that is busy otherwise nodes may not have run at all.
        process::wait_until(END_MAX, || self.load.totals().succeeded > from.2.succeeded);
        let upto = (Instant::now(), CpuReading::take(), self.load.totals());
        window.is_measured.store(false, Ordering::Relaxed);
        window.is_over.store(true, Ordering::Release);
        self.step();
        let Some(samples) = window.wait(END_MAX) else {
            self.check_alive()?;
            return Err(self.not_ready("has requests that do not end"));
        };
        self.check_replies()?;
        let consistency = reads.consistency(&self.registration.properties);
        let sampled = samples::check(&samples, consistency);
        let name = self.registration.name;
        let sampled = sampled.map_err(|text| Error::Protocol(format!("{name}: {text}")))?;
        let (traffic, totals) = (self.traffic(), self.load.totals().since(before.1));
        let per_operation =
            |now: u64, then: u64| (now - then) as f64 / totals.succeeded.max(1) as f64;
        let local_reads = traffic
            .local_reads
            .zip(before.0.local_reads)
            .map(|(now, then)| (now - then) as f64 / totals.reads.max(1) as f64);
        Ok(Measured {
            seconds: (upto.0 - from.0).as_secs_f64(),
            totals: upto.2.since(from.2),
            cpu_seconds: upto.1.seconds_since(from.1),
            messages_per_operation: per_operation(traffic.messages, before.0.messages),
            bytes_per_operation: per_operation(traffic.bytes, before.0.bytes),
            local_reads: local_reads.filter(|_| totals.reads > 0),
            latencies: window.latencies(),
            sample: samples.len(),
            sampled,
        })
    }

    /// Counters of all nodes, once those of the requests so far are published.
    fn traffic(&self) -> Traffic {
        std::thread::sleep(self.rest);
        let mut sum = Traffic::default();
        for node in self.all() {
            let values = node.status().stats.values;
            let value = |name: &str| values.get(name).copied();
            sum.messages += value("worker_messages_out").unwrap_or(0);
            sum.bytes += value("link_bytes_out").unwrap_or(0);
            if let Some(local) = value("reads_local") {
                sum.local_reads = Some(sum.local_reads.unwrap_or(0) + local);
            }
        }
        sum
    }

    /// The place of the node that leads the order of all writes; none while there is no single one.
    pub(super) fn leader(&self) -> Option<usize> {
        let leads = |node: &Node| node.status().stats.values.get("leads").copied() == Some(1);
        let mut leaders = (0..self.all().len()).filter(|&at| leads(&self.all()[at]));
        leaders.next().filter(|_| leaders.next().is_none())
    }

    /// The same, once there is one.
    pub(super) fn wait_for_leader(&self) -> Result<usize> {
        let mut leader = None;
        process::wait_until(READY_MAX, || {
            leader = self.leader();
            leader.is_some()
        });
        leader.ok_or_else(|| self.not_ready("has no leader"))
    }

    /// Stops all nodes.
    ///
    /// # Errors
    /// If one of them ended by itself.
    pub(super) fn stop(self) -> Result<()> {
        let failed = |text| Error::Protocol(format!("{}: {text}", self.registration.name));
        self.all().iter().for_each(Node::stop);
        for node in self.all() {
            node.join().map_err(failed)?;
        }
        Ok(())
    }
}

fn start_nodes(
    configs: Vec<NodeConfig>,
    links: Links,
    load: &Arc<Load>,
    update: &Arc<dyn Update>,
) -> Result<Nodes> {
    let failed = |error: node::node::StartError| Error::Usage(error.to_string());
    let factory = |config: &NodeConfig| {
        let node = usize::from(config.id.0) - 1;
        Arc::new(LoadFactory { load: Arc::clone(load), node })
    };
    match links {
        Links::Local => {
            let cluster = LocalCluster::start(configs, |config| factory(config), update);
            Ok(Nodes::Local(cluster.map_err(failed)?))
        }
        Links::Tcp => {
            let start = |config: NodeConfig| {
                let factory = factory(&config);
                Node::start(config, factory, Arc::clone(update))
            };
            let nodes = configs.into_iter().map(start).collect::<std::result::Result<_, _>>();
            Ok(Nodes::Tcp(nodes.map_err(failed)?))
        }
    }
}

fn node_configs(
    config: &Config,
    registration: &Registration,
    links: Links,
    workers: usize,
    scratch: &ScratchDir,
) -> Result<Vec<NodeConfig>> {
    let peers: Vec<String> = match links {
        Links::Local => (1..=config.nodes).map(|id| format!("node-{id}:1")).collect(),
        Links::Tcp => {
            let free = process::free_addresses(config.nodes)?;
            free.iter().map(ToString::to_string).collect()
        }
    };
    let member = |(at, peer): (usize, &String)| MemberAddress {
        node: NodeId(at as u16 + 1),
        client: peer.clone(),
        peer: peer.clone(),
    };
    let members: Vec<MemberAddress> = peers.iter().enumerate().map(member).collect();
    let one = |at: usize| NodeConfig {
        id: members[at].node,
        listen: "127.0.0.1:0".into(),
        sentinel_listen: None,
        announced: Announced::default(),
        peer_listen: peers[at].clone(),
        members: members.clone(),
        secret: None,
        data_dir: scratch.path().join(members[at].node.to_string()),
        databases: vec![DatabaseConfig {
            database: Database(0),
            protocol: registration.name,
            durability: config.durability,
            replicas: None,
        }],
        workers,
        request_timeout: Millis(5_000),
        max_value_size: types::limits::VALUE_LEN_DEFAULT,
        once_window: types::limits::ONCE_WINDOW_DEFAULT,
        cache_memory: CACHE_MEMORY,
        disk: DiskConfig::default(),
        clients_max: workers * config.sessions,
        clients_accepted: usize::MAX,
        scrub: ScrubConfig::OFF,
        supported: types::features::Supported::HERE,
    };
    Ok((0..config.nodes).map(one).collect())
}

fn wait_ready(nodes: &Nodes) -> bool {
    match nodes {
        Nodes::Local(cluster) => cluster.wait_ready(READY_MAX),
        Nodes::Tcp(nodes) => {
            nodes.iter().all(|node| node.wait_until(READY_MAX, |status| status.ready))
        }
    }
}

/// So many clients of each node, which deals them to its workers in turn.
fn connect(nodes: &Nodes, clients_of_each: usize) -> Result<Vec<TcpStream>> {
    let nodes = match nodes {
        Nodes::Local(cluster) => cluster.nodes(),
        Nodes::Tcp(nodes) => nodes,
    };
    let mut clients = Vec::new();
    for node in nodes {
        for _ in 0..clients_of_each {
            let client = TcpStream::connect(node.status().listen);
            clients.push(client.map_err(Error::io("cannot connect to a node"))?);
        }
    }
    Ok(clients)
}
