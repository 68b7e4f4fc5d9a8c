//! Scans of a shard on a majority, to list its keys or to recover a forgotten shard.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use base::Nanos;
use types::{AmnesiaCount, Key, NodeId, Shard, Tag, Ticket};

use super::message::{PageEntry, Reported, Version};
use crate::quorum::Tally;
use crate::replicas::{Places, Replicas, place};

/// The purpose of a shard scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A client asked for one step.
    List { tag: Tag },
    /// This replica forgot the shard.
    Recover { shard: Shard },
}

/// One page, requested from all replicas.
#[derive(Clone, Debug)]
pub struct Walk {
    pub purpose: Purpose,
    pub from_hash: u64,
    pub limit: u32,
    pub deadline: Nanos,
    pub resend_at: Nanos,
    answered: Tally,
    pages: BTreeMap<NodeId, (Vec<PageEntry>, Option<u64>)>,
    /// Registers of this page that are not adopted yet; set once the page is complete.
    pub adopting: Option<usize>,
    /// The same at the last check.
    pub left_before: usize,
    /// When all registers adopted so far are durable.
    pub adopted_after: Ticket,
    /// The end of the complete page.
    pub next_hash: Option<u64>,
}

/// The newest report of a register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewestReport {
    pub version: Version,
    pub value: Reported,
    /// Replicas that reported this version.
    pub holders: Places,
}

impl NewestReport {
    const NOTHING: NewestReport =
        NewestReport { version: Version::NONE, value: Reported::Nothing, holders: 0 };
}

/// Registers up to `next_hash`, each with its newest version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Merged {
    pub registers: BTreeMap<Key, NewestReport>,
    pub next_hash: Option<u64>,
}

impl Walk {
    #[must_use]
    pub fn new(purpose: Purpose, from_hash: u64, limit: u32, deadline: Nanos) -> Walk {
        Walk {
            purpose,
            from_hash,
            limit,
            deadline,
            resend_at: Nanos::ZERO,
            answered: Tally::default(),
            pages: BTreeMap::new(),
            adopting: None,
            left_before: usize::MAX,
            adopted_after: Ticket::DURABLE,
            next_hash: None,
        }
    }

    #[must_use]
    pub fn wants_values(&self) -> bool {
        matches!(self.purpose, Purpose::Recover { .. })
    }

    /// True if the node's page is still missing.
    #[must_use]
    pub fn lacks(&self, replicas: Replicas<'_>, node: NodeId) -> bool {
        let is_needed = node != replicas.me() || matches!(self.purpose, Purpose::List { .. });
        is_needed && !self.answered.has(replicas, node)
    }

    pub fn add(
        &mut self,
        replicas: Replicas<'_>,
        (node, amnesia): (NodeId, AmnesiaCount),
        entries: Vec<PageEntry>,
        next_hash: Option<u64>,
    ) {
        if self.answered.add(replicas, node, amnesia) {
            self.pages.insert(node, (entries, next_hash));
        }
    }

    /// The registers that enough pages cover, once there are enough.
    #[must_use]
    pub fn merged(&self, replicas: Replicas<'_>) -> Option<Merged> {
        let mut counted = self.answered;
        if matches!(self.purpose, Purpose::Recover { .. }) {
            counted.remove(replicas, replicas.me());
        }
        if !replicas.is_quorum(&counted) {
            return None;
        }
        let pages = || self.pages.iter().filter(|&(&node, _)| counted.has(replicas, node));
        // Beyond the shortest page an answer is missing.
        let next_hash = pages().filter_map(|(_, (_, next_hash))| *next_hash).min();
        let mut registers = BTreeMap::<Key, NewestReport>::new();
        let entries = pages().flat_map(|(&node, (entries, _))| {
            let at = replicas.index(node).map_or(0, place);
            entries.iter().map(move |entry| (at, entry))
        });
        for (at, entry) in entries {
            if next_hash.is_some_and(|next| entry.key.hash() >= next) {
                continue;
            }
            let newest = registers.entry(entry.key.clone()).or_insert(NewestReport::NOTHING);
            match entry.version.cmp(&newest.version) {
                Ordering::Greater => {
                    let (version, value) = (entry.version, entry.value.clone());
                    *newest = NewestReport { version, value, holders: at };
                }
                Ordering::Equal => newest.holders |= at,
                Ordering::Less => {}
            }
        }
        Some(Merged { registers, next_hash })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use types::{Epoch, Incarnation};

    use super::*;
    use crate::peers::Peers;
    use crate::replicas::ReplicaSet;

    static SET: LazyLock<ReplicaSet> = LazyLock::new(|| ReplicaSet::new(Epoch(1), NodeId(1), &IDS));
    static PEERS: LazyLock<Peers> =
        LazyLock::new(|| Peers::new(NodeId(1), Incarnation(1), AmnesiaCount(1), &IDS));
    const IDS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    fn replicas() -> Replicas<'static> {
        Replicas { set: &SET, peers: &PEERS }
    }

    fn entry(key: &Key, number: u64) -> PageEntry {
        let version = Version { number, writer: NodeId(1), incarnation: Incarnation(1) };
        PageEntry { key: key.clone(), version, value: Reported::Nothing }
    }

    #[test]
    fn newest_version_wins_within_the_shortest_page() {
        let mut keys: Vec<Key> = (0..3_u8).map(|n| Key::new(&[n])).collect();
        keys.sort();
        let purpose = Purpose::List { tag: Tag(1) };
        let mut walk = Walk::new(purpose, 0, 10, Nanos::MAX);
        walk.add(
            replicas(),
            (NodeId(2), AmnesiaCount(1)),
            keys.iter().map(|k| entry(k, 1)).collect(),
            None,
        );
        assert_eq!(walk.merged(replicas()), None);
        let short = vec![entry(&keys[0], 2)];
        walk.add(replicas(), (NodeId(3), AmnesiaCount(1)), short, Some(keys[1].hash()));
        let merged = walk.merged(replicas()).expect("two of three pages");
        assert_eq!(merged.next_hash, Some(keys[1].hash()));
        assert_eq!(merged.registers.len(), 1);
        assert_eq!(merged.registers[&keys[0]].version.number, 2);
    }

    #[test]
    fn recovery_does_not_count_its_own_page() {
        let mut walk = Walk::new(Purpose::Recover { shard: Shard(0) }, 0, 10, Nanos::MAX);
        walk.add(replicas(), (NodeId(1), AmnesiaCount(1)), Vec::new(), None);
        walk.add(replicas(), (NodeId(2), AmnesiaCount(1)), Vec::new(), None);
        assert_eq!(walk.merged(replicas()), None);
        assert!(!walk.lacks(replicas(), NodeId(1)));
        assert!(walk.lacks(replicas(), NodeId(3)));
    }
}
