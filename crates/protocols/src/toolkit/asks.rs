//! Numbered asks: a worker numbers its messages that want an acknowledgement.
//!
//! Numbers are consecutive in one stream, which is one worker of one process. So a single message
//! can acknowledge a range of them ([`acks`](super::acks)), and another one can name the same range
//! once all members have answered. Receivers remember the subjects of recent numbers ([`Heard`]).

use std::collections::{BTreeMap, VecDeque};

use types::{Incarnation, NodeId};

use super::fields::wire_struct;
use crate::protocol::Env;

/// Numbers of one stream that receivers remember at least.
const RECENT: u64 = 1_024;
/// Numbers that may be added between the look at a number and the message that names it.
const SLACK: u64 = RECENT / 2;

wire_struct! {
    /// A worker of one process. Numbers of another process never count for this one.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub struct Stream {
        pub incarnation: Incarnation,
        pub worker: u64,
    }
}

wire_struct! {
    /// The name of a message that wants an acknowledgement.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Ask {
        pub stream: Stream,
        pub number: u64,
    }
}

/// The asks of this worker that are not over, each with a value of the protocol.
#[derive(Debug)]
pub struct Outstanding<T> {
    stream: Stream,
    next: u64,
    /// Those of the last numbers; `None`: it is over. The first one is not over.
    ring: VecDeque<Option<T>>,
    /// Those that are over later than many younger ones.
    old: BTreeMap<u64, T>,
}

impl<T> Outstanding<T> {
    #[must_use]
    pub fn new(env: &Env) -> Outstanding<T> {
        let stream = Stream { incarnation: env.incarnation, worker: env.worker as u64 };
        Outstanding { stream, next: 1, ring: VecDeque::new(), old: BTreeMap::new() }
    }

    #[must_use]
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// The next number.
    pub fn add(&mut self, value: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.ring.push_back(Some(value));
        if self.ring.len() as u64 > RECENT
            && let Some(Some(first)) = self.ring.pop_front()
        {
            self.old.insert(number - RECENT, first);
            self.trim();
        }
        number
    }

    /// The name of a number.
    #[must_use]
    pub fn ask(&self, number: u64) -> Ask {
        Ask { stream: self.stream, number }
    }

    #[must_use]
    pub fn get(&self, number: u64) -> Option<&T> {
        match self.place(number) {
            Some(place) => self.ring[place].as_ref(),
            None => self.old.get(&number),
        }
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        match self.place(number) {
            Some(place) => self.ring[place].as_mut(),
            None => self.old.get_mut(&number),
        }
    }

    /// The ask is over.
    pub fn end(&mut self, number: u64) -> Option<T> {
        let Some(place) = self.place(number) else { return self.old.remove(&number) };
        let ended = self.ring[place].take();
        self.trim();
        ended
    }

    /// True if its receivers still know its subject, in a message that leaves before
    /// [`Outstanding::ends_batch`] is true again.
    #[must_use]
    pub fn is_recent(&self, number: u64) -> bool {
        number + RECENT - SLACK >= self.next
    }

    /// True if collected messages have to leave before this ask.
    #[must_use]
    pub fn ends_batch(number: u64) -> bool {
        number.is_multiple_of(SLACK)
    }

    /// All are over. Numbers go on.
    pub fn clear(&mut self) {
        self.ring.clear();
        self.old.clear();
    }

    fn place(&self, number: u64) -> Option<usize> {
        let first = self.next - self.ring.len() as u64;
        (first..self.next).contains(&number).then(|| (number - first) as usize)
    }

    fn trim(&mut self) {
        while self.ring.front().is_some_and(Option::is_none) {
            self.ring.pop_front();
        }
    }
}

/// The subjects of recent asks of other workers, until they are over.
#[derive(Debug)]
pub struct Heard<T>(BTreeMap<(NodeId, Stream), BTreeMap<u64, T>>);

impl<T> Default for Heard<T> {
    fn default() -> Heard<T> {
        Heard(BTreeMap::new())
    }
}

impl<T> Heard<T> {
    pub fn note(&mut self, from: NodeId, ask: Ask, value: T) {
        let heard = self.0.entry((from, ask.stream)).or_default();
        heard.insert(ask.number, value);
        let newest = heard.last_key_value().map_or(0, |(&number, _)| number);
        while heard.first_key_value().is_some_and(|(&number, _)| newest - number >= RECENT) {
            heard.pop_first();
        }
    }

    /// It is over.
    pub fn take(&mut self, from: NodeId, ask: Ask) -> Option<T> {
        self.0.get_mut(&(from, ask.stream))?.remove(&ask.number)
    }

    /// Forgets all: their subjects are void.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Stream = Stream { incarnation: Incarnation(3), worker: 1 };

    fn outstanding() -> Outstanding<u64> {
        Outstanding { stream: STREAM, next: 1, ring: VecDeque::new(), old: BTreeMap::new() }
    }

    #[test]
    fn asks_end_in_any_order() {
        let mut asks = outstanding();
        assert_eq!([7, 8, 9].map(|value| asks.add(value)), [1, 2, 3]);
        assert_eq!(asks.end(2), Some(8));
        assert_eq!(asks.end(2), None, "once");
        assert_eq!((asks.get(1), asks.get(2), asks.get(3)), (Some(&7), None, Some(&9)));
        assert_eq!(asks.end(1), Some(7));
        assert_eq!(asks.ring.len(), 1);
        assert_eq!((asks.end(3), asks.end(0), asks.end(4)), (Some(9), None, None));
        asks.clear();
        assert_eq!(asks.add(1), 4, "no number is used twice");
    }

    #[test]
    fn slow_ask_leaves_the_ring() {
        let mut asks = outstanding();
        let slow = asks.add(0);
        for value in 1..=2 * RECENT {
            let number = asks.add(value);
            assert_eq!(asks.end(number), Some(value));
        }
        assert!(asks.ring.is_empty() && !asks.is_recent(slow));
        *asks.get_mut(slow).expect("it is not over") = 5;
        assert_eq!((asks.end(slow), asks.end(slow)), (Some(5), None));
    }

    /// A commit names a number only while every receiver remembers it.
    #[test]
    fn receivers_remember_recent_asks() {
        let mut asks = outstanding();
        let mut heard = Heard::default();
        let first = asks.add(0);
        heard.note(NodeId(2), asks.ask(first), 0);
        while asks.is_recent(first) {
            let number = asks.add(0);
            heard.note(NodeId(2), asks.ask(number), 0);
        }
        // It was recent just now, and its commit is still collected.
        loop {
            let number = asks.add(0);
            if Outstanding::<u64>::ends_batch(number) {
                break;
            }
            heard.note(NodeId(2), asks.ask(number), 0);
        }
        assert_eq!(heard.take(NodeId(1), asks.ask(first)), None, "of another node");
        assert_eq!(heard.take(NodeId(2), asks.ask(first)), Some(0));
        heard.note(NodeId(2), asks.ask(first), 0);
        let number = first + RECENT;
        heard.note(NodeId(2), asks.ask(number), 0);
        assert_eq!(heard.take(NodeId(2), asks.ask(first)), None);
        let earlier = Stream { incarnation: Incarnation(2), ..STREAM };
        assert_eq!(heard.take(NodeId(2), Ask { stream: earlier, number }), None);
    }
}
