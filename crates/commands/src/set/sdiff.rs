//! `SDIFF` and `SDIFFSTORE`.

use types::Reply;
use values::Lookup;
use values::set::{Encoding, Growth, Set};

use super::algebra::{sets, store};
use crate::row::*;
use crate::space::{Halt, Space};

pub(super) const MODULE: Module = Module { rows: ROWS, operations: &[] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "sdiff",
        arity: AtLeast(2),
        since: "1.0.0",
        summary: "Answers the members of the first set that the other sets lack.",
        complexity: "O(N) where N is the length of all sets.",
        arguments: &[Argument::key().multiple()],
        flags: &[Readonly],
        tips: &["nondeterministic_output_order"],
        keys: all_keys(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Keys(reply),
        is_heavy: true,
        ..SET
    },
    CommandSpec {
        name: "sdiffstore",
        arity: AtLeast(3),
        since: "1.0.0",
        summary: "Stores the members of the first set that the other sets lack at a key.",
        complexity: "O(N) where N is the length of all sets.",
        arguments: &[Argument::new("destination", ArgumentKind::Key), Argument::key().multiple()],
        flags: &[Write, DenyOom],
        keys: one_key(&["OW", "update"]),
        more_keys: &[keys_from(2, &["RO", "access"])],
        access: Some(Access::Update),
        execution: Keys(keep),
        is_heavy: true,
        ..SET
    },
];

fn reply(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let members = difference(space, &args.all[1..])?.into_members();
    Ok(Reply::Set(super::copies(members)))
}

fn keep(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    store(space, args.all[1], |space| difference(space, &args.all[2..]))
}

fn difference<'s>(space: &'s Space, keys: &[&[u8]]) -> Result<Growth<'s>, Halt> {
    let sets = sets(space, keys)?;
    let mut growth = Growth::new(Encoding::Intset);
    let (Some(&Some(first)), others) = (sets.first(), &sets[1..]) else { return Ok(growth) };
    let others: Vec<Set<'_>> = others.iter().copied().flatten().collect();
    let seed = space.clock().seed;
    let candidates = Lookup::of(first, seed);
    let others_members = others.iter().copied().flatten();
    let gone = Lookup::of(others_members.filter(|member| candidates.contains(member)), seed);
    if is_subtracted(first, &others) {
        first.iter().for_each(|member| growth.push(member));
        growth.retain(|member| !gone.contains(member));
    } else {
        let left = first.iter().filter(|member| !gone.contains(member));
        left.for_each(|member| growth.push(member));
    }
    Ok(growth)
}

/// redis-server removes the others from a copy of the first set if it counts on less work that way.
/// The order and the encoding of the result depend on it.
fn is_subtracted(first: Set<'_>, others: &[Set<'_>]) -> bool {
    let lookups = first.len() * (1 + others.len()) / 2;
    lookups > first.len() + others.iter().map(|set| set.len()).sum::<usize>()
}
