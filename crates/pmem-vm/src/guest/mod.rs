//! The part inside the guest: it checks, reads and writes until the power goes.
//!
//! It reports its reads and leaves the judgement to the host, because it does not know earlier
//! boots. It ends only on an error; then the guest's kernel stops, and the host sees that.

pub mod clients;
pub mod cluster;
pub mod line;
pub mod media;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use self::cluster::GuestCluster;
use self::line::SerialLine;
use crate::message::GuestMessage;

/// Where ext4 is mounted with `-o dax`.
pub const MOUNT: &str = "/dax";
/// Where the host put the programs.
pub const PROGRAMS: &str = "/programs";

/// The purpose of one boot.
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

/// Does the boot's work, then waits for the power to go.
///
/// # Errors
/// When a check fails; the line has reported it too.
pub fn run(arguments: Arguments) -> Result<()> {
    let line = SerialLine::open()?;
    let done = work(arguments, &line);
    if let Err(error) = &done {
        line.send(&GuestMessage::Wrong(format!("{error:#}")));
    }
    // The host reads the line and cuts the power.
    std::thread::sleep(Duration::from_secs(3_600));
    done
}

fn work(arguments: Arguments, line: &SerialLine) -> Result<()> {
    let flush = storage::pmem::persist::CacheFlush::detect();
    line.send(&GuestMessage::Flush(flush.name().to_string()));
    if arguments.media {
        media::check(Path::new(MOUNT), line)?;
    }
    if arguments.writes {
        clients::reserve_first(arguments.boot, line);
    }
    let mut cluster = GuestCluster::new(Path::new(MOUNT));
    cluster.verify(line)?;
    cluster.start()?;
    line.send(&GuestMessage::Started);
    cluster.wait_ready(line)?;
    line.send(&GuestMessage::Ready { uptime_ms: uptime_ms()? });
    clients::read_all(cluster.addresses(), line)?;
    line.send(&GuestMessage::ReadAll);
    if arguments.writes {
        return clients::write(arguments.boot, cluster.addresses(), line);
    }
    cluster.stop()?;
    cluster.verify(line)?;
    line.send(&GuestMessage::Stopped);
    Ok(())
}

/// Milliseconds since the kernel started.
fn uptime_ms() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/uptime").context("/proc/uptime")?;
    let seconds = text.split_whitespace().next().context("/proc/uptime is empty")?;
    let seconds: f64 = seconds.parse().with_context(|| format!("/proc/uptime: {text}"))?;
    Ok((seconds * 1_000.0) as u64)
}
