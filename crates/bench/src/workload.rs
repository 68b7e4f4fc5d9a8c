//! Requests of clients: keys, verbs and values, written straight into an output buffer.

use base::Prng;

/// Weights of the verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    pub set: u32,
    pub get: u32,
    pub incr: u32,
}

impl Mix {
    pub const SET: Mix = Mix { set: 1, get: 0, incr: 0 };
    pub const GET: Mix = Mix { set: 0, get: 1, incr: 0 };
    pub const INCR: Mix = Mix { set: 0, get: 0, incr: 1 };

    fn total(self) -> u32 {
        self.set + self.get + self.incr
    }
}

/// The distribution of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    /// Each key once, in order, then from the start again: for loading.
    Sequential {
        count: u64,
    },
    Uniform {
        count: u64,
    },
    /// Few keys take most requests; they are scattered over the key space. [ZIPF, YCSB]
    Zipf {
        count: u64,
        theta: f64,
    },
    /// One key takes all.
    Hot,
}

impl Keys {
    /// How many different keys there are.
    pub fn count(self) -> u64 {
        match self {
            Keys::Sequential { count } | Keys::Uniform { count } | Keys::Zipf { count, .. } => {
                count
            }
            Keys::Hot => 1,
        }
    }
}

/// Writes commands, without allocating once its buffers have grown.
pub(crate) struct Generator {
    mix: Mix,
    keys: Keys,
    zipf: Option<Zipf>,
    next: u64,
    rng: Prng,
    /// Values are windows into this, so that no two look alike and writing needs no generation.
    material: Vec<u8>,
    value_bytes: usize,
}

/// Windows begin at one of this many places.
const WINDOWS: usize = 1024;

impl Generator {
    pub(crate) fn new(mix: Mix, keys: Keys, value_bytes: usize, seed: u64) -> Generator {
        assert!(mix.total() > 0, "an empty mix");
        assert!(keys.count() > 0, "no keys");
        let mut rng = Prng::new(seed);
        let letters = b"abcdefghijklmnopqrstuvwxyz012345";
        let material = (0..value_bytes + WINDOWS).map(|_| *rng.pick(letters)).collect();
        let zipf = match keys {
            Keys::Zipf { count, theta } => Some(Zipf::new(count, theta)),
            _ => None,
        };
        Generator { mix, keys, zipf, next: 0, rng, material, value_bytes }
    }

    /// Appends one command.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>) {
        let draw = self.rng.below(u64::from(self.mix.total())) as u32;
        let key = self.key();
        if draw < self.mix.set {
            let at = self.rng.below(WINDOWS as u64) as usize;
            out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
            write_key(out, b"key:", key);
            write_bulk(out, &self.material[at..at + self.value_bytes]);
        } else if draw < self.mix.set + self.mix.get {
            out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
            write_key(out, b"key:", key);
        } else {
            out.extend_from_slice(b"*2\r\n$4\r\nINCR\r\n");
            write_key(out, b"cnt:", key); // apart from the strings that SET leaves
        }
    }

    fn key(&mut self) -> u64 {
        match (self.keys, &self.zipf) {
            (Keys::Sequential { count }, _) => {
                let key = self.next;
                self.next = (key + 1) % count;
                key
            }
            (Keys::Zipf { count, .. }, Some(zipf)) => scramble(zipf.rank(self.rng.unit())) % count,
            (Keys::Uniform { count } | Keys::Zipf { count, .. }, _) => self.rng.below(count),
            (Keys::Hot, _) => 0,
        }
    }
}

/// Appends `WAIT replicas milliseconds`.
pub(crate) fn write_wait(out: &mut Vec<u8>, replicas: u32, milliseconds: u32) {
    out.extend_from_slice(b"*3\r\n$4\r\nWAIT\r\n");
    write_bulk(out, itoa::Buffer::new().format(replicas).as_bytes());
    write_bulk(out, itoa::Buffer::new().format(milliseconds).as_bytes());
}

/// Appends a whole command from its words.
pub fn write_command(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.push(b'*');
    out.extend_from_slice(itoa::Buffer::new().format(words.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    for word in words {
        write_bulk(out, word);
    }
}

fn write_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'$');
    out.extend_from_slice(itoa::Buffer::new().format(bytes.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// A key of sixteen bytes: a prefix of four and twelve digits.
fn write_key(out: &mut Vec<u8>, prefix: &[u8; 4], number: u64) {
    out.extend_from_slice(b"$16\r\n");
    out.extend_from_slice(prefix);
    let mut digits = [b'0'; 12];
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits);
    out.extend_from_slice(b"\r\n");
}

/// Draws ranks with probability proportional to `1 / (rank + 1)^theta`. [ZIPF]
pub(crate) struct Zipf {
    count: f64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    pub(crate) fn new(count: u64, theta: f64) -> Zipf {
        assert!(theta > 0.0 && theta < 1.0, "theta {theta} is not between 0 and 1");
        let zeta = |n: u64| (1..=n).map(|i| (i as f64).powf(-theta)).sum::<f64>();
        let zeta_count = zeta(count);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta(2) / zeta_count);
        Zipf { count: count as f64, theta, alpha: 1.0 / (1.0 - theta), zeta: zeta_count, eta }
    }

    /// The rank for a draw from `[0, 1)`.
    pub(crate) fn rank(&self, draw: f64) -> u64 {
        let scaled = draw * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            return 1;
        }
        (self.count * (self.eta * draw - self.eta + 1.0).powf(self.alpha)) as u64
    }
}

/// Spreads ranks over the key space, the same way every time (the finalizer of SplitMix64).
pub(crate) fn scramble(rank: u64) -> u64 {
    let mut z = rank.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(mix: Mix, keys: Keys, value_bytes: usize, commands: usize) -> String {
        let mut generator = Generator::new(mix, keys, value_bytes, 1);
        let mut out = Vec::new();
        for _ in 0..commands {
            generator.write(&mut out);
        }
        String::from_utf8(out).expect("commands are text here")
    }

    #[test]
    fn commands_are_well_formed() {
        let text = written(Mix::SET, Keys::Sequential { count: 2 }, 3, 1);
        assert_eq!(&text[..text.len() - 5], "*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000000\r\n$3\r\n");
        assert_eq!(
            written(Mix::INCR, Keys::Hot, 3, 1),
            "*2\r\n$4\r\nINCR\r\n$16\r\ncnt:000000000000\r\n"
        );
        let mut out = Vec::new();
        write_wait(&mut out, 1, 500);
        assert_eq!(out, b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$3\r\n500\r\n");
    }

    #[test]
    fn sequential_keys_come_round() {
        let text = written(Mix::GET, Keys::Sequential { count: 2 }, 0, 3);
        let keys: Vec<&str> = text.lines().filter(|line| line.starts_with("key:")).collect();
        assert_eq!(keys, ["key:000000000000", "key:000000000001", "key:000000000000"]);
    }

    #[test]
    fn zipf_prefers_few_ranks_and_stays_in_range() {
        let zipf = Zipf::new(10_000, 0.99);
        let mut rng = Prng::new(7);
        let ranks: Vec<u64> = (0..100_000).map(|_| zipf.rank(rng.unit())).collect();
        assert!(ranks.iter().all(|&rank| rank < 10_000));
        let first = ranks.iter().filter(|&&rank| rank == 0).count();
        // 1 / zeta(10,000) is 10.2 %.
        assert!((9_000..11_500).contains(&first), "rank 0 was drawn {first} times of 100,000");
    }
}
