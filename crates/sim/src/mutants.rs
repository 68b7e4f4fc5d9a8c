//! Does the simulator find bugs? Each deliberate mistake of `protocols::mutation` and
//! `storage::mutation` runs from several first seeds until one catches it.

use protocols::mutation::Mutation;
use storage::mutation::Mutation as StorageMutation;

use crate::campaign::{Campaign, campaign};
use crate::medium::MediumKind;
use crate::run::SimConfig;
use crate::store::Durability;
use crate::workload::mix::Mix;

/// Seeds between two first seeds.
const APART: u64 = 1_000_000;
/// Media faults, for mistakes that only they reveal.
const MEDIA_FAULTS: u64 = 4;
/// Operations of a run under a protocol with many messages.
const FEW_OPS: u64 = 100;

/// The result for one mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    pub protocol: String,
    pub name: &'static str,
    /// Seeds up to the first failure, itself included, from each first seed; empty when all seeds
    /// from the first one passed.
    pub seeds: Vec<u64>,
    /// First seeds from which all seeds passed.
    pub missed: usize,
    /// The first line of the first failure.
    pub symptom: String,
}

impl Mutant {
    #[must_use]
    pub fn is_caught(&self) -> bool {
        !self.seeds.is_empty()
    }

    /// Mean over the first seeds that caught it.
    #[must_use]
    pub fn mean(&self) -> Option<u64> {
        let count = self.seeds.len() as u64;
        (count > 0).then(|| self.seeds.iter().sum::<u64>().div_ceil(count))
    }
}

/// The extent of the search.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub seeds_max: u64,
    /// First seeds. A mistake that the first one misses is not tried from the others.
    pub starts: u64,
    pub threads: usize,
}

/// Tries the mistakes of `only`, each in its own run.
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
                    mutant.symptom = failure.reason.lines().next().unwrap_or_default().to_owned();
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

/// The runs in which each mistake counts: one per protocol that has the rule.
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
        let media_faults = if name.contains("scrub") { MEDIA_FAULTS } else { 0 };
        (SimConfig { medium: Some(medium), media_faults, ..config_of("rmwpaxos") }, name)
    });
    let of_transactions = transactions::mutation::Mutation::ALL.iter().map(|mutation| {
        let config = SimConfig { mix: Some(Mix::Transactions), ..config_of("rmwpaxos") };
        (config, mutation.name())
    });
    of_protocols.chain(of_media).chain(of_transactions).collect()
}

fn config_of(protocol: &str) -> SimConfig {
    let config = SimConfig::new(protocol, 1);
    match protocol {
        "craq" | "hermes" | "zab" => {
            SimConfig { durability: Some(Durability::Disk), ops: FEW_OPS, ..config }
        }
        _ => config,
    }
}

/// Some mistakes need clients of one kind.
fn config_of_mistake(protocol: &str, mutation: Mutation) -> SimConfig {
    let mix = match mutation {
        Mutation::EndUnstored => Some(Mix::PlainExpiry),
        Mutation::ZabEndsAlone | Mutation::ZabCountsOn => Some(Mix::Lifetimes),
        Mutation::ExpireByOne if protocol == "abd" => Some(Mix::PlainExpiry),
        _ => mutation.name().starts_with("once-").then_some(Mix::Retries),
    };
    let needs_media_faults =
        matches!(mutation, Mutation::NoPatrol | Mutation::OlderIsLag | Mutation::OneHolderWins);
    let media_faults = if needs_media_faults { MEDIA_FAULTS } else { 0 };
    let config = SimConfig { mix, media_faults, ..config_of(protocol) };
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
        | Mutation::ExpireByOne
        | Mutation::StaleAnswers => &["rmwpaxos", "abd"],
        Mutation::NoWriteBack
        | Mutation::StoreOlder
        | Mutation::DropTombstone
        | Mutation::BareNumber
        | Mutation::EndUnstored
        | Mutation::EndUncounted
        | Mutation::EndMissed
        | Mutation::RecoverFromSelf => &["abd"],
        Mutation::ValidateByMajority
        | Mutation::AckLosingRmw
        | Mutation::ReadInvalid
        | Mutation::ValidateAnyVersion => &["hermes"],
        Mutation::IgnoreLowerVotes
        | Mutation::NoRegistry
        | Mutation::RecomputeAttempt
        | Mutation::ReadCommittedOnly
        | Mutation::CommitAnyVote
        | Mutation::AnswerNewer => &["classic-paxos"],
        Mutation::RecoveryGoesOn => &["abd", "caspaxos", "classic-paxos"],
        Mutation::AcceptBelowPromise => &["rmwpaxos", "classic-paxos"],
        Mutation::HandOnBeforeDurable
        | Mutation::ReadDirty
        | Mutation::UpForCopy
        | Mutation::NoTable
        | Mutation::RunsLateSteers
        | Mutation::RepeatsUnseen
        | Mutation::ForgetsLong
        | Mutation::ForgetsEnded
        | Mutation::LaterReadsJoin
        | Mutation::NoFloor
        | Mutation::MintBelowFloor
        | Mutation::FloorOverPends
        | Mutation::BuryNames
        | Mutation::CleanEndsHere
        | Mutation::ShadowsAreNoEnd => &["craq"],
        Mutation::GrantUsedTwice
        | Mutation::GrantOutlivesEpoch
        | Mutation::GrantSkipsDeadline
        | Mutation::TombstoneCovers
        | Mutation::VoteIsNoPromise
        | Mutation::AnswersUnchosen
        | Mutation::RecoversNoPromise => &["caspaxos"],
        mutation if is_of_groups(mutation) => &["hermes"],
        // Media go back under stopped nodes: no node relies on their content.
        Mutation::OneDenies | Mutation::AllAreTold => &[],
        Mutation::ApplyUncommitted | Mutation::ReadPastOwnWrites | Mutation::AckPastGap => &["zab"],
        mutation if mutation.name().starts_with("zab-") => &["zab"],
        mutation if mutation.name().starts_with("abd-") => &["abd"],
        _ => &["rmwpaxos"],
    }
}

fn is_of_groups(mutation: Mutation) -> bool {
    ["group-", "hermes-"].iter().any(|start| mutation.name().starts_with(start))
}
