//! Keys and values of the writes: drawn before the measurement, the same for every pattern.

use base::Prng;

use crate::workload::{Zipf, scramble};

/// The skew of the paper's experiment. [LOGLESS 6.2]
const THETA: f64 = 0.9;
/// Draws repeat after so many.
const DRAWS: usize = 1 << 18;
/// Values are windows into one text; they begin at one of so many offsets.
const WINDOWS: usize = 1024;
/// Distance of those offsets in bytes, as of values in a program's memory.
const WINDOW_STEP: usize = 8;

/// Which keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyDistribution {
    One,
    Zipf,
    Uniform,
}

/// Keys, and values of one length.
pub(super) struct Draws {
    pub keys: u32,
    pub value_len: usize,
    zipf: Vec<u32>,
    uniform: Vec<u32>,
    material: Vec<u8>,
}

impl Draws {
    pub(super) fn new(keys: u32, value_len: usize, seed: u64) -> Draws {
        let mut prng = Prng::new(seed);
        let zipf = Zipf::new(u64::from(keys), THETA);
        let count = u64::from(keys);
        let draw = |prng: &mut Prng| (scramble(zipf.rank(prng.unit())) % count) as u32;
        let zipf = (0..DRAWS).map(|_| draw(&mut prng)).collect();
        let uniform = (0..DRAWS).map(|_| prng.below(count) as u32).collect();
        let material_len = value_len + WINDOWS * WINDOW_STEP;
        let material = (0..material_len).map(|_| prng.next_u64() as u8).collect();
        Draws { keys, value_len, zipf, uniform, material }
    }

    /// The key of the `n`th write.
    #[inline]
    pub(super) fn key(&self, spread: KeyDistribution, n: u64) -> u32 {
        match spread {
            KeyDistribution::One => 0,
            KeyDistribution::Zipf => self.zipf[n as usize % DRAWS],
            KeyDistribution::Uniform => self.uniform[n as usize % DRAWS],
        }
    }

    /// The value of the `n`th write.
    #[inline]
    pub(super) fn value(&self, n: u64) -> &[u8] {
        let at = n as usize % WINDOWS * WINDOW_STEP;
        &self.material[at..at + self.value_len]
    }
}
