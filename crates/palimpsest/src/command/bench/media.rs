//! `palimpsest bench media`: values in place beside a log, on the media that this machine has.

use std::io::{IsTerminal as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use bench::media::{self, Config, MediaReport, TestedMedium};

use super::fault;
use crate::Failure;
use crate::config::units;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Any of ram, pmem and disk
    #[arg(long, value_delimiter = ',', default_value = "ram,pmem,disk", value_parser = medium)]
    media: Vec<TestedMedium>,
    /// Sizes of a value; several with commas between
    #[arg(long, value_delimiter = ',', value_name = "BYTES", value_parser = units::memory,
          default_values_t = Config::default().sizes)]
    sizes: Vec<usize>,
    /// Only rows whose pattern or way contains one of these, such as log, single, multi, raw, store
    #[arg(long, value_delimiter = ',')]
    patterns: Vec<String>,
    /// Time for each row, over all rounds
    #[arg(long, default_value = "0.5", value_name = "SECONDS", value_parser = units::seconds)]
    seconds: Duration,
    /// Number of keys
    #[arg(long, default_value_t = Config::default().keys)]
    keys: u32,
    /// Directory for media.csv and the plots
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A folder on a memory file system, or on DAX
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    memory_dir: PathBuf,
    /// A folder on the disk
    #[arg(long, value_name = "DIR")]
    disk_dir: Option<PathBuf>,
}

fn medium(text: &str) -> Result<TestedMedium, String> {
    let found = TestedMedium::ALL.into_iter().find(|medium| medium.name() == text);
    found.ok_or_else(|| format!("{text:?} is none of ram, pmem and disk"))
}

const TIME_MIN: Duration = Duration::from_millis(1);
const TIME_MAX: Duration = Duration::from_secs(600);

pub(super) fn run(args: &Args) -> Result<MediaReport, Failure> {
    if !(TIME_MIN..=TIME_MAX).contains(&args.seconds) {
        return Err(Failure::usage("--seconds must be 1ms to 10m"));
    }
    again_for_pmemlog(args)?;
    let defaults = Config::default();
    let config = Config {
        media: args.media.clone(),
        sizes: args.sizes.clone(),
        patterns: args.patterns.clone(),
        keys: args.keys,
        time: args.seconds,
        memory_dir: args.memory_dir.clone(),
        disk_dir: args.disk_dir.clone().unwrap_or(defaults.disk_dir.clone()),
        out: args.out.clone(),
        ..defaults
    };
    let is_watched = std::io::stderr().is_terminal();
    media::run(&config, |step| {
        if is_watched {
            let _ = writeln!(std::io::stderr(), "{step}");
        }
    })
    .map_err(fault)
}

/// `libpmemlog` flushes emulated memory as it does persistent memory only where the environment
/// says so from the start.
fn again_for_pmemlog(args: &Args) -> Result<(), Failure> {
    let (name, value) = media::PMEMLOG_FORCE;
    if !args.media.contains(&TestedMedium::Pmem) || std::env::var_os(name).is_some() {
        return Ok(());
    }
    let this = std::env::current_exe()
        .map_err(|error| Failure::fault(format!("this program is not found: {error}")))?;
    let error = Command::new(this).args(std::env::args_os().skip(1)).env(name, value).exec();
    Err(Failure::fault(format!("this program does not start again: {error}")))
}
