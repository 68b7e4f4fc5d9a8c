//! Keys on which the replicas of a listing disagree: each is read before the listing counts.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use node::session::SessionContext;
use types::{Command, Database, Key, Outcome, Reply};

use crate::pipeline::token;
use crate::walk::of_one_key;

/// Questions under way at a time.
const AT_ONCE: usize = 256;
/// Attempts to read a key without an answer from a quorum. A read has no effect, so it is safe to
/// repeat.
const TRIES: u32 = 3;

/// Listings that wait for reads of some of their keys.
pub(crate) struct Undecided {
    command: Command,
    /// Parts of the request from here on are questions.
    parts: usize,
    waiting: BTreeMap<u64, Waiting>,
    to_ask: VecDeque<Question>,
    /// By part.
    asked: Vec<Option<Question>>,
    /// Parts that are free again.
    free: Vec<usize>,
}

struct Waiting {
    keys: Vec<Key>,
    next_hash: Option<u64>,
    undecided: usize,
}

struct Question {
    stretch: u64,
    key: Key,
    tries: u32,
}

/// The state of a listing after an answer.
pub(crate) enum Settled {
    NotYet,
    /// All of a stretch's listing is known: its keys, and where it goes on.
    Listing(u64, Vec<Key>, Option<u64>),
    /// Any other reply than a number.
    Error(Outcome),
}

impl Undecided {
    pub(crate) fn new(parts: usize) -> Undecided {
        Undecided {
            command: of_one_key(b"EXISTS"),
            parts,
            waiting: BTreeMap::new(),
            to_ask: VecDeque::new(),
            asked: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Listings that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn add(
        &mut self,
        stretch: u64,
        keys: Vec<Key>,
        next_hash: Option<u64>,
        undecided: Vec<Key>,
    ) {
        let waiting = Waiting { keys, next_hash, undecided: undecided.len() };
        self.waiting.insert(stretch, waiting);
        let questions = undecided.into_iter().map(|key| Question { stretch, key, tries: 0 });
        self.to_ask.extend(questions);
    }

    /// Sends reads, within bounds.
    pub(crate) fn go_on(&mut self, number: u64, database: Database, cx: &mut SessionContext<'_>) {
        while !self.to_ask.is_empty() {
            if self.free.is_empty() && self.asked.len() < AT_ONCE {
                self.free.push(self.asked.len());
                self.asked.push(None);
            }
            let Some(part) = self.free.pop() else { return };
            let Some(question) = self.to_ask.pop_front() else { return };
            let token = token(number, self.parts + part);
            cx.run(token, database, question.key.clone(), self.command.clone());
            self.asked[part] = Some(question);
        }
    }

    /// A question is answered.
    pub(crate) fn take(&mut self, part: usize, outcome: Outcome) -> Settled {
        let part = part - self.parts;
        let asked = self.asked.get_mut(part).and_then(Option::take);
        let Some(Question { stretch, key, tries }) = asked else { return Settled::NotYet };
        self.free.push(part);
        let exists = match outcome {
            Outcome::Reply(Reply::Integer(1)) => true,
            Outcome::Reply(Reply::Integer(0)) => false,
            _ if tries + 1 < TRIES => {
                self.to_ask.push_back(Question { stretch, key, tries: tries + 1 });
                return Settled::NotYet;
            }
            other => return Settled::Error(other),
        };
        let Entry::Occupied(mut entry) = self.waiting.entry(stretch) else {
            return Settled::NotYet;
        };
        let waiting = entry.get_mut();
        waiting.keys.extend(exists.then_some(key));
        waiting.undecided -= 1;
        if waiting.undecided > 0 {
            return Settled::NotYet;
        }
        let Waiting { mut keys, next_hash, .. } = entry.remove();
        keys.sort_unstable();
        Settled::Listing(stretch, keys, next_hash)
    }
}
