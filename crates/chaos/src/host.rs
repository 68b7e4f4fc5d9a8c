//! Capabilities of this host, and stand-ins for missing ones.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::sh;

/// A capability that a fault requires.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum Tool {
    /// nftables in a network namespace.
    Nft,
    /// The kernel's network emulator.
    Netem,
    /// The kernel's token bucket filter.
    Tbf,
    /// Loop devices and a file system to make on them.
    Loop,
    /// Memory file systems of a given size.
    Tmpfs,
    /// The library that lies about the time of day.
    Faketime,
    /// Namespaces of monotonic clocks.
    TimeNamespace,
}

impl Tool {
    /// For messages to people.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Nft => "nft",
            Tool::Netem => "netem",
            Tool::Tbf => "tbf",
            Tool::Loop => "loop devices",
            Tool::Tmpfs => "tmpfs",
            Tool::Faketime => "libfaketime",
            Tool::TimeNamespace => "time namespaces",
        }
    }

    /// The stand-in where it is missing.
    pub fn stand_in(self) -> &'static str {
        match self {
            Tool::Nft => "silent cuts are made by blackhole routes",
            Tool::Netem => "a proxy of our own delays connections between nodes",
            Tool::Loop => "a small tmpfs fills up instead",
            _ => "without a stand-in",
        }
    }
}

/// The capabilities found.
pub struct Host {
    missing: BTreeSet<Tool>,
    /// The library to preload.
    pub faketime: Option<PathBuf>,
}

impl Host {
    /// Probes this process's own network and mount namespaces; `without` counts as missing.
    pub fn look(without: &[Tool]) -> Host {
        let faketime = faketime();
        let found = |tool: Tool| match tool {
            Tool::Nft => sh::works(&["nft", "list", "ruleset"]),
            Tool::Netem => qdisc(&["netem", "delay", "1ms"]),
            Tool::Tbf => qdisc(&["tbf", "rate", "1mbit", "burst", "16kb", "latency", "50ms"]),
            Tool::Loop => {
                Path::new("/dev/loop-control").exists() && sh::works(&["mkfs.ext4", "-V"])
            }
            Tool::Tmpfs => std::fs::read_to_string("/proc/filesystems")
                .is_ok_and(|text| text.split_whitespace().any(|word| word == "tmpfs")),
            Tool::Faketime => faketime.is_some(),
            Tool::TimeNamespace => sh::works(&["unshare", "--time", "--monotonic", "1", "true"]),
        };
        let all = <Tool as clap::ValueEnum>::value_variants();
        let missing =
            all.iter().copied().filter(|tool| without.contains(tool) || !found(*tool)).collect();
        Host { missing, faketime }
    }

    /// A host with only this capability.
    #[cfg(test)]
    pub fn lacking(missing: &[Tool]) -> Host {
        Host { missing: missing.iter().copied().collect(), faketime: None }
    }

    pub fn has(&self, tool: Tool) -> bool {
        !self.missing.contains(&tool)
    }

    /// One line for each missing capability.
    pub fn gaps(&self) -> Vec<String> {
        let line = |tool: &Tool| format!("no {} here: {}", tool.name(), tool.stand_in());
        self.missing.iter().map(line).collect()
    }
}

/// Whether the loopback device of this namespace takes such a queueing discipline.
fn qdisc(words: &[&str]) -> bool {
    let added = sh::works(&[&["tc", "qdisc", "add", "dev", "lo", "root"], words].concat());
    added && sh::works(&["tc", "qdisc", "del", "dev", "lo", "root"])
}

fn faketime() -> Option<PathBuf> {
    let folders = ["/usr/lib", "/usr/lib64", "/usr/local/lib"];
    let below = |folder: &str| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut candidates: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| below(folder).map(|entry| entry.path()).chain([PathBuf::from(folder)]))
        .flat_map(|folder| {
            ["faketime/libfaketimeMT.so.1", "libfaketimeMT.so.1"].map(|f| folder.join(f))
        })
        .filter(|path| path.exists())
        .collect();
    candidates.sort();
    candidates.into_iter().next()
}
