//! Inputs without a fuzzer: seeds, changed at random places by a number. Not guided by coverage; for tests that run
//! everywhere and take the same inputs each time.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use base::Prng;

use crate::Target;

/// No input becomes longer by being changed.
const LEN_MAX: usize = 4096;

/// Bytes that parsers treat unlike others.
const SPECIAL: [u8; 20] = [
    0, 1, 0x7f, 0x80, 0xff, b'\r', b'\n', b'*', b'$', b'"', b'\'', b' ', b'0', b'9', b'-', b':',
    b'+', b'=', b',', b'%',
];

/// Runs `target` on its seeds, then on `count` inputs that `seed` draws from them.
///
/// # Panics
/// When the target does; the input is printed for `cargo run -p fuzzing -- replay`.
pub fn run(target: &Target, seed: u64, count: u64) {
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty(), "{} has no seed", target.name);
    for input in &seeds {
        try_on(target, input);
    }
    let mut prng = Prng::new(seed);
    for _ in 0..count {
        try_on(target, &draw(&seeds, &mut prng));
    }
}

fn try_on(target: &Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("replay: cargo run -p fuzzing -- replay {} {hex}", target.name);
        resume_unwind(panic);
    }
}

/// One seed, mostly changed a little, sometimes a lot, now and then noise.
fn draw(seeds: &[Vec<u8>], prng: &mut Prng) -> Vec<u8> {
    if prng.chance_ppm(20_000) {
        return (0..prng.below(200)).map(|_| prng.next_u64() as u8).collect();
    }
    let mut input = prng.pick(seeds).clone();
    let changes = 1 << prng.below(5);
    for _ in 0..prng.between(1, changes) {
        change(&mut input, seeds, prng);
    }
    input.truncate(LEN_MAX.max(seeds.iter().map(Vec::len).max().unwrap_or(0)));
    input
}

fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], prng: &mut Prng) {
    let at = prng.below(input.len() as u64 + 1) as usize;
    let len = (prng.below(16) as usize).min(input.len() - at);
    match prng.below(8) {
        0 | 1 if at < input.len() => input[at] ^= 1 << prng.below(8),
        2 if at < input.len() => input[at] = *prng.pick(&SPECIAL),
        3 if at < input.len() => input[at] = prng.next_u64() as u8,
        4 => drop(input.drain(at..at + len)),
        5 => {
            let piece = input[at..at + len].to_vec();
            let to = prng.below(input.len() as u64 + 1) as usize;
            input.splice(to..to, piece);
        }
        6 => {
            let other = prng.pick(seeds);
            let from = prng.below(other.len() as u64 + 1) as usize;
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        _ => {
            let byte =
                if prng.chance_ppm(500_000) { *prng.pick(&SPECIAL) } else { prng.next_u64() as u8 };
            input.splice(at..at, vec![byte; 1 + prng.below(4) as usize]);
        }
    }
}
