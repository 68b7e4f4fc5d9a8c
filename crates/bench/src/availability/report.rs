//! Gaps and timelines, for people and for machines.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Config, Fault, Outputs, Role};
use crate::plot::chart::{Across, Chart, ChartLine, Panel};
use crate::plot::{COLOURS, save};
use crate::report::median;
use crate::{Error, Result};

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct AvailabilityRow {
    pub protocol: String,
    pub fault: Fault,
    pub repetition: usize,
    /// The node with the fault.
    pub victim: u16,
    pub role: Role,
    /// Longest time in which no client of one of the other nodes had a success.
    pub write_gap_ms: f64,
    pub read_gap_ms: f64,
    /// Commands that succeeded at all nodes.
    pub writes: u64,
    pub reads: u64,
    /// Commands that failed at all nodes.
    pub failed: u64,
    /// By slice of time, of the clients of the other nodes.
    pub writes_per_second: Vec<f64>,
    pub reads_per_second: Vec<f64>,
}

/// All runs.
#[derive(Clone, Debug, Serialize)]
pub struct AvailabilityReport {
    pub nodes: u16,
    pub durability: String,
    pub clients: usize,
    pub window_s: f64,
    pub slice_s: f64,
    pub rows: Vec<AvailabilityRow>,
}

/// Columns of the gaps, in order.
pub const CSV_HEADER: &str =
    "protocol,fault,repetition,victim,role,write_gap_ms,read_gap_ms,writes,reads,failed";

/// Columns of the timelines, in order. Time counts from the fault.
pub const TIMELINE_HEADER: &str =
    "protocol,fault,role,repetition,seconds,writes_per_second,reads_per_second";

/// The runs of one fault on one protocol.
struct Series<'a> {
    protocol: &'a str,
    fault: Fault,
    role: Role,
    rows: Vec<&'a AvailabilityRow>,
}

impl Series<'_> {
    fn gaps(&self, gap: impl Fn(&AvailabilityRow) -> f64) -> Vec<f64> {
        self.rows.iter().map(|row| gap(row)).collect()
    }

    fn label(&self) -> String {
        match self.role {
            Role::Any => self.protocol.to_string(),
            role => format!("{}, its {role}", self.protocol),
        }
    }

    /// The run with the middle gap of writes.
    fn typical(&self) -> Option<&AvailabilityRow> {
        let mut rows = self.rows.clone();
        rows.sort_by(|one, other| one.write_gap_ms.total_cmp(&other.write_gap_ms));
        rows.get(rows.len() / 2).copied()
    }
}

impl AvailabilityReport {
    pub(super) fn new(config: &Config, rows: Vec<AvailabilityRow>) -> AvailabilityReport {
        AvailabilityReport {
            nodes: config.cluster.nodes,
            durability: config.cluster.durability.clone(),
            clients: config.clients,
            window_s: config.window.as_secs_f64(),
            slice_s: config.slice.as_secs_f64(),
            rows,
        }
    }

    /// In the order of the rows.
    fn series(&self) -> Vec<Series<'_>> {
        let mut all: Vec<Series<'_>> = Vec::new();
        for row in &self.rows {
            let AvailabilityRow { protocol, fault, role, .. } = row;
            let is_same = |it: &&mut Series<'_>| {
                (it.protocol, it.fault, it.role) == (protocol.as_str(), *fault, *role)
            };
            match all.iter_mut().find(is_same) {
                Some(series) => series.rows.push(row),
                None => all.push(Series { protocol, fault: *fault, role: *role, rows: vec![row] }),
            }
        }
        all
    }

    /// Writes the tables and plots.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, outputs: &Outputs) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        if let Some(file) = &outputs.csv {
            let stem = file.file_stem().unwrap_or_default().to_string_lossy();
            let timeline = file.with_file_name(format!("{stem}-timeline.csv"));
            for (file, text) in [(file.clone(), self.csv()), (timeline, self.timeline_csv())] {
                std::fs::write(&file, text).map_err(Error::io(file.display().to_string()))?;
                files.push(file);
            }
        }
        if let Some(dir) = &outputs.plots {
            files.extend(self.draw_all(dir)?);
        }
        Ok(files)
    }

    /// One line per run, behind [`CSV_HEADER`].
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = format!("{CSV_HEADER}\n");
        for row in &self.rows {
            let AvailabilityRow { protocol, fault, repetition, victim, role, .. } = row;
            let AvailabilityRow { write_gap_ms, read_gap_ms, writes, reads, failed, .. } = row;
            text += &format!(
                "{protocol},{fault},{repetition},{victim},{role},{write_gap_ms:.1},{read_gap_ms:.1},{writes},{reads},{failed}\n"
            );
        }
        text
    }

    /// One line per run and slice of time, behind [`TIMELINE_HEADER`].
    #[must_use]
    pub fn timeline_csv(&self) -> String {
        let mut text = format!("{TIMELINE_HEADER}\n");
        for row in &self.rows {
            let both = row.writes_per_second.iter().zip(&row.reads_per_second);
            for (at, (writes, reads)) in both.enumerate() {
                let AvailabilityRow { protocol, fault, role, repetition, .. } = row;
                let seconds = self.seconds(at);
                text += &format!(
                    "{protocol},{fault},{role},{repetition},{seconds:.3},{writes:.0},{reads:.0}\n"
                );
            }
        }
        text
    }

    /// From the fault to the middle of a slice.
    fn seconds(&self, slice: usize) -> f64 {
        (slice as f64 + 0.5) * self.slice_s - self.window_s / 3.0
    }

    /// One plot per fault: the run with the middle gap of each protocol.
    fn draw_all(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        std::fs::create_dir_all(dir).map_err(Error::io(dir.display().to_string()))?;
        let mut files = Vec::new();
        for fault in Fault::ALL {
            let chart = self.chart(fault);
            if chart.panels.iter().any(|panel| !panel.lines.is_empty()) {
                files.extend(save(&chart, &dir.join(format!("availability-{fault}")))?);
            }
        }
        Ok(files)
    }

    fn chart(&self, fault: Fault) -> Chart {
        let all = self.series();
        let mut labels: Vec<String> = Vec::new();
        for label in all.iter().filter(|it| it.fault == fault).map(Series::label) {
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        let panel = |y_label: &str, values: fn(&AvailabilityRow) -> &Vec<f64>| {
            let line = |series: &Series<'_>| {
                let row = series.typical()?;
                let label = series.label();
                let at = labels.iter().position(|other| *other == label)?;
                let points = values(row).iter().enumerate();
                Some(ChartLine {
                    label,
                    colour: (at + 1) % COLOURS.len(),
                    is_dashed: false,
                    is_loose: false,
                    points: points.map(|(at, &value)| (self.seconds(at), value)).collect(),
                })
            };
            Panel {
                across: Across::Numbers,
                x_label: match fault {
                    Fault::None => "seconds".to_string(),
                    _ => "seconds since the fault; it lasts between the marks".to_string(),
                },
                y_label: y_label.to_string(),
                is_linear: true,
                marks: if fault == Fault::None { vec![] } else { vec![0.0, self.window_s / 3.0] },
                lines: all.iter().filter(|it| it.fault == fault).filter_map(line).collect(),
            }
        };
        let fault_text = match fault {
            Fault::None => "no fault",
            Fault::Kill => "a node is killed, and starts again",
            Fault::Pause => "a node is paused, and goes on",
            Fault::Cut => "a node is cut off, and comes back",
        };
        Chart {
            title: format!("{} nodes, clients of the others: {fault_text}", self.nodes),
            panels: vec![
                panel("writes per second", |row| &row.writes_per_second),
                panel("reads per second", |row| &row.reads_per_second),
            ],
        }
    }
}

/// Protocol, fault and gaps.
impl fmt::Display for AvailabilityRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AvailabilityRow { protocol, fault, victim, role, .. } = self;
        let AvailabilityRow { write_gap_ms, read_gap_ms, .. } = self;
        let role = match role {
            Role::Any => "",
            Role::Leader => ", the leader",
            Role::Follower => ", a follower",
        };
        write!(
            f,
            "{protocol}, {fault} of node {victim}{role}: {write_gap_ms:.0} ms without a write, {read_gap_ms:.0} ms without a read"
        )
    }
}

impl fmt::Display for AvailabilityReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let third = self.window_s / 3.0;
        writeln!(
            f,
            "{} nodes ({}), {} writing and {} reading clients of each; runs of {:.1} s, the fault from {third:.1} to {:.1} s",
            self.nodes,
            self.durability,
            self.clients,
            self.clients,
            self.window_s,
            2.0 * third
        )?;
        writeln!(
            f,
            "longest time without a success at one of the other nodes, in ms: median and longest of the runs\n"
        )?;
        let cells = ["writes", "longest", "reads", "longest", "op/s", "failed", "runs"];
        write!(f, "{:<16}{:<16}", "protocol", "fault")?;
        cells.iter().try_for_each(|cell| write!(f, "{cell:>10}"))?;
        writeln!(f)?;
        for series in self.series() {
            let (writes, reads) =
                (series.gaps(|row| row.write_gap_ms), series.gaps(|row| row.read_gap_ms));
            let longest = |gaps: &[f64]| gaps.iter().copied().fold(0.0, f64::max);
            let done: u64 = series.rows.iter().map(|row| row.writes + row.reads).sum();
            let seconds = self.window_s * series.rows.len() as f64;
            let failed: u64 = series.rows.iter().map(|row| row.failed).sum();
            let fault = match series.role {
                Role::Any => series.fault.to_string(),
                role => format!("{} {role}", series.fault),
            };
            writeln!(
                f,
                "{:<16}{fault:<16}{:>10.1}{:>10.1}{:>10.1}{:>10.1}{:>10.0}{failed:>10}{:>10}",
                series.protocol,
                median(&writes),
                longest(&writes),
                median(&reads),
                longest(&reads),
                done as f64 / seconds,
                series.rows.len()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fault: Fault, repetition: usize, gap: f64) -> AvailabilityRow {
        AvailabilityRow {
            protocol: "abd".to_string(),
            fault,
            repetition,
            victim: 1,
            role: Role::Any,
            write_gap_ms: gap,
            read_gap_ms: gap / 2.0,
            writes: 10,
            reads: 20,
            failed: 1,
            writes_per_second: vec![100.0, gap, 90.0],
            reads_per_second: vec![200.0, 150.0, 190.0],
        }
    }

    fn report() -> AvailabilityReport {
        let gaps = [30.0, 10.0, 20.0].into_iter().enumerate();
        let rows =
            gaps.flat_map(|(at, gap)| [row(Fault::None, at, 1.0), row(Fault::Kill, at, gap)]);
        let config = Config { window: std::time::Duration::from_millis(300), ..Config::default() };
        AvailabilityReport::new(&config, rows.collect())
    }

    #[test]
    fn median_and_longest_gap_are_shown() {
        let text = report().to_string();
        let line = text.lines().find(|line| line.contains("kill")).expect("there is a row");
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells[..6], ["abd", "kill", "20.0", "30.0", "10.0", "15.0"], "{line}");
    }

    #[test]
    fn leaders_and_followers_have_lines_of_their_own() {
        let mut report = report();
        for (at, row) in report.rows.iter_mut().filter(|it| it.fault == Fault::Kill).enumerate() {
            row.role = if at == 0 { Role::Leader } else { Role::Follower };
        }
        let text = report.to_string();
        let cells = |role: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.contains(role)).expect("there is a row");
            line.split_whitespace().map(str::to_string).collect()
        };
        assert_eq!(cells("leader")[..5], ["abd", "kill", "leader", "30.0", "30.0"], "{text}");
        assert_eq!(cells("follower")[..5], ["abd", "kill", "follower", "15.0", "20.0"], "{text}");
        let labels: Vec<String> =
            report.chart(Fault::Kill).panels[0].lines.iter().map(|it| it.label.clone()).collect();
        assert_eq!(labels, ["abd, its leader", "abd, its follower"]);
    }

    #[test]
    fn tables_have_a_line_per_run_and_slice() {
        let report = report();
        for (csv, header, lines) in
            [(report.csv(), CSV_HEADER, 6), (report.timeline_csv(), TIMELINE_HEADER, 18)]
        {
            assert_eq!(csv.lines().next(), Some(header));
            let columns = header.split(',').count();
            assert!(csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
            assert_eq!(csv.lines().count(), lines + 1);
        }
        // Of three slices the fault comes at the end of the first.
        assert!(report.timeline_csv().contains("abd,kill,any,0,-0.050,100,200"));
    }

    #[test]
    fn plots_show_the_run_with_the_middle_gap() {
        let report = report();
        let chart = report.chart(Fault::Kill);
        assert_eq!(chart.panels[0].lines[0].points[1].1, 20.0);
        let dir = crate::process::ScratchDir::new(&std::env::temp_dir(), "palimpsest-availability");
        let dir = dir.expect("there is room for plots");
        let outputs = Outputs {
            csv: Some(dir.path().join("gaps.csv")),
            plots: Some(dir.path().join("plots")),
        };
        let files = report.write(&outputs).expect("they are written");
        assert_eq!(files.len(), 2 + 2 * 2, "{files:?}");
        assert!(files.iter().all(|file| file.is_file()));
        assert!(dir.path().join("gaps-timeline.csv").is_file());
    }
}
