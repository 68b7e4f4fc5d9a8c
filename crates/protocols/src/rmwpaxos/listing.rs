//! Listings: which keys of a shard exist, from a quorum, in hash order.
//!
//! A key that is there for the whole listing is listed; one that comes or goes meanwhile may be either. What the replicas
//! do not agree on may have been written by nobody who was told so, or overwritten long ago: only a read can say, and the
//! listing names such keys apart.

use std::collections::BTreeMap;

use base::Nanos;
use types::limits::MEMBERS_MAX;
use types::{Key, NodeId, Outcome, Round, Shard, Tag, Ticket};

use super::message::{Entry, LISTING_KEYS_MAX, Listing, Message};
use super::register::Countdown;
use super::{Cx, Register, RmwPaxos};
use crate::effects::Scan;
use crate::mutation::{self, Mutation};
use crate::protocol::{Peer, Scanned, ScannedCell};
use crate::quorum::Tally;
use crate::view::{Member, View};

/// Listings served or awaited at a time.
const LISTS_MAX: usize = 1024;

#[derive(Default, Debug)]
pub(super) struct Lists {
    /// Asked by clients of this node.
    rounds: BTreeMap<u64, ListRound>,
    /// Asked by any node, waiting for the scan of that number.
    serving: BTreeMap<u64, Serving>,
}

#[derive(Debug)]
struct ListRound {
    tag: Tag,
    shard: Shard,
    from_hash: u64,
    limit: usize,
    listings: Listings,
    deadline: Nanos,
    resend_at: Nanos,
    resends: u32,
}

#[derive(Debug)]
struct Serving {
    to: NodeId,
    shard: Shard,
    id: u64,
}

/// The listing of each member.
#[derive(Default, Debug)]
pub(super) struct Listings {
    pub tally: Tally,
    by_member: [Option<Listing>; MEMBERS_MAX],
}

/// A key that is listed.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Found {
    accepted: Round,
    /// Bytes of its state.
    pub(super) state_len: usize,
}

impl Listings {
    pub(super) fn add(&mut self, view: &View, from: Peer, listing: Listing) {
        let Some(index) = view.index(from.node) else { return };
        if self.tally.add(view, from.node, from.loss) || self.tally.is_from(index, from.loss) {
            self.by_member[index] = Some(listing);
        }
    }

    pub(super) fn counted<'a>(&'a self, view: &'a View) -> impl Iterator<Item = &'a Listing> + 'a {
        view.members().iter().zip(&self.by_member).filter_map(move |(member, listing)| {
            listing.as_ref().filter(|_| self.tally.has(view, member.node))
        })
    }

    /// Up to where all counted listings are complete; `None` to the end of the shard.
    pub(super) fn complete_below(&self, view: &View) -> Option<u64> {
        self.counted(view).filter_map(|listing| listing.next_hash).min()
    }

    /// Which keys exist below that position, and of which no majority says the same.
    fn settled(&self, view: &View) -> (Vec<Key>, Vec<Key>) {
        let end = self.complete_below(view);
        let is_complete = |entry: &&Entry| end.is_none_or(|end| entry.key.hash() < end);
        let listings = self.counted(view).count();
        let all = self.counted(view).flat_map(|listing| &listing.entries);
        let mut entries: Vec<&Entry> = all.filter(is_complete).collect();
        // Each listing is in key order already, and a stable sort takes such runs as they are.
        entries.sort_by(|a, b| (&a.key, a.accepted).cmp(&(&b.key, b.accepted)));
        let (mut live, mut unsettled) = (Vec::new(), Vec::new());
        for of_key in entries.chunk_by(|a, b| a.key == b.key) {
            let key = || of_key[0].key.clone();
            if mutation::is(Mutation::ListHighest) {
                let is_live = of_key[of_key.len() - 1].live;
                live.extend(is_live.then(key));
                continue;
            }
            let holds_nothing = |entry: &&&Entry| entry.accepted.is_none() && !entry.live;
            let nothing = listings - of_key.len() + of_key.iter().filter(holds_nothing).count();
            let mut by_round = of_key.chunk_by(|a, b| a.accepted == b.accepted);
            let same =
                by_round.find(|same| same.len() >= view.majority() && !same[0].accepted.is_none());
            // One replica's countdown may be over before the others'; the key exists until a majority's are.
            let over = |same: &[&Entry]| same.iter().filter(|entry| !entry.live).count();
            match same.map(|same| (over(same), same.len())) {
                Some((0, _)) => live.push(key()),
                Some((over, _)) if over >= view.majority() => {}
                Some((_, all)) if all == view.members().len() => live.push(key()),
                None if nothing >= view.majority() => {}
                _ => unsettled.push(key()),
            }
        }
        (live, unsettled)
    }

    /// True when nobody who is up is missing, this node included.
    fn is_from_all_up(&self, view: &View) -> bool {
        let is_up = |it: &&Member| it.up || it.node == view.me;
        view.members().iter().filter(is_up).all(|it| self.tally.has(view, it.node))
    }

    /// What is listed below that position: of each key what its highest report says.
    pub(super) fn merged(&self, view: &View) -> BTreeMap<Key, Found> {
        let end = self.complete_below(view);
        let mut merged: BTreeMap<Key, Found> = BTreeMap::new();
        for entry in self.counted(view).flat_map(|listing| &listing.entries) {
            if end.is_some_and(|end| entry.key.hash() >= end) {
                continue;
            }
            let Entry { accepted, state_len, .. } = *entry;
            let found = merged.entry(entry.key.clone()).or_default();
            if accepted > found.accepted {
                *found = Found { accepted, state_len: state_len as usize };
            }
        }
        merged
    }
}

impl Lists {
    pub(super) fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }
}

impl RmwPaxos {
    pub(super) fn on_list_request(
        &mut self,
        cx: &mut Cx<'_>,
        tag: Tag,
        from_hash: u64,
        limit: usize,
    ) {
        if self.lists.rounds.len() >= LISTS_MAX {
            return self.reply(cx, tag, Outcome::NoQuorum);
        }
        let id = self.next_id();
        let round = ListRound {
            tag,
            shard: Shard((from_hash >> 56) as u8),
            from_hash,
            limit: limit.clamp(1, LISTING_KEYS_MAX),
            listings: Listings::default(),
            deadline: cx.now + self.env.request_timeout,
            resend_at: cx.now + self.round_trip.resend_after(0),
            resends: 0,
        };
        for node in cx.view.all() {
            ask(cx, &round, id, node);
        }
        self.lists.rounds.insert(id, round);
        self.sweep.arm(cx);
    }

    /// Serves a listing. A forgotten shard is silent: it cannot say what is not there.
    pub(super) fn on_list(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        shard: Shard,
        id: u64,
        from_hash: u64,
        limit: u32,
    ) {
        if cx.cells.is_forgotten(shard) || self.lists.serving.len() >= LISTS_MAX {
            return;
        }
        let scan = self.next_id();
        self.lists.serving.insert(scan, Serving { to: from.node, shard, id });
        cx.fx.scan(Scan { id: scan, from_hash, limit: limit as usize });
    }

    pub(super) fn on_scanned(&mut self, cx: &mut Cx<'_>, mut scanned: Scanned<Register>) {
        if self.on_range_scanned(cx, &mut scanned) || self.on_disbelieved_scanned(cx, &mut scanned)
        {
            return;
        }
        let Some(serving) = self.lists.serving.remove(&scanned.id) else { return };
        if cx.cells.is_forgotten(serving.shard) || cx.metas.get(serving.shard).void {
            return;
        }
        let mut after = cx.metas.ticket(serving.shard);
        let mut entries = Vec::with_capacity(scanned.records.len());
        for (key, cell) in scanned.records {
            after = after.max(cx.cells.ticket(&key));
            entries.push(entry_of(cx, key, cell));
        }
        let meta = cx.metas.get(serving.shard);
        let listing = Listing {
            entries,
            next_hash: scanned.next_hash,
            floor_ballot: meta.floor_ballot.max(meta.restart_floor),
            floor_version: meta.floor_version,
            number: meta.number,
        };
        let after: Ticket = after;
        let message = Message::Listed { shard: serving.shard, id: serving.id, listing };
        cx.fx.send(serving.to, message, after);
    }

    pub(super) fn on_listed(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        shard: Shard,
        id: u64,
        listing: Listing,
    ) {
        let Some(round) = self.lists.rounds.get_mut(&id) else {
            return self.on_shard_listed(cx, from, shard, id, listing);
        };
        round.listings.add(cx.view, from, listing);
        self.settle_list(cx, id);
    }

    /// Ends a listing that a majority has answered. While some keys are not settled it waits a little for the others, which
    /// may know: to read those keys costs more.
    fn settle_list(&mut self, cx: &mut Cx<'_>, id: u64) {
        let Some(round) = self.lists.rounds.get(&id) else { return };
        let (tag, listings) = (round.tag, &round.listings);
        if !listings.tally.is_majority(cx.view) {
            return;
        }
        let (keys, unsettled) = listings.settled(cx.view);
        if !unsettled.is_empty() && round.resends == 0 && !listings.is_from_all_up(cx.view) {
            return;
        }
        let next_hash = listings.complete_below(cx.view);
        self.lists.rounds.remove(&id);
        self.reply(cx, tag, Outcome::Listed { keys, unsettled, next_hash });
    }

    /// Resends what is missing, ends what took too long or has waited for enough.
    pub(super) fn sweep_lists(&mut self, cx: &mut Cx<'_>) {
        let (mut ended, mut due) = (Vec::new(), Vec::new());
        for (&id, round) in &mut self.lists.rounds {
            if cx.now >= round.deadline {
                ended.push(id);
            } else if cx.now >= round.resend_at {
                due.push(id);
                round.resends += 1;
                round.resend_at = cx.now + self.round_trip.resend_after(round.resends);
            }
        }
        for id in due {
            self.settle_list(cx, id);
            let Some(round) = self.lists.rounds.get(&id) else { continue };
            let missing = cx.view.all().filter(|&node| !round.listings.tally.has(cx.view, node));
            missing.for_each(|node| ask(cx, round, id, node));
        }
        for id in ended {
            if let Some(round) = self.lists.rounds.remove(&id) {
                let outcome = self.unavailable(cx, round.shard);
                self.reply(cx, round.tag, outcome);
            }
        }
    }
}

fn ask(cx: &mut Cx<'_>, round: &ListRound, id: u64, node: NodeId) {
    let (shard, from_hash, limit) = (round.shard, round.from_hash, round.limit as u32);
    cx.fx.send_now(node, Message::List { shard, id, from_hash, limit });
}

fn entry_of(cx: &Cx<'_>, key: Key, cell: ScannedCell<Register>) -> Entry {
    match cell {
        ScannedCell::Present(register) => Entry {
            key,
            accepted: register.accepted,
            state_len: register.state.as_ref().map_or(0, |state| state.bytes().len() as u32),
            live: register.state.as_ref().is_some_and(|state| !state.is_tombstone())
                && register.countdown(cx.uptime, cx.unix) != Countdown::Over,
        },
        ScannedCell::Lost => Entry { key, accepted: Round::NONE, live: true, state_len: 0 },
    }
}
