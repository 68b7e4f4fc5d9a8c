//! Plots of the measurement, one per experiment and kind of links.

use std::path::{Path, PathBuf};

use super::experiments::Experiment;
use super::report::{ProtocolsReport, Row};
use super::{Links, Reads, published};
use crate::Result;
use crate::plot::chart::{Across, Chart, ChartLine, Panel};
use crate::plot::{COLOURS, save};

/// Draws every plot that has data.
pub(super) fn draw_all(report: &ProtocolsReport, dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for links in [Links::Local, Links::Tcp] {
        let plot = Plot { report, links };
        let charts = [
            (Experiment::Writes, plot.writes()),
            (Experiment::Skew, plot.skew()),
            (Experiment::Load, plot.load()),
            (Experiment::Workers, plot.workers()),
            (Experiment::Leader, plot.leader()),
        ];
        for (experiment, chart) in charts {
            if plot.rows(experiment).next().is_some() {
                files.extend(save(&chart, &dir.join(format!("{experiment}-{links}")))?);
            }
        }
    }
    Ok(files)
}

struct Plot<'a> {
    report: &'a ProtocolsReport,
    links: Links,
}

impl<'a> Plot<'a> {
    fn rows(&self, experiment: Experiment) -> impl Iterator<Item = &'a Row> {
        let links = self.links;
        self.report
            .rows
            .iter()
            .filter(move |row| row.experiment == experiment && row.links == links)
    }

    /// Labels of rows with their colours, in the order of the rows.
    fn labels(&self) -> Vec<(String, usize)> {
        let mut labels: Vec<String> = Vec::new();
        for row in &self.report.rows {
            let label = label(row);
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        // Grey comes last.
        labels.into_iter().enumerate().map(|(at, name)| (name, (at + 1) % COLOURS.len())).collect()
    }

    fn title(&self, text: &str) -> String {
        let nodes = self.report.rows.first().map_or(0, |row| row.nodes);
        let links = match self.links {
            Links::Local => "links in memory",
            Links::Tcp => "TCP over loopback",
        };
        format!("{text}: {nodes} nodes on {} processors, {links}", self.report.processors)
    }

    /// A line per label through the points that its rows make.
    fn lines(
        &self,
        experiment: Experiment,
        point: impl Fn(&Row) -> Option<(f64, f64)>,
    ) -> Vec<ChartLine> {
        let line = |(name, colour): (String, usize)| {
            let rows = self.rows(experiment).filter(|row| label(row) == name);
            let mut points: Vec<(f64, f64)> = rows.filter_map(&point).collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            ChartLine { label: name, colour, is_dashed: false, is_loose: false, points }
        };
        let lines = self.labels().into_iter().map(line);
        lines.filter(|line| !line.points.is_empty()).collect()
    }

    fn writes(&self) -> Chart {
        let x = |row: &Row| f64::from(row.writes_percent);
        let total = self.lines(Experiment::Writes, |row| Some((x(row), row.per_second)));
        let per_core = self.lines(Experiment::Writes, |row| Some((x(row), row.per_core)));
        let per_core = with_published(per_core, published::curve);
        let panel = |y_label: &str, lines| Panel {
            across: Across::Percent,
            x_label: "writes, % of operations".to_string(),
            y_label: y_label.to_string(),
            is_linear: false,
            marks: Vec::new(),
            lines,
        };
        let panels = vec![
            panel("operations per second, all nodes", total),
            panel("operations per second and used core", per_core),
        ];
        Chart { title: self.title("Throughput over writes"), panels }
    }

    fn skew(&self) -> Chart {
        let mut names: Vec<String> = Vec::new();
        for row in self.rows(Experiment::Skew) {
            if row.distribution.starts_with("pareto:") && !names.contains(&row.distribution) {
                names.push(row.distribution.clone());
            }
        }
        let pareto = names.len();
        names.extend(["zipf".to_string(), "uniform".to_string()]);
        let panel = |writes: u32| {
            let place = |row: &Row| {
                let at = names.iter().position(|name| *name == row.distribution)?;
                (row.writes_percent == writes).then_some((at as f64, row.per_second))
            };
            let mut lines = self.lines(Experiment::Skew, place);
            let loose = lines.clone().into_iter().map(|line| ChartLine {
                points: line.points.into_iter().filter(|point| point.0 >= pareto as f64).collect(),
                is_loose: true,
                ..line
            });
            let loose: Vec<ChartLine> = loose.collect();
            for line in &mut lines {
                line.points.retain(|point| point.0 < pareto as f64);
            }
            let labels = names.iter().map(|name| match name.strip_prefix("pareto:") {
                Some(keys) => keys.parse().map_or(keys.to_string(), key_count),
                None => name.clone(),
            });
            Panel {
                across: Across::Names(labels.collect()),
                x_label: "keys of a Pareto distribution (80/20), Zipf 0.99, uniform".to_string(),
                y_label: format!("operations per second, {writes} % writes"),
                is_linear: false,
                marks: Vec::new(),
                lines: lines.into_iter().chain(loose).collect(),
            }
        };
        Chart { title: self.title("Throughput over skew"), panels: vec![panel(5), panel(100)] }
    }

    fn load(&self) -> Chart {
        let x = |row: &Row| f64::from(row.load_percent);
        let avg = self.lines(Experiment::Load, |row| Some((x(row), row.latency_avg_us)));
        let avg = with_published(avg, |name| published::latencies(name, false));
        let p99 = self.lines(Experiment::Load, |row| Some((x(row), row.latency_p99_us)));
        let p99 = with_published(p99, |name| published::latencies(name, true));
        let panel = |y_label: &str, lines| Panel {
            across: Across::Percent,
            x_label: "load, % of the protocol's peak with writes only".to_string(),
            y_label: y_label.to_string(),
            is_linear: false,
            marks: Vec::new(),
            lines,
        };
        let panels = vec![panel("average latency, µs", avg), panel("99th percentile, µs", p99)];
        Chart { title: self.title("Latency over load, writes only"), panels }
    }

    fn workers(&self) -> Chart {
        let mut counts: Vec<usize> =
            self.rows(Experiment::Workers).map(|row| row.workers).collect();
        counts.sort_unstable();
        counts.dedup();
        let panel = |writes: u32| {
            let place = |row: &Row| {
                let at = counts.iter().position(|count| *count == row.workers)?;
                (row.writes_percent == writes).then_some((at as f64, row.per_second))
            };
            Panel {
                across: Across::Names(counts.iter().map(ToString::to_string).collect()),
                x_label: "workers of a node".to_string(),
                y_label: format!("operations per second, {writes} % writes"),
                is_linear: true,
                marks: Vec::new(),
                lines: self.lines(Experiment::Workers, place),
            }
        };
        Chart { title: self.title("Throughput over workers"), panels: vec![panel(5), panel(100)] }
    }

    /// Beside the same with clients at all nodes, if that was measured.
    fn leader(&self) -> Chart {
        let x = |row: &Row| f64::from(row.writes_percent);
        let panel = |y_label: &str, y: fn(&Row) -> f64| {
            let at_leader = self.lines(Experiment::Leader, |row| Some((x(row), y(row))));
            let mut lines = self.lines(Experiment::Writes, |row| Some((x(row), y(row))));
            lines.retain(|line| at_leader.iter().any(|other| other.label == line.label));
            lines.extend(at_leader.into_iter().map(|line| ChartLine {
                label: format!("{}, at the leader", line.label),
                is_dashed: true,
                ..line
            }));
            Panel {
                across: Across::Percent,
                x_label: "writes, % of operations".to_string(),
                y_label: y_label.to_string(),
                is_linear: false,
                marks: Vec::new(),
                lines,
            }
        };
        let panels = vec![
            panel("operations per second, all nodes", |row| row.per_second),
            panel("operations per second and used core", |row| row.per_core),
        ];
        Chart { title: self.title("Clients of the leader only"), panels }
    }
}

/// Adds a dashed line for each that has published points.
fn with_published(
    mut lines: Vec<ChartLine>,
    points: impl Fn(&str) -> Vec<(f64, f64)>,
) -> Vec<ChartLine> {
    let published = lines.iter().filter_map(|line| {
        let points = points(&line.label);
        let label = format!("{}, published", line.label);
        let is_there = !points.is_empty();
        is_there.then(|| ChartLine { label, is_dashed: true, points, ..line.clone() })
    });
    let published: Vec<ChartLine> = published.collect();
    lines.extend(published);
    lines
}

/// The name of a row's line.
fn label(row: &Row) -> String {
    match row.reads {
        Reads::Plain => row.protocol.to_string(),
        Reads::Linearizable => format!("{}, linearizable reads", row.protocol),
    }
}

fn key_count(keys: u64) -> String {
    match keys {
        keys if keys >= 1_000_000 && keys.is_multiple_of(1_000_000) => {
            format!("{}M", keys / 1_000_000)
        }
        keys if keys >= 1_000 && keys.is_multiple_of(1_000) => format!("{}k", keys / 1_000),
        keys => keys.to_string(),
    }
}
