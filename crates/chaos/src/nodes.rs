//! The nodes under attack: started in their namespaces, killed, paused, asked for their status.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench::client::{self, Value};
use bench::cluster::{is_whole, serves};
use bench::process::Process;

use crate::host::Host;
use crate::lab::{Ground, Lab, Volume};
use crate::links::{PEER_PORT, RESP_PORT, address};
use crate::sh::{BrokenPromise, StopSignal};

/// Timeout for a node to serve and recover its forgotten shards.
pub const READY_MAX: Duration = Duration::from_secs(60);

/// How nodes store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum Durability {
    Disk,
    Pmem,
    Volatile,
}

impl Durability {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Disk => "disk",
            Durability::Pmem => "pmem",
            Durability::Volatile => "volatile",
        }
    }
}

/// The clocks that a node is started with.
#[derive(Clone, Default, Debug)]
pub struct NodeClocks {
    /// A library that takes the time of day from a file.
    pub faketime: Option<PathBuf>,
    /// Seconds that its monotonic clock is ahead of the host's.
    pub monotonic_ahead_s: u64,
}

/// One node.
pub struct AttackedNode {
    pub resp: SocketAddr,
    pub volume: Volume,
    /// Its output, over all its starts.
    pub log: PathBuf,
    /// The file from which the library reads the clock's offset.
    pub wall_file: PathBuf,
    pub clocks: NodeClocks,
    arguments: Vec<String>,
    process: Option<Process>,
}

/// All of them.
pub struct Nodes {
    pub list: Vec<AttackedNode>,
    pub durability: Durability,
    pub binary: PathBuf,
    /// Their logs and volumes lie here.
    pub dir: PathBuf,
    pub ground: Ground,
}

/// Space on each node's volume: enough for all writes of clients, with large values in several slot
/// sizes, and for the logs of all databases.
const VOLUME_MB: u64 = 1_024 + 16 * 72;

impl Nodes {
    /// Makes volumes for their data and starts no node.
    ///
    /// # Errors
    /// When a volume cannot be made.
    pub fn prepare(
        lab: &Lab,
        host: &Host,
        binary: &Path,
        durability: Durability,
        (count, protocol): (usize, &str),
    ) -> Result<Nodes> {
        let dir = lab.dir.join(durability.name());
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let secret = dir.join("secret");
        std::fs::write(&secret, "known to the nodes of this run")
            .context("the cluster's secret")?;
        let ground = crate::catalogue::ground(durability, host);
        let mut nodes =
            Nodes { list: Vec::new(), durability, binary: binary.to_path_buf(), dir, ground };
        let members: Vec<String> = (0..count).map(member).collect();
        for node in 0..count {
            let volume = nodes.dir.join(format!("volume-{}", node + 1));
            let volume = Volume::make(volume, ground, VOLUME_MB)?;
            let [enter, namespace] = lab.inside(node);
            // The node ends when this process does, however that happens.
            let wrapped = ["setpriv", "--pdeathsig", "KILL", "--", &enter, &namespace, "--"];
            let mut arguments: Vec<String> = wrapped.map(str::to_string).into();
            arguments.extend(nodes.serve(node, &volume, &members.join(","), protocol, &secret));
            nodes.list.push(AttackedNode {
                resp: SocketAddr::from((address(node), RESP_PORT)),
                volume,
                log: nodes.dir.join(format!("node-{}.log", node + 1)),
                wall_file: nodes.dir.join(format!("wall-{}", node + 1)),
                clocks: NodeClocks::default(),
                arguments,
                process: None,
            });
        }
        Ok(nodes)
    }

    fn serve(
        &self,
        node: usize,
        volume: &Volume,
        members: &str,
        protocol: &str,
        secret: &Path,
    ) -> Vec<String> {
        let pairs = [
            ("--id", (node + 1).to_string()),
            ("--listen", format!("{}:{RESP_PORT}", address(node))),
            ("--cluster", members.to_string()),
            ("--data-dir", volume.data_dir().display().to_string()),
            ("--durability", self.durability.name().to_string()),
            ("--protocol", protocol.to_string()),
            ("--cluster-secret-file", secret.display().to_string()),
        ];
        let flags = pairs.into_iter().flat_map(|(flag, value)| [flag.to_string(), value]);
        let start = [self.binary.display().to_string(), "serve".into(), "--insecure".into()];
        start.into_iter().chain(flags).collect()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn all(&self) -> Vec<usize> {
        (0..self.len()).collect()
    }

    /// Starts a node and does not wait for it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&mut self, node: usize) -> Result<()> {
        self.list[node].start(&self.dir)
    }

    /// Waits until these nodes serve and have recovered their forgotten shards.
    ///
    /// # Errors
    /// When one ends, or they do not in time.
    pub fn wait_ready(&mut self, which: &[usize], stop: &StopSignal) -> Result<()> {
        for &index in which {
            let node = &mut self.list[index];
            let mut has_ended = false;
            let is_ready = stop.wait(READY_MAX, || {
                has_ended = !node.is_running();
                has_ended || serves(node.resp) && is_whole(node.resp)
            })?;
            if has_ended || !is_ready {
                let status = match has_ended {
                    true => "ended by itself",
                    false => "does not serve or recover",
                };
                let log = node.log_tail();
                bail!(BrokenPromise(format!("node {} {status}; its log:\n{log}", index + 1)));
            }
        }
        Ok(())
    }

    /// `kill -9`.
    pub fn kill(&mut self, which: &[usize]) {
        let pids: Vec<u32> = which.iter().filter_map(|&index| self.list[index].pid()).collect();
        // Kill all at the same moment, then wait for each.
        pids.into_iter().for_each(bench::process::kill_pid);
        for &index in which {
            self.list[index].process = None;
        }
    }

    /// SIGSTOP.
    pub fn pause(&self, which: &[usize]) {
        which.iter().filter_map(|&i| self.list[i].pid()).for_each(bench::process::pause_pid);
    }

    /// SIGCONT.
    pub fn resume(&self, which: &[usize]) {
        which.iter().filter_map(|&i| self.list[i].pid()).for_each(bench::process::resume_pid);
    }
}

fn member(node: usize) -> String {
    let address = address(node);
    format!("{}={address}:{RESP_PORT}@{PEER_PORT}", node + 1)
}

impl AttackedNode {
    fn start(&mut self, dir: &Path) -> Result<()> {
        let mut words = self.arguments.clone();
        let at = words.iter().rposition(|word| word == "--").expect("it ends the wrapper") + 1;
        words.splice(at..at, self.clocks.words(&self.wall_file));
        let mut command = Command::new(&words[0]);
        // Its own process group, so that a terminal's signals reach only this process.
        command.args(&words[1..]).current_dir(dir).process_group(0);
        self.process = Some(Process::start(&mut command, &self.log).context("a node")?);
        Ok(())
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// Whether it was started and has not ended.
    pub fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(Process::is_running)
    }

    /// How it ended by itself: `None` while it runs or is not started, then its code (none after a
    /// signal).
    pub fn ended(&mut self) -> Option<Option<i32>> {
        self.process.as_mut()?.exit_code()
    }

    /// Sends SIGTERM; returns its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        let code = self.process.as_mut()?.stop(Duration::from_secs(20));
        self.process = None;
        code
    }

    /// Its own wall clock, in seconds of Unix time.
    pub fn wall_clock(&self) -> Option<u64> {
        let reply = client::ask_once(self.resp, "TIME", Duration::from_secs(2))?;
        let Value::List(parts) = reply else { return None };
        let Some(Value::Bulk(seconds)) = parts.first() else { return None };
        std::str::from_utf8(seconds).ok()?.parse().ok()
    }

    pub fn log_text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    pub fn log_tail(&self) -> String {
        let text = self.log_text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

impl NodeClocks {
    fn words(&self, wall_file: &Path) -> Vec<String> {
        let mut words = Vec::new();
        if self.monotonic_ahead_s > 0 {
            let ahead = self.monotonic_ahead_s.to_string();
            let flags = ["unshare", "--time", "--monotonic", &ahead, "--boottime", &ahead, "--"];
            words.extend(flags.map(str::to_string));
        }
        if let Some(library) = &self.faketime {
            words.extend([
                "env".to_string(),
                format!("LD_PRELOAD={}", library.display()),
                format!("FAKETIME_TIMESTAMP_FILE={}", wall_file.display()),
                "FAKETIME_NO_CACHE=1".to_string(),
                "FAKETIME_DONT_FAKE_MONOTONIC=1".to_string(),
                "DONT_FAKE_MONOTONIC=1".to_string(),
            ]);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_the_hosts_unless_attacked() {
        let wall = Path::new("wall");
        assert!(NodeClocks::default().words(wall).is_empty());
        let clocks = NodeClocks { faketime: Some("lib.so".into()), monotonic_ahead_s: 7 };
        let words = clocks.words(wall).join(" ");
        assert!(words.starts_with("unshare --time --monotonic 7 --boottime 7 -- env"), "{words}");
        assert!(words.contains("LD_PRELOAD=lib.so FAKETIME_TIMESTAMP_FILE=wall"), "{words}");
    }
}
