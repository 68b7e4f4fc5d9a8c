//! Does the simulator find bugs? Each deliberate mistake of `protocols::mutation` and `storage::mutation` is run from
//! several first seeds until one catches it.

use protocols::mutation::Mutation;
use storage::mutation::Mutation as StorageMutation;

use crate::campaign::{Campaign, campaign};
use crate::medium::MediumKind;
use crate::run::SimConfig;
use crate::store::Durability;
use crate::workload::mix::Mix;

/// Seeds between two first seeds.
const APART: u64 = 1_000_000;
/// Strikes at media, where a mistake shows by them alone.
const STRIKES: u64 = 4;
/// Operations of a run under a protocol of the laboratory.
const FEW_OPS: u64 = 100;

/// What became of one mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    pub protocol: String,
    pub name: &'static str,
    /// Seeds run until the first that failed, itself included, from each first seed; empty when all seeds from the
    /// first one held.
    pub seeds: Vec<u64>,
    /// From so many first seeds all seeds held.
    pub missed: usize,
    /// The first line of the first failure.
    pub symptom: String,
}

impl Mutant {
    #[must_use]
    pub fn is_caught(&self) -> bool {
        !self.seeds.is_empty()
    }

    /// Mean over those first seeds from which it was caught.
    #[must_use]
    pub fn mean(&self) -> Option<u64> {
        let count = self.seeds.len() as u64;
        (count > 0).then(|| self.seeds.iter().sum::<u64>().div_ceil(count))
    }
}

/// How far to look.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub seeds_max: u64,
    /// First seeds. What is not caught from the first of them is not tried from the others.
    pub starts: u64,
    pub threads: usize,
}

/// Tries the mistakes of `only`, in the run that it is given for each.
///
/// # Panics
/// If a configuration does not pass [`validate`](crate::validate).
pub fn mutants(
    config: &SimConfig,
    effort: Effort,
    only: &[&'static str],
    found: impl Fn(&Mutant),
) -> Vec<Mutant> {
    let tried = only.iter().map(|name| {
        let mutant = try_mutant(config, effort, name);
        found(&mutant);
        mutant
    });
    tried.collect()
}

fn try_mutant(config: &SimConfig, effort: Effort, name: &'static str) -> Mutant {
    let mut mutant = Mutant {
        protocol: config.protocol.clone(),
        name,
        seeds: Vec::new(),
        missed: 0,
        symptom: String::new(),
    };
    for start in 0..effort.starts {
        let first = config.seed + start * APART;
        let config = SimConfig { mutation: Some(name.into()), seed: first, ..config.clone() };
        let Effort { seeds_max: seeds, threads, .. } = effort;
        let report = campaign(&Campaign { config, seeds, threads, failures_max: 1 }, |_| {});
        match report.failures.first() {
            Some((seed, failure)) => {
                mutant.seeds.push(seed.wrapping_sub(first) + 1);
                if mutant.symptom.is_empty() {
                    mutant.symptom = failure.what.lines().next().unwrap_or_default().to_owned();
                }
            }
            None => mutant.missed += 1,
        }
        if mutant.seeds.is_empty() {
            break;
        }
    }
    mutant
}

/// The runs in which each mistake is a mistake: one per protocol that has the rule.
#[must_use]
pub fn every() -> Vec<(SimConfig, &'static str)> {
    let of_protocols = Mutation::ALL.iter().flat_map(|&mutation| {
        let runs = protocols_of(mutation).iter();
        runs.map(move |protocol| (config_of_mistake(protocol, mutation), mutation.name()))
    });
    let of_media = StorageMutation::ALL.iter().map(|mutation| {
        let name = mutation.name();
        let medium = match name.starts_with("pmem") {
            true => MediumKind::Pmem,
            false => MediumKind::Disk,
        };
        let media_strikes = if name.contains("scrub") { STRIKES } else { 0 };
        (SimConfig { medium: Some(medium), media_strikes, ..config_of("rmwpaxos") }, name)
    });
    of_protocols.chain(of_media).collect()
}

fn config_of(protocol: &str) -> SimConfig {
    let config = SimConfig::new(protocol, 1);
    match protocol {
        "hermes" | "zab" => {
            SimConfig { durability: Some(Durability::Volatile), ops: FEW_OPS, ..config }
        }
        _ => config,
    }
}

/// Some mistakes need clients of one kind.
fn config_of_mistake(protocol: &str, mutation: Mutation) -> SimConfig {
    let mix = mutation.name().starts_with("once-").then_some(Mix::Retries);
    let strikes =
        matches!(mutation, Mutation::NoPatrol | Mutation::OlderIsLag | Mutation::OneHolderWins);
    let media_strikes = if strikes { STRIKES } else { 0 };
    let config = SimConfig { mix, media_strikes, ..config_of(protocol) };
    match mutation {
        Mutation::OutsideCounts => SimConfig { nodes: 5, replicas: Some(3), ..config },
        _ => config,
    }
}

fn protocols_of(mutation: Mutation) -> &'static [&'static str] {
    match mutation {
        Mutation::NoIncarnation
        | Mutation::NoRecovery
        | Mutation::NoCrashVector
        | Mutation::ExposeUnflushed
        | Mutation::AnswerCountedTwice
        | Mutation::ReplyBeforeStored
        | Mutation::StaleAnswers => &["rmwpaxos", "abd"],
        Mutation::NoWriteBack
        | Mutation::StoreOlder
        | Mutation::DropTombstone
        | Mutation::BareNumber
        | Mutation::RecoverFromSelf => &["abd"],
        Mutation::ValidateByMajority
        | Mutation::AckLosingRmw
        | Mutation::ReadInvalid
        | Mutation::ValidateAnyVersion => &["hermes"],
        // Media go back under nodes that have stopped: none of them still counts on what it held.
        Mutation::OneDenies | Mutation::AllAreTold => &[],
        Mutation::ApplyUncommitted | Mutation::ReadPastOwnWrites | Mutation::AckPastGap => &["zab"],
        _ => &["rmwpaxos"],
    }
}
