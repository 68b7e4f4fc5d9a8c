//! The part inside the guest: it checks, reads and writes until the power goes.
//!
//! It never judges what it read, for it knows nothing of the boots before: it says what is there, and the host
//! judges. It ends only when something is wrong; then the guest's kernel stops, and the host sees that.

pub mod clients;
pub mod cluster;
pub mod line;
pub mod media;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use self::cluster::Cluster;
use self::line::Line;
use crate::said::Said;

/// Where ext4 is mounted with `-o dax`.
pub const MOUNT: &str = "/dax";
/// Where the host put the programs.
pub const PROGRAMS: &str = "/programs";

/// What one boot is for.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Arguments {
    /// Counts the boots of one image, from 0
    #[arg(long)]
    pub boot: u64,
    /// Checks the medium by itself first
    #[arg(long)]
    pub media: bool,
    /// Writes until the power goes; without it the nodes are stopped once everything is read
    #[arg(long)]
    pub writes: bool,
}

/// Does what the boot is for, and then waits for the power to go.
///
/// # Errors
/// When something is wrong; it has been said over the line too.
pub fn run(arguments: Arguments) -> Result<()> {
    let line = Line::open()?;
    let done = work(arguments, &line);
    if let Err(error) = &done {
        line.say(&Said::Wrong(format!("{error:#}")));
    }
    // The host reads the line and cuts the power.
    std::thread::sleep(Duration::from_secs(3_600));
    done
}

fn work(arguments: Arguments, line: &Line) -> Result<()> {
    let flush = storage::pmem::persist::CacheFlush::detect();
    line.say(&Said::Flush(flush.name().to_string()));
    if arguments.media {
        media::check(Path::new(MOUNT), line)?;
    }
    if arguments.writes {
        clients::reserve_first(arguments.boot, line);
    }
    let mut cluster = Cluster::new(Path::new(MOUNT));
    cluster.verify(line)?;
    cluster.start()?;
    line.say(&Said::Started);
    cluster.wait_ready(line)?;
    line.say(&Said::Ready { uptime_ms: uptime_ms()? });
    clients::read_all(cluster.addresses(), line)?;
    line.say(&Said::ReadAll);
    if arguments.writes {
        return clients::write(arguments.boot, cluster.addresses(), line);
    }
    cluster.stop()?;
    cluster.verify(line)?;
    line.say(&Said::Stopped);
    Ok(())
}

/// Milliseconds since the kernel started.
fn uptime_ms() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/uptime").context("/proc/uptime")?;
    let seconds = text.split_whitespace().next().context("/proc/uptime is empty")?;
    let seconds: f64 = seconds.parse().with_context(|| format!("/proc/uptime: {text}"))?;
    Ok((seconds * 1_000.0) as u64)
}
