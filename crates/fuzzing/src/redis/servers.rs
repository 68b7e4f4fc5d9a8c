//! The two that are compared, both started here and ended with their owner.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use base::Millis;
use bench::client::{Client, Value};
use bench::process::{Process, ScratchDir, free_addresses, wait_until};
use commands::Interpreter;
use node::config::{DatabaseConfig, Durability, MemberAddress, NodeConfig};
use node::dev::LocalCluster;
use server::{RespSessionFactory, ServerConfig};
use types::limits::{ONCE_WINDOW_DEFAULT, VALUE_LEN_DEFAULT};
use types::{Database, NodeId, Update};

use super::state::{DATABASES, State};

/// How long a server may take to start, or to answer.
const LIMIT: Duration = Duration::from_secs(20);

/// A cluster in this process and a redis-server beside it.
pub struct Servers {
    cluster: LocalCluster,
    ours: SocketAddr,
    theirs: SocketAddr,
    to_ours: Client,
    to_theirs: Client,
    // Before the folder, so that the process ends before it goes.
    _redis: Process,
    _scratch: ScratchDir,
}

/// Why there is no redis-server to compare with; `None` if there is one.
#[must_use]
pub fn obstacle() -> Option<&'static str> {
    let output = Command::new("redis-server").arg("--version").output();
    let is_there = output.is_ok_and(|output| output.status.success());
    (!is_there).then_some("redis-server is not installed (Debian package redis-server)")
}

/// True if the redis-server has the collections of Redis 7.4. Older ones have other encodings and
/// orders, and lack commands.
pub(super) fn knows_collections() -> bool {
    let output = Command::new("redis-server").arg("--version").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("v=7.4."))
}

impl Servers {
    /// Starts both and waits until they serve.
    ///
    /// # Errors
    /// When one does not.
    pub fn start(nodes: u16, durability: Durability) -> Result<Servers> {
        let scratch = ScratchDir::new(&std::env::temp_dir(), "palimpsest-fuzz")?;
        let free = free_addresses(usize::from(nodes) + 1)?;
        let theirs = free[usize::from(nodes)];
        let redis = start_redis(&scratch, theirs)?;
        let cluster = start_cluster(&scratch, &free[..usize::from(nodes)], durability)?;
        let ours = cluster.nodes()[0].status().listen;
        ensure!(
            wait_until(LIMIT, || Client::connect(theirs, LIMIT).is_ok()),
            "redis-server does not listen:\n{}",
            redis.log_tail()
        );
        let connect = |address| Client::connect(address, LIMIT);
        let (to_ours, to_theirs) = (connect(ours)?, connect(theirs)?);
        Ok(Servers { cluster, ours, theirs, to_ours, to_theirs, _redis: redis, _scratch: scratch })
    }

    /// This store's, then redis-server's.
    #[must_use]
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.ours, self.theirs)
    }

    /// Makes both empty: `state` says what both hold, where that is known. `FLUSHALL` walks through
    /// all of a database.
    ///
    /// # Errors
    /// When one refuses.
    pub(super) fn empty(&mut self, state: Option<&State>) -> Result<()> {
        for client in [&mut self.to_ours, &mut self.to_theirs] {
            let Some(state) = state else {
                let reply = client.command("FLUSHALL")?;
                ensure!(reply == Value::ok(), "FLUSHALL: {reply:?}");
                continue;
            };
            for (index, database) in DATABASES.iter().enumerate() {
                let keys =
                    state.keys().filter(|(of, _)| *of == index).map(|(_, key)| key.as_slice());
                let line: Vec<&[u8]> = [&b"DEL"[..]].into_iter().chain(keys).collect();
                if line.len() > 1 {
                    client.command(&format!("SELECT {database}"))?;
                    let reply = client.ask(&line)?;
                    ensure!(reply == Value::Integer(line.len() as i64 - 1), "DEL: {reply:?}");
                }
            }
        }
        Ok(())
    }

    /// Stops this store's nodes.
    ///
    /// # Errors
    /// What ended one of them before.
    pub fn stop(&self) -> Result<()> {
        if let Err(failure) = self.cluster.stop() {
            bail!("a node failed: {failure}");
        }
        Ok(())
    }
}

fn start_redis(scratch: &ScratchDir, address: SocketAddr) -> Result<Process> {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.args(["--port", &address.port().to_string()]);
    command.current_dir(scratch.path());
    Ok(Process::start(&mut command, &scratch.path().join("redis.log"))?)
}

fn start_cluster(
    scratch: &ScratchDir,
    addresses: &[SocketAddr],
    durability: Durability,
) -> Result<LocalCluster> {
    let member = |(index, address): (usize, &SocketAddr)| MemberAddress {
        node: NodeId(index as u16 + 1),
        client: address.to_string(),
        peer: format!("node-{}", index + 1),
    };
    let members: Vec<MemberAddress> = addresses.iter().enumerate().map(member).collect();
    let database = |index: usize| DatabaseConfig {
        database: Database(index as u8),
        protocol: "rmwpaxos",
        durability,
        replicas: None,
    };
    let config = |member: &MemberAddress| NodeConfig {
        id: member.node,
        listen: member.client.clone(),
        sentinel_listen: None,
        announced: node::config::Announced::default(),
        peer_listen: member.peer.clone(),
        members: members.clone(),
        secret: None,
        data_dir: scratch.path().join(member.node.to_string()),
        databases: (0..types::limits::DATABASES).map(database).collect(),
        workers: 2,
        request_timeout: Millis(10_000),
        max_value_size: VALUE_LEN_DEFAULT,
        once_window: ONCE_WINDOW_DEFAULT,
        cache_memory: 64 << 20,
        disk: node::config::DiskConfig::default(),
        clients_max: 1_000,
        clients_accepted: usize::MAX,
        scrub: node::config::ScrubConfig::DEFAULT,
        supported: types::features::Supported::HERE,
    };
    let factory = || {
        let version = env!("CARGO_PKG_VERSION");
        let config = ServerConfig {
            password: None,
            max_value_size: VALUE_LEN_DEFAULT,
            once_window: ONCE_WINDOW_DEFAULT,
            version,
            sentinel_name: server::SENTINEL_NAME_DEFAULT.into(),
        };
        RespSessionFactory::new(config)
    };
    let update: Arc<dyn Update> =
        Arc::new(Interpreter { max_value_len: VALUE_LEN_DEFAULT, scripts: None });
    let cluster =
        LocalCluster::start(members.iter().map(config).collect(), |_| factory(), &update)?;
    ensure!(cluster.wait_ready(LIMIT), "the nodes do not serve");
    Ok(cluster)
}
