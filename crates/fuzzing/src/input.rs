//! Takes structure out of a fuzzer's bytes. What has run out reads as zeros, so that every input means something.

use base::Prng;

/// The bytes that are left.
#[derive(Clone, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// At most `len` bytes.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }
}

/// Cuts `bytes` at places that `seed` draws; seed 0 leaves them whole and 1 makes single bytes of them.
#[must_use]
pub fn cut(bytes: &[u8], seed: u64) -> Vec<&[u8]> {
    match seed {
        0 => vec![bytes],
        1 => bytes.chunks(1).collect(),
        seed => {
            let mut prng = Prng::new(seed);
            let mut ends: Vec<usize> =
                (0..prng.below(9)).map(|_| prng.below(bytes.len() as u64 + 1) as usize).collect();
            ends.push(bytes.len());
            ends.sort_unstable();
            let mut start = 0;
            ends.iter().map(|&end| &bytes[std::mem::replace(&mut start, end)..end]).collect()
        }
    }
}
