//! Reads of a worker's clients that wait for a write of their session, or for the node.

use std::collections::BTreeMap;

use base::Nanos;
use types::SessionId;

use crate::protocol::Request;

#[derive(Debug)]
pub struct Read {
    pub request: Request,
    pub deadline: Nanos,
    /// A write of its session that came before and is not applied yet.
    pub behind: Option<u64>,
    /// Later writes of the session came after it.
    pub after: u64,
    /// Entries up to here have to be applied: some client at this node saw them before.
    pub needs: u64,
}

impl Read {
    /// True if it waits for no write, and for no entry behind `visible`.
    pub fn is_free(&self, visible: u64) -> bool {
        self.behind.is_none() && self.needs <= visible
    }
}

/// In the order of their coming in each session. Their registers are pinned.
#[derive(Debug)]
pub struct Reads {
    sessions: BTreeMap<SessionId, Vec<Read>>,
    len: usize,
    /// No read that waits for no write needs less.
    least: u64,
}

impl Default for Reads {
    fn default() -> Reads {
        Reads { sessions: BTreeMap::new(), len: 0, least: u64::MAX }
    }
}

impl Reads {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn park(&mut self, read: Read) {
        if read.behind.is_none() {
            self.least = self.least.min(read.needs);
        }
        self.len += 1;
        self.sessions.entry(read.request.session).or_default().push(read);
    }

    /// All reads of a session come behind this write: those that are parked again, and then the
    /// others.
    pub fn put_behind(&mut self, session: SessionId, write: u64, again: Vec<Read>) {
        self.len += again.len();
        if again.is_empty() && !self.sessions.contains_key(&session) {
            return;
        }
        let reads = self.sessions.entry(session).or_default();
        reads.splice(..0, again);
        reads.iter_mut().for_each(|read| (read.behind, read.after) = (Some(write), write));
    }

    /// A write is applied, or has ended: the reads behind it wait for it no more.
    pub fn free(&mut self, session: SessionId, write: u64) {
        let reads = self.sessions.get_mut(&session).into_iter().flatten();
        for read in reads.filter(|read| read.behind == Some(write)) {
            read.behind = None;
            self.least = self.least.min(read.needs);
        }
    }

    /// Takes the reads that may be answered. Costs little if there are none: each entry asks.
    pub fn take_free(&mut self, visible: u64) -> Vec<Read> {
        if visible < self.least {
            return Vec::new();
        }
        let free = self.take(|read| read.is_free(visible));
        let left = self.sessions.values().flatten().filter(|read| read.behind.is_none());
        self.least = left.map(|read| read.needs).min().unwrap_or(u64::MAX);
        free
    }

    pub fn take(&mut self, is_it: impl Fn(&Read) -> bool) -> Vec<Read> {
        let mut taken = Vec::new();
        self.sessions.retain(|_, reads| {
            taken.extend(reads.extract_if(.., |read| is_it(read)));
            !reads.is_empty()
        });
        self.len -= taken.len();
        taken
    }

    pub fn take_of(&mut self, session: SessionId, is_it: impl Fn(&Read) -> bool) -> Vec<Read> {
        let Some(reads) = self.sessions.get_mut(&session) else { return Vec::new() };
        let taken: Vec<Read> = reads.extract_if(.., |read| is_it(read)).collect();
        if reads.is_empty() {
            self.sessions.remove(&session);
        }
        self.len -= taken.len();
        taken
    }

    pub fn raise_needs(&mut self, needs: u64) {
        for read in self.sessions.values_mut().flatten() {
            read.needs = read.needs.max(needs);
        }
        self.least = self.least.max(needs);
    }
}
