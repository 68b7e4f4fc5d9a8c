//! The random numbers of `math.random`: `lrand48`, as in redis-server, so that sequences of a given
//! seed are the same.

#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

const MASK: u64 = (1 << 48) - 1;

impl Random {
    pub(crate) fn new(seed: u32) -> Random {
        Random(u64::from(seed) << 16 | 0x330e)
    }

    fn next(&mut self) -> u32 {
        self.0 = (self.0.wrapping_mul(0x5_deec_e66d).wrapping_add(0xb)) & MASK;
        (self.0 >> 17) as u32
    }

    /// From 0 up to, but without, 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        let max = i32::MAX as u32;
        f64::from(self.next() % max) / f64::from(max)
    }
}
