//! Completions that wait for the workers.

use types::{Database, Shard};

use super::device::Device;
use super::place::PagePlace;
use crate::Completion;

/// Completions by worker, and why the store has failed.
#[derive(Debug)]
pub(super) struct Replies {
    by_worker: Vec<Vec<Completion>>,
    failure: Option<String>,
}

impl Replies {
    pub(super) fn new(workers: usize) -> Replies {
        Replies { by_worker: (0..workers).map(|_| Vec::new()).collect(), failure: None }
    }

    pub(super) fn workers(&self) -> usize {
        self.by_worker.len()
    }

    pub(super) fn push(&mut self, worker: usize, completion: Completion) {
        self.by_worker[worker].push(completion);
    }

    /// Tells the owner of a shard that the shard is forgotten.
    pub(super) fn forgotten(&mut self, database: Database, shard: Shard) {
        let owner = usize::from(shard.0) % self.workers();
        self.push(owner, Completion::Forgotten { database, shard });
    }

    /// Reports damage that costs no record.
    pub(super) fn warn(&mut self, place: PagePlace, text: &str) {
        let PagePlace { file, offset } = place;
        self.push(0, Completion::Warning(format!("{} at {offset}: {text}", file.name())));
    }

    /// Poisons the store: every worker is told, and only the first reason counts.
    fn fail(&mut self, reason: &str) {
        self.failure.get_or_insert_with(|| reason.to_owned());
        for completions in &mut self.by_worker {
            completions.push(Completion::Failed(reason.to_owned()));
        }
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(super) fn has_some(&self, worker: usize) -> bool {
        !self.by_worker[worker].is_empty()
    }

    pub(super) fn take(&mut self, worker: usize, into: &mut Vec<Completion>) {
        into.append(&mut self.by_worker[worker]);
    }
}

/// All that leaves the engine.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) device: Device,
    pub(super) replies: Replies,
}

impl Out {
    /// Poisons the store: its requests are dropped, and it makes no more.
    pub(super) fn fail(&mut self, reason: &str) {
        self.replies.fail(reason);
        self.device.take();
    }
}
