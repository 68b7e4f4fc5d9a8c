//! Ways to write a slot, each against a plain value: all crash states of a write, random histories,
//! damage.

use base::Prng;
use bench::media::variants::{
    Checksum, PopCount, Sequence, Slot, SlotContent, TwoStep, Variant, Write,
};
use proptest::prelude::*;
use storage::pmem::memory::Memory;
use storage::pmem::modelled::{Modelled, Moment};

const CAPACITY: usize = 100;
const STATES_MAX: u64 = 50_000;

/// Runs a claim for every variant.
macro_rules! for_every_variant {
    ($check:ident) => {
        $check::<Checksum>();
        $check::<PopCount>();
        $check::<TwoStep<1>>();
        $check::<TwoStep<2>>();
        $check::<TwoStep<3>>();
        $check::<TwoStep<4>>();
    };
}

/// A slot with neighbours on both sides, and their expected content.
struct NeighbouredSlot<V> {
    memory: Modelled,
    next: Sequence,
    variant: std::marker::PhantomData<V>,
}

fn slot<V: Variant>(index: u64) -> Slot {
    Slot { at: 4096 + index * V::slot_len(CAPACITY), capacity: CAPACITY }
}

/// Bytes with equal bit counts, so that a population count cannot tell a mixture from one of them.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut prng = Prng::new(seed);
    (0..len).map(|_| *prng.pick(&[0x0f, 0xf0, 0x33, 0xcc, 0x55, 0xaa, 0x5a, 0x96])).collect()
}

/// The content of a slot; `None` when it is empty.
fn read<V: Variant>(memory: &Modelled, slot: Slot) -> Option<(Sequence, Vec<u8>)> {
    let mut value = Vec::new();
    match V::read(memory, slot, &mut value) {
        SlotContent::Value(sequence) => Some((sequence, value)),
        SlotContent::Nothing => None,
        SlotContent::Damaged => panic!("{} is damaged in {slot:?}", V::NAME),
    }
}

fn neighbours() -> [(u64, Vec<u8>); 2] {
    [(0, bytes(100, CAPACITY)), (2, bytes(101, CAPACITY))]
}

impl<V: Variant> NeighbouredSlot<V> {
    /// Neighbours have values; the slot in the middle has the last of `values`.
    fn new(values: &[Vec<u8>]) -> NeighbouredSlot<V> {
        let memory = Modelled::new(1 << 20);
        memory.grow(8192).expect("there is room");
        let mut world =
            NeighbouredSlot { memory, next: Sequence::FIRST, variant: Default::default() };
        (0..3).for_each(|index| V::clear(&world.memory, slot::<V>(index)));
        world.memory.fence();
        for (index, value) in neighbours() {
            let write = Write { sequence: Sequence::FIRST, value: &value };
            V::write(&world.memory, slot::<V>(index), write);
        }
        values.iter().for_each(|value| world.write(value));
        world
    }

    fn write(&mut self, value: &[u8]) {
        let write = Write { sequence: self.next, value };
        V::write(&self.memory, slot::<V>(1), write);
        self.next = self.next.next();
    }

    fn read(&self) -> Option<Vec<u8>> {
        read::<V>(&self.memory, slot::<V>(1)).map(|(_, value)| value)
    }

    /// Opens memory after a crash.
    fn reopen(memory: Modelled) -> NeighbouredSlot<V> {
        memory.settle().expect("modelled memory settles");
        V::recover(&memory, slot::<V>(1));
        memory.fence();
        let next = match read::<V>(&memory, slot::<V>(1)) {
            Some((sequence, _)) => sequence.next(),
            None => Sequence::FIRST,
        };
        NeighbouredSlot { memory, next, variant: Default::default() }
    }

    fn check_neighbours(&self) {
        for (index, value) in neighbours() {
            let found = read::<V>(&self.memory, slot::<V>(index)).map(|(_, value)| value);
            assert_eq!(found.as_ref(), Some(&value), "{}: neighbour {index}", V::NAME);
        }
    }
}

fn every_crash_state_of_a_write<V: Variant>() {
    for (written, len) in [(0, 100), (1, 24), (2, 100), (3, 56), (4, 1), (5, 0), (6, 37)] {
        let before: Vec<Vec<u8>> = (0..written).map(|n| bytes(n, 100 - 16 * n as usize)).collect();
        let old = before.last().cloned();
        let new = bytes(50, len);
        let mut done = NeighbouredSlot::<V>::new(&before);
        let first = done.memory.events();
        done.write(&new);
        for event in first..done.memory.events() {
            let mut world = NeighbouredSlot::<V>::new(&before);
            world.memory.capture_at(Moment::Event(event));
            world.write(&new);
            let captured = world.memory.captured().expect("the moment has come");
            assert!(captured.state_count() <= STATES_MAX, "{}", captured.state_count());
            for memory in captured.states() {
                let mut after = NeighbouredSlot::<V>::reopen(memory);
                let found = after.read();
                assert!(found == old || found.as_ref() == Some(&new), "{}: torn", V::NAME);
                after.check_neighbours();
                after.write(b"another");
                assert_eq!(after.read().as_deref(), Some(&b"another"[..]), "{}", V::NAME);
            }
        }
        for memory in done.memory.persistent().states() {
            assert_eq!(
                NeighbouredSlot::<V>::reopen(memory).read().as_ref(),
                Some(&new),
                "{}",
                V::NAME
            );
        }
    }
}

#[test]
fn a_crash_leaves_the_value_before_or_after_and_the_neighbours_alone() {
    for_every_variant!(every_crash_state_of_a_write);
}

/// Two successive writes are cut off, and the second one ends like the first.
fn abandoned_write_stays_away<V: Variant>() {
    let mut prng = Prng::new(7);
    let [old, first, second] = [1, 2, 3].map(|seed| [bytes(seed, 40), bytes(9, 60)].concat());
    for _ in 0..60 {
        let mut world = NeighbouredSlot::<V>::new(&[bytes(0, 10), old.clone()]);
        let cut_off = |world: &mut NeighbouredSlot<V>, value: &[u8], prng: &mut Prng| {
            let fence = world.memory.fences() + prng.below(V::STEPS as u64);
            world.memory.capture_at(Moment::Fence(fence));
            world.write(value);
            world.memory.captured().expect("the moment has come")
        };
        let persistent = cut_off(&mut world, &first, &mut prng);
        for _ in 0..60 {
            let mut after = NeighbouredSlot::<V>::reopen(persistent.crash(&mut prng));
            let found = after.read().expect("it held something");
            assert!(found == old || found == first, "{}: torn", V::NAME);
            let again = cut_off(&mut after, &second, &mut prng);
            let last = NeighbouredSlot::<V>::reopen(again.crash(&mut prng)).read();
            assert!(
                last == Some(found) || last.as_ref() == Some(&second),
                "{}: it came back",
                V::NAME
            );
        }
    }
}

#[test]
fn a_write_that_was_cut_off_does_not_come_back_when_the_next_one_is_cut_off_as_well() {
    for_every_variant!(abandoned_write_stays_away);
}

#[derive(Clone, Debug)]
enum HistoryStep {
    Write {
        seed: u64,
        len: usize,
    },
    /// Power fails at an event of a write.
    Crash {
        seed: u64,
        len: usize,
        event: u64,
    },
}

fn step() -> impl Strategy<Value = HistoryStep> {
    let write = (any::<u64>(), 0..=CAPACITY);
    let crash = (any::<u64>(), 0..=CAPACITY, 0_u64..60);
    prop_oneof![
        3 => write.prop_map(|(seed, len)| HistoryStep::Write { seed, len }),
        1 => crash.prop_map(|(seed, len, event)| HistoryStep::Crash { seed, len, event }),
    ]
}

fn history<V: Variant>(steps: &[HistoryStep]) {
    let mut world = NeighbouredSlot::<V>::new(&[]);
    let mut model: Option<Vec<u8>> = None;
    for step in steps {
        match *step {
            HistoryStep::Write { seed, len } => {
                world.write(&bytes(seed, len));
                model = Some(bytes(seed, len));
            }
            HistoryStep::Crash { seed, len, event } => {
                world.memory.capture_at(Moment::Event(world.memory.events() + event));
                world.write(&bytes(seed, len));
                let captured = world.memory.captured();
                let is_done = captured.is_none();
                let persistent = captured.unwrap_or_else(|| world.memory.persistent());
                world = NeighbouredSlot::reopen(persistent.crash(&mut Prng::new(seed)));
                let found = world.read();
                let new = Some(bytes(seed, len));
                assert!(found == new || !is_done && found == model, "{}: {found:?}", V::NAME);
                model = found;
            }
        }
        assert_eq!(world.read(), model, "{}", V::NAME);
    }
    world.check_neighbours();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn a_slot_is_a_value_that_survives(steps in proptest::collection::vec(step(), 1..30)) {
        history::<Checksum>(&steps);
        history::<PopCount>(&steps);
        history::<TwoStep<1>>(&steps);
        history::<TwoStep<4>>(&steps);
    }
}

fn sequences_begin_again<V: Variant>() {
    let mut world = NeighbouredSlot::<V>::new(&[]);
    world.next = Sequence::LAST;
    for round in 0..8 {
        world.write(&bytes(round, 30));
        assert_eq!(world.read(), Some(bytes(round, 30)), "{} in round {round}", V::NAME);
    }
}

#[test]
fn a_slot_keeps_its_order_when_sequences_begin_again() {
    for_every_variant!(sequences_begin_again);
}

fn slots_are_whole_lines<V: Variant>() {
    for capacity in 0..500 {
        let len = V::slot_len(capacity);
        assert!(len % 64 == 0 && len >= 2 * capacity as u64, "{}: {capacity}", V::NAME);
    }
}

#[test]
fn no_slot_shares_a_line_with_another() {
    for_every_variant!(slots_are_whole_lines);
}

/// The words of a slot's first version after its first write; `len` bytes with the header.
fn first_version<V: Variant>(value: &[u8]) -> Vec<u64> {
    let world = NeighbouredSlot::<V>::new(&[value.to_vec()]);
    let words = (16 + value.len()).div_ceil(8) as u64;
    (0..words).map(|word| world.memory.load(slot::<V>(1).at + 8 * word)).collect()
}

/// Writes a value after those in `before`; only the given words arrive.
fn torn<V: Variant>(before: &[Vec<u8>], words: &[u64], arrived: u32) -> Option<Vec<u8>> {
    let world = NeighbouredSlot::<V>::new(before);
    for (index, &word) in words.iter().enumerate().filter(|(index, _)| arrived >> index & 1 == 1) {
        world.memory.store(slot::<V>(1).at + 8 * index as u64, word);
    }
    world.read()
}

#[test]
fn a_population_count_sees_every_tear_over_zeros() {
    let value = [bytes(1, 24), vec![0; 8], bytes(2, 13)].concat();
    let words = first_version::<PopCount>(&value);
    for arrived in 0..1_u32 << words.len() {
        let all = words.iter().enumerate().all(|(i, &word)| word == 0 || arrived >> i & 1 == 1);
        let found = torn::<PopCount>(&[], &words, arrived);
        assert_eq!(found, all.then(|| value.clone()), "words {arrived:#b} arrived");
    }
}

/// Why versions are zeroed before they are written.
#[test]
fn popcount_misses_tear_over_old_data() {
    let old = [[0x0f; 8], [0xf0; 8]].concat();
    let new = [[0xaa; 8], [0x55; 8]].concat();
    let words = first_version::<PopCount>(&new);
    // Header, count and the first word arrive; the second word is the old one, with as many bits.
    let found = torn::<PopCount>(std::slice::from_ref(&old), &words, 0b0111);
    assert_eq!(found, Some([[0xaa; 8], [0xf0; 8]].concat()));
}

#[test]
fn a_checksum_sees_every_tear_over_anything() {
    let (old, new) = (bytes(1, 40), bytes(2, 40));
    let words = {
        let values = [old.clone(), old.clone(), new.clone()];
        let world = NeighbouredSlot::<Checksum>::new(&values);
        (0..7).map(|word| world.memory.load(slot::<Checksum>(1).at + 8 * word)).collect::<Vec<_>>()
    };
    // The third value goes where the first one is.
    let before = [old.clone(), bytes(3, 40)];
    for arrived in 1..(1 << words.len()) - 1 {
        let found = torn::<Checksum>(&before, &words, arrived);
        assert_eq!(found.as_ref(), Some(&before[1]), "words {arrived:#b} arrived");
    }
    assert_eq!(torn::<Checksum>(&before, &words, (1 << words.len()) - 1), Some(new));
}

fn single_bits_are_seen<V: Variant>() {
    let values = [bytes(1, 50), bytes(2, 50)];
    for bit in 0..8 * V::slot_len(CAPACITY) {
        let world = NeighbouredSlot::<V>::new(&values);
        world.memory.flip(slot::<V>(1).at + bit / 8, 1 << (bit % 8));
        let mut value = Vec::new();
        if let SlotContent::Value(_) = V::read(&world.memory, slot::<V>(1), &mut value) {
            assert!(values.contains(&value), "{}: bit {bit} makes up a value", V::NAME);
        }
    }
}

#[test]
fn one_bit_of_damage_never_makes_up_a_value() {
    single_bits_are_seen::<Checksum>();
    single_bits_are_seen::<PopCount>();
}
