//! Listings: which keys of a shard exist, from a quorum, in hash order.
//!
//! A key that exists during the whole listing is listed; one that comes or goes meanwhile may be.
//! If replicas disagree on a key, its write may be unacknowledged, or overwritten long ago. Only a
//! read can decide that, so the listing names such keys apart.

use std::collections::BTreeMap;

use base::Nanos;
use types::limits::MEMBERS_MAX;
use types::{Key, NodeId, Outcome, Round, Shard, Tag, Ticket};

use crate::effects::Scan;
use crate::mutation::{self, Mutation};
use crate::peers::Member;
use crate::protocol::{Peer, Scanned, ScannedRegister};
use crate::quorum::Tally;
use crate::replicas::{Places, Replicas, place};
use crate::rmwpaxos::context::Cx;
use crate::rmwpaxos::core::instance::Core;

use crate::rmwpaxos::message::{LISTING_KEYS_MAX, Listing, ListingEntry, Message};
use crate::rmwpaxos::record::register::{Countdown, Register};

/// Listings in progress, each way.
const LISTS_MAX: usize = 1024;

#[derive(Default, Debug)]
pub(crate) struct Lists {
    /// Requested by clients of this node.
    rounds: BTreeMap<u64, ListRound>,
    /// Requested by any node, by the number of their scan.
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
pub(crate) struct Listings {
    pub tally: Tally,
    by_member: [Option<Listing>; MEMBERS_MAX],
}

/// The highest report of a listed key.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ListedState {
    accepted: Round,
    /// Bytes of its state.
    pub(crate) state_len: usize,
}

impl Listings {
    pub(crate) fn add(&mut self, replicas: Replicas<'_>, from: Peer, listing: Listing) {
        let Some(index) = replicas.index(from.node) else { return };
        if self.tally.add(replicas, from.node, from.amnesia)
            || self.tally.is_from(index, from.amnesia)
        {
            self.by_member[index] = Some(listing);
        }
    }

    pub(crate) fn counted<'a>(
        &'a self,
        replicas: Replicas<'a>,
    ) -> impl Iterator<Item = &'a Listing> + 'a {
        self.by_place(replicas).map(|(_, listing)| listing)
    }

    fn by_place<'a>(
        &'a self,
        replicas: Replicas<'a>,
    ) -> impl Iterator<Item = (Places, &'a Listing)> + 'a {
        let counted = self.tally.places(replicas.set, replicas.peers);
        let listings = self.by_member.iter().enumerate();
        listings.filter_map(move |(index, listing)| {
            let at = place(index) & counted;
            listing.as_ref().filter(|_| at != 0).map(|listing| (at, listing))
        })
    }

    /// The position up to which all counted listings are complete; `None` is the end of the shard.
    pub(crate) fn complete_below(&self, replicas: Replicas<'_>) -> Option<u64> {
        self.counted(replicas).filter_map(|listing| listing.next_hash).min()
    }

    /// The keys below that position that exist, and those without an agreeing majority.
    fn settled(&self, replicas: Replicas<'_>) -> (Vec<Key>, Vec<Key>) {
        let end = self.complete_below(replicas);
        let is_complete = |entry: &&ListingEntry| end.is_none_or(|end| entry.key.hash() < end);
        let listings = self.by_place(replicas).fold(0, |set, (at, _)| set | at);
        let mut entries: Vec<(Places, &ListingEntry)> = Vec::new();
        for (at, listing) in self.by_place(replicas) {
            entries.extend(listing.entries.iter().filter(is_complete).map(|entry| (at, entry)));
        }
        // Each listing is in key order already, and a stable sort takes such runs as they are.
        entries.sort_by(|(_, a), (_, b)| (&a.key, a.accepted).cmp(&(&b.key, b.accepted)));
        let (mut live, mut undecided) = (Vec::new(), Vec::new());
        for of_key in entries.chunk_by(|(_, a), (_, b)| a.key == b.key) {
            let key = || of_key[0].1.key.clone();
            if mutation::is(Mutation::ListHighest) {
                let is_live = of_key[of_key.len() - 1].1.live;
                live.extend(is_live.then(key));
                continue;
            }
            let holds = |entry: &ListingEntry| !entry.accepted.is_none() || entry.live;
            let nothing = listings & !places_of(of_key, holds);
            let mut by_round = of_key.chunk_by(|(_, a), (_, b)| a.accepted == b.accepted);
            let same = by_round.find(|same| {
                !same[0].1.accepted.is_none()
                    && replicas.set.is_quorum_of(places_of(same, |_| true))
            });
            // One replica's countdown may be over before the others'; the key exists until a
            // majority's are.
            let over = |same| places_of(same, |entry: &ListingEntry| !entry.live);
            match same.map(|same| (over(same), places_of(same, |_| true))) {
                Some((0, _)) => live.push(key()),
                Some((over, _)) if replicas.set.is_quorum_of(over) => {}
                Some((_, all)) if all == replicas.set.all_places() => live.push(key()),
                None if replicas.set.is_quorum_of(nothing) => {}
                _ => undecided.push(key()),
            }
        }
        (live, undecided)
    }

    /// True if every member that is up has answered, this node included.
    fn is_from_all_up(&self, replicas: Replicas<'_>) -> bool {
        let is_up = |it: &&Member| it.up || it.node == replicas.me();
        replicas.members().filter(is_up).all(|it| self.tally.has(replicas, it.node))
    }

    /// The listed keys below that position, each as in its highest report.
    pub(crate) fn merged(&self, replicas: Replicas<'_>) -> BTreeMap<Key, ListedState> {
        let end = self.complete_below(replicas);
        let mut merged: BTreeMap<Key, ListedState> = BTreeMap::new();
        for entry in self.counted(replicas).flat_map(|listing| &listing.entries) {
            if end.is_some_and(|end| entry.key.hash() >= end) {
                continue;
            }
            let ListingEntry { accepted, state_len, .. } = *entry;
            let found = merged.entry(entry.key.clone()).or_default();
            if accepted > found.accepted {
                *found = ListedState { accepted, state_len: state_len as usize };
            }
        }
        merged
    }
}

/// The places whose entry satisfies `is`.
fn places_of(entries: &[(Places, &ListingEntry)], is: impl Fn(&ListingEntry) -> bool) -> Places {
    entries.iter().filter(|(_, entry)| is(entry)).fold(0, |set, (at, _)| set | at)
}

impl Lists {
    pub(crate) fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }
}

impl Lists {
    pub(crate) fn on_request(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        tag: Tag,
        from_hash: u64,
        limit: usize,
    ) {
        if self.rounds.len() >= LISTS_MAX {
            return core.reply(cx, tag, Outcome::NoQuorum);
        }
        let id = core.next_id();
        let round = ListRound {
            tag,
            shard: Shard((from_hash >> 56) as u8),
            from_hash,
            limit: limit.clamp(1, LISTING_KEYS_MAX),
            listings: Listings::default(),
            deadline: cx.now + core.env().request_timeout,
            resend_at: cx.now + core.round_trip().resend_after(0),
            resends: 0,
        };
        for node in cx.replicas.all() {
            ask(cx, &round, id, node);
        }
        self.rounds.insert(id, round);
        core.arm_retries(cx);
    }

    /// Serves a listing. A forgotten shard does not answer, since it does not know which keys are
    /// absent.
    pub(crate) fn on_list(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        from: Peer,
        (shard, id): (Shard, u64),
        (from_hash, limit): (u64, u32),
    ) {
        if cx.cache.is_forgotten(shard) || self.serving.len() >= LISTS_MAX {
            return;
        }
        let scan = core.next_id();
        self.serving.insert(scan, Serving { to: from.node, shard, id });
        cx.fx.scan(Scan { id: scan, from_hash, limit: limit as usize });
    }

    pub(crate) fn on_scanned(&mut self, cx: &mut Cx<'_>, scanned: Scanned<Register>) {
        let Some(serving) = self.serving.remove(&scanned.id) else { return };
        if cx.cache.is_forgotten(serving.shard) || cx.metas.get(serving.shard).void {
            return;
        }
        let mut after = cx.metas.ticket(serving.shard);
        let mut entries = Vec::with_capacity(scanned.records.len());
        for (key, found) in scanned.records {
            after = after.max(cx.cache.ticket(&key));
            entries.push(entry_of(cx, key, found));
        }
        let meta = cx.metas.get(serving.shard);
        let listing = Listing {
            entries,
            next_hash: scanned.next_hash,
            floor_ballot: meta.floor_ballot.max(meta.restart_floor),
            floor_version: meta.floor_version,
            fences: meta.fences.clone(),
            number: meta.number,
        };
        let after: Ticket = after;
        let message = Message::Listed { shard: serving.shard, id: serving.id, listing };
        cx.fx.send(serving.to, message, after);
    }

    /// Returns the listing if no client of this node requested it.
    pub(crate) fn on_listed(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        from: Peer,
        id: u64,
        listing: Listing,
    ) -> Option<Listing> {
        let Some(round) = self.rounds.get_mut(&id) else { return Some(listing) };
        round.listings.add(cx.replicas, from, listing);
        self.settle(core, cx, id);
        None
    }

    /// Ends a listing that a majority has answered. With undecided keys it first waits a little for
    /// the others, because reading those keys costs more.
    fn settle(&mut self, core: &mut Core, cx: &mut Cx<'_>, id: u64) {
        let Some(round) = self.rounds.get(&id) else { return };
        let (tag, listings) = (round.tag, &round.listings);
        if !cx.replicas.is_quorum(&listings.tally) {
            return;
        }
        let (keys, undecided) = listings.settled(cx.replicas);
        if !undecided.is_empty() && round.resends == 0 && !listings.is_from_all_up(cx.replicas) {
            return;
        }
        let next_hash = listings.complete_below(cx.replicas);
        self.rounds.remove(&id);
        core.reply(cx, tag, Outcome::Listed { keys, undecided, next_hash });
    }

    /// Ends listings that are overdue or complete enough, and resends unanswered questions.
    pub(crate) fn on_retry(&mut self, core: &mut Core, cx: &mut Cx<'_>) {
        let (mut ended, mut due) = (Vec::new(), Vec::new());
        for (&id, round) in &mut self.rounds {
            if cx.now >= round.deadline {
                ended.push(id);
            } else if cx.now >= round.resend_at {
                due.push(id);
                round.resends += 1;
                round.resend_at = cx.now + core.round_trip().resend_after(round.resends);
            }
        }
        for id in due {
            let Some(shard) = self.rounds.get(&id).map(|round| round.shard) else { continue };
            cx.about(shard);
            self.settle(core, cx, id);
            let Some(round) = self.rounds.get(&id) else { continue };
            let replicas = cx.replicas;
            let missing = replicas.all().filter(|&node| !round.listings.tally.has(replicas, node));
            missing.for_each(|node| ask(cx, round, id, node));
        }
        for id in ended {
            if let Some(round) = self.rounds.remove(&id) {
                let outcome = core.unavailable(cx, round.shard);
                core.reply(cx, round.tag, outcome);
            }
        }
    }
}

fn ask(cx: &mut Cx<'_>, round: &ListRound, id: u64, node: NodeId) {
    let (shard, from_hash, limit) = (round.shard, round.from_hash, round.limit as u32);
    cx.fx.send_now(node, Message::List { shard, id, from_hash, limit });
}

fn entry_of(cx: &Cx<'_>, key: Key, found: ScannedRegister<Register>) -> ListingEntry {
    match found {
        // Its transaction may be decided: a read finds out.
        ScannedRegister::Present(register)
            if register.state.as_ref().is_some_and(|state| state.has_lock()) =>
        {
            ListingEntry {
                key,
                accepted: Round::NONE,
                live: true,
                state_len: register.state.as_ref().map_or(0, |state| state.bytes().len() as u32),
            }
        }
        ScannedRegister::Present(register) => ListingEntry {
            key,
            accepted: register.accepted,
            state_len: register.state.as_ref().map_or(0, |state| state.bytes().len() as u32),
            live: register.state.as_ref().is_some_and(|state| !state.is_tombstone())
                && register.countdown(cx.uptime, cx.unix) != Countdown::Over,
        },
        ScannedRegister::Lost => {
            ListingEntry { key, accepted: Round::NONE, live: true, state_len: 0 }
        }
    }
}
