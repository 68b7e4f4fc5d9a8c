//! Messages about ranges of numbered [`asks`](super::asks): acknowledgements and commits.
//!
//! They are collected during one turn and sent at its end, one message per receiver and ticket.
//! They never wait for more. A range covers no number that did not come. So lost, repeated and
//! reordered messages are harmless, as those about single numbers are.
//!
//! Nodes may run different numbers of workers. An acknowledgement names the shard of one of the
//! asks: it finds the worker that asked, since that one owns all of them. A commit finds its worker
//! in the same way, if it holds only shards of one worker of the receiver
//! ([`Collector::add_commit`]).

use std::collections::BTreeMap;

use types::wire::put_varint;
use types::{Malformed, NodeId, Reader, Shard, Ticket, Wire};

use super::asks::{Ask, Stream};
use super::fields::{wire_fields, wire_struct};
use crate::mutation::{self, Mutation};

/// Numbers of one message at most.
const NUMBERS_MAX: u64 = 4_096;
/// Messages that a number may join: the last ones.
const JOINED_MAX: usize = 64;

wire_struct! {
    /// Numbers of one stream, for its worker or from it.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Numbered {
        pub stream: Stream,
        /// Of one of the asks.
        pub shard: Shard,
        /// Workers of the sender.
        pub workers: u64,
        pub numbers: Numbers,
    }
}

impl Numbered {
    pub fn asks(&self) -> impl Iterator<Item = Ask> + use<'_> {
        self.numbers.iter().map(|number| Ask { stream: self.stream, number })
    }
}

/// Numbers in the order of their coming, as ranges.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Numbers {
    /// Each is a first number and how many follow it, itself included.
    ranges: Vec<(u64, u64)>,
    count: u64,
}

impl Numbers {
    fn add(&mut self, number: u64) {
        self.count += 1;
        match self.ranges.last_mut() {
            Some((first, count)) if *first + *count == number => *count += 1,
            Some((first, count)) if mutation::is(Mutation::RangesOverGaps) && *first < number => {
                *count = number - *first + 1;
                self.count = self.ranges.iter().map(|(_, count)| count).sum();
            }
            _ => self.ranges.push((number, 1)),
        }
    }

    fn is_full(&self) -> bool {
        self.count >= NUMBERS_MAX
    }

    pub fn iter(&self) -> impl Iterator<Item = u64> + use<'_> {
        self.ranges.iter().flat_map(|&(first, count)| first..first + count)
    }
}

impl Wire for Numbers {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.ranges.len() as u64);
        for (first, count) in &self.ranges {
            put_varint(out, *first);
            put_varint(out, *count);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Numbers, Malformed> {
        let mut numbers = Numbers::default();
        let len = reader.varint()?;
        for _ in 0..len {
            let (first, count) = (reader.varint()?, reader.varint()?);
            // One that is no range would make the bytes of a message ambiguous.
            let is_next = numbers.ranges.last().is_some_and(|it| it.0 + it.1 == first);
            let is_long = count > NUMBERS_MAX || numbers.count + count > NUMBERS_MAX;
            if count == 0 || is_long || is_next || first.checked_add(count).is_none() {
                return Err(Malformed);
            }
            numbers.ranges.push((first, count));
            numbers.count += count;
        }
        Ok(numbers)
    }
}

wire_fields!(Numbers);

/// A message to be sent once `after` is durable.
#[derive(PartialEq, Eq, Debug)]
pub struct Collected {
    pub to: NodeId,
    pub numbered: Numbered,
    pub after: Ticket,
}

/// The numbers of one turn.
#[derive(Debug)]
pub struct Collector {
    workers: u64,
    open: Vec<Collected>,
    /// Workers of other nodes, as their acknowledgements tell.
    workers_of: BTreeMap<NodeId, u64>,
}

impl Collector {
    /// For a node with so many workers.
    #[must_use]
    pub fn new(workers: usize) -> Collector {
        Collector { workers: workers as u64, open: Vec::new(), workers_of: BTreeMap::new() }
    }

    /// Acknowledges an ask about a key of the shard once `after` is durable.
    pub fn add(&mut self, to: NodeId, ask: Ask, shard: Shard, after: Ticket) {
        self.add_if(to, ask, shard, after, |_| true);
    }

    /// Tells a node that its ask, about a key of the shard, is over at all members.
    pub fn add_commit(&mut self, to: NodeId, ask: Ask, shard: Shard) {
        let workers = self.workers_of.get(&to).copied().unwrap_or(u64::MAX);
        let has_same_worker =
            |other: Shard| u64::from(other.0) % workers == u64::from(shard.0) % workers;
        self.add_if(to, ask, shard, Ticket::DURABLE, has_same_worker);
    }

    /// Notes how many workers a node has, from its acknowledgement.
    pub fn note_workers(&mut self, node: NodeId, acks: &Numbered) {
        if self.workers_of.get(&node) != Some(&acks.workers) {
            self.workers_of.insert(node, acks.workers.max(1));
        }
    }

    fn add_if(
        &mut self,
        to: NodeId,
        Ask { stream, number }: Ask,
        shard: Shard,
        after: Ticket,
        goes_with: impl Fn(Shard) -> bool,
    ) {
        let is_it = |it: &&mut Collected| {
            it.to == to
                && it.numbered.stream == stream
                && (it.after == after || mutation::is(Mutation::RangeByFirstTicket))
                && !it.numbered.numbers.is_full()
                && goes_with(it.numbered.shard)
        };
        if let Some(open) = self.open.iter_mut().rev().take(JOINED_MAX).find(is_it) {
            return open.numbered.numbers.add(number);
        }
        let mut numbered =
            Numbered { stream, shard, workers: self.workers, numbers: Numbers::default() };
        numbered.numbers.add(number);
        self.open.push(Collected { to, numbered, after });
    }

    /// The messages of this turn.
    pub fn take(&mut self) -> Vec<Collected> {
        std::mem::take(&mut self.open)
    }

    /// The collected numbers are void.
    pub fn clear(&mut self) {
        self.open.clear();
        self.workers_of.clear();
    }
}

#[cfg(test)]
mod tests {
    use types::Incarnation;

    use super::super::fields::Field;
    use super::*;

    const STREAM: Stream = Stream { incarnation: Incarnation(3), worker: 1 };
    const PEER: NodeId = NodeId(2);

    fn ask(number: u64) -> Ask {
        Ask { stream: STREAM, number }
    }

    fn numbers(all: &[u64]) -> Numbers {
        let mut numbers = Numbers::default();
        all.iter().for_each(|&number| numbers.add(number));
        numbers
    }

    fn taken(collector: &mut Collector) -> Vec<(NodeId, Vec<u64>, Ticket)> {
        let taken = collector.take().into_iter();
        taken.map(|it| (it.to, it.numbered.numbers.iter().collect(), it.after)).collect()
    }

    #[test]
    fn numbers_of_one_turn_are_one_message() {
        let mut collector = Collector::new(2);
        for number in [4, 5, 7, 5] {
            collector.add(PEER, ask(number), Shard(1), Ticket(9));
        }
        collector.add(NodeId(3), ask(6), Shard(1), Ticket(9));
        let expected = [(PEER, vec![4, 5, 7, 5], Ticket(9)), (NodeId(3), vec![6], Ticket(9))];
        assert_eq!(taken(&mut collector), expected);
        assert!(collector.take().is_empty());
    }

    /// One that is durable later would hold the others up, or they would claim too much.
    #[test]
    fn range_has_one_ticket() {
        let mut collector = Collector::new(2);
        collector.add(PEER, ask(4), Shard(1), Ticket(8));
        collector.add(PEER, ask(5), Shard(1), Ticket(9));
        collector.add(PEER, ask(6), Shard(1), Ticket(8));
        let expected = [(PEER, vec![4, 6], Ticket(8)), (PEER, vec![5], Ticket(9))];
        assert_eq!(taken(&mut collector), expected);
    }

    #[test]
    fn streams_are_kept_apart() {
        let mut collector = Collector::new(2);
        let other = Stream { worker: 2, ..STREAM };
        collector.add(PEER, ask(4), Shard(1), Ticket(8));
        collector.add(PEER, Ask { stream: other, number: 5 }, Shard(2), Ticket(8));
        let taken = collector.take();
        let shards: Vec<_> =
            taken.iter().map(|it| (it.numbered.stream, it.numbered.shard)).collect();
        assert_eq!(shards, [(STREAM, Shard(1)), (other, Shard(2))]);
    }

    #[test]
    fn commit_goes_to_one_worker_of_its_receiver() {
        let mut collector = Collector::new(2);
        let commit = |collector: &mut Collector| {
            for (number, shard) in [(1, 1), (2, 3), (3, 5), (4, 7)] {
                collector.add_commit(PEER, ask(number), Shard(shard));
            }
            taken(collector).into_iter().map(|(_, numbers, _)| numbers).collect::<Vec<_>>()
        };
        assert_eq!(commit(&mut collector).len(), 4, "its workers are not known");
        for (workers, expected) in [(2, vec![vec![1, 2, 3, 4]]), (4, vec![vec![1, 3], vec![2, 4]])]
        {
            let acks =
                Numbered { stream: STREAM, shard: Shard(1), workers, numbers: numbers(&[1]) };
            collector.note_workers(PEER, &acks);
            assert_eq!(commit(&mut collector), expected);
        }
    }

    #[test]
    fn message_has_a_bound() {
        let mut collector = Collector::new(1);
        (0..=NUMBERS_MAX).for_each(|it| collector.add(PEER, ask(2 * it), Shard(0), Ticket(1)));
        let taken = collector.take();
        let counts: Vec<u64> = taken.iter().map(|it| it.numbered.numbers.count).collect();
        assert_eq!(counts, [NUMBERS_MAX, 1]);
        let bytes = taken[0].numbered.to_bytes();
        assert_eq!(Numbered::from_bytes(&bytes), Ok(taken[0].numbered.clone()));
    }

    #[test]
    fn numbers_come_back_from_their_bytes() {
        for all in [&[][..], &[1], &[300, 301, 302, 7, 9], &[5, 5]] {
            let numbers = numbers(all);
            let bytes = numbers.to_bytes();
            for len in 0..bytes.len() {
                assert_eq!(Numbers::from_bytes(&bytes[..len]), Err(Malformed));
            }
            assert_eq!(Numbers::from_bytes(&bytes), Ok(numbers));
        }
        let refused = |ranges: &[(u64, u64)]| {
            let mut out = Vec::new();
            ranges.to_vec().put(&mut out);
            Numbers::from_bytes(&out) == Err(Malformed)
        };
        assert!(refused(&[(1, 0)]) && refused(&[(u64::MAX, 1)]));
        assert!(refused(&[(1, NUMBERS_MAX + 1)]) && refused(&[(1, NUMBERS_MAX), (9, 1)]));
        assert!(refused(&[(1, 2), (3, 1)]), "one range");
        assert!(!refused(&[(1, 2), (4, 1)]));
    }
}
