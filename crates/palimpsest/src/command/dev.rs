//! `palimpsest dev`: a whole cluster in one process.

use std::path::PathBuf;

use node::config::{Durability, MemberAddress};
use node::dev::Cluster;
use node::node::Node;
use types::limits::MEMBERS_MAX;

use crate::config::{self, ADMIN_PORT_OFFSET, Config};
use crate::{Failure, limits, running};

#[derive(clap::Args)]
#[command(after_help = "Example:\n  palimpsest dev\n  redis-cli incr visits")]
pub(crate) struct Args {
    /// How many nodes
    #[arg(long, default_value_t = 3)]
    nodes: u16,
    /// Node i (from 0) listens on this port plus i
    #[arg(long, default_value_t = 6379)]
    port: u16,
    /// Where the nodes keep their slots
    #[arg(
        long,
        value_name = "DIR",
        default_value = "./palimpsest-data",
        env = "PALIMPSEST_DATA_DIR"
    )]
    data_dir: PathBuf,
    /// What an acknowledged write survives: volatile, pmem or disk; volatile starts empty each time
    #[arg(long, default_value = "disk")]
    durability: String,
    /// Replication protocol
    #[arg(long, value_name = "NAME", default_value = "rmwpaxos")]
    protocol: String,
    /// Worker threads of each node [default: cores / nodes, at least 1]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut configs = configs(args)?;
    let accepted = limits::lift(configs.len(), configs[0].node.clients_max);
    configs.iter_mut().for_each(|config| config.node.clients_accepted = accepted);
    if configs[0].node.has_volatile() {
        start_empty(&configs)?;
    }
    let listeners = configs.iter().map(running::bind_admin).collect::<Result<Vec<_>, Failure>>()?;
    let fronts: Vec<_> = configs.iter().map(running::front).collect();
    let update: std::sync::Arc<dyn types::Update> = running::interpreter(&configs[0]);
    let nodes = configs.iter().map(|config| config.node.clone()).collect();
    let cluster = Cluster::start(nodes, |node| fronts[usize::from(node.id.0) - 1].clone(), &update)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let nodes: Vec<&Node> = cluster.nodes().iter().collect();
    let mut admins = Vec::new();
    for ((config, listener), node) in configs.iter().zip(listeners).zip(&nodes) {
        let admin = running::start_admin(config, listener, node)?;
        println!(
            "node {} on {}, http://{}/",
            config.node.id,
            node.status().listen,
            admin.address()
        );
        admins.push(admin);
    }
    running::watch(&nodes)
}

fn configs(args: &Args) -> Result<Vec<Config>, Failure> {
    let durability = config::parse_durability(&args.durability)?;
    let protocol = config::find_protocol(&args.protocol)?;
    if args.nodes == 0 || usize::from(args.nodes) > MEMBERS_MAX {
        return Err(Failure::usage(format!(
            "--nodes must be 1 to {MEMBERS_MAX}, not {}",
            args.nodes
        )));
    }
    let workers =
        args.workers.unwrap_or_else(|| (config::cores() / usize::from(args.nodes)).max(1));
    let port_max = u16::MAX - ADMIN_PORT_OFFSET - (args.nodes - 1);
    if !(1..=port_max).contains(&args.port) {
        return Err(Failure::usage(format!(
            "--port must be 1 to {port_max} for {} nodes, whose HTTP ports lie {ADMIN_PORT_OFFSET} above, not {}",
            args.nodes, args.port
        )));
    }
    let members: Vec<MemberAddress> = (0..args.nodes)
        .map(|index| MemberAddress {
            node: types::NodeId(index + 1),
            client: format!("127.0.0.1:{}", args.port + index),
            // Nodes of one process are linked in memory: the name only tells them apart.
            peer: format!("node-{}", index + 1),
        })
        .collect();
    let mut configs = Vec::new();
    for member in &members {
        let (id, listen, peer) = (member.node.0, member.client.clone(), member.peer.clone());
        let data_dir = args.data_dir.join(id.to_string());
        let mut config = config::local(id, listen, peer, data_dir, durability, protocol)?;
        config.node.members = members.clone();
        config.node.workers = workers;
        configs.push(config);
    }
    Ok(configs)
}

/// `dev` in memory begins anew each time: all its nodes forget together, which is not a loss but a new cluster.
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
