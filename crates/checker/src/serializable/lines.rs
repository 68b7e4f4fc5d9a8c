//! The order in which each list grew, as far as reads show it.

use std::collections::{BTreeMap, BTreeSet};

use super::Anomaly;
use super::observations::{Observations, Read};
use crate::history::OpId;
use crate::model::lists::{Element, Key, ListStep};

/// The observed order of one list.
#[derive(Default)]
pub(super) struct ListOrder<'a> {
    /// The longest read; the known order.
    pub(super) longest: &'a [Element],
    longest_reader: Option<OpId>,
    /// Readers, each with the number of elements of `longest` that it read.
    pub(super) readers: Vec<(OpId, usize)>,
    /// Reads that are no beginning of `longest`.
    astray: Vec<OpId>,
    /// Appends that took effect and that `longest` does not show, one of each author.
    pub(super) unseen: Vec<(OpId, Element)>,
}

pub(super) struct Lines<'a>(pub(super) BTreeMap<Key, ListOrder<'a>>);

impl<'a> Lines<'a> {
    pub(super) fn new(observations: &Observations<'a>) -> Self {
        let mut lines: BTreeMap<Key, ListOrder<'a>> = BTreeMap::new();
        for read in &observations.reads {
            let line = lines.entry(read.key).or_default();
            if line.longest_reader.is_none() || read.found.len() > line.longest.len() {
                (line.longest, line.longest_reader) = (read.found, Some(read.reader));
            }
        }
        for Read { reader, key, found } in &observations.reads {
            let line = lines.get_mut(key).expect("every list that was read has a line");
            match line.longest.starts_with(found) {
                true => line.readers.push((*reader, found.len())),
                false => line.astray.push(*reader),
            }
        }
        let mut lines = Lines(lines);
        lines.add_unseen(observations);
        lines
    }

    fn add_unseen(&mut self, observations: &Observations<'a>) {
        let shown: BTreeMap<Key, BTreeSet<Element>> = self
            .0
            .iter()
            .map(|(key, line)| (*key, line.longest.iter().copied().collect()))
            .collect();
        let operations = observations.history.operations().iter();
        for operation in operations.filter(|operation| observations.took_effect(operation.id)) {
            for step in &operation.input {
                let ListStep::Append { key, element } = *step else { continue };
                if shown.get(&key).is_some_and(|shown| shown.contains(&element)) {
                    continue;
                }
                let unseen = &mut self.0.entry(key).or_default().unseen;
                if unseen.last().is_none_or(|(author, _)| *author != operation.id) {
                    unseen.push((operation.id, element));
                }
            }
        }
    }

    /// Anomalies that show only in several reads and appends together.
    pub(super) fn anomalies(&self, observations: &Observations<'a>) -> Vec<Anomaly> {
        self.0.iter().flat_map(|(key, line)| line.anomalies(*key, observations)).collect()
    }
}

impl ListOrder<'_> {
    fn anomalies(&self, key: Key, observations: &Observations<'_>) -> Vec<Anomaly> {
        let Some(reader) = self.longest_reader else { return Vec::new() };
        let astray = self.astray.iter();
        let mut anomalies: Vec<Anomaly> = astray
            .map(|one| Anomaly::IncompatibleOrder { key, one: *one, other: reader })
            .collect();
        anomalies.extend(self.dirty_update(key, observations));
        let reordered = self.reordered(key, observations);
        anomalies.extend(reordered.map(|author| Anomaly::Reordered { reader, key, author }));
        anomalies.extend(self.lost_updates(key, observations));
        anomalies
    }

    /// The first append that comes upon one of a failed transaction.
    fn dirty_update(&self, key: Key, observations: &Observations<'_>) -> Option<Anomaly> {
        let authors = || self.longest.iter().map(|e| Some(observations.append(key, *e)?.author));
        let mut pairs = authors().zip(authors().skip(1));
        pairs.find_map(|(before, author)| {
            let (aborted, author) = (before?, author?);
            let is_dirty = observations.has_failed(aborted) && observations.took_effect(author);
            is_dirty.then_some(Anomaly::DirtyUpdate { key, aborted, author })
        })
    }

    /// A transaction whose appends do not stand in the order that it made them.
    fn reordered(&self, key: Key, observations: &Observations<'_>) -> Option<OpId> {
        let mut next: BTreeMap<OpId, usize> = BTreeMap::new();
        let appends = self.longest.iter().filter_map(|e| observations.append(key, *e));
        appends.into_iter().find_map(|append| {
            let next = next.entry(append.author).or_default();
            let is_next = append.place == *next;
            *next = append.place + 1;
            (!is_next).then_some(append.author)
        })
    }

    /// Transactions that read the same state and then appended: all but one missed an append in
    /// between.
    fn lost_updates(&self, key: Key, observations: &Observations<'_>) -> Vec<Anomaly> {
        let appends_here = |op: &OpId| {
            let mut steps = observations.history.operation(*op).input.iter();
            steps.any(|step| matches!(step, ListStep::Append { key: to, .. } if *to == key))
        };
        let mut by_found: BTreeMap<usize, Vec<OpId>> = BTreeMap::new();
        for (reader, found) in self.readers.iter().filter(|(reader, _)| appends_here(reader)) {
            by_found.entry(*found).or_default().push(*reader);
        }
        let several = by_found.into_values().filter(|authors| authors.len() > 1);
        several.map(|authors| Anomaly::LostUpdate { key, authors }).collect()
    }
}
