//! The number of different elements, by how many registers have which rank.

use super::element::RANK_MAX;
use super::{REGISTERS, dense, sparse};

/// A register has six bits.
const RANKS: usize = 64;

const M: f64 = REGISTERS as f64;

/// Half of the reciprocal of the natural logarithm of 2.
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// How many registers have which rank.
pub(super) struct Histogram {
    registers: [u64; RANKS],
}

impl Histogram {
    const EMPTY: Histogram = Histogram { registers: [0; RANKS] };

    pub(super) fn of(registers: impl Iterator<Item = u8>) -> Histogram {
        let mut all = Histogram::EMPTY;
        registers.for_each(|rank| all.registers[usize::from(rank)] += 1);
        all
    }

    pub(super) fn of_dense(bytes: &[u8]) -> Histogram {
        Histogram::of(dense::registers(bytes))
    }

    /// `None` unless the runs are all registers.
    pub(super) fn of_sparse(bytes: &[u8]) -> Option<Histogram> {
        let mut all = Histogram::EMPTY;
        sparse::count(bytes, |rank, len| all.registers[usize::from(rank)] += len as u64)?;
        Some(all)
    }

    /// The estimate. Each step is in the order of redis-server, so that rounding is the same.
    pub(super) fn estimate(&self) -> i64 {
        let share = |rank: u8| self.registers[usize::from(rank)] as f64;
        let mut sum = M * tau((M - share(RANK_MAX)) / M);
        for rank in (1..RANK_MAX).rev() {
            sum = (sum + share(rank)) * 0.5;
        }
        sum += M * sigma(share(0) / M);
        whole(ALPHA * M * M / sum)
    }
}

/// Registers that no hash can make may have no finite estimate. redis-server answers the least
/// integer, to which processors turn a number that is too great.
fn whole(estimate: f64) -> i64 {
    let rounded = estimate.round();
    if rounded < i64::MAX as f64 { rounded as i64 } else { i64::MIN }
}

/// σ of the paper: corrects for registers that are 0.
fn sigma(share: f64) -> f64 {
    if share >= 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut factor, mut sum) = (share, 1.0, share);
    loop {
        power *= power;
        let before = sum;
        sum += power * factor;
        factor += factor;
        if sum <= before {
            return sum;
        }
    }
}

/// τ of the paper: corrects for registers that are full.
fn tau(share: f64) -> f64 {
    if share <= 0.0 || share >= 1.0 {
        return 0.0;
    }
    let (mut root, mut factor, mut sum) = (share, 1.0, 1.0 - share);
    loop {
        root = root.sqrt();
        let before = sum;
        factor *= 0.5;
        sum -= (1.0 - root) * (1.0 - root) * factor;
        if sum >= before {
            return sum / 3.0;
        }
    }
}
