//! Plots of the results: speed on the left, 99th percentile on the right, one legend.

mod figure;

use std::path::Path;

use self::figure::{Figure, PlotLine};
use super::TestedMedium;
use super::report::{MediaReport, MediaRow};
use crate::{Result, plot};

/// Selects the rows of a line: pattern, how, writes per flush (0: any), and its name in the legend.
type LineSelector = (&'static str, &'static str, u64, &'static str);

const PATTERNS: &[LineSelector] = &[
    ("multi", "raw, checksum", 0, "raw loop: checksum, copy, write back, fence"),
    ("multi", "checksum", 0, "100,000 values in place, Zipf 0.9"),
    ("single", "checksum", 0, "one value in place"),
    ("log", "two-step", 0, "log, two steps"),
    ("log", "libpmemlog", 0, "log, libpmemlog"),
];

const VARIANTS: &[LineSelector] = &[
    ("multi", "raw, checksum", 0, "raw loop: checksum, copy, write back, fence"),
    ("multi", "checksum", 0, "one flush, checksum"),
    ("multi", "popcount", 0, "one flush, population count"),
    ("multi", "two-step", 0, "value, then header"),
    ("multi", "four headers", 0, "value, then one of four headers"),
];

const STORE: &[LineSelector] = &[
    ("multi", "raw, checksum", 0, "raw loop, a fence each"),
    ("multi", "raw, checksum, 64 per fence", 0, "raw loop, 64 per fence"),
    ("multi", "store, turns of 1", 0, "the store, turns of 1"),
    ("multi", "store, turns of 8", 0, "turns of 8"),
    ("multi", "store, turns of 64", 0, "turns of 64"),
];

const DISK: &[LineSelector] = &[
    ("append", "one write", 1, "append, 1 per flush"),
    ("append", "one write", 8, "append, 8"),
    ("append", "one write", 64, "append, 64"),
    ("append", "one write", 512, "append, 512"),
    ("multi", "a write each", 1, "in place, 1 per flush"),
    ("multi", "a write each", 8, "in place, 8"),
    ("multi", "a write each", 64, "in place, 64"),
    ("multi", "a write each", 512, "in place, 512"),
];

const DISK_STORE: &[LineSelector] = &[
    ("append", "one write", 1, "append, 1 per flush"),
    ("append", "one write", 8, "append, 8"),
    ("append", "one write", 64, "append, 64"),
    ("append", "one write", 512, "append, 512"),
    ("multi", "store", 1, "the store, turns of 1"),
    ("multi", "store", 8, "turns of 8"),
    ("multi", "store", 64, "turns of 64"),
    ("multi", "store", 512, "turns of 512"),
];

const MEMORY: &str = "memory, no flushes";
const PMEM: &str = "emulated persistent memory";

/// Draws every figure that has data.
pub(super) fn draw_all(report: &MediaReport, dir: &Path) -> Result<()> {
    let figures = [
        ("ram-patterns", TestedMedium::Ram, format!("In place and log: {MEMORY}"), PATTERNS),
        ("ram-variants", TestedMedium::Ram, format!("Ways to write a slot: {MEMORY}"), VARIANTS),
        ("pmem-patterns", TestedMedium::Pmem, format!("In place and log: {PMEM}"), PATTERNS),
        ("pmem-variants", TestedMedium::Pmem, format!("Ways to write a slot: {PMEM}"), VARIANTS),
        ("pmem-store", TestedMedium::Pmem, format!("The store: {PMEM}"), STORE),
        ("disk", TestedMedium::Disk, "In place and append: disk".to_string(), DISK),
        ("disk-store", TestedMedium::Disk, "The store and append: disk".to_string(), DISK_STORE),
    ];
    for (file, medium, title, kinds) in figures {
        let lines = lines(report, medium, kinds);
        if lines.iter().any(|line| line.speed.len() > 1) {
            let (unit, time) =
                if medium == TestedMedium::Disk { ("thousand", "ms") } else { ("million", "µs") };
            let figure = Figure { title, unit, time, lines };
            plot::save(&figure, &dir.join(file))?;
        }
    }
    Ok(())
}

fn lines(report: &MediaReport, medium: TestedMedium, kinds: &[LineSelector]) -> Vec<PlotLine> {
    let is_disk = medium == TestedMedium::Disk;
    let (scale, time) = if is_disk { (1e3, 1e6) } else { (1e6, 1e3) };
    let lines = kinds.iter().enumerate().map(|(index, &(pattern, how, group, label))| {
        let is_it = |row: &&MediaRow| {
            (row.name.pattern, row.name.how) == (pattern, how) && [0, row.group].contains(&group)
        };
        let rows = || report.of(medium).filter(is_it);
        let size = |row: &MediaRow| row.value_bytes as f64;
        PlotLine {
            label,
            // On disk a colour is a number of writes per flush.
            colour: if is_disk { index % 4 } else { index },
            is_dashed: is_disk && pattern == "multi",
            speed: rows().map(|row| (size(row), row.writes_per_second / scale)).collect(),
            p99: rows().map(|row| (size(row), row.p99_ns as f64 / time)).collect(),
        }
    });
    lines.filter(|line| !line.speed.is_empty()).collect()
}
