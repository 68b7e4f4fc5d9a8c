//! Reads of listed keys: a listing counts once they are answered.
//!
//! Replicas may disagree on whether a key exists, and a listing does not name types.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use node::session::SessionContext;
use types::{Command, Database, Key, Outcome, Reply};

use crate::pipeline::token;
use crate::walk::of_one_key;

/// Reads under way at a time.
const AT_ONCE: usize = 256;
/// Attempts to read a key without an answer from a quorum. A read has no effect, so it is safe to
/// repeat.
const TRIES: u32 = 3;

/// The keys that a listing keeps.
pub(crate) enum Wanted {
    Existing,
    /// Those with a value of the type that has this name.
    OfType(&'static str),
}

/// Listings that wait for reads of some of their keys.
pub(crate) struct KeyReads {
    wanted: Wanted,
    command: Command,
    /// Parts of the request from here on are reads.
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
    unread: usize,
}

struct Question {
    listing: u64,
    key: Key,
    tries: u32,
}

/// The state of a listing after an answer.
pub(crate) enum Settled {
    NotYet,
    /// All of a listing is known: its number, its keys, and the position of the next one.
    Listing(u64, Vec<Key>, Option<u64>),
    /// Any other reply than the wanted command gives.
    Error(Outcome),
}

impl Wanted {
    fn command(&self) -> Command {
        of_one_key(match self {
            Wanted::Existing => b"EXISTS",
            Wanted::OfType(_) => b"TYPE",
        })
    }

    /// `None` for an outcome that does not tell.
    fn keeps(&self, outcome: &Outcome) -> Option<bool> {
        match (self, outcome) {
            (Wanted::Existing, Outcome::Reply(Reply::Integer(count))) => Some(*count == 1),
            (Wanted::OfType(wanted), Outcome::Reply(Reply::Simple(name))) => Some(name == wanted),
            _ => None,
        }
    }
}

impl KeyReads {
    pub(crate) fn new(wanted: Wanted, parts: usize) -> KeyReads {
        KeyReads {
            command: wanted.command(),
            wanted,
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

    /// Adds a listing of `keys` and of others that are `unread`.
    pub(crate) fn add(
        &mut self,
        listing: u64,
        keys: Vec<Key>,
        next_hash: Option<u64>,
        unread: Vec<Key>,
    ) {
        let waiting = Waiting { keys, next_hash, unread: unread.len() };
        self.waiting.insert(listing, waiting);
        let questions = unread.into_iter().map(|key| Question { listing, key, tries: 0 });
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

    /// A read is answered.
    pub(crate) fn take(&mut self, part: usize, outcome: Outcome) -> Settled {
        let part = part - self.parts;
        let asked = self.asked.get_mut(part).and_then(Option::take);
        let Some(Question { listing, key, tries }) = asked else { return Settled::NotYet };
        self.free.push(part);
        let keeps = match self.wanted.keeps(&outcome) {
            Some(keeps) => keeps,
            None if tries + 1 < TRIES => {
                self.to_ask.push_back(Question { listing, key, tries: tries + 1 });
                return Settled::NotYet;
            }
            None => return Settled::Error(outcome),
        };
        let Entry::Occupied(mut entry) = self.waiting.entry(listing) else {
            return Settled::NotYet;
        };
        let waiting = entry.get_mut();
        waiting.keys.extend(keeps.then_some(key));
        waiting.unread -= 1;
        if waiting.unread > 0 {
            return Settled::NotYet;
        }
        let Waiting { mut keys, next_hash, .. } = entry.remove();
        keys.sort_unstable();
        Settled::Listing(listing, keys, next_hash)
    }
}
