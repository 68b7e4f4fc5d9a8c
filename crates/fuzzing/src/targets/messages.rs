//! Words with a byte form: messages of the protocols, and what they store.

use std::fmt::Debug;

use base::Prng;
use protocols::{Message, Touches, abd, caspaxos, classic_paxos, hermes, rmwpaxos, zab};
use transport::{Hello, Refusal};
use types::{Ballot, Key, Reader, Round, Wire};

use super::Target;
use crate::input::Input;

pub(super) const TARGET: Target = Target {
    name: "messages",
    claim: "what decodes comes back, encoded, as the same; a message names one key, however it is asked",
    run,
    seeds,
    short: 200_000,
};

/// One type, chosen by the first byte of an input.
struct Word {
    check: fn(&[u8]),
    draw: fn(&[u8]) -> Option<Vec<u8>>,
}

const fn word<T: Wire + Debug>() -> Word {
    Word { check: check::<T>, draw: draw::<T> }
}

const fn message<T: Message>() -> Word {
    Word { check: check_message::<T>, draw: draw::<T> }
}

const WORDS: &[Word] = &[
    message::<rmwpaxos::Message>(),
    message::<abd::Message>(),
    message::<caspaxos::Message>(),
    message::<classic_paxos::Message>(),
    message::<hermes::Message>(),
    message::<zab::Message>(),
    word::<rmwpaxos::Register>(),
    word::<rmwpaxos::ShardMeta>(),
    word::<rmwpaxos::State>(),
    word::<rmwpaxos::Delta>(),
    word::<abd::Register>(),
    word::<caspaxos::Register>(),
    word::<classic_paxos::Register>(),
    word::<hermes::Register>(),
    word::<zab::Register>(),
    word::<zab::Meta>(),
    word::<zab::txn::Entry>(),
    word::<node::formation::Status>(),
    word::<Hello>(),
    Word { check: check_refusal, draw: draw::<Refusal> },
    word::<Key>(),
    word::<Ballot>(),
    word::<Round>(),
];

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let word = &WORDS[usize::from(input.u8()) % WORDS.len()];
    (word.check)(input.rest());
}

fn check<T: Wire + Debug>(bytes: &[u8]) {
    let Ok(it) = T::from_bytes(bytes) else { return };
    let encoded = it.to_bytes();
    let again = T::from_bytes(&encoded);
    let again = again.unwrap_or_else(|error| panic!("{error}: {it:?}, encoded as {encoded:02x?}"));
    assert_eq!(format!("{again:?}"), format!("{it:?}"));
    assert_eq!(again.to_bytes(), encoded, "{it:?}");
}

/// One that names versions names those of whoever encodes it.
fn check_refusal(bytes: &[u8]) {
    let Ok(refusal) = Refusal::from_bytes(bytes) else { return };
    let again = Refusal::from_bytes(&refusal.to_bytes()).expect("what is encoded can be read");
    assert_eq!(std::mem::discriminant(&again), std::mem::discriminant(&refusal));
}

fn check_message<T: Message>(bytes: &[u8]) {
    check::<T>(bytes);
    let peeked = T::peek_key(bytes);
    let Ok(message) = T::from_bytes(bytes) else { return };
    if let Some(peeked) = peeked {
        assert_eq!(message.touches(), Touches::Key(&peeked), "{message:?}");
    }
}

/// The word that these bytes begin with, in its own form.
fn draw<T: Wire>(bytes: &[u8]) -> Option<Vec<u8>> {
    T::decode(&mut Reader::new(bytes)).ok().map(|it| it.to_bytes())
}

/// Words that noise happens to decode to, the two shortest for each byte that one may begin with.
fn seeds() -> Vec<Vec<u8>> {
    const DRAWS: u64 = 300;
    let mut prng = Prng::new(1);
    let mut seeds = Vec::new();
    for (index, word) in WORDS.iter().enumerate() {
        for first in 0..40_u8 {
            let mut found: Vec<Vec<u8>> = Vec::new();
            for _ in 0..DRAWS {
                let mut noise: Vec<u8> = (0..600).map(|_| small(&mut prng)).collect();
                noise[0] = first;
                found.extend((word.draw)(&noise).map(|bytes| [vec![index as u8], bytes].concat()));
            }
            found.sort_by_key(Vec::len);
            found.dedup();
            seeds.extend(found.into_iter().take(2));
        }
    }
    seeds
}

/// Lengths and flags are small, and counters are anything.
fn small(prng: &mut Prng) -> u8 {
    if prng.chance_ppm(700_000) { prng.below(4) as u8 } else { prng.next_u64() as u8 }
}
