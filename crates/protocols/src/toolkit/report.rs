//! Reports of replicas on one register, and the conclusion from those of a quorum.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use base::{Millis, checksum};
use types::explain::{Held, Record};
use types::{AmnesiaCount, NodeId, Wire};

use super::body::Body;
use super::countdown::Countdown;
use super::state::{Base, ExpiryId, State};
use crate::quorum::Tally;
use crate::replicas::{Places, ReplicaSet, Replicas, place};
use crate::uptime::Uptime;

/// The report of a replica on one register. Its default is that of an absent register.
pub trait Report: Wire + Clone + Default + PartialEq + Eq + Debug + Send + 'static {
    /// The stored register. Its default stands for an absent one.
    type Record: Wire + Clone + Default + PartialEq + Debug + Send + 'static;
    /// The content of a register, as a quorum shows it.
    type Found: Wire + Clone + PartialEq + Eq + Debug + Send;
    /// The protocol's own messages.
    type Body: Body;

    fn of(record: &Self::Record, uptime: &dyn Uptime, unix: Millis) -> Self;
    /// The same with empty values in the place of others.
    fn without_values(&self) -> Self;
    /// The newest state of a register, chosen or not.
    fn latest(record: &Self::Record) -> Base;
    /// About how many bytes the values of a register have.
    fn value_len(record: &Self::Record) -> usize;

    /// Orders the reports of one replica.
    fn age(&self) -> impl Ord;
    /// The countdown of this deadline.
    fn countdown_of(&self, id: ExpiryId) -> Countdown;
    /// The newest state of the replica, with the round under which it has it, for people.
    fn newest(&self) -> Option<(String, &Arc<State>, Countdown)>;

    /// The content that these reports of a quorum show, if they do: no later state was chosen
    /// before they were asked for. A place without a report has no register.
    fn found(set: &ReplicaSet, counted: Places, at: &BTreeMap<usize, Self>) -> Option<Self::Found>;
    fn state(found: &Self::Found) -> &Base;
    /// The register of a replica that forgot its own.
    fn restore(found: Self::Found, uptime: &dyn Uptime) -> Self::Record;
}

/// Reports of distinct replicas.
#[derive(Clone, Debug)]
pub struct Reports<E> {
    pub tally: Tally,
    pub by_place: BTreeMap<usize, E>,
}

impl<E> Default for Reports<E> {
    fn default() -> Reports<E> {
        Reports { tally: Tally::default(), by_place: BTreeMap::new() }
    }
}

impl<E: Report> Reports<E> {
    pub fn add(
        &mut self,
        replicas: Replicas<'_>,
        (node, amnesia): (NodeId, AmnesiaCount),
        report: E,
    ) {
        let Some(index) = replicas.index(node) else { return };
        let is_new = self.tally.add(replicas, node, amnesia);
        if is_new || self.by_place.get(&index).is_none_or(|old| report.age() >= old.age()) {
            self.by_place.insert(index, report);
        }
    }

    /// The replicas whose reports count.
    #[must_use]
    pub fn counted(&self, replicas: Replicas<'_>) -> Places {
        self.tally.places(replicas.set, replicas.peers)
    }

    /// Replicas with such a report.
    pub fn replicas_with<'a>(
        &'a self,
        replicas: Replicas<'a>,
        is_it: impl Fn(&E) -> bool + 'a,
    ) -> impl Iterator<Item = NodeId> + 'a {
        let reports = replicas.all().enumerate();
        let is_at = move |index| self.by_place.get(&index).is_some_and(&is_it);
        reports.filter(move |&(index, _)| is_at(index)).map(|(_, node)| node)
    }

    /// The votes for the end of this deadline, and the largest rest reported for it.
    #[must_use]
    pub fn votes(&self, replicas: Replicas<'_>, id: ExpiryId) -> (Places, Option<Millis>) {
        let counted = self.counted(replicas);
        let of_counted = self.by_place.iter().filter(|(index, _)| counted & place(**index) != 0);
        let (mut over, mut rest) = (0, None);
        for (&index, report) in of_counted {
            let countdown = report.countdown_of(id);
            rest = rest.max(countdown.rest());
            if countdown == Countdown::Over {
                over |= place(index);
            }
        }
        (over, rest)
    }
}

/// The newest state of a replica, for people.
pub fn held<E: Report>(report: &E) -> Held {
    let Some((round, state, countdown)) = report.newest() else { return Held::Absent };
    let value: &[u8] = state.value.as_deref().unwrap_or_default();
    Held::Present(Record {
        round,
        version: state.slot,
        is_tombstone: state.value.is_none(),
        value_len: value.len(),
        checksum: checksum::hash(value),
        rest: countdown.rest(),
    })
}
