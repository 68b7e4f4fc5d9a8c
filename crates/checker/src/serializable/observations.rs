//! The author of each append, and the state of each list that transactions found at their start.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;

use super::Anomaly;
use crate::history::{History, OpId, Operation, Outcome};
use crate::model::lists::{Element, Key, ListStep, Seen, Transaction};

/// A transaction as histories hold it.
pub(super) type Recorded = Operation<Transaction, Seen>;

/// Where an element comes from.
#[derive(Clone, Copy)]
pub(super) struct AppendOrigin {
    pub(super) author: OpId,
    /// Counted from 0 among the author's appends to this list.
    pub(super) place: usize,
    pub(super) is_last: bool,
}

/// The state of a list that a transaction found, without its own appends.
pub(super) struct Read<'a> {
    pub(super) reader: OpId,
    pub(super) key: Key,
    pub(super) found: &'a [Element],
}

pub(super) struct Observations<'a> {
    pub(super) history: &'a History<Transaction, Seen>,
    appends: HashMap<(Key, Element), AppendOrigin>,
    /// At most one for each transaction and list, in order of both.
    pub(super) reads: Vec<Read<'a>>,
    // Transactions and lists whose reads contradict their own steps.
    internal: BTreeSet<(OpId, Key)>,
    // Observed transactions of unknown outcome.
    seen: BTreeSet<OpId>,
}

impl<'a> Observations<'a> {
    pub(super) fn new(history: &'a History<Transaction, Seen>) -> Self {
        let appends = appends(history);
        let (reads, internal, seen) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        let mut observations = Observations { history, appends, reads, internal, seen };
        for operation in history.operations() {
            if let Outcome::Returned(answer) = &operation.outcome {
                observations.add_reads(operation, answer);
            }
        }
        observations.note_seen();
        observations
    }

    /// The origin of the element; `None` if no transaction appended it.
    pub(super) fn append(&self, key: Key, element: Element) -> Option<AppendOrigin> {
        self.appends.get(&(key, element)).copied()
    }

    /// Whether a transaction surely took effect.
    pub(super) fn took_effect(&self, op: OpId) -> bool {
        match self.history.operation(op).outcome {
            Outcome::Returned(_) => true,
            Outcome::Failed => false,
            Outcome::Unknown => self.seen.contains(&op),
        }
    }

    pub(super) fn has_failed(&self, op: OpId) -> bool {
        matches!(self.history.operation(op).outcome, Outcome::Failed)
    }

    /// The author of the element, if it took effect.
    pub(super) fn author(&self, key: Key, element: Element) -> Option<OpId> {
        let author = self.append(key, element)?.author;
        self.took_effect(author).then_some(author)
    }

    /// Anomalies of single reads.
    pub(super) fn anomalies(&self) -> Vec<Anomaly> {
        let internal = self
            .internal
            .iter()
            .map(|(reader, key)| Anomaly::Internal { reader: *reader, key: *key });
        internal.chain(self.reads.iter().flat_map(|read| self.anomalies_of(read))).collect()
    }

    /// The first of each kind.
    fn anomalies_of(&self, read: &Read<'_>) -> Vec<Anomaly> {
        let Read { reader, key, found } = *read;
        let mut once = BTreeSet::new();
        let duplicate = found.iter().find(|element| !once.insert(**element));
        let invented = found.iter().find(|element| self.append(key, **element).is_none());
        let aborted = found.iter().find_map(|element| {
            let author = self.append(key, *element)?.author;
            self.has_failed(author).then_some((*element, author))
        });
        let cut = found.last().and_then(|element| {
            let append = self.append(key, *element)?;
            (!append.is_last).then_some((*element, append.author))
        });
        [
            duplicate.map(|element| Anomaly::Duplicate { reader, key, element: *element }),
            invented.map(|element| Anomaly::Invented { reader, key, element: *element }),
            aborted.map(|(element, author)| Anomaly::AbortedRead { reader, key, element, author }),
            cut.map(|(element, author)| Anomaly::IntermediateRead { reader, key, element, author }),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Derives the found state from a transaction's reads, which also show its own appends.
    fn add_reads(&mut self, operation: &'a Recorded, answer: &'a Seen) {
        let mut found: BTreeMap<Key, &'a [Element]> = BTreeMap::new();
        let mut own: BTreeMap<Key, Vec<Element>> = BTreeMap::new();
        let mut answers = answer.iter();
        for step in &operation.input {
            match *step {
                ListStep::Append { key, element } => own.entry(key).or_default().push(element),
                ListStep::Read { key } => {
                    let list = answers.next().expect("an answer has one list for each read");
                    let own = own.get(&key).map_or(&[][..], Vec::as_slice);
                    match self.found_before(operation.id, key, list, own) {
                        Some(before) if *found.entry(key).or_insert(before) == before => {}
                        _ => _ = self.internal.insert((operation.id, key)),
                    }
                }
            }
        }
        assert!(answers.next().is_none(), "{} has more lists than reads", operation.id);
        let read = |(key, found)| Read { reader: operation.id, key, found };
        self.reads.extend(found.into_iter().map(read));
    }

    /// A list without the reader's own appends, which must stand at its end and nowhere else.
    fn found_before(
        &self,
        reader: OpId,
        key: Key,
        list: &'a [Element],
        own: &[Element],
    ) -> Option<&'a [Element]> {
        let before = list.strip_suffix(own)?;
        let is_own = |element: &Element| {
            self.append(key, *element).is_some_and(|append| append.author == reader)
        };
        (!before.iter().any(is_own)).then_some(before)
    }

    fn note_seen(&mut self) {
        for read in &self.reads {
            let authors = read.found.iter().filter_map(|element| self.append(read.key, *element));
            let authors: Vec<OpId> = authors.map(|append| append.author).collect();
            let is_unknown =
                |op: &OpId| matches!(self.history.operation(*op).outcome, Outcome::Unknown);
            self.seen.extend(authors.into_iter().filter(is_unknown));
        }
    }
}

fn appends(history: &History<Transaction, Seen>) -> HashMap<(Key, Element), AppendOrigin> {
    let mut appends: HashMap<(Key, Element), AppendOrigin> = HashMap::new();
    for operation in history.operations() {
        let mut last: BTreeMap<Key, (Element, usize)> = BTreeMap::new();
        for step in &operation.input {
            let ListStep::Append { key, element } = *step else { continue };
            let place = last.get(&key).map_or(0, |(_, place)| place + 1);
            if let Some((before, _)) = last.insert(key, (element, place)) {
                appends.get_mut(&(key, before)).expect("it was added before").is_last = false;
            }
            let append = AppendOrigin { author: operation.id, place, is_last: true };
            let other = appends.insert((key, element), append);
            assert!(other.is_none(), "element {element} is appended to list {key} twice");
        }
    }
    appends
}
