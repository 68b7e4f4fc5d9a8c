//! A cluster of three etcd nodes on disk, as its packages ship it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::process::{self, Process, ScratchDir};
use crate::report::LoadReport;
use crate::{Error, Result, resp};

pub(super) struct EtcdServers {
    addresses: Vec<SocketAddr>,
    processes: Vec<Process>,
    _scratch: ScratchDir,
}

const NODES: usize = 3;
const READY_MAX: Duration = Duration::from_secs(30);

pub(super) fn obstacle() -> Option<String> {
    if !cfg!(feature = "etcd") {
        return Some(
            "this program was built without the feature `etcd`; ./x bench has it".to_string(),
        );
    }
    let there = Command::new("etcd").arg("--version").output().is_ok();
    (!there).then(|| "etcd is not installed (Debian package etcd-server)".to_string())
}

impl EtcdServers {
    pub(super) fn start(dir: &Path) -> Result<EtcdServers> {
        let scratch = ScratchDir::new(dir, "etcd")?;
        let ports = process::free_addresses(NODES * 2)?;
        let (clients, peers) = ports.split_at(NODES);
        let name = |index: usize| format!("node{index}");
        let members: Vec<String> = peers
            .iter()
            .enumerate()
            .map(|(i, peer)| format!("{}=http://{peer}", name(i)))
            .collect();
        let mut processes = Vec::new();
        for index in 0..NODES {
            let (client, peer) =
                (format!("http://{}", clients[index]), format!("http://{}", peers[index]));
            let mut command = Command::new("etcd");
            command.args(["--name", &name(index), "--data-dir", &name(index)]);
            command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
            command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
            command.args([
                "--initial-cluster",
                &members.join(","),
                "--initial-cluster-state",
                "new",
            ]);
            command.args(["--log-level", "error"]).current_dir(scratch.path());
            processes
                .push(Process::start(&mut command, &scratch.path().join(format!("{index}.log")))?);
        }
        let servers = EtcdServers { addresses: clients.to_vec(), processes, _scratch: scratch };
        if !process::wait_until(READY_MAX, || servers.addresses.iter().all(|&a| is_healthy(a))) {
            let said: Vec<String> = servers.processes.iter().map(Process::log_tail).collect();
            return Err(Error::NotReady {
                system: "etcd".to_string(),
                seconds: READY_MAX.as_secs(),
                details: format!("; it said:\n{}", said.join("\n")),
            });
        }
        Ok(servers)
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(Process::pid).collect()
    }
}

/// `GET /health`, which asks a quorum.
fn is_healthy(address: SocketAddr) -> bool {
    use std::io::{Read, Write};
    let Ok(mut stream) = std::net::TcpStream::connect(address) else { return false };
    let limit = Some(Duration::from_secs(2));
    let mut answer = String::new();
    stream.set_read_timeout(limit).is_ok()
        && write!(stream, "GET /health HTTP/1.0\r\nHost: {address}\r\n\r\n").is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.contains("\"health\":\"true\"")
}

/// Runs a load with etcd's own protocol. Unreachable without the feature, because [`obstacle`]
/// reports it.
#[cfg(not(feature = "etcd"))]
pub(super) fn measure(_config: &resp::Config) -> Result<LoadReport> {
    Err(Error::Usage(obstacle().unwrap_or_default()))
}

/// Runs a load with etcd's own protocol.
#[cfg(feature = "etcd")]
pub(super) fn measure(config: &resp::Config) -> Result<LoadReport> {
    super::grpc::measure(config)
}
