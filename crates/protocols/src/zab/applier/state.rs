//! The parts of an applier's state.

use std::collections::{BTreeMap, VecDeque};

use base::Nanos;
use types::{Command, Key, NodeId, Reply, Shard, Tag};

use super::super::context::Cx;
use super::super::epoch::{Epoch, Zxid};
use super::super::txn::{Effect, Stream};
use crate::toolkit::content::Content;

/// The purpose of a scan.
#[derive(Debug)]
pub enum Scanning {
    List(Listing),
    Erase,
    Donate,
}

/// An entry for this worker.
#[derive(Debug)]
pub struct Applied {
    pub copy: u64,
    pub at: Zxid,
    pub stream: Stream,
    pub number: u64,
    pub key: Key,
    pub effect: Effect,
    pub reply: Reply,
}

/// How far entries are applied here.
#[derive(Debug, Default)]
pub struct Progress {
    /// Of the entries handed to this worker, counted from one, all up to this one are applied.
    pub done: u64,
    /// Those that came ahead of others, which wait for their registers. Their own are pinned.
    pub ahead: BTreeMap<u64, Applied>,
    /// Places in the order by the number of the last entry before them.
    pub marks: VecDeque<(u64, u64)>,
    /// Every entry of this worker up to this index is applied.
    pub visible: u64,
    /// As the sequencer knows it.
    pub told: u64,
    pub told_at: Nanos,
}

impl Progress {
    /// Notes the next entry as applied.
    pub fn done(&mut self, index: u64) {
        self.done += 1;
        self.visible = self.visible.max(index);
        self.advance();
    }

    pub fn advance(&mut self) {
        while let Some((_, index)) = self.marks.pop_front_if(|(place, _)| *place <= self.done) {
            self.visible = self.visible.max(index);
        }
    }
}

/// A client's listing.
#[derive(Clone, Copy, Debug)]
pub struct Listing {
    pub tag: Tag,
    pub from_hash: u64,
    pub limit: usize,
    pub deadline: Nanos,
    /// Entries up to here have to be applied.
    pub needs: u64,
}

/// A command in its place.
#[derive(Debug)]
pub struct Ask {
    pub at: Zxid,
    pub stream: Stream,
    pub number: u64,
    pub key: Key,
    pub command: Command,
}

#[derive(Debug, Default)]
pub struct Executing {
    /// Contents behind commands that ran and are not applied yet, with the index of the last.
    pub ahead: BTreeMap<Key, (u64, Content<Zxid>)>,
    /// Commands that wait until the entries of earlier epochs are applied. Registers are pinned.
    pub waiting: Vec<Ask>,
}

impl Executing {
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn on_applied(&mut self, key: &Key, index: u64) {
        if self.ahead.get(key).is_some_and(|(last, _)| *last <= index) {
            self.ahead.remove(key);
        }
    }

    /// The epoch is over: commands that ran in it count only once they are applied.
    pub fn clear(&mut self, cx: &mut Cx<'_>, epoch: Epoch) {
        self.ahead.clear();
        for ask in self.waiting.extract_if(.., |ask| ask.at.epoch != epoch) {
            cx.cache.unpin(&ask.key);
        }
    }
}

#[derive(Debug)]
pub struct Copying {
    pub epoch: Epoch,
    pub donor: NodeId,
    pub base: u64,
    /// Pages to go through, by their first hash.
    pub to_do: VecDeque<u64>,
    pub phase: Phase,
    /// The number of the step under way.
    pub id: u64,
    pub from_hash: u64,
    /// Registers of the step that are not done; none until they are known.
    pub left: Option<usize>,
    pub next_hash: Option<u64>,
    pub asked_at: Nanos,
    pub took: Nanos,
    /// When the next step begins, or the one under way begins again.
    pub due: Nanos,
    pub patience: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Erasing,
    Adopting,
    /// Until the sequencer has heard of it.
    Copied,
}

/// Pages that are being read, by their scans.
#[derive(Debug, Default)]
pub struct Donating {
    pub pages: BTreeMap<u64, Wanted>,
}

#[derive(Debug)]
pub struct Wanted {
    pub by: NodeId,
    pub id: u64,
    pub epoch: Epoch,
    pub shard: Shard,
}
