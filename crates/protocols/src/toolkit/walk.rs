//! One page of a shard, asked of all replicas: to list keys, or to recover a forgotten shard.
//!
//! Pages differ in length. Only the part that all counted pages cover is complete.

use std::collections::{BTreeMap, BTreeSet};

use base::Nanos;
use types::{AmnesiaCount, Key, NodeId, Shard, Tag, Ticket};

use crate::quorum::Tally;
use crate::replicas::{Places, Replicas, place};

/// The purpose of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A client asked for one step.
    List { tag: Tag },
    /// This replica forgot the shard.
    Recover { shard: Shard },
}

/// A page with the number of its walk.
pub type Page<E> = (Vec<(Key, E)>, Option<u64>);

/// A walk over one page. Entries `E` are reports of single registers.
#[derive(Clone, Debug)]
pub struct Walk<E> {
    pub purpose: Purpose,
    pub from_hash: u64,
    pub limit: u32,
    pub deadline: Nanos,
    answered: Tally,
    pages: BTreeMap<NodeId, Page<E>>,
    /// Registers of this page that are not recovered yet; set once the page is complete.
    pub recovering: Option<BTreeSet<Key>>,
    /// Their number at the last check.
    left_before: usize,
    /// When all registers recovered so far are durable.
    pub recovered_after: Ticket,
    /// The end of the complete page.
    pub next_hash: Option<u64>,
}

/// The reports on each key up to `next_hash`, with the places of their replicas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Merged<E> {
    pub registers: BTreeMap<Key, Vec<(usize, E)>>,
    /// The replicas whose pages count.
    pub counted: Places,
    pub next_hash: Option<u64>,
}

/// The next step of a walk whose timer is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overdue {
    /// Ask those again that did not answer.
    Ask,
    /// All is recovered: say so again.
    Finish,
    /// No register was recovered since the last check: fetch the page again.
    Restart,
    Wait,
}

impl<E: Clone> Walk<E> {
    #[must_use]
    pub fn new(purpose: Purpose, from_hash: u64, limit: u32, deadline: Nanos) -> Walk<E> {
        Walk {
            purpose,
            from_hash,
            limit,
            deadline,
            answered: Tally::default(),
            pages: BTreeMap::new(),
            recovering: None,
            left_before: usize::MAX,
            recovered_after: Ticket::DURABLE,
            next_hash: None,
        }
    }

    /// The same page again.
    #[must_use]
    pub fn again(&self) -> Walk<E> {
        Walk::new(self.purpose, self.from_hash, self.limit, self.deadline)
    }

    #[must_use]
    pub fn is_recovery(&self) -> bool {
        matches!(self.purpose, Purpose::Recover { .. })
    }

    /// True if the node's page is still missing. A recovering replica does not ask itself.
    #[must_use]
    pub fn lacks(&self, replicas: Replicas<'_>, node: NodeId) -> bool {
        let is_needed = node != replicas.me() || !self.is_recovery();
        is_needed && !self.answered.has(replicas, node)
    }

    pub fn add(
        &mut self,
        replicas: Replicas<'_>,
        (node, amnesia): (NodeId, AmnesiaCount),
        page: Page<E>,
    ) {
        if self.answered.add(replicas, node, amnesia) {
            self.pages.insert(node, page);
        }
    }

    /// The registers that enough pages cover, once there are enough.
    #[must_use]
    pub fn merged(&self, replicas: Replicas<'_>) -> Option<Merged<E>> {
        let mut counted = self.answered;
        if self.is_recovery() {
            counted.remove(replicas, replicas.me());
        }
        if !replicas.is_quorum(&counted) {
            return None;
        }
        let pages = || self.pages.iter().filter(|&(&node, _)| counted.has(replicas, node));
        // Beyond the shortest page an answer is missing.
        let next_hash = pages().filter_map(|(_, (_, next_hash))| *next_hash).min();
        let mut registers = BTreeMap::<Key, Vec<(usize, E)>>::new();
        for (&node, (entries, _)) in pages() {
            let Some(index) = replicas.index(node) else { continue };
            for (key, entry) in entries {
                if next_hash.is_none_or(|next| key.hash() < next) {
                    registers.entry(key.clone()).or_default().push((index, entry.clone()));
                }
            }
        }
        let counted = counted.places(replicas.set, replicas.peers);
        Some(Merged { registers, counted, next_hash })
    }

    /// The timer of the walk is due.
    pub fn overdue(&mut self) -> Overdue {
        match self.recovering.as_ref().map(BTreeSet::len) {
            None => Overdue::Ask,
            // An amnesia of another shard drops all sends that wait for storage, also those to this
            // node. So this message is repeated, and a page without progress is fetched again.
            Some(0) => Overdue::Finish,
            Some(left) if left == self.left_before => Overdue::Restart,
            Some(left) => {
                self.left_before = left;
                Overdue::Wait
            }
        }
    }
}

/// The newest of the reports on a register, by an order of entries, and the places that have it.
#[must_use]
pub fn newest<E, V: Ord>(
    reports: &[(usize, E)],
    version: impl Fn(&E) -> V,
) -> Option<(&E, Places)> {
    let (_, newest) = reports.iter().max_by_key(|(_, entry)| version(entry))?;
    let is_it = |entry: &E| version(entry) == version(newest);
    let held = reports.iter().filter(|(_, entry)| is_it(entry));
    Some((newest, held.fold(0, |set, (index, _)| set | place(*index))))
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

    fn from(node: u16) -> (NodeId, AmnesiaCount) {
        (NodeId(node), AmnesiaCount(1))
    }

    #[test]
    fn newest_version_wins_within_the_shortest_page() {
        let mut keys: Vec<Key> = (0..3_u8).map(|n| Key::new(&[n])).collect();
        keys.sort();
        let mut walk = Walk::new(Purpose::List { tag: Tag(1) }, 0, 10, Nanos::MAX);
        walk.add(replicas(), from(2), (keys.iter().map(|k| (k.clone(), 1)).collect(), None));
        assert_eq!(walk.merged(replicas()), None);
        let short = vec![(keys[0].clone(), 2)];
        walk.add(replicas(), from(3), (short, Some(keys[1].hash())));
        let merged = walk.merged(replicas()).expect("two of three pages");
        assert_eq!((merged.next_hash, merged.counted), (Some(keys[1].hash()), 0b110));
        assert_eq!(merged.registers.len(), 1);
        assert_eq!(newest(&merged.registers[&keys[0]], |entry| *entry), Some((&2, 0b100)));
    }

    #[test]
    fn recovery_does_not_count_its_own_page() {
        let mut walk = Walk::<()>::new(Purpose::Recover { shard: Shard(0) }, 0, 10, Nanos::MAX);
        walk.add(replicas(), from(1), (Vec::new(), None));
        walk.add(replicas(), from(2), (Vec::new(), None));
        assert_eq!(walk.merged(replicas()), None);
        assert!(!walk.lacks(replicas(), NodeId(1)));
        assert!(walk.lacks(replicas(), NodeId(3)));
    }

    #[test]
    fn recovery_without_progress_starts_again() {
        let mut walk = Walk::<()>::new(Purpose::Recover { shard: Shard(0) }, 0, 10, Nanos::MAX);
        assert_eq!(walk.overdue(), Overdue::Ask);
        walk.recovering = Some(BTreeSet::from([Key::new(b"a")]));
        assert_eq!(walk.overdue(), Overdue::Wait);
        assert_eq!(walk.overdue(), Overdue::Restart);
        walk.recovering = Some(BTreeSet::new());
        assert_eq!(walk.overdue(), Overdue::Finish);
    }
}
