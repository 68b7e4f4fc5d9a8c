//! What is known of a ring that has not been read: its newest stripes, the metas of all, and what was found since.

use std::cell::OnceCell;

use bytes::Bytes;
use hashbrown::HashMap;

use crate::disk::cache::ByNumber;
use crate::disk::entry::{Entry, Identity};
use crate::disk::metas::Metas;
use crate::disk::named::Named;
use crate::disk::recovery::Found;
use crate::disk::stripe::{STRIPE_HEAD_LEN, entries};

/// More entries than these of the last stripes are not left for somebody who waits.
const SORTED_LATER_MAX: usize = 1 << 16;

/// Entries of the ring that are the newest of their places.
#[derive(Debug)]
pub(super) struct Known {
    last: Last,
    /// From the stripes before those.
    older: Newest,
    /// Places that digests only seemed to name.
    absent: HashMap<u64, Vec<Identity>, ByNumber>, // by hash
    pub(super) has_all_metas: bool,
}

impl Known {
    /// The metas that digests have, and the last stripes: who comes back asks for what was last.
    pub(super) fn of(metas: &Metas, last: Vec<Found>) -> Known {
        let mut older = Newest::default();
        if !metas.are_partial {
            metas.entries().for_each(|raw| older.add(raw.clone()));
        }
        let absent = HashMap::default();
        Known { last: Last::of(last), older, absent, has_all_metas: !metas.are_partial }
    }

    /// The last stripes have nothing of its place.
    pub(super) fn add_older(&mut self, raw: Bytes) {
        self.older.add(raw);
    }

    pub(super) fn add_absent(&mut self, identity: Identity) {
        self.absent.entry(identity.hash).or_default().push(identity);
    }

    pub(super) fn is_absent(&self, identity: &Identity) -> bool {
        self.absent.get(&identity.hash).is_some_and(|absent| absent.contains(identity))
    }

    pub(super) fn find(&self, identity: &Identity, named: &Named) -> Option<Entry<'_>> {
        let is_named = named.may_be_last(identity.hash);
        let last = is_named.then(|| self.last.find(identity)).flatten();
        last.or_else(|| self.older.find(identity))
    }

    /// The same, but nothing that refers to an extent: that is not all there is to know.
    pub(super) fn find_whole(&self, identity: &Identity, named: &Named) -> Option<Entry<'_>> {
        self.find(identity, named).filter(|entry| !entry.kind.is_in_extent())
    }
}

/// The last stripes; a start does not pay for what nobody asks them for.
#[derive(Debug)]
struct Last {
    stripes: Vec<Found>,
    /// By hash, and then from the oldest to the newest.
    sorted: OnceCell<Vec<Row>>,
}

/// Where an entry is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Row {
    hash: u64,
    /// Which of the stripes.
    stripe: u32,
    /// Where in its payload.
    at: u32,
}

impl Last {
    fn of(stripes: Vec<Found>) -> Last {
        let entries: usize = stripes.iter().map(|found| found.said.hashes.len()).sum();
        let last = Last { stripes, sorted: OnceCell::new() };
        if entries > SORTED_LATER_MAX {
            last.sorted();
        }
        last
    }

    fn sorted(&self) -> &[Row] {
        self.sorted.get_or_init(|| {
            let mut rows = Vec::new();
            for (stripe, Found { payload, .. }) in (0..).zip(&self.stripes) {
                let (bytes, _) = entries(payload).expect("the walk checked the stripe");
                let mut at = STRIPE_HEAD_LEN as u32;
                for (raw, entry) in Entry::all(bytes) {
                    rows.push(Row { hash: entry.hash, stripe, at });
                    at += raw.len() as u32;
                }
            }
            rows.sort_unstable();
            rows
        })
    }

    fn find(&self, identity: &Identity) -> Option<Entry<'_>> {
        let rows = self.sorted();
        let end = rows.partition_point(|row| row.hash <= identity.hash);
        let same = rows[..end].iter().rev().take_while(|row| row.hash == identity.hash);
        let payload = |row: &Row| &self.stripes[row.stripe as usize].payload[row.at as usize..];
        let mut entries = same.filter_map(|row| Entry::read(payload(row)));
        entries.find(|entry| identity.matches(entry))
    }
}

/// Entries, one of each place.
#[derive(Debug, Default)]
struct Newest {
    entries: HashMap<u64, Vec<Bytes>, ByNumber>, // by hash
}

impl Newest {
    /// Replaces what is older.
    fn add(&mut self, raw: Bytes) {
        let Some(new) = Entry::read(&raw).filter(|entry| entry.mark().is_none()) else { return };
        let places = self.entries.entry(new.hash).or_default();
        places.retain(|old| Entry::read(old).is_some_and(|old| !old.has_identity_of(&new)));
        places.push(raw);
    }

    fn find(&self, identity: &Identity) -> Option<Entry<'_>> {
        let places = self.entries.get(&identity.hash)?.iter();
        let mut places = places.filter_map(|raw| Entry::read(raw));
        places.find(|entry| identity.matches(entry))
    }
}
