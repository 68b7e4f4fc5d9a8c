//! The keys that requests draw, by number.

use std::fmt;
use std::str::FromStr;

use base::Prng;

use crate::workload::Zipf;
use crate::{Error, Result};

/// The exponent of the Zipf distribution.
const ZIPF_THETA: f64 = 0.99;

/// `ln 0.8 / ln 0.2`: the first `f` of all keys get `f` to this power of all requests.
const PARETO_POWER: f64 = 0.138_646_883_853_213_9;

/// A distribution of requests over keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// All keys alike.
    Uniform,
    /// Rank `r` in proportion to `1 / r^0.99`.
    Zipf,
    /// 80 % of the requests go to 20 % of so many keys, and so on within those. [ZIPF]
    Pareto { keys: u64 },
}

impl FromStr for Distribution {
    type Err = Error;

    fn from_str(text: &str) -> Result<Distribution> {
        let bad = || {
            Error::Usage(format!("a distribution is uniform, zipf or pareto:KEYS, not {text:?}"))
        };
        match text.split_once(':') {
            None if text == "uniform" => Ok(Distribution::Uniform),
            None if text == "zipf" => Ok(Distribution::Zipf),
            Some(("pareto", keys)) => match keys.parse() {
                Ok(keys) if keys > 0 => Ok(Distribution::Pareto { keys }),
                _ => Err(bad()),
            },
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Uniform => f.write_str("uniform"),
            Distribution::Zipf => f.write_str("zipf"),
            Distribution::Pareto { keys } => write!(f, "pareto:{keys}"),
        }
    }
}

/// Draws numbers of keys below a count.
pub(super) struct Draws {
    distribution: Distribution,
    keys: u64,
    zipf: Option<Zipf>,
}

impl Draws {
    /// # Errors
    /// If there are fewer keys than the distribution needs.
    pub(super) fn new(distribution: Distribution, keys: u64) -> Result<Draws> {
        if let Distribution::Pareto { keys: wanted } = distribution
            && wanted > keys
        {
            return Err(Error::Usage(format!("{distribution} needs more than --keys {keys}")));
        }
        let zipf = (distribution == Distribution::Zipf).then(|| Zipf::new(keys, ZIPF_THETA));
        Ok(Draws { distribution, keys, zipf })
    }

    pub(super) fn draw(&self, rng: &mut Prng) -> u64 {
        match (self.distribution, &self.zipf) {
            // Positions of keys are hashes, so that neighbours belong to different workers.
            (Distribution::Zipf, Some(zipf)) => zipf.rank(rng.unit()).min(self.keys - 1),
            (Distribution::Pareto { keys }, _) => {
                let rank = keys as f64 * rng.unit().powf(PARETO_POWER.recip());
                (rank as u64).min(keys - 1)
            }
            (Distribution::Uniform | Distribution::Zipf, _) => rng.below(self.keys),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 200_000;

    /// How often each key was drawn, most frequent first.
    fn counts(distribution: Distribution, keys: u64) -> Vec<u64> {
        let draws = Draws::new(distribution, keys).expect("there are enough keys");
        let mut rng = Prng::new(59);
        let mut counts = vec![0; keys as usize];
        for _ in 0..DRAWS {
            counts[draws.draw(&mut rng) as usize] += 1;
        }
        counts.sort_unstable_by(|one, other| other.cmp(one));
        counts
    }

    fn share(counts: &[u64], first: usize) -> f64 {
        counts[..first].iter().sum::<u64>() as f64 / DRAWS as f64
    }

    /// Sum of squared deviations over expectations: near the number of classes if they are right.
    fn chi_square(counts: &[u64], expected: impl Fn(usize) -> f64) -> f64 {
        let term = |(at, &count): (usize, &u64)| {
            let expected = expected(at) * DRAWS as f64;
            (count as f64 - expected).powi(2) / expected
        };
        counts.iter().enumerate().map(term).sum()
    }

    #[test]
    fn uniform_draws_all_keys_alike() {
        let counts = counts(Distribution::Uniform, 100);
        let chi = chi_square(&counts, |_| 0.01);
        assert!((60.0..150.0).contains(&chi), "chi square of 99 degrees of freedom: {chi}");
    }

    #[test]
    fn pareto_gives_a_fifth_of_the_keys_four_fifths() {
        for keys in [10, 100, 10_000] {
            let counts = counts(Distribution::Pareto { keys }, keys);
            let share = share(&counts, keys as usize / 5);
            assert!((0.79..0.81).contains(&share), "{keys} keys: {share}");
        }
    }

    #[test]
    fn pareto_of_ten_keys_has_its_probabilities() {
        let up_to = |rank: usize| (rank as f64 / 10.0).powf(PARETO_POWER);
        let counts = counts(Distribution::Pareto { keys: 10 }, 10);
        let chi = chi_square(&counts, |rank| up_to(rank + 1) - up_to(rank));
        assert!(chi < 30.0, "chi square of 9 degrees of freedom: {chi}");
    }

    #[test]
    fn zipf_gives_the_first_keys_their_shares() {
        // Sums of 1/r^0.99 up to 1, 10 and 1000, over that up to 10,000.
        let counts = counts(Distribution::Zipf, 10_000);
        let zeta = |n: u64| (1..=n).map(|rank| (rank as f64).powf(-ZIPF_THETA)).sum::<f64>();
        for (first, tolerance) in [(1, 0.01), (10, 0.03), (1000, 0.03)] {
            let (share, expected) = (share(&counts, first as usize), zeta(first) / zeta(10_000));
            assert!((share - expected).abs() < tolerance, "first {first}: {share}, not {expected}");
        }
    }

    #[test]
    fn names_are_read_back() {
        for text in ["uniform", "zipf", "pareto:10"] {
            let distribution: Distribution = text.parse().expect("it is one");
            assert_eq!(distribution.to_string(), text);
        }
        for text in ["", "pareto", "pareto:0", "pareto:x", "zipf:3", "normal"] {
            assert!(text.parse::<Distribution>().is_err(), "{text}");
        }
        assert!(Draws::new(Distribution::Pareto { keys: 11 }, 10).is_err());
    }
}
