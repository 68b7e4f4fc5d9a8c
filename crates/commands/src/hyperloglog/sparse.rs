//! Registers as runs of equal ones:
//!
//! ```text
//! 00llllll            zeros, up to 64
//! 01llllll llllllll   zeros, up to 16,384
//! 1vvvvvll            1 to 4 registers of one rank, up to 32
//! ```
//!
//! Encoded lengths and ranks are one less than the meant ones.
//! A change splits runs and joins neighbours as redis-server does, so that bytes stay equal.

use super::{HEADER_LEN, REGISTERS};

/// A longer value becomes dense (`hll-sparse-max-bytes`). It includes the header.
const LEN_MAX: usize = 3_000;

/// A greater rank needs a dense value.
const RANK_MAX: u8 = 32;

const RANKED_MAX: usize = 4;
const SHORT_MAX: usize = 64;

/// Runs that are looked at after a change, for neighbours to join.
const JOINED_MAX: usize = 5;

const IS_RANKED: u8 = 0x80;
const IS_LONG: u8 = 0x40;

/// Registers of one rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    rank: u8,
    len: usize,
    /// Encoded bytes.
    size: usize,
}

/// The effect of [`raise`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Raised {
    /// The register has such a rank, or a greater one.
    No,
    Yes,
    /// Only a dense value can hold the rank.
    NoRoom,
}

impl Run {
    /// The run at the start of `bytes`; `None` at the end, and when it is cut.
    fn first(bytes: &[u8]) -> Option<Run> {
        let &byte = bytes.first()?;
        if byte & IS_RANKED != 0 {
            let (rank, len) = ((byte >> 2 & 0x1f) + 1, usize::from(byte & 3) + 1);
            return Some(Run { rank, len, size: 1 });
        }
        let low = usize::from(byte & 0x3f);
        if byte & IS_LONG == 0 {
            return Some(Run { rank: 0, len: low + 1, size: 1 });
        }
        let len = (low << 8 | usize::from(*bytes.get(1)?)) + 1;
        Some(Run { rank: 0, len, size: 2 })
    }

    fn put(out: &mut Vec<u8>, rank: u8, len: usize) {
        let Some(less) = len.checked_sub(1) else { return };
        match rank {
            0 if len <= SHORT_MAX => out.push(less as u8),
            0 => out.extend([IS_LONG | (less >> 8) as u8, less as u8]),
            _ => out.push(ranked(rank, len)),
        }
    }
}

fn ranked(rank: u8, len: usize) -> u8 {
    IS_RANKED | (rank - 1) << 2 | (len - 1) as u8
}

/// The registers of a new value.
pub(super) fn empty() -> Vec<u8> {
    let mut out = Vec::new();
    Run::put(&mut out, 0, REGISTERS);
    out
}

/// Ranks and how many registers in turn have them. `None` when a run is cut.
fn runs(mut bytes: &[u8]) -> impl Iterator<Item = Option<Run>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let run = Run::first(bytes);
        bytes = run.map_or(&[], |run| &bytes[run.size..]);
        Some(run)
    })
}

/// Calls `count` with each rank and a number of registers. `None` unless these are all registers.
pub(super) fn count(bytes: &[u8], mut count: impl FnMut(u8, usize)) -> Option<()> {
    let mut total = 0;
    for run in runs(bytes) {
        let run = run?;
        count(run.rank, run.len);
        total += run.len;
    }
    (total == REGISTERS).then_some(())
}

/// Calls `raise` with the index and the rank of registers that have one. `None` unless the runs are
/// all registers. As in redis-server, ranks behind the last register end the runs.
pub(super) fn ranks(bytes: &[u8], mut raise: impl FnMut(usize, u8)) -> Option<()> {
    let mut first = 0;
    for run in runs(bytes) {
        let run = run?;
        if run.rank > 0 {
            if first + run.len > REGISTERS {
                break;
            }
            (first..first + run.len).for_each(|index| raise(index, run.rank));
        }
        first += run.len;
    }
    (first == REGISTERS).then_some(())
}

/// Raises a register of a value. `None` when no run has it.
pub(super) fn raise(value: &mut Vec<u8>, index: usize, rank: u8) -> Option<Raised> {
    if rank > RANK_MAX {
        return Some(Raised::NoRoom);
    }
    let (mut at, mut before, mut first) = (HEADER_LEN, HEADER_LEN, 0);
    let run = loop {
        let run = Run::first(&value[at..])?;
        if index < first + run.len {
            break run;
        }
        before = at;
        at += run.size;
        first += run.len;
    };
    if run.rank >= rank {
        return Some(Raised::No);
    }
    let mut split = Vec::with_capacity(5);
    Run::put(&mut split, run.rank, index - first);
    Run::put(&mut split, rank, 1);
    Run::put(&mut split, run.rank, first + run.len - index - 1);
    if split.len() > run.size && value.len() + split.len() - run.size > LEN_MAX {
        return Some(Raised::NoRoom);
    }
    value.splice(at..at + run.size, split);
    join(value, before);
    Some(Raised::Yes)
}

/// Joins neighbours of the same rank, from a run on.
fn join(value: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOINED_MAX {
        let Some(run) = value.get(at..).and_then(Run::first) else { return };
        let next = value.get(at + run.size..).and_then(Run::first);
        let joined = next.filter(|next| next.rank == run.rank && run.rank > 0);
        match joined.map(|next| run.len + next.len) {
            Some(len) if len <= RANKED_MAX => {
                value[at] = ranked(run.rank, len);
                value.remove(at + 1);
            }
            _ => at += run.size,
        }
    }
}
