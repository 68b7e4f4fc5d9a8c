//! Logs and other output of `serve` and `dev`: one format, and never a reason to stop or to wait.
//!
//! Lines go through a bounded queue to a thread that writes them ([`outlet`]). A line that finds no
//! room, or that cannot be written, is dropped and counted.

mod lines;
mod outlet;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Duration;

use clap::ValueEnum;
use serde::Deserialize;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;

use lines::Lines;
use outlet::Outlet;

/// How long the end of the process waits for output that is queued.
const FLUSH_MAX: Duration = Duration::from_millis(500);

static STDERR: OnceLock<Outlet> = OnceLock::new();
static STDOUT: OnceLock<Outlet> = OnceLock::new();

/// `--log-format`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Format {
    /// Words and name=value
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// `--log-level`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Level {
    /// A person must act
    Error,
    /// Something failed that the cluster bears
    Warn,
    /// Events in the life of the node
    #[default]
    Info,
    /// Details for a fault report
    Debug,
    /// Everything
    Trace,
}

impl Level {
    fn filter(self) -> LevelFilter {
        match self {
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
            Level::Trace => LevelFilter::TRACE,
        }
    }
}

/// Level and format of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LogConfig {
    pub format: Format,
    pub level: Level,
}

/// Sends the log to standard error from here on, and panics with it.
///
/// `node` names lines outside of any node's span.
pub(crate) fn start(config: LogConfig, node: Option<u16>) {
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let is_first = STDERR.set(Outlet::new("stderr", stderr.as_fd())).is_ok();
    let _ = STDOUT.set(Outlet::new("stdout", stdout.as_fd()));
    if !is_first {
        return;
    }
    let lines = Lines { format: config.format, node };
    let subscriber = tracing_subscriber::registry().with(config.level.filter()).with(lines);
    // Another subscriber exists only if a test installed it.
    let _ = tracing::subscriber::set_global_default(subscriber);
    std::panic::set_hook(Box::new(|info| {
        let message = info.payload_as_str().unwrap_or("no message");
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        let current = std::thread::current();
        let thread = current.name().unwrap_or("unnamed");
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured)
            .then(|| tracing::field::display(backtrace));
        tracing::error!(target: "panic", location, thread, backtrace, "panic: {message}");
    }));
}

/// True once failures are log lines.
pub(crate) fn is_started() -> bool {
    STDERR.get().is_some()
}

/// Prints a line on standard output. Without [`start`] it is lost.
pub(crate) fn say(text: &str) {
    if let Some(stdout) = STDOUT.get() {
        stdout.send(format!("{text}\n").into_bytes());
    }
}

fn send(line: Vec<u8>) {
    if let Some(stderr) = STDERR.get() {
        stderr.send(line);
    }
}

/// Waits a short time until queued output is written.
pub(crate) fn flush() {
    for outlet in [&STDOUT, &STDERR].into_iter().filter_map(OnceLock::get) {
        outlet.flush(FLUSH_MAX);
    }
}
