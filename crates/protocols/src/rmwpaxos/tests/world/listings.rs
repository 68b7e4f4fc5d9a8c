//! A listing counts as a read of each key's existence.

use checker::history::{ClientId, OpId};
use checker::model::kv::{KvInput, KvOutput};
use types::{Key, Outcome, Tag};

use super::World;
use crate::protocol::Event;

/// A listing by a client.
pub(super) struct Listing {
    /// The read of each key.
    reads: Vec<(Key, OpId)>,
    /// Keys that exist, and undecided keys.
    listed: Option<(Vec<Key>, Vec<Key>)>,
}

/// The most keys of a listing: more than there are.
const LIMIT: usize = 10;

impl World {
    /// Has a node list the keys of the shard.
    pub(in super::super) fn list(&mut self, node: usize) -> Tag {
        self.next_tag += 1;
        let tag = Tag(self.next_tag);
        self.clock += 1;
        let mut reads = Vec::new();
        for key in [self.key.clone(), self.neighbour.clone()] {
            let history = self.histories.entry(key.clone()).or_default();
            reads.push((key, history.invoke(ClientId(tag.0), KvInput::Exists, self.clock)));
        }
        self.listings.insert(tag, Listing { reads, listed: None });
        let from_hash = u64::from(self.key.shard().0) << 56;
        self.step(node, Event::List { tag, from_hash, limit: LIMIT });
        tag
    }

    /// Ends the reads of a listing. Those of undecided keys return no value.
    pub(super) fn complete_listing(&mut self, tag: Tag, outcome: Outcome) {
        let Some(listing) = self.listings.get_mut(&tag) else { return };
        if listing.listed.is_some() {
            self.fault.get_or_insert(format!("{tag:?} was listed twice"));
            return;
        }
        self.clock += 1;
        let (keys, undecided, next_hash) = match outcome {
            Outcome::Listed { keys, undecided, next_hash } => (keys, undecided, next_hash),
            Outcome::NoQuorum | Outcome::Loading => (Vec::new(), Vec::new(), Some(0)),
            other => panic!("{other:?} is no outcome of a listing"),
        };
        for (key, op) in &listing.reads {
            let is_told = next_hash.is_none_or(|next| key.hash() < next);
            let told = match keys.contains(key) {
                _ if !is_told || undecided.contains(key) => checker::Outcome::Failed,
                exists => checker::Outcome::Returned(KvOutput::Integer(i64::from(exists))),
            };
            let history = self.histories.get_mut(key).expect("it was listed");
            history.complete(*op, told, self.clock);
        }
        listing.listed = Some((keys, undecided));
    }

    /// Existing and undecided keys, once the listing has ended.
    pub(in super::super) fn listed(&self, tag: Tag) -> Option<(&[Key], &[Key])> {
        let (keys, undecided) = self.listings.get(&tag)?.listed.as_ref()?;
        Some((keys, undecided))
    }
}
