//! A cluster of this product on loopback, one process per node, to be loaded, killed and restarted.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::client::{self, Value};
use crate::process::{self, Process, ScratchDir};
use crate::{Error, Result};

/// The cluster to start.
#[derive(Clone, Debug)]
pub struct Config {
    /// The `palimpsest` program.
    pub binary: PathBuf,
    pub nodes: u16,
    /// As on the command line: `volatile`, `pmem` or `disk`.
    pub durability: String,
    /// The cluster's data directories are in a temporary folder below this one.
    pub dir: PathBuf,
    /// More arguments for every node.
    pub arguments: Vec<String>,
    /// Loopback ports that `--cluster` names for the nodes' links, as behind a proxy; empty: the
    /// nodes' own.
    pub peer_ports: Vec<u16>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            binary: default_binary(),
            nodes: 3,
            durability: "disk".to_string(),
            dir: std::env::temp_dir(),
            arguments: Vec::new(),
            peer_ports: Vec::new(),
        }
    }
}

/// The measured program: `PALIMPSEST_BIN`, else this program if it is palimpsest, else the release
/// build.
pub fn default_binary() -> PathBuf {
    if let Some(path) = std::env::var_os("PALIMPSEST_BIN") {
        return PathBuf::from(path);
    }
    match std::env::current_exe() {
        Ok(own) if own.file_stem().is_some_and(|name| name == "palimpsest") => own,
        _ => PathBuf::from("target/release/palimpsest"),
    }
}

/// One node: its addresses, its data, and its process while it runs.
pub struct Node {
    pub id: u16,
    pub resp: SocketAddr,
    pub peer: SocketAddr,
    pub admin: SocketAddr,
    pub data_dir: PathBuf,
    /// Its output, over all its starts.
    pub log: PathBuf,
    /// Its arguments; a change takes effect at the next start.
    pub arguments: Vec<String>,
    pub process: Option<Process>,
}

/// The nodes of one cluster.
pub struct Cluster {
    pub nodes: Vec<Node>,
    binary: PathBuf,
    scratch: ScratchDir,
}

/// Timeout for a cluster to serve.
const READY_MAX: Duration = Duration::from_secs(30);

impl Cluster {
    /// Chooses ports and folders and starts no node.
    ///
    /// # Errors
    /// When no folder or no port is available.
    pub fn prepare(config: &Config) -> Result<Cluster> {
        let scratch = ScratchDir::new(&config.dir, "palimpsest-cluster")?;
        let free = process::free_addresses(usize::from(config.nodes) * 3)?;
        let node = |(index, ports): (usize, &[SocketAddr])| {
            let id = u16::try_from(index + 1).expect("there are as many nodes as a u16 counts");
            let data_dir = scratch.path().join(format!("node-{id}"));
            let log = scratch.path().join(format!("node-{id}.log"));
            let [resp, peer, admin] = [ports[0], ports[1], ports[2]];
            Node { id, resp, peer, admin, data_dir, log, arguments: Vec::new(), process: None }
        };
        let mut nodes: Vec<Node> = free.chunks(3).enumerate().map(node).collect();
        let members: Vec<String> = nodes
            .iter()
            .enumerate()
            .map(|(index, node)| {
                let port = config.peer_ports.get(index).copied().unwrap_or(node.peer.port());
                format!("{}={}@{port}", node.id, node.resp)
            })
            .collect();
        for node in &mut nodes {
            node.arguments = arguments(node, &members.join(","), config);
        }
        Ok(Cluster { nodes, binary: config.binary.clone(), scratch })
    }

    /// Starts a cluster and waits until every node serves.
    ///
    /// # Errors
    /// When it does not; the message ends with the node's output.
    pub fn start(config: &Config) -> Result<Cluster> {
        let mut cluster = Cluster::prepare(config)?;
        for index in 0..cluster.nodes.len() {
            cluster.start_node(index)?;
        }
        cluster.wait_all_ready()?;
        Ok(cluster)
    }

    /// Starts node `index` (from 0) and does not wait for it.
    ///
    /// # Errors
    /// When the program cannot be started.
    ///
    /// # Panics
    /// If it runs already.
    pub fn start_node(&mut self, index: usize) -> Result<()> {
        let node = &mut self.nodes[index];
        assert!(node.process.as_mut().is_none_or(|p| !p.is_running()), "node {} runs", node.id);
        let mut command = Command::new(&self.binary);
        command.args(&node.arguments).current_dir(self.scratch.path());
        node.process = Some(Process::start(&mut command, &node.log)?);
        Ok(())
    }

    /// `kill -9`.
    pub fn kill_node(&mut self, index: usize) {
        self.nodes[index].process = None;
    }

    /// Waits until every node that runs serves.
    ///
    /// # Errors
    /// When one does not in time, or ends.
    pub fn wait_all_ready(&mut self) -> Result<()> {
        for index in 0..self.nodes.len() {
            if self.nodes[index].process.is_some() {
                self.wait_ready(index)?;
            }
        }
        Ok(())
    }

    /// Waits until node `index` could replace another one.
    ///
    /// It then serves, has recovered its forgotten shards, and has links to all other nodes that
    /// run.
    ///
    /// # Errors
    /// When that takes too long, or the process ends.
    pub fn wait_ready(&mut self, index: usize) -> Result<()> {
        let processes = self.nodes.iter_mut().filter_map(|node| node.process.as_mut());
        let running = processes.map(Process::is_running).filter(|&is_running| is_running).count();
        let node = &mut self.nodes[index];
        let mut ended = false;
        let ready = process::wait_until(READY_MAX, || {
            ended = node.process.as_mut().is_none_or(|process| !process.is_running());
            ended || (serves(node.resp) && is_whole(node.resp) && reaches(node.resp, running))
        });
        if ready && !ended {
            return Ok(());
        }
        let said = node.process.as_ref().map(Process::log_tail).unwrap_or_default();
        Err(Error::NotReady {
            system: format!("node {}", node.id),
            seconds: READY_MAX.as_secs(),
            details: format!("{}; it said:\n{said}", if ended { ", it ended" } else { "" }),
        })
    }

    /// RESP addresses, by node.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.resp).collect()
    }

    /// The node that leads the one order of all writes; none while there is no single one.
    pub fn leader(&self) -> Option<usize> {
        let leads = |node: &Node| info(node.resp, "palimpsest", "leads") == Some(1);
        let mut leaders = (0..self.nodes.len()).filter(|&at| leads(&self.nodes[at]));
        leaders.next().filter(|_| leaders.next().is_none())
    }

    /// Processes that run.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().filter_map(|node| Some(node.process.as_ref()?.pid())).collect()
    }

    /// The folder that holds everything of this cluster.
    pub fn dir(&self) -> &Path {
        self.scratch.path()
    }
}

fn arguments(node: &Node, members: &str, config: &Config) -> Vec<String> {
    let pairs = [
        ("--id", node.id.to_string()),
        ("--listen", node.resp.to_string()),
        ("--peer-listen", node.peer.to_string()),
        ("--admin-listen", node.admin.to_string()),
        ("--cluster", members.to_string()),
        ("--data-dir", node.data_dir.display().to_string()),
        ("--durability", config.durability.clone()),
    ];
    let flags = pairs.into_iter().flat_map(|(flag, value)| [flag.to_string(), value]);
    std::iter::once("serve".to_string()).chain(flags).chain(config.arguments.clone()).collect()
}

/// Whether a quorum answers there: a read of a key succeeds.
pub fn serves(address: SocketAddr) -> bool {
    let reply = client::ask_once(address, "GET ready", Duration::from_secs(2));
    reply.is_some_and(|reply| !matches!(reply, Value::Error(_)))
}

/// Whether a node has recovered all forgotten shards: it does not report loading.
pub fn is_whole(address: SocketAddr) -> bool {
    info(address, "persistence", "loading") == Some(0)
}

/// Whether links connect a node to `members` nodes, itself included.
pub fn reaches(address: SocketAddr, members: usize) -> bool {
    info(address, "palimpsest", "members_up").is_some_and(|up| up >= members)
}

/// The value of a line in a section of INFO.
fn info(address: SocketAddr, section: &str, name: &str) -> Option<usize> {
    let reply = client::ask_once(address, &format!("INFO {section}"), Duration::from_secs(2));
    let Some(Value::Bulk(text)) = reply else { return None };
    let text = String::from_utf8_lossy(&text);
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok())
}
