//! The state of rounds that remove tombstones (`collection.rs`), and of the recovery of eras
//! (`recovery.rs`).

use std::collections::{BTreeMap, BTreeSet};

use base::Nanos;
use types::{AmnesiaCount, Key};

use super::register::Version;
use crate::quorum::Tally;
use crate::toolkit::eras::{Eras, Step};

/// A round of one shard.
#[derive(Debug)]
pub(super) struct Round {
    /// Of the present step.
    pub id: u64,
    /// `None`: the tombstones are being stored.
    pub step: Option<Step>,
    pub batch: BTreeMap<Key, Version>,
    pub unverified: BTreeSet<Key>,
    /// The amnesia counts of the replicas when it began.
    pub amnesias: Vec<AmnesiaCount>,
    /// Answers to the present step.
    pub acks: Tally,
    /// The highest of the answers.
    pub eras: Eras,
    pub deadline: Nanos,
}

/// The recovery of the eras of a shard.
#[derive(Debug)]
pub(super) struct Dating {
    pub id: u64,
    pub answers: Tally,
    /// Its eras wait for storage.
    pub is_known: bool,
}
