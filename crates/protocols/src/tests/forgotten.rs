//! A replica forgets a shard again while it recovers it: schedules of the whole kind.
//!
//! Between two losses the replica acknowledges a write that one other replica has. An answer of the
//! first recovery knows of no such write.

use base::Nanos;
use types::{AmnesiaCount, Key, Outcome, Shard, Tag};

use super::World;
use super::asks::Ask;
use super::letter::Letter;
use super::steps::{A, ALL, B, C};
use crate::abd::Abd;
use crate::caspaxos::CasPaxos;
use crate::classic_paxos::ClassicPaxos;
use crate::protocol::{Event, Protocol};
use crate::toolkit::eras::Eras;
use crate::toolkit::no_meta::NoMeta;

/// Messages to a replica that are held back, those to itself among them.
struct Held<M> {
    to: usize,
    part: &'static str,
    letters: Vec<Letter<M>>,
    own: Vec<M>,
}

impl<M: std::fmt::Debug> Held<M> {
    fn new(to: usize, part: &'static str) -> Held<M> {
        Held { to, part, letters: Vec::new(), own: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.letters.is_empty() && self.own.is_empty()
    }

    fn is_it(&self, message: &M) -> bool {
        format!("{message:?}").contains(self.part)
    }
}

impl<P: Protocol> World<P> {
    /// Lets time pass. These messages are held, and those over cut links are lost.
    fn idle_holding(&mut self, millis: u64, held: &mut Held<P::Message>, cut: &[(usize, usize)]) {
        for _ in 0..millis.div_ceil(5) {
            for _ in 0..10_000 {
                self.bag.retain(|it| !cut.iter().any(|&(one, other)| it.goes_between(one, other)));
                let is_held = |it: &mut Letter<_>| it.to == held.to && held.is_it(&it.message);
                let letters: Vec<_> = self.bag.extract_if(.., is_held).collect();
                held.letters.extend(letters);
                let own = std::mem::take(&mut self.nodes[held.to].own);
                let (own, rest): (Vec<_>, Vec<_>) = own.into_iter().partition(|it| held.is_it(it));
                self.nodes[held.to].own = rest.into();
                held.own.extend(own);
                if !self.bag.is_empty() {
                    let letter = self.bag.remove(0);
                    self.deliver(letter);
                } else if !ALL.into_iter().any(|node| self.flush(node) || self.deliver_own(node)) {
                    break;
                }
            }
            self.pass(Nanos::from_millis(5), ALL.into_iter());
        }
    }

    /// A worker has found out that a register and the fields of its shard are lost, and the amnesia
    /// count is raised. Messages that wait for storage would carry the new one.
    fn forget(&mut self, index: usize, key: usize) {
        let node = &mut self.nodes[index];
        node.gated.clear();
        node.set_amnesia(AmnesiaCount(node.amnesia().0 + 1));
        let shard = self.keys[key].shard();
        *node.metas.get_mut(shard) = P::Meta::default();
        self.with_context(index, |protocol, cx| protocol.on_meta_lost(cx, shard));
        self.damage(index, key);
    }

    fn list(&mut self, index: usize) -> Tag {
        self.clock += 1;
        let (tag, from_hash) = (Tag(self.clock), self.shard().first_hash());
        self.step(index, Event::List { tag, from_hash, limit: 100 });
        tag
    }
}

/// `part` names the answers of the first recovery that arrive after the second loss.
pub(super) fn forgotten_again<P: Protocol>(part: &'static str) -> Result<(), String> {
    let mut world = World::<P>::new(3, false, 7);
    world.are_own_late = true;
    let first = world.ask(A, 1, Ask::Set(1));
    world.done(first);
    world.drain();
    world.kill(C, 0, 0);
    world.start(C);
    let mut held = Held::new(C, part);
    let is_held = (0..100).any(|_| {
        world.idle_holding(5, &mut held, &[]);
        !held.is_empty()
    });
    assert!(is_held && world.nodes[C].cache.is_forgotten(world.shard()), "it recovers");
    let write = world.ask(A, 0, Ask::Set(2));
    let mut later = Held::new(C, part);
    while world.is_open(write) {
        world.idle_holding(5, &mut later, &[(A, B)]);
    }
    assert!(matches!(world.outcomes.get(&write), Some(Outcome::Reply(_))), "two of three have it");
    assert!(world.nodes[C].cache.is_forgotten(world.shard()), "it still recovers");
    world.forget(C, 0);
    held.letters.into_iter().for_each(|letter| world.deliver(letter));
    world.nodes[C].own.extend(held.own);
    world.carry_own(C);
    let (list, read) = (world.list(B), world.ask(B, 0, Ask::Get));
    world.idle_holding(300, &mut later, &[(A, B), (A, C)]);
    let key: &Key = &world.keys[0];
    match world.outcomes.get(&list) {
        Some(Outcome::Listed { keys, undecided, .. })
            if !keys.contains(key) && !undecided.contains(key) =>
        {
            return Err(format!("a listing without {key:?}"));
        }
        _ => {}
    }
    world.settle(&[read]);
    world.judge(&[B, C])
}

/// After so many steps of the recovery of one shard, a register of `second` is lost too. All nodes
/// hold these fields of a shard.
fn recover_both<P: Protocol>((second, steps): (usize, usize), fields: impl Fn() -> P::Meta) {
    let mut world = World::<P>::new(3, true, 7);
    let shard = world.shard();
    let other = Shard(shard.0.wrapping_add(1));
    world.keys.push(Key::at(other.first_hash(), b"other"));
    for node in &mut world.nodes {
        node.metas.fill(other, fields());
        *node.metas.get_mut(shard) = fields();
    }
    for key in 0..3 {
        let write = world.ask(A, key, Ask::Set(1));
        world.done(write);
    }
    world.drain();
    world.forget(C, 0);
    for _ in 0..steps {
        if !world.bag.is_empty() {
            let letter = world.bag.remove(0);
            world.deliver(letter);
        } else if !world.flush(C) {
            world.wait(C, 5);
        }
    }
    world.forget(C, second);
    let shards = [0, second].map(|key| world.keys[key].shard());
    let is_forgotten =
        |world: &World<P>| shards.iter().any(|it| world.nodes[C].cache.is_forgotten(*it));
    for _ in 0..400 {
        world.drain();
        if !is_forgotten(&world) {
            break;
        }
        world.pass(Nanos::from_millis(10), ALL.into_iter());
    }
    assert!(!is_forgotten(&world), "{} recovers both after {steps} steps", P::NAME);
    let reads: Vec<Tag> = (0..3).map(|key| world.ask(C, key, Ask::Get)).collect();
    world.settle(&reads);
    assert!(reads.iter().all(|&read| !world.is_open(read)), "{steps}");
    assert_eq!(world.verdict(), Ok(()), "{} after {steps} steps", P::NAME);
}

/// A second loss drops all messages that wait for storage, those of the first recovery among them.
#[test]
fn loss_at_any_moment_of_a_recovery_is_borne() {
    for steps in 0..40 {
        for second in [0, 1, 2] {
            recover_both::<Abd>((second, steps), || Eras::closed(3));
            recover_both::<CasPaxos>((second, steps), NoMeta::default);
            recover_both::<ClassicPaxos>((second, steps), NoMeta::default);
        }
    }
}
