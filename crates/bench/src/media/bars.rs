//! Goals for values in place, as ratios to raw loops and logs in slices of one round.

use std::fmt;

use serde::Serialize;

use super::TestedMedium;
use super::report::MediaRow;
use crate::report::median;

/// Value sizes that have bars.
const SIZES: [usize; 3] = [64, 256, 1024];

/// Compared patterns, and the least ratio at each of the sizes.
const COMPARED: [(&str, &str, [f64; 3]); 4] = [
    ("multi", "raw, checksum", [0.85; 3]),
    ("log", "two-step", [1.5, 1.3, 1.0]),
    ("log", "libpmemlog", [1.5, 1.3, 1.0]),
    // No goal without a checksum: the row shows the checksum's price.
    ("multi", "raw", [0.0; 3]),
];

/// A ratio that must be reached.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    pub value_bytes: usize,
    /// The other pattern.
    pub against: String,
    /// Median over the rounds; the lowest and the highest beside it.
    pub ratio: f64,
    pub lowest: f64,
    pub highest: f64,
    /// The least acceptable ratio; 0 where the ratio is for information.
    pub least: f64,
}

impl Bar {
    /// True when the median reaches the goal.
    pub fn is_met(&self) -> bool {
        self.ratio >= self.least
    }
}

/// All goals whose rows exist.
pub(super) fn of(rows: &[MediaRow]) -> Vec<Bar> {
    let find = |size: usize, pattern: &str, how: &str| {
        rows.iter().find(|row| {
            row.medium == TestedMedium::Pmem
                && (row.value_bytes, row.group) == (size, 1)
                && (row.name.pattern, row.name.how) == (pattern, how)
        })
    };
    let mut bars = Vec::new();
    for (pattern, how, least) in COMPARED {
        for (size, least) in SIZES.into_iter().zip(least) {
            let ours = find(size, "multi", "checksum");
            let Some((ours, other)) = ours.zip(find(size, pattern, how)) else { continue };
            let ratios: Vec<f64> =
                ours.rates.iter().zip(&other.rates).map(|(ours, other)| ours / other).collect();
            bars.push(Bar {
                value_bytes: size,
                against: format!("{pattern} {how}"),
                ratio: median(&ratios),
                lowest: ratios.iter().copied().fold(f64::INFINITY, f64::min),
                highest: ratios.iter().copied().fold(0.0, f64::max),
                least,
            });
        }
    }
    bars
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bar { value_bytes, against, ratio, lowest, highest, least } = self;
        write!(f, "{value_bytes:>6} B  {ratio:>5.2} ({lowest:.2} to {highest:.2}) of {against}")?;
        match (*least > 0.0, self.is_met()) {
            (false, _) => Ok(()),
            (true, true) => write!(f, ": at least {least}, met"),
            (true, false) => write!(f, ": at least {least}, MISSED"),
        }
    }
}
