//! Listings, and the recovery of forgotten shards: both ask a quorum for pages of registers.
//!
//! A protocol says by [`Paged`] how its registers are reported, and how to read such reports of a
//! quorum.
//! A recovering replica counts pages of *others* only. [DISC 2017]

use std::collections::{BTreeMap, BTreeSet};

use base::Nanos;
use types::wire::put_varint;
use types::{Key, Malformed, Outcome, Reader, Shard, Tag, Wire};

use super::back_off::{RESEND_FIRST, RESEND_MAX};
use super::due::Due;
use super::pages::{
    Asked, LISTING_PAGE_MAX, RECOVERY_PAGE, SHARDS_AT_ONCE, Serving, cut, put_page, take_page,
};
use super::walk::{Merged, Overdue, Page, Purpose, Walk};
use crate::effects::{Scan, TimerId};
use crate::mutation::{self, Mutation};
use crate::protocol::{Env, Peer, Scanned, Scope, Stats};
use crate::replicas::{Places, ReplicaSet};

/// The timer of a pager.
pub const PAGER_TICK: TimerId = TimerId(1);

/// The report of a replica on one register.
pub trait Paged: Clone + Sized {
    type Record;
    /// The fields of a shard.
    type Meta;
    type Message;
    /// The content of a recovered register.
    type Found;

    fn of(record: &Self::Record, cx: &PagedScope<'_, Self>) -> Self;
    /// The same with empty values in the place of others.
    fn without_values(&self) -> Self;
    /// About how many bytes the values of a record have.
    fn value_len(record: &Self::Record) -> usize;

    /// The content that reports of a quorum show, if they do. A place without one has no register.
    fn found(set: &ReplicaSet, counted: Places, at: &BTreeMap<usize, Self>) -> Option<Self::Found>;
    /// The conclusion of a listing from reports of a quorum.
    fn presence(set: &ReplicaSet, counted: Places, at: &BTreeMap<usize, Self>) -> Presence;

    fn message(message: PageMessage<Self>) -> Self::Message;
    /// Asks for one register. A node that asks itself recovers a register that is lost.
    fn read(key: Key) -> Self::Message;
    /// To this node itself: the content of a forgotten register of a page, if it is known.
    fn recover(walk: u64, key: Key, found: Option<Self::Found>) -> Self::Message;
}

/// The context of a protocol with reports `E`.
pub type PagedScope<'a, E> =
    Scope<'a, <E as Paged>::Record, <E as Paged>::Meta, <E as Paged>::Message>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    Present,
    Absent,
    /// A read of the key tells.
    Undecided,
}

/// The messages of a pager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PageMessage<E> {
    List {
        id: u64,
        from_hash: u64,
        limit: u32,
        want_values: bool,
    },
    Page {
        id: u64,
        from_hash: u64,
        entries: Vec<(Key, E)>,
        next_hash: Option<u64>,
    },
    /// To this node itself, once all registers of a page are recovered, durably.
    Recovered {
        id: u64,
        from_hash: u64,
    },
}

impl<E> PageMessage<E> {
    #[must_use]
    pub fn shard(&self) -> Shard {
        let (PageMessage::List { from_hash, .. }
        | PageMessage::Page { from_hash, .. }
        | PageMessage::Recovered { from_hash, .. }) = self;
        shard_of(*from_hash)
    }
}

fn shard_of(from_hash: u64) -> Shard {
    Shard((from_hash >> 56) as u8)
}

/// Pages in progress.
#[derive(Debug)]
pub struct Pager<E> {
    next_id: u64,
    timeout: Nanos,
    due: Due<u64>,
    walks: BTreeMap<u64, Walk<E>>,
    /// Forgotten shards without a walk so far.
    forgotten: BTreeSet<Shard>,
    serving: Serving,
}

impl<E: Paged> Pager<E> {
    #[must_use]
    pub fn new(env: &Env) -> Pager<E> {
        Pager {
            // Numbers name the start of this process, so answers to its predecessor do not count.
            next_id: (u64::from(env.incarnation.0) << 40) + 1,
            timeout: env.request_timeout,
            due: Due::new(PAGER_TICK),
            walks: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            serving: Serving::default(),
        }
    }

    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.walks.is_empty() && self.serving.is_empty() && self.forgotten.is_empty()
    }

    pub fn stats(&self, stats: &mut Stats) {
        let shards = self.forgotten.len() + self.recovery_walks();
        stats.add("recovering_shards", shards as u64);
    }

    fn recovery_walks(&self) -> usize {
        self.walks.values().filter(|walk| walk.is_recovery()).count()
    }

    pub fn arm(&mut self, cx: &mut PagedScope<'_, E>) {
        self.due.arm(cx.fx);
    }

    pub fn on_list(&mut self, cx: &mut PagedScope<'_, E>, tag: Tag, from_hash: u64, limit: usize) {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX).clamp(1, LISTING_PAGE_MAX);
        let deadline = cx.now + self.timeout;
        self.walk(cx, Walk::new(Purpose::List { tag }, from_hash, limit, deadline));
    }

    /// Recoveries in this shard start anew, since its registers are forgotten again.
    pub fn on_forgotten(&mut self, cx: &mut PagedScope<'_, E>, shard: Shard) {
        if !cx.replicas.set.has_me() {
            // It has no register of this shard to recover.
            return cx.fx.recovered(shard);
        }
        self.end_recovery(cx, shard);
        self.forgotten.insert(shard);
        self.walk_forgotten(cx);
    }

    /// Ends the recovery of this shard: its registers are forgotten again. Another one begins once
    /// [`Pager::on_forgotten`] is called.
    pub fn end_recovery(&mut self, cx: &mut PagedScope<'_, E>, shard: Shard) {
        if mutation::is(Mutation::RecoveryGoesOn) {
            return;
        }
        let walks: Vec<u64> = (self.walks.iter())
            .filter(|(_, walk)| walk.purpose == Purpose::Recover { shard })
            .map(|(&id, _)| id)
            .collect();
        for id in walks {
            self.remove_walk(id);
        }
        self.forgotten.remove(&shard);
        self.walk_forgotten(cx);
    }

    pub fn on_message(&mut self, cx: &mut PagedScope<'_, E>, from: Peer, message: PageMessage<E>) {
        match message {
            PageMessage::List { id: walk, from_hash, limit, want_values } => {
                self.on_page_asked(
                    cx,
                    Asked { to: from.node, walk, from_hash, want_values },
                    limit,
                );
            }
            PageMessage::Page { id, from_hash, entries, next_hash } => {
                self.on_page(cx, from, id, from_hash, (entries, next_hash));
            }
            PageMessage::Recovered { id, .. } if from.node == cx.replicas.me() => {
                self.on_page_recovered(cx, id);
            }
            PageMessage::Recovered { .. } => {}
        }
    }

    pub fn on_tick(&mut self, cx: &mut PagedScope<'_, E>) {
        for id in self.due.take(cx.now) {
            self.on_walk_due(cx, id);
        }
    }

    fn walk_forgotten(&mut self, cx: &mut PagedScope<'_, E>) {
        while self.recovery_walks() < SHARDS_AT_ONCE {
            let Some(shard) = self.forgotten.pop_first() else { return };
            let purpose = Purpose::Recover { shard };
            self.walk(cx, Walk::new(purpose, shard.first_hash(), RECOVERY_PAGE, Nanos::MAX));
        }
    }

    fn walk(&mut self, cx: &mut PagedScope<'_, E>, walk: Walk<E>) {
        let id = self.next_id();
        cx.about(shard_of(walk.from_hash));
        ask_pages(cx, id, &walk);
        self.due.set(id, (cx.now + RESEND_FIRST).min(walk.deadline));
        self.walks.insert(id, walk);
    }

    fn remove_walk(&mut self, id: u64) -> Option<Walk<E>> {
        self.due.clear(&id);
        self.walks.remove(&id)
    }

    fn on_page_asked(&mut self, cx: &mut PagedScope<'_, E>, asked: Asked, limit: u32) {
        let id = self.next_id();
        let from_hash = asked.from_hash;
        if cx.replicas.set.has_me()
            && !cx.cache.is_forgotten(shard_of(from_hash))
            && self.serving.begin(id, asked)
        {
            cx.fx.scan(Scan { id, from_hash, limit: limit.min(LISTING_PAGE_MAX) as usize });
        }
    }

    pub fn on_scanned(&mut self, cx: &mut PagedScope<'_, E>, scanned: Scanned<E::Record>) {
        let Some(asked) = self.serving.end(scanned.id) else { return };
        let Asked { to, walk, from_hash, want_values } = asked;
        if cx.cache.is_forgotten(shard_of(from_hash)) {
            return;
        }
        let (scope, cache) = (&*cx, &cx.cache);
        let entry = |_: &Key, record: &E::Record| {
            let report = E::of(record, scope);
            if want_values { report } else { report.without_values() }
        };
        match cut(scanned, E::value_len, |key| cache.ticket(key), entry) {
            Ok(page) => {
                let (entries, next_hash) = (page.entries, page.next_hash);
                let message = PageMessage::Page { id: walk, from_hash, entries, next_hash };
                cx.fx.send(to, E::message(message), page.after);
            }
            // Recover it; the requester asks again.
            Err(key) => cx.fx.send_now(cx.replicas.me(), E::read(key)),
        }
    }

    fn on_page(
        &mut self,
        cx: &mut PagedScope<'_, E>,
        from: Peer,
        id: u64,
        from_hash: u64,
        page: Page<E>,
    ) {
        let Some(walk) = self.walks.get_mut(&id) else { return };
        if walk.from_hash != from_hash || walk.recovering.is_some() {
            return;
        }
        walk.add(cx.replicas, (from.node, from.amnesia), page);
        let Some(merged) = walk.merged(cx.replicas) else { return };
        match walk.purpose {
            Purpose::List { tag } => {
                self.remove_walk(id);
                answer_listing(cx, tag, merged);
            }
            Purpose::Recover { .. } => self.recover_page(cx, id, merged),
        }
    }

    fn on_walk_due(&mut self, cx: &mut PagedScope<'_, E>, id: u64) {
        let Some(walk) = self.walks.get_mut(&id) else { return };
        cx.about(shard_of(walk.from_hash));
        if walk.deadline <= cx.now {
            if let Purpose::List { tag } = walk.purpose {
                cx.fx.reply(tag, Outcome::NoQuorum);
            }
            self.remove_walk(id);
            return;
        }
        self.due.set(id, (cx.now + RESEND_MAX).min(walk.deadline));
        match walk.overdue() {
            Overdue::Ask => ask_pages(cx, id, walk),
            Overdue::Finish => {
                let recovered = PageMessage::Recovered { id, from_hash: walk.from_hash };
                cx.fx.send(cx.replicas.me(), E::message(recovered), walk.recovered_after);
            }
            Overdue::Restart => {
                let again = walk.again();
                self.remove_walk(id);
                self.walk(cx, again);
            }
            Overdue::Wait => {}
        }
    }

    /// A page is complete: its registers are recovered one after the other.
    fn recover_page(&mut self, cx: &mut PagedScope<'_, E>, id: u64, merged: Merged<E>) {
        let Some(walk) = self.walks.get_mut(&id) else { return };
        let Merged { registers, counted, next_hash } = merged;
        walk.next_hash = next_hash;
        walk.recovering = Some(registers.keys().cloned().collect());
        if registers.is_empty() {
            return self.on_page_recovered(cx, id);
        }
        for (key, reports) in registers {
            let reports = reports.into_iter().collect();
            let found = E::found(cx.replicas.set, counted, &reports);
            cx.fx.send_now(cx.replicas.me(), E::recover(id, key, found));
        }
    }

    /// False for a walk that a later amnesia removed: its answers are worthless.
    #[must_use]
    pub fn has_walk(&self, id: u64) -> bool {
        self.walks.contains_key(&id)
    }

    /// This register is recovered: the walks that wait for it go on.
    pub fn on_recovered_key(&mut self, cx: &mut PagedScope<'_, E>, key: &Key) {
        let ticket = cx.cache.ticket(key);
        for (&id, walk) in &mut self.walks {
            let Some(recovering) = &mut walk.recovering else { continue };
            if recovering.remove(key) {
                walk.recovered_after = walk.recovered_after.max(ticket);
                if recovering.is_empty() {
                    let recovered = PageMessage::Recovered { id, from_hash: walk.from_hash };
                    cx.fx.send(cx.replicas.me(), E::message(recovered), walk.recovered_after);
                }
            }
        }
    }

    /// A page is recovered, durably.
    fn on_page_recovered(&mut self, cx: &mut PagedScope<'_, E>, id: u64) {
        let is_done = |walk: &Walk<E>| walk.recovering.as_ref().is_some_and(BTreeSet::is_empty);
        if !self.walks.get(&id).is_some_and(is_done) {
            return;
        }
        let Some(walk) = self.remove_walk(id) else { return };
        let Purpose::Recover { shard } = walk.purpose else { return };
        match walk.next_hash {
            Some(next) => self.walk(cx, Walk::new(walk.purpose, next, RECOVERY_PAGE, Nanos::MAX)),
            None => {
                cx.fx.recovered(shard);
                self.walk_forgotten(cx);
            }
        }
    }
}

fn answer_listing<E: Paged>(cx: &mut PagedScope<'_, E>, tag: Tag, merged: Merged<E>) {
    let Merged { registers, counted, next_hash } = merged;
    let (mut keys, mut undecided) = (Vec::new(), Vec::new());
    for (key, reports) in registers {
        match E::presence(cx.replicas.set, counted, &reports.into_iter().collect()) {
            Presence::Present => keys.push(key),
            Presence::Undecided => undecided.push(key),
            Presence::Absent => {}
        }
    }
    cx.fx.reply(tag, Outcome::Listed { keys, undecided, next_hash });
}

fn ask_pages<E: Paged>(cx: &mut PagedScope<'_, E>, id: u64, walk: &Walk<E>) {
    for node in cx.replicas.all().filter(|&node| walk.lacks(cx.replicas, node)) {
        let (from_hash, limit, want_values) = (walk.from_hash, walk.limit, walk.is_recovery());
        let list = PageMessage::List { id, from_hash, limit, want_values };
        cx.fx.send_now(node, E::message(list));
    }
}

/// The first bytes of these messages. A protocol's own kinds lie above.
pub const PAGE_KINDS_MAX: u8 = 3;
const LIST: u8 = 1;
const PAGE: u8 = 2;
const RECOVERED: u8 = 3;

impl<E: Wire> Wire for PageMessage<E> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut head = |kind: u8, id: u64, from_hash: u64| {
            out.push(kind);
            put_varint(out, id);
            out.extend_from_slice(&from_hash.to_le_bytes());
        };
        match self {
            PageMessage::List { id, from_hash, limit, want_values } => {
                head(LIST, *id, *from_hash);
                put_varint(out, u64::from(*limit));
                out.push(u8::from(*want_values));
            }
            PageMessage::Page { id, from_hash, entries, next_hash } => {
                head(PAGE, *id, *from_hash);
                put_page(out, entries, *next_hash);
            }
            PageMessage::Recovered { id, from_hash } => head(RECOVERED, *id, *from_hash),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<PageMessage<E>, Malformed> {
        let kind = reader.u8()?;
        PageMessage::decode_kind(kind, reader)
    }
}

impl<E: Wire> PageMessage<E> {
    /// Decodes a message whose first byte was read.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are none.
    pub fn decode_kind(kind: u8, reader: &mut Reader<'_>) -> Result<PageMessage<E>, Malformed> {
        let (id, from_hash) = (reader.varint()?, reader.u64()?);
        Ok(match kind {
            LIST => PageMessage::List {
                id,
                from_hash,
                limit: u32::try_from(reader.varint()?).map_err(|_| Malformed)?,
                want_values: match reader.u8()? {
                    0 => false,
                    1 => true,
                    _ => return Err(Malformed),
                },
            },
            PAGE => {
                let (entries, next_hash) = take_page(reader)?;
                PageMessage::Page { id, from_hash, entries, next_hash }
            }
            RECOVERED => PageMessage::Recovered { id, from_hash },
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_from_their_bytes() {
        let key = Key::new(b"k");
        let messages = [
            PageMessage::List { id: 5, from_hash: 9, limit: 10, want_values: false },
            PageMessage::Page {
                id: 6,
                from_hash: 9,
                entries: vec![(key.clone(), key)],
                next_hash: Some(u64::MAX),
            },
            PageMessage::Recovered { id: 8, from_hash: 1 },
        ];
        for message in messages {
            let bytes = message.to_bytes();
            for len in 0..bytes.len() {
                assert_eq!(PageMessage::<Key>::from_bytes(&bytes[..len]), Err(Malformed));
            }
            assert_eq!(PageMessage::<Key>::from_bytes(&bytes), Ok(message));
        }
    }
}
