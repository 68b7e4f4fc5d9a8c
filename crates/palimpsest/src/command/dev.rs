//! `palimpsest dev`: a whole cluster in one process.

use std::path::PathBuf;
use std::sync::Arc;

use node::config::{Durability, MemberAddress};
use node::dev::LocalCluster;
use node::node::{Node, StartError};
use server::RespSessionFactory;
use types::limits::MEMBERS_MAX;

use crate::config::{self, ADMIN_PORT_OFFSET, Config, LocalAddresses};
use crate::log::{self, LogConfig};
use crate::{Failure, limits, running};

#[derive(clap::Args)]
#[command(after_help = "Example:\n  palimpsest dev\n  redis-cli incr visits")]
pub(crate) struct Args {
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 3)]
    nodes: u16,
    /// First port for clients: node i (from 0) listens on it plus i
    #[arg(long, default_value_t = 6379)]
    port: u16,
    /// First port for HTTP, one for each node [default: --port + 1000]
    #[arg(long, value_name = "PORT")]
    admin_port: Option<u16>,
    /// First port between nodes, one for each [default: none, nodes are linked in memory]
    #[arg(long, value_name = "PORT")]
    peer_port: Option<u16>,
    /// First address for clients of Redis Sentinel, one port for each node [default: none]
    #[arg(long, value_name = "HOST:PORT", env = "PALIMPSEST_SENTINEL_LISTEN")]
    sentinel_listen: Option<String>,
    /// Directory of the nodes' data
    #[arg(
        long,
        value_name = "DIR",
        default_value = "./palimpsest-data",
        env = "PALIMPSEST_DATA_DIR"
    )]
    data_dir: PathBuf,
    /// The crashes that an acknowledged write survives: volatile, pmem or disk; volatile starts
    /// empty each time
    #[arg(long, value_name = "MODE", default_value = "disk", env = "PALIMPSEST_DURABILITY")]
    durability: String,
    /// Replication protocol
    #[arg(long, value_name = "NAME", default_value = "rmwpaxos", env = "PALIMPSEST_PROTOCOL")]
    protocol: String,
    /// Members of each group, for protocols that have one: 3, 5 or 7 [default: all nodes]
    #[arg(long, value_name = "N", env = "PALIMPSEST_REPLICAS")]
    replicas: Option<u8>,
    /// Worker threads of each node [default: cores / nodes, at least 1]
    #[arg(long, value_name = "N", env = "PALIMPSEST_WORKERS")]
    workers: Option<usize>,
    /// The least important lines to log
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "PALIMPSEST_LOG_LEVEL")]
    log_level: log::Level,
    /// How to log
    #[arg(long, value_name = "FORMAT", default_value = "text", env = "PALIMPSEST_LOG_FORMAT")]
    log_format: log::Format,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut configs = configs(args)?;
    log::start(LogConfig { format: args.log_format, level: args.log_level }, None);
    limits::lift(configs.iter_mut().map(|config| &mut config.node));
    if configs[0].node.has_volatile() {
        start_empty(&configs)?;
    }
    let listeners = configs.iter().map(running::bind_admin).collect::<Result<Vec<_>, Failure>>()?;
    let factories: Vec<_> = configs.iter().map(running::session_factory).collect();
    let nodes = Nodes::start(&configs, &factories, args.peer_port.is_some())
        .map_err(|error| Failure::usage(error.to_string()))?;
    let nodes: Vec<&Node> = nodes.all().iter().collect();
    let mut admins = Vec::new();
    let members = configs.iter().zip(listeners).zip(nodes.iter().zip(&factories));
    for ((config, listener), (node, factory)) in members {
        let admin = running::start_admin(config, listener, node, factory)?;
        let peer = match args.peer_port {
            Some(_) => format!("nodes on {}, ", config.node.peer_listen),
            None => String::new(),
        };
        let sentinel = running::sentinel_text(node);
        log::say(&format!(
            "node {} on {}, {peer}{sentinel}http://{}/",
            config.node.id,
            node.status().listen,
            admin.address()
        ));
        admins.push(admin);
    }
    running::watch(&nodes, &factories)
}

/// The nodes of this process, linked in one way or the other.
enum Nodes {
    Memory(LocalCluster),
    Tcp(Vec<Node>),
}

impl Nodes {
    fn start(
        configs: &[Config],
        factories: &[Arc<RespSessionFactory>],
        over_tcp: bool,
    ) -> Result<Nodes, StartError> {
        if over_tcp {
            let start = |(config, factory): (&Config, &Arc<RespSessionFactory>)| {
                Node::start(config.node.clone(), factory.clone(), factory.interpreter())
            };
            return Ok(Nodes::Tcp(
                configs.iter().zip(factories).map(start).collect::<Result<_, _>>()?,
            ));
        }
        let nodes = configs.iter().map(|config| config.node.clone()).collect();
        let factory =
            |node: &node::config::NodeConfig| factories[usize::from(node.id.0) - 1].clone() as _;
        // All nodes of one process have the same limits.
        let update = factories[0].interpreter();
        Ok(Nodes::Memory(LocalCluster::start(nodes, factory, &update)?))
    }

    fn all(&self) -> &[Node] {
        match self {
            Nodes::Memory(cluster) => cluster.nodes(),
            Nodes::Tcp(nodes) => nodes,
        }
    }
}

fn configs(args: &Args) -> Result<Vec<Config>, Failure> {
    let durability = config::parse_durability(&args.durability)?;
    let protocol = config::find_protocol(&args.protocol)?;
    let databases = config::LocalDatabases { durability, protocol, replicas: args.replicas };
    if args.nodes == 0 || usize::from(args.nodes) > MEMBERS_MAX {
        return Err(Failure::usage(format!(
            "--nodes must be 1 to {MEMBERS_MAX}, not {}",
            args.nodes
        )));
    }
    let workers =
        args.workers.unwrap_or_else(|| (config::cores() / usize::from(args.nodes)).max(1));
    let ports = Ports::of(args)?;
    let members: Vec<MemberAddress> = (0..args.nodes)
        .map(|index| MemberAddress {
            node: types::NodeId(index + 1),
            client: format!("127.0.0.1:{}", ports.clients + index),
            peer: match ports.peers {
                Some(first) => format!("127.0.0.1:{}", first + index),
                // The name tells nodes apart that are linked in memory.
                None => format!("node-{}", index + 1),
            },
        })
        .collect();
    let mut configs = Vec::new();
    for (index, member) in (0..).zip(&members) {
        let addresses = LocalAddresses {
            listen: member.client.clone(),
            peer: member.peer.clone(),
            admin: format!("127.0.0.1:{}", ports.admin + index),
            sentinel: ports
                .sentinel
                .as_ref()
                .map(|(host, first)| format!("{host}:{}", first + index)),
        };
        let data_dir = args.data_dir.join(member.node.0.to_string());
        let mut config = config::local(member.node.0, addresses, data_dir, databases)?;
        config.node.members = members.clone();
        config.node.workers = workers;
        configs.push(config);
    }
    Ok(configs)
}

/// The first port of each kind.
struct Ports {
    clients: u16,
    admin: u16,
    peers: Option<u16>,
    /// With its host.
    sentinel: Option<(String, u16)>,
}

impl Ports {
    fn of(args: &Args) -> Result<Ports, Failure> {
        let most = u16::MAX - (args.nodes - 1);
        let most_clients = if args.admin_port.is_some() { most } else { most - ADMIN_PORT_OFFSET };
        let hint = if args.admin_port.is_some() {
            String::new()
        } else {
            format!(" (or give --admin-port, which is {ADMIN_PORT_OFFSET} above)")
        };
        let check = |flag: &str, port: u16, most: u16, hint: &str| match (1..=most).contains(&port)
        {
            true => Ok(()),
            false => Err(Failure::usage(format!(
                "{flag} must be 1 to {most} for {} nodes{hint}, not {port}",
                args.nodes
            ))),
        };
        check("--port", args.port, most_clients, &hint)?;
        let admin = args.admin_port.unwrap_or_else(|| args.port + ADMIN_PORT_OFFSET);
        check("--admin-port", admin, most, "")?;
        args.peer_port.map_or(Ok(()), |port| check("--peer-port", port, most, ""))?;
        let sentinel = args.sentinel_listen.as_deref().map(config::split_sentinel).transpose()?;
        sentinel
            .as_ref()
            .map_or(Ok(()), |(_, port)| check("--sentinel-listen", *port, most, ""))?;
        let ports = Ports { clients: args.port, admin, peers: args.peer_port, sentinel };
        ports.refuse_overlaps(args.nodes)?;
        Ok(ports)
    }

    fn refuse_overlaps(&self, nodes: u16) -> Result<(), Failure> {
        let mut all = vec![("--port", self.clients), ("--admin-port", self.admin)];
        all.extend(self.peers.map(|port| ("--peer-port", port)));
        all.extend(self.sentinel.as_ref().map(|(_, port)| ("--sentinel-listen", *port)));
        for (at, (flag, port)) in all.iter().enumerate() {
            for (other, first) in &all[..at] {
                if port.abs_diff(*first) < nodes {
                    return Err(Failure::usage(format!(
                        "{flag} {port} and {other} {first} overlap for {nodes} nodes: keep them {nodes} apart"
                    )));
                }
            }
        }
        Ok(())
    }
}

/// `dev` in memory begins anew each time: all its nodes forget together, which makes a new cluster.
fn start_empty(configs: &[Config]) -> Result<(), Failure> {
    let all_volatile = configs
        .iter()
        .flat_map(|config| &config.node.databases)
        .all(|database| database.durability == Durability::Volatile);
    if !all_volatile {
        return Ok(());
    }
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64);
    for config in configs.iter().filter(|config| config.node.data_dir.exists()) {
        storage::data_dir::reset(&config.node.data_dir, config.node.id, base::Millis(now))
            .map_err(|error| Failure::usage(error.to_string()))?;
    }
    Ok(())
}
