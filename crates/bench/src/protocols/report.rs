//! Rows of the measurement, for people and for machines.

use std::fmt::{self, Write as _};
use std::path::Path;

use serde::Serialize;

use super::experiments::Experiment;
use super::harness::{Measured, Requests};
use super::samples::Sampled;
use super::{Config, Links, Reads, plots, published};
use crate::{Error, Result};

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub experiment: Experiment,
    pub protocol: &'static str,
    pub reads: Reads,
    pub links: Links,
    pub nodes: usize,
    /// Of a node.
    pub workers: usize,
    /// Of a worker.
    pub sessions: usize,
    pub keys: u64,
    pub value_bytes: usize,
    pub durability: String,
    pub distribution: String,
    pub writes_percent: u32,
    /// Of the peak with writes only, where it was limited; else 100.
    pub load_percent: u32,
    pub seconds: f64,
    pub operations: u64,
    pub failed: u64,
    /// Failed requests by kind, warm-up included.
    pub failures: String,
    /// Of all nodes together.
    pub per_second: f64,
    /// Of all threads of all nodes, sessions included.
    pub cpu_seconds: f64,
    /// Operations per second of processor time.
    pub per_core: f64,
    pub published_per_core: Option<f64>,
    pub published_in: Option<&'static str>,
    /// Between nodes.
    pub messages_per_operation: f64,
    pub bytes_per_operation: f64,
    pub latency_avg_us: f64,
    pub latency_p99_us: f64,
    pub published_latency_avg_us: Option<f64>,
    pub published_latency_p99_us: Option<f64>,
    /// Percentage of reads that asked no other node, if the protocol counts them.
    pub local_reads_percent: Option<f64>,
    /// Operations that were checked as a history.
    pub sample: usize,
    pub sampled: Sampled,
}

impl Row {
    pub(super) fn of(
        config: &Config,
        protocol: &'static str,
        requests: Requests,
        load: u32,
        measured: &Measured,
    ) -> Row {
        let operations = measured.totals.succeeded;
        let is_like_published = config.nodes == 5
            && config.value_bytes == 32
            && requests.distribution == super::Distribution::Uniform
            && requests.reads == Reads::Plain
            && requests.only_node.is_none();
        let published = published::per_core(protocol, requests.writes)
            .filter(|_| is_like_published && load == 100);
        let latency = published::latency(protocol, load)
            .filter(|_| is_like_published && requests.writes == 100);
        let per_second = |seconds: f64| match seconds > 0.0 {
            true => operations as f64 / seconds,
            false => 0.0,
        };
        Row {
            experiment: Experiment::Writes,
            protocol,
            reads: requests.reads,
            links: Links::Local,
            nodes: config.nodes,
            workers: config.workers,
            sessions: config.sessions,
            keys: config.keys,
            value_bytes: config.value_bytes,
            durability: config.durability.to_string(),
            distribution: requests.distribution.to_string(),
            writes_percent: requests.writes,
            load_percent: load,
            seconds: measured.seconds,
            operations,
            failed: measured.totals.failed,
            failures: String::new(),
            per_second: per_second(measured.seconds),
            cpu_seconds: measured.cpu_seconds,
            per_core: per_second(measured.cpu_seconds),
            published_per_core: published.map(|(value, _)| value),
            published_in: published.map(|(_, source)| source),
            messages_per_operation: measured.messages_per_operation,
            bytes_per_operation: measured.bytes_per_operation,
            latency_avg_us: measured.latencies.mean() / 1e3,
            latency_p99_us: measured.latencies.value_at_quantile(0.99) as f64 / 1e3,
            published_latency_avg_us: latency.map(|(avg, _)| avg),
            published_latency_p99_us: latency.map(|(_, p99)| p99),
            local_reads_percent: measured.local_reads.map(|share| share * 100.0),
            sample: measured.sample,
            sampled: measured.sampled,
        }
    }
}

/// Protocol, links, experiment and operations per second.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { protocol, links, per_second, .. } = self;
        write!(f, "{protocol}, {links}: {}: {per_second:.0} op/s", place(self))
    }
}

/// All rows.
#[derive(Clone, Debug, Serialize)]
pub struct ProtocolsReport {
    /// Processors of this machine, which all nodes share.
    pub processors: usize,
    pub seconds_each: f64,
    pub rows: Vec<Row>,
}

/// Columns of the CSV, in order.
pub const CSV_HEADER: &str = "experiment,protocol,reads,links,nodes,workers,sessions,keys,value_bytes,\
durability,distribution,writes_percent,load_percent,seconds,operations,failed,per_second,\
cpu_seconds,per_core,published_per_core,published_in,messages_per_operation,bytes_per_operation,\
latency_avg_us,latency_p99_us,published_latency_avg_us,published_latency_p99_us,\
local_reads_percent,sample,sampled";

impl ProtocolsReport {
    pub(super) fn new(config: &Config, rows: Vec<Row>) -> ProtocolsReport {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        ProtocolsReport { processors, seconds_each: config.window.as_secs_f64(), rows }
    }

    /// One line per row, behind [`CSV_HEADER`].
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = format!("{CSV_HEADER}\n");
        for row in &self.rows {
            text.push_str(&csv_line(row));
            text.push('\n');
        }
        text
    }

    /// Writes the CSV.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_csv(&self, file: &Path) -> Result<()> {
        std::fs::write(file, self.csv()).map_err(Error::io(file.display().to_string()))
    }

    /// Draws a plot of each experiment, as SVG and PNG, and returns their paths.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_plots(&self, dir: &Path) -> Result<Vec<std::path::PathBuf>> {
        std::fs::create_dir_all(dir).map_err(Error::io(dir.display().to_string()))?;
        plots::draw_all(self, dir)
    }
}

fn csv_line(row: &Row) -> String {
    let number = |value: Option<f64>| value.map(|value| format!("{value:.1}")).unwrap_or_default();
    let fields = [
        row.experiment.to_string(),
        row.protocol.to_string(),
        row.reads.to_string(),
        row.links.to_string(),
        row.nodes.to_string(),
        row.workers.to_string(),
        row.sessions.to_string(),
        row.keys.to_string(),
        row.value_bytes.to_string(),
        row.durability.clone(),
        row.distribution.clone(),
        row.writes_percent.to_string(),
        row.load_percent.to_string(),
        format!("{:.3}", row.seconds),
        row.operations.to_string(),
        row.failed.to_string(),
        format!("{:.0}", row.per_second),
        format!("{:.3}", row.cpu_seconds),
        format!("{:.0}", row.per_core),
        number(row.published_per_core),
        row.published_in.unwrap_or_default().to_string(),
        format!("{:.2}", row.messages_per_operation),
        format!("{:.1}", row.bytes_per_operation),
        format!("{:.1}", row.latency_avg_us),
        format!("{:.1}", row.latency_p99_us),
        number(row.published_latency_avg_us),
        number(row.published_latency_p99_us),
        number(row.local_reads_percent),
        row.sample.to_string(),
        verdict(row).to_string(),
    ];
    fields.join(",")
}

fn verdict(row: &Row) -> &'static str {
    match row.sampled {
        Sampled::Holds => "holds",
        Sampled::Undecided => "undecided",
    }
}

/// The row's place in its experiment.
fn place(row: &Row) -> String {
    let writes = format!("{} % writes", row.writes_percent);
    let place = match row.experiment {
        Experiment::Writes => writes,
        Experiment::Skew => format!("{writes}, {}", row.distribution),
        Experiment::Load => format!("{writes}, {} % load", row.load_percent),
        Experiment::Workers => format!("{writes}, {} workers", row.workers),
        Experiment::Leader => format!("{writes}, at the leader"),
    };
    match row.reads {
        Reads::Plain => place,
        Reads::Linearizable => format!("{place}, linearizable"),
    }
}

const TITLES: [&str; 10] = [
    "op/s",
    "CPU s",
    "op/s/core",
    "published",
    "msg/op",
    "bytes/op",
    "avg µs",
    "p99 µs",
    "local reads",
    "checked",
];

impl fmt::Display for ProtocolsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.rows.first() else { return writeln!(f, "no rows") };
        writeln!(
            f,
            "{} nodes in one process on {} processors; {} keys of 8 bytes, values of {} bytes, {}; {:.1} s each",
            first.nodes,
            self.processors,
            first.keys,
            first.value_bytes,
            first.durability,
            self.seconds_each
        )?;
        let mut before = None;
        for row in &self.rows {
            if before.replace((row.protocol, row.links)) != Some((row.protocol, row.links)) {
                writeln!(f, "\n{}, {} links", row.protocol, row.links)?;
                write!(f, "  {:<42}", "")?;
                for title in TITLES {
                    write!(f, "{title:>12}")?;
                }
                writeln!(f)?;
            }
            writeln!(f, "{}", line(row))?;
        }
        writeln!(f)?;
        f.write_str(EXPLANATION)
    }
}

const EXPLANATION: &str = "\
op/s          operations of all nodes per second
CPU s         processor time of all threads of all nodes, sessions that make the requests included
op/s/core     operations per second of processor time
published     the same in a paper, per core that its servers used
msg/op        messages between nodes per operation; messages of a node to itself are not counted
bytes/op      bytes on links between nodes per operation
avg, p99 µs   time from a request to its reply inside the node
local reads   reads that asked no other node, where the protocol counts them
checked       operations whose history the checker judged; '?' if it met its limit
";

/// One line of the table, without its end.
pub(super) fn line(row: &Row) -> String {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_string());
    let mark = match row.sampled {
        Sampled::Holds => "",
        Sampled::Undecided => "?",
    };
    let cells = [
        format!("{:.0}", row.per_second),
        format!("{:.2}", row.cpu_seconds),
        format!("{:.0}", row.per_core),
        or_dash(row.published_per_core.map(|value| format!("{value:.0}"))),
        format!("{:.1}", row.messages_per_operation),
        format!("{:.0}", row.bytes_per_operation),
        format!("{:.0}", row.latency_avg_us),
        format!("{:.0}", row.latency_p99_us),
        or_dash(row.local_reads_percent.map(|value| format!("{value:.0} %"))),
        format!("{}{mark}", row.sample),
    ];
    let mut text = format!("  {:<42}", place(row));
    for cell in cells {
        // A string takes any text.
        let _ = write!(text, "{cell:>12}");
    }
    if row.failed > 0 || !row.failures.is_empty() {
        let _ = write!(text, "   {} failed: {}", row.failed, row.failures);
    }
    text
}
