//! Damage to what a medium holds, drawn from an input, and what may be found behind it.

use std::collections::BTreeMap;

use base::Prng;
use storage::{Load, Place};

use crate::input::Input;

/// Edits of one input.
const EDITS_MAX: usize = 12;
/// Bytes of one edit.
const LEN_MAX: usize = 5_000;

/// How bad the worst edit was.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Damage {
    /// Bytes that are no medium's: noticed wherever they are.
    Noise,
    /// Bytes that stood elsewhere or earlier, zeros, or a missing end. A medium may hold them for older than they
    /// are; nothing is found at a place where it was never written.
    Stale,
    /// Bytes of the input's choice, who may have chosen the right checksum: nothing is promised but to stand.
    Forged,
}

/// Every state that a place was ever in, the last one being the newest; `None` is nothing there.
pub(super) type History = BTreeMap<Place, Vec<Option<Vec<u8>>>>;

/// Changes `files` as `input` says.
pub(super) fn damage(files: &mut [Vec<u8>], input: &mut Input<'_>) -> Damage {
    let mut worst = Damage::Noise;
    for _ in 0..EDITS_MAX {
        if input.is_empty() {
            break;
        }
        worst = worst.max(edit(files, input));
    }
    worst
}

fn edit(files: &mut [Vec<u8>], input: &mut Input<'_>) -> Damage {
    let kind = input.u8();
    let file = usize::from(input.u8()) % files.len();
    let file_len = files[file].len();
    if file_len == 0 {
        return Damage::Noise;
    }
    let mut at = input.u32() as usize % file_len;
    if kind & 0x80 != 0 {
        at -= at % 512;
    }
    let len = (1 + usize::from(input.u16()) % LEN_MAX).min(file_len - at);
    let room = at..at + len;
    match kind & 7 {
        0 | 1 => files[file][at] ^= 1 << (len % 8),
        2 | 3 => {
            // Not the input's own bytes: a fuzzer that watches comparisons would find the right checksum.
            let mut prng = Prng::new(input.u64());
            files[file][room].iter_mut().for_each(|byte| *byte = prng.next_u64() as u8);
        }
        4 => {
            files[file][room].fill(0);
            return Damage::Stale;
        }
        5 => {
            let from = usize::from(input.u8()) % files.len();
            let start = input.u32() as usize % (files[from].len() + 1);
            let piece = &files[from][start..];
            let piece = piece[..piece.len().min(len)].to_vec();
            files[file][at..at + piece.len()].copy_from_slice(&piece);
            return Damage::Stale;
        }
        6 => {
            files[file].truncate(at);
            return Damage::Stale;
        }
        _ => {
            let bytes = input.take(len);
            files[file][at..at + bytes.len()].copy_from_slice(bytes);
            return Damage::Forged;
        }
    }
    Damage::Noise
}

/// Holds what was found at a place against what was written there.
pub(super) fn check(history: &History, place: &Place, load: &Load, damage: Damage) {
    let states = &history[place];
    let newest = states.last().expect("every place was written");
    let found = match load {
        Load::Found(bytes) => Some(bytes.to_vec()),
        Load::Absent => None,
        Load::Lost => return,
        Load::Pending => panic!("no answer for {place:?}"),
    };
    match damage {
        Damage::Noise => assert_eq!(&found, newest, "{place:?} is not what it was last"),
        Damage::Stale => {
            assert!(found.is_none() || states.contains(&found), "{place:?} was never {found:?}");
        }
        Damage::Forged => {}
    }
}

/// Inputs of one edit each, of every kind in every file, and of none.
pub(super) fn seeds(files: u8) -> Vec<Vec<u8>> {
    let mut prng = Prng::new(1);
    let mut seeds = vec![Vec::new()];
    for file in 0..files {
        for kind in 0..8_u8 {
            for aligned in [0, 0x80] {
                let mut seed = vec![kind | aligned, file];
                seed.extend((0..40).map(|_| prng.next_u64() as u8));
                // A short edit, so that what follows it is another.
                seed[7] = 0;
                seeds.push(seed);
            }
        }
    }
    seeds
}
