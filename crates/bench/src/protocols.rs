//! Replication protocols under the same load, in whole nodes of one process.
//!
//! Every protocol of the registry runs in the product's own nodes: workers, register caches,
//! stores, frames with checksums, links. Sessions inside the nodes make the requests, on the
//! workers' own threads. Replies are checked, and the operations on some keys as a history.
//!
//! Published figures stand beside ours per processor core, since the machines differ.
//! Their setting is the default here: 5 nodes, a million keys of 8 bytes, values of 32 bytes.

mod cpu;
mod draws;
mod experiments;
mod harness;
mod plots;
mod published;
mod report;
mod samples;
mod session;
mod values;
mod window;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use node::config::Durability;
use node::registry::{PROTOCOLS, Registration, VARIANTS};
use protocols::{Consistency, Properties};
use serde::Serialize;
use types::{Access, Update};

pub use draws::Distribution;
pub use experiments::Experiment;
pub use report::{ProtocolsReport, Row};
pub use samples::Sampled;
pub use values::VALUE_LEN_MIN;

use crate::{Error, Result};

/// The links between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Links {
    /// Socket pairs inside the process.
    Local,
    /// TCP over loopback.
    Tcp,
}

impl FromStr for Links {
    type Err = Error;

    fn from_str(text: &str) -> Result<Links> {
        match text {
            "local" => Ok(Links::Local),
            "tcp" => Ok(Links::Tcp),
            _ => Err(Error::Usage(format!("links are local or tcp, not {text:?}"))),
        }
    }
}

impl fmt::Display for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Links::Local => "local",
            Links::Tcp => "tcp",
        })
    }
}

/// The order of reads, where a protocol offers a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reads {
    /// As the protocol orders them by itself.
    Plain,
    /// As `CLIENT CONSISTENCY LINEARIZABLE` does. Only for protocols whose own reads are weaker.
    Linearizable,
}

impl Reads {
    pub const ALL: [Reads; 2] = [Reads::Plain, Reads::Linearizable];

    /// The access of a command that reads.
    fn access(self) -> Access {
        match self {
            Reads::Plain => Access::Read,
            Reads::Linearizable => Access::OrderedRead,
        }
    }

    fn consistency(self, properties: &Properties) -> Consistency {
        match self {
            Reads::Plain => properties.consistency,
            Reads::Linearizable => Consistency::Linearizable,
        }
    }

    /// Differs from the other reads of this protocol.
    fn is_of(self, properties: &Properties) -> bool {
        self == Reads::Plain || properties.consistency != Consistency::Linearizable
    }
}

impl FromStr for Reads {
    type Err = Error;

    fn from_str(text: &str) -> Result<Reads> {
        let found = Reads::ALL.into_iter().find(|reads| reads.to_string() == text);
        let bad = || Error::Usage(format!("--reads are plain or linearizable, not {text:?}"));
        found.ok_or_else(bad)
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reads::Plain => "plain",
            Reads::Linearizable => "linearizable",
        })
    }
}

/// The suffix of variants that answer clients once a majority knows the commit (rule Y5).
const AFTER_COMMIT: &str = "-y5";

/// The most sessions that one worker may have.
pub const SESSIONS_MAX: usize = 1_000;

/// Settings of the measurement.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names, of variants too; empty for all protocols of the registry.
    pub protocols: Vec<String>,
    pub reads: Vec<Reads>,
    /// Adds the variants that answer once a majority knows the commit.
    pub after_commit: bool,
    pub experiments: Vec<Experiment>,
    /// 1 to 7.
    pub nodes: usize,
    pub keys: u64,
    pub value_bytes: usize,
    /// Percentages of writes to compare.
    pub writes: Vec<u32>,
    /// Workers of a node, except where their numbers are compared.
    pub workers: usize,
    /// Numbers of workers to compare.
    pub sweep: Vec<usize>,
    /// Of each worker, with one request in progress each.
    pub sessions: usize,
    pub links: Vec<Links>,
    pub durability: Durability,
    pub warm_up: Duration,
    /// Length of each measurement.
    pub window: Duration,
    /// Rest before counters of nodes are read, which they publish four times a second.
    pub rest: Duration,
    /// Data directories are made below it.
    pub dir: PathBuf,
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            protocols: Vec::new(),
            reads: Reads::ALL.to_vec(),
            after_commit: false,
            experiments: Experiment::ALL.to_vec(),
            nodes: 5,
            keys: 1_000_000,
            value_bytes: 32,
            writes: vec![0, 1, 5, 20, 50, 75, 100],
            workers: 1,
            sweep: vec![1, 2, 4],
            sessions: 40,
            links: vec![Links::Local],
            durability: Durability::Volatile,
            warm_up: Duration::from_millis(500),
            window: Duration::from_secs(2),
            rest: Duration::from_millis(300),
            dir: std::env::temp_dir(),
            seed: 1,
        }
    }
}

impl Config {
    fn check(&self) -> Result<()> {
        let bad = |text: String| Err(Error::Usage(text));
        if !(1..=7).contains(&self.nodes) {
            return bad(format!("--nodes is 1 to 7, not {}", self.nodes));
        }
        if self.keys == 0 || self.keys > 1 << 32 {
            return bad(format!("--keys is 1 to 4294967296, not {}", self.keys));
        }
        if self.value_bytes < VALUE_LEN_MIN || self.value_bytes > 1 << 16 {
            return bad(format!(
                "--value-size is {VALUE_LEN_MIN} to 65536, not {}",
                self.value_bytes
            ));
        }
        if !(1..=SESSIONS_MAX).contains(&self.sessions) {
            return bad(format!("--sessions is 1 to {SESSIONS_MAX}, not {}", self.sessions));
        }
        let workers = || self.sweep.iter().chain([&self.workers]);
        if let Some(count) = workers().find(|count| !(1..=16).contains(*count)) {
            return bad(format!("a node has 1 to 16 workers here, not {count}"));
        }
        if self.reads.is_empty() {
            return bad("--reads names at least one order".to_string());
        }
        if let Some(writes) = self.writes.iter().find(|writes| **writes > 100) {
            return bad(format!("--writes are percentages, not {writes}"));
        }
        Ok(())
    }

    fn registrations(&self) -> Result<Vec<&'static Registration>> {
        let chosen = match self.protocols.is_empty() {
            true => PROTOCOLS.iter().collect(),
            false => self.protocols.iter().map(|name| named(name)).collect::<Result<_>>()?,
        };
        match self.after_commit {
            true => with_variants(chosen, VARIANTS),
            false => Ok(chosen),
        }
    }
}

fn named(name: &str) -> Result<&'static Registration> {
    node::registry::find(name).ok_or_else(|| {
        let names: Vec<&str> = PROTOCOLS.iter().chain(VARIANTS).map(|one| one.name).collect();
        Error::Usage(format!("no protocol is named {name:?}; there are {}", names.join(", ")))
    })
}

/// Adds the variants that answer after a commit.
fn with_variants<'a>(
    chosen: Vec<&'a Registration>,
    variants: &'a [Registration],
) -> Result<Vec<&'a Registration>> {
    let before = chosen.len();
    let variant = |of: &Registration| {
        variants.iter().find(|one| one.name.strip_suffix(AFTER_COMMIT) == Some(of.name))
    };
    let all: Vec<&Registration> =
        chosen.into_iter().flat_map(|one| [one].into_iter().chain(variant(one))).collect();
    match all.len() > before {
        true => Ok(all),
        false => Err(Error::Usage("--after-commit: no chosen protocol has a variant".to_string())),
    }
}

/// Runs every experiment on every protocol. `progress` is told of each row.
///
/// # Errors
/// When a cluster does not come up, a reply is wrong, or no order explains the replies on the
/// checked keys.
pub fn run(config: &Config, progress: impl FnMut(&Row)) -> Result<ProtocolsReport> {
    let update: Arc<dyn Update> = Arc::new(commands::Interpreter::default());
    run_with(config, &update, progress)
}

fn run_with(
    config: &Config,
    update: &Arc<dyn Update>,
    mut progress: impl FnMut(&Row),
) -> Result<ProtocolsReport> {
    config.check()?;
    let mut rows = Vec::new();
    for registration in config.registrations()? {
        for &links in &config.links {
            experiments::run(config, registration, links, update, &mut |row| {
                progress(&row);
                rows.push(row);
            })?;
        }
    }
    Ok(ProtocolsReport::new(config, rows))
}
