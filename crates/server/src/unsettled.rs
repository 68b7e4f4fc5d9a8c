//! Keys that a listing cannot vouch for: each is asked about before the listing counts.

use std::collections::{BTreeMap, VecDeque};

use node::front::SessionContext;
use types::{Command, Database, Key, Outcome};

use crate::outcomes;
use crate::pipeline::token;
use crate::walk::of_one_key;

/// Questions under way at a time.
const AT_ONCE: usize = 256;

/// Listings that wait for what is asked about some of their keys.
pub(crate) struct Unsettled {
    command: Command,
    /// Parts of the request from here on are questions.
    parts: usize,
    waiting: BTreeMap<u64, Waiting>,
    to_ask: VecDeque<(u64, Key)>,
    /// Each with its stretch, by part.
    asked: Vec<Option<(u64, Key)>>,
}

struct Waiting {
    keys: Vec<Key>,
    next_hash: Option<u64>,
    unsettled: usize,
}

/// What became of a question.
pub(crate) enum Settled {
    NotYet,
    /// All of a stretch's listing is known: its keys, and where it goes on.
    Listing(u64, Vec<Key>, Option<u64>),
    /// Any other reply than a number.
    Error(bytes::Bytes),
}

impl Unsettled {
    pub(crate) fn new(parts: usize) -> Unsettled {
        Unsettled {
            command: of_one_key(b"EXISTS"),
            parts,
            waiting: BTreeMap::new(),
            to_ask: VecDeque::new(),
            asked: Vec::new(),
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
        unsettled: Vec<Key>,
    ) {
        let waiting = Waiting { keys, next_hash, unsettled: unsettled.len() };
        self.waiting.insert(stretch, waiting);
        self.to_ask.extend(unsettled.into_iter().map(|key| (stretch, key)));
    }

    /// Asks what is to be asked, within bounds.
    pub(crate) fn go_on(&mut self, number: u64, database: Database, cx: &mut SessionContext<'_>) {
        let mut free = 0;
        while !self.to_ask.is_empty() && free < AT_ONCE {
            if self.asked.len() == free {
                self.asked.push(None);
            }
            if self.asked[free].is_none()
                && let Some((stretch, key)) = self.to_ask.pop_front()
            {
                let token = token(number, self.parts + free);
                cx.run(token, database, key.clone(), self.command.clone());
                self.asked[free] = Some((stretch, key));
            }
            free += 1;
        }
    }

    /// A question is answered.
    pub(crate) fn take(&mut self, part: usize, outcome: Outcome) -> Settled {
        let asked = self.asked.get_mut(part - self.parts).and_then(Option::take);
        let Some((stretch, key)) = asked else { return Settled::NotYet };
        let Some(waiting) = self.waiting.get_mut(&stretch) else { return Settled::NotYet };
        match &outcomes::reply(outcome)[..] {
            b":1\r\n" => waiting.keys.push(key),
            b":0\r\n" => {}
            error => return Settled::Error(bytes::Bytes::copy_from_slice(error)),
        }
        waiting.unsettled -= 1;
        if waiting.unsettled > 0 {
            return Settled::NotYet;
        }
        let Some(Waiting { mut keys, next_hash, .. }) = self.waiting.remove(&stretch) else {
            return Settled::NotYet;
        };
        keys.sort_unstable();
        Settled::Listing(stretch, keys, next_hash)
    }
}
