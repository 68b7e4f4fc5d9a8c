//! Results: a table for people, a CSV file for programs.

use std::fmt::{self, Write as _};
use std::path::Path;

use serde::Serialize;

use super::TestedMedium;
use super::bars::Bar;
use super::pattern::{Measured, Name, Pattern};
use crate::report::median;
use crate::{Error, Result};

/// One pattern on one medium with values of one length.
#[derive(Clone, Debug, Serialize)]
pub struct MediaRow {
    pub medium: TestedMedium,
    pub value_bytes: usize,
    #[serde(flatten)]
    pub name: Name,
    /// Writes that share a fence or a flush.
    pub group: u64,
    /// Median over the rounds.
    pub writes_per_second: f64,
    /// By round.
    pub rates: Vec<f64>,
    /// Nanoseconds until a fence or a flush has ended, for the group together.
    pub p50_ns: u64,
    pub p99_ns: u64,
}

/// All results of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MediaReport {
    pub rows: Vec<MediaRow>,
    pub bars: Vec<Bar>,
    /// Measurements that were left out, and why.
    pub notes: Vec<String>,
}

impl MediaRow {
    pub(super) fn of(
        medium: TestedMedium,
        value_bytes: usize,
        pattern: &dyn Pattern,
        measured: &Measured,
    ) -> MediaRow {
        MediaRow {
            medium,
            value_bytes,
            name: pattern.name(),
            group: pattern.unit(),
            writes_per_second: median(&measured.rates),
            rates: measured.rates.clone(),
            p50_ns: measured.latencies.value_at_quantile(0.5),
            p99_ns: measured.latencies.value_at_quantile(0.99),
        }
    }
}

impl MediaReport {
    pub(super) fn note(&mut self, note: Option<String>) {
        self.notes.extend(note.filter(|note| !self.notes.contains(note)));
    }

    /// The rows of one medium.
    pub(super) fn of(&self, medium: TestedMedium) -> impl Iterator<Item = &MediaRow> + Clone {
        self.rows.iter().filter(move |row| row.medium == medium)
    }

    pub(super) fn write_csv(&self, path: &Path) -> Result<()> {
        let mut text = String::from(
            "medium,value_bytes,pattern,how,writes_per_flush,writes_per_second,lowest,highest,p50_ns,p99_ns\n",
        );
        for row in &self.rows {
            let MediaRow {
                medium,
                value_bytes,
                name,
                group,
                writes_per_second,
                p50_ns,
                p99_ns,
                ..
            } = row;
            let lowest = row.rates.iter().copied().fold(f64::INFINITY, f64::min);
            let highest = row.rates.iter().copied().fold(0.0, f64::max);
            let (medium, Name { pattern, how }) = (medium.name(), name);
            writeln!(
                text,
                "{medium},{value_bytes},{pattern},\"{how}\",{group},{writes_per_second:.0},{lowest:.0},\
                 {highest:.0},{p50_ns},{p99_ns}"
            )
            .expect("a string takes everything");
        }
        std::fs::write(path, text).map_err(Error::io(path.display().to_string()))
    }

    /// Kinds of rows for one size, in order of appearance.
    fn kinds(&self, medium: TestedMedium) -> Vec<(Name, u64)> {
        let mut kinds = Vec::new();
        for row in self.of(medium) {
            if !kinds.contains(&(row.name, row.group)) {
                kinds.push((row.name, row.group));
            }
        }
        kinds.sort();
        kinds
    }

    fn table(&self, f: &mut fmt::Formatter<'_>, medium: TestedMedium) -> fmt::Result {
        let mut sizes: Vec<usize> = self.of(medium).map(|row| row.value_bytes).collect();
        sizes.dedup();
        let unit = if medium == TestedMedium::Disk { "thousand" } else { "million" };
        writeln!(f, "\n{}: {unit} writes per second / p99 in µs of a group", medium.name())?;
        write!(f, "{:<8}{:<28}{:>6}", "pattern", "how", "group")?;
        sizes.iter().try_for_each(|size| write!(f, " {:>15}", format!("{size} B")))?;
        writeln!(f)?;
        for (name, group) in self.kinds(medium) {
            write!(f, "{:<8}{:<28}{group:>6}", name.pattern, name.how)?;
            for &size in &sizes {
                let is_it =
                    |row: &&MediaRow| (row.name, row.group, row.value_bytes) == (name, group, size);
                let cell = self.of(medium).find(is_it).map_or(String::new(), cell);
                write!(f, " {cell:>15}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

fn cell(row: &MediaRow) -> String {
    let scale = if row.medium == TestedMedium::Disk { 1e3 } else { 1e6 };
    format!("{:.2} / {:.2}", row.writes_per_second / scale, row.p99_ns as f64 / 1e3)
}

impl fmt::Display for MediaReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for medium in
            TestedMedium::ALL.into_iter().filter(|&medium| self.of(medium).next().is_some())
        {
            self.table(f, medium)?;
        }
        if !self.bars.is_empty() {
            writeln!(f, "\nbars, on pmem: values in place under a checksum, by round")?;
        }
        for bar in &self.bars {
            writeln!(f, "{bar}")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}
