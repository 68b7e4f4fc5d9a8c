//! redis-server without persistence, alone or with replicas.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::client::{self, Value};
use crate::process::{self, Process, ScratchDir};
use crate::{Error, Result};

pub(super) struct RedisServers {
    addresses: Vec<SocketAddr>,
    // Declared before the folder, so that the processes end before it is removed.
    processes: Vec<Process>,
    _scratch: ScratchDir,
}

const READY_MAX: Duration = Duration::from_secs(20);

pub(super) fn obstacle() -> Option<String> {
    let there = Command::new("redis-server").arg("--version").output().is_ok();
    (!there).then(|| "redis-server is not installed (Debian package redis-server)".to_string())
}

impl RedisServers {
    /// The primary first; returns when all replicas are in sync.
    pub(super) fn start(dir: &Path, replicas: usize) -> Result<RedisServers> {
        let scratch = ScratchDir::new(dir, "redis")?;
        let addresses = process::free_addresses(1 + replicas)?;
        let mut processes = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            let folder = scratch.path().join(index.to_string());
            std::fs::create_dir(&folder).map_err(Error::io(folder.display().to_string()))?;
            let mut command = Command::new("redis-server");
            command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
            command.args(["--port", &address.port().to_string()]);
            // Otherwise the primary waits five seconds for more replicas before it sends its state.
            command.args(["--repl-diskless-sync-delay", "0"]);
            if index > 0 {
                command.args(["--replicaof", "127.0.0.1", &addresses[0].port().to_string()]);
            }
            command.current_dir(&folder);
            processes.push(Process::start(&mut command, &folder.join("log"))?);
        }
        let servers = RedisServers { addresses, processes, _scratch: scratch };
        let wait = format!("WAIT {replicas} 100");
        let in_step = || {
            let limit = Duration::from_secs(1);
            client::Client::connect(servers.primary(), limit).is_ok_and(|mut client| {
                client.command("SET in-step yes").is_ok_and(|reply| reply == Value::ok())
                    && client.command(&wait).is_ok_and(|r| r == Value::Integer(replicas as i64))
            })
        };
        if !process::wait_until(READY_MAX, in_step) {
            let said: Vec<String> = servers.processes.iter().map(Process::log_tail).collect();
            return Err(Error::NotReady {
                system: "redis-server".to_string(),
                seconds: READY_MAX.as_secs(),
                details: format!("; it said:\n{}", said.join("\n")),
            });
        }
        Ok(servers)
    }

    pub(super) fn primary(&self) -> SocketAddr {
        self.addresses[0]
    }

    pub(super) fn replicas(&self) -> usize {
        self.addresses.len() - 1
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(Process::pid).collect()
    }
}
