//! Three nodes of the release build on the mount, and the check of their files while they do not
//! run.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bench::cluster::{is_whole, serves};
use bench::process::{Process, wait_until};

use super::PROGRAMS;
use super::line::SerialLine;
use crate::message::GuestMessage;

const NODES: u16 = 3;
/// Emulation is slow.
const READY_MAX: Duration = Duration::from_secs(300);
const STOP_MAX: Duration = Duration::from_secs(30);
/// Milliseconds: no request may give up because the machine is slow.
const REQUEST_TIMEOUT: &str = "20000";

/// The nodes.
pub struct GuestCluster {
    dir: PathBuf,
    addresses: Vec<SocketAddr>,
    processes: Vec<Process>,
}

impl GuestCluster {
    /// Nodes with their data below `dir`, not started.
    #[must_use]
    pub fn new(dir: &Path) -> GuestCluster {
        let addresses = (1..=NODES).map(|node| SocketAddr::from(([127, 0, 0, 1], 7_000 + node)));
        GuestCluster { dir: dir.to_owned(), addresses: addresses.collect(), processes: Vec::new() }
    }

    /// Client addresses, by node.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    fn data_dir(&self, node: u16) -> PathBuf {
        self.dir.join(format!("node-{node}"))
    }

    /// Checks the files of every node that has some.
    ///
    /// # Errors
    /// When a file is damaged.
    pub fn verify(&self, line: &SerialLine) -> Result<()> {
        for node in 1..=NODES {
            let dir = self.data_dir(node);
            if !dir.exists() {
                line.send(&GuestMessage::Empty { node });
                continue;
            }
            let mut command = Command::new(Path::new(PROGRAMS).join("palimpsest"));
            let output = command.arg("verify").arg(&dir).output().context("palimpsest verify")?;
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            ensure!(output.status.success(), "node {node}: verify: {}: {text}", output.status);
            println!("{text}");
            line.send(&GuestMessage::Whole { node });
        }
        Ok(())
    }

    /// Starts all nodes and does not wait for them.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(&mut self) -> Result<()> {
        let members: Vec<String> =
            (1..).zip(&self.addresses).map(|(node, address)| format!("{node}={address}")).collect();
        for (node, address) in (1..=NODES).zip(&self.addresses) {
            let mut command = Command::new(Path::new(PROGRAMS).join("palimpsest"));
            command.args(["serve", "--durability", "pmem", "--workers", "2"]);
            command.args(["--request-timeout", REQUEST_TIMEOUT]);
            command.args(["--id", &node.to_string(), "--listen", &address.to_string()]);
            command.args(["--cluster", &members.join(",")]);
            command.arg("--data-dir").arg(self.data_dir(node));
            let log = PathBuf::from(format!("/tmp/node-{node}.log"));
            self.processes.push(Process::start(&mut command, &log)?);
        }
        Ok(())
    }

    /// Waits until all nodes serve and have recovered every shard, and checks how they map their
    /// files.
    ///
    /// # Errors
    /// When one ends, takes too long, or does not use MAP_SYNC.
    pub fn wait_ready(&mut self, line: &SerialLine) -> Result<()> {
        for ((node, process), &address) in (1..).zip(&mut self.processes).zip(&self.addresses) {
            let mut has_ended = false;
            let is_ready = wait_until(READY_MAX, || {
                has_ended = !process.is_running();
                has_ended || serves(address) && is_whole(address)
            });
            if has_ended || !is_ready {
                bail!("node {node} does not serve; its log: {}", process.log_tail());
            }
            let log = std::fs::read_to_string(&process.log).context("a node's log")?;
            ensure!(!log.contains("emulated"), "node {node} takes DAX for emulated: {log}");
            let maps = std::fs::read_to_string(format!("/proc/{}/smaps", process.pid()));
            let file = self.dir.join(format!("node-{node}")).join(storage::pmem::FILE);
            ensure!(
                is_synchronous(&maps.context("smaps")?, &file),
                "node {node} maps its file without MAP_SYNC"
            );
            line.send(&GuestMessage::Synced { node });
        }
        Ok(())
    }

    /// Stops all nodes with SIGTERM and waits for them.
    ///
    /// # Errors
    /// When one does not end, or not with exit code 0.
    pub fn stop(&mut self) -> Result<()> {
        for (node, mut process) in (1..).zip(self.processes.drain(..)) {
            let code = process.stop(STOP_MAX);
            ensure!(code == Some(0), "node {node} ended with {code:?}: {}", process.log_tail());
        }
        Ok(())
    }
}

/// True when the file has mappings, and all have synchronous page faults. [Linux: proc(5), `sf`]
fn is_synchronous(smaps: &str, file: &Path) -> bool {
    let file = file.display().to_string();
    let mut is_ours = false;
    let mut flags = Vec::new();
    for line in smaps.lines() {
        // A mapping begins with its addresses; `Name: value` lines about it follow.
        if line.split_whitespace().next().is_some_and(|word| !word.ends_with(':')) {
            is_ours = line.ends_with(&file);
        } else if let Some(words) = line.strip_prefix("VmFlags:").filter(|_| is_ours) {
            flags.push(words.split_whitespace().any(|flag| flag == "sf"));
        }
    }
    !flags.is_empty() && flags.iter().all(|&is_set| is_set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mapping_of_the_file_must_be_synchronous() {
        let map = |path: &str, flags: &str| {
            format!("7f00-7f01 rw-s 0 103:00 12   {path}\nSize:   4 kB\nVmFlags: rd wr {flags}\n")
        };
        let file = Path::new("/dax/node-1/pmem");
        let (ours, other) = ("/dax/node-1/pmem", "/lib/libc.so");
        assert!(is_synchronous(&(map(ours, "sf") + &map(other, "mr") + &map(ours, "sf")), file));
        assert!(!is_synchronous(&(map(ours, "sf") + &map(ours, "mr")), file));
        assert!(!is_synchronous(&map(other, "sf"), file));
    }
}
