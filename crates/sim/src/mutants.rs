//! Does the simulator find bugs? Each deliberate mistake of `protocols::mutation` is run until a seed catches it.

use protocols::mutation::Mutation;

use crate::campaign::{Campaign, campaign};
use crate::run::SimConfig;

/// What became of one mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    pub name: &'static str,
    /// Seeds run until the first that failed, itself included; `None`: all held.
    pub seeds: Option<u64>,
    /// The first line of that failure.
    pub symptom: String,
}

/// Runs up to `seeds_max` seeds for each mistake of `only`, all where it is empty.
///
/// # Panics
/// If the configuration does not pass [`validate`](crate::validate).
pub fn mutants(
    config: &SimConfig,
    seeds_max: u64,
    threads: usize,
    only: &[Mutation],
    found: impl Fn(&Mutant),
) -> Vec<Mutant> {
    let chosen = if only.is_empty() { Mutation::ALL } else { only };
    chosen
        .iter()
        .map(|mutation| {
            let mutant = try_mutant(config, seeds_max, threads, *mutation);
            found(&mutant);
            mutant
        })
        .collect()
}

fn try_mutant(config: &SimConfig, seeds_max: u64, threads: usize, mutation: Mutation) -> Mutant {
    let name = mutation.name();
    let config = SimConfig { mutation: Some(name.to_string()), ..config.clone() };
    let first = config.seed;
    let plan = Campaign { config, seeds: seeds_max, threads, failures_max: 1 };
    match campaign(&plan, |_| {}).failures.first() {
        Some((seed, failure)) => Mutant {
            name,
            seeds: Some(seed.wrapping_sub(first) + 1),
            symptom: failure.what.lines().next().unwrap_or_default().to_string(),
        },
        None => Mutant { name, seeds: None, symptom: String::new() },
    }
}
