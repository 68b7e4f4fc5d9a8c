//! The steps of schedules, and their nodes.

use base::Nanos;
use types::Tag;

use super::World;
use super::asks::Ask;
use super::letter::Letter;
use crate::protocol::{Event, Protocol};

pub(super) const A: usize = 0;
pub(super) const B: usize = 1;
pub(super) const C: usize = 2;
pub(super) const D: usize = 3;
pub(super) const E: usize = 4;
/// Groups of three.
pub(super) const ALL: [usize; 3] = [A, B, C];

impl<P: Protocol> World<P> {
    /// The messages in flight from one node to another whose text has this part.
    pub(super) fn take(&mut self, from: usize, to: usize, part: &str) -> Vec<Letter<P::Message>> {
        self.bag.extract_if(.., |letter| letter.goes(from, to) && letter.has(part)).collect()
    }

    /// Delivers the messages from one node to another whose text has this part.
    pub(super) fn carry(&mut self, from: usize, to: usize, part: &str) {
        let letters = self.take(from, to, part);
        assert!(!letters.is_empty(), "no {part} from {from} to {to}");
        for letter in letters {
            self.deliver(letter);
        }
    }

    /// Delivers messages to one node in one turn.
    pub(super) fn deliver_together(&mut self, letters: Vec<Letter<P::Message>>) {
        let Some(to) = letters.first().map(|letter| letter.to) else { return };
        for Letter { from, message, .. } in letters {
            self.run(to, Event::Peer { from, message });
        }
        self.go_on(to);
    }

    /// The node runs until its next timers have fired.
    pub(super) fn wait(&mut self, index: usize, millis: u64) {
        self.pass(Nanos::from_millis(millis), std::iter::once(index));
    }

    /// The node's timers fire until it sends such a message.
    pub(super) fn wait_for(&mut self, from: usize, to: usize, part: &str) {
        for _ in 0..200 {
            if self.bag.iter().any(|letter| letter.goes(from, to) && letter.has(part)) {
                return;
            }
            self.wait(from, 1);
        }
        panic!("no {part} from {from} to {to} in time");
    }

    /// The messages of a node to itself arrive.
    pub(super) fn carry_own(&mut self, index: usize) {
        while self.deliver_own(index) {}
    }

    pub(super) fn done(&mut self, tag: Tag) {
        self.settle(&[tag]);
        assert!(!self.is_open(tag), "{tag:?} has ended");
    }

    /// Reads both keys at each member, and judges.
    pub(super) fn judge(mut self, readers: &[usize]) -> Result<(), String> {
        let reads: Vec<Tag> = readers.iter().map(|&at| self.ask(at, 0, Ask::Get)).collect();
        self.settle(&reads);
        self.verdict()
    }
}

pub(super) fn group<P: Protocol>(nodes: usize, full: &[usize], durable: bool) -> World<P> {
    let mut world = World::new(nodes, durable, 7);
    world.begin(full);
    world.drain();
    world
}
