//! `SUNION` and `SUNIONSTORE`.

use types::Reply;
use values::Lookup;
use values::set::{Encoding, Growth};

use super::algebra::{sets, store};
use crate::row::*;
use crate::space::{Halt, Space};

pub(super) const MODULE: Module = Module { rows: ROWS, operations: &[] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "sunion",
        arity: AtLeast(2),
        since: "1.0.0",
        summary: "Answers all members of several sets.",
        complexity: "O(N) where N is the length of all sets.",
        arguments: &[Argument::key().multiple()],
        flags: &[Readonly],
        tips: &["nondeterministic_output_order"],
        keys: all_keys(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Keys(reply),
        is_heavy: true,
        miss: Some(Miss::Empty),
        ..SET
    },
    CommandSpec {
        name: "sunionstore",
        arity: AtLeast(3),
        since: "1.0.0",
        summary: "Stores all members of several sets at a key, and answers their number.",
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
    let members = union(space, &args.all[1..])?.into_members();
    Ok(Reply::Set(super::copies(members)))
}

fn keep(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    store(space, args.all[1], |space| union(space, &args.all[2..]))
}

fn union<'s>(space: &'s Space, keys: &[&[u8]]) -> Result<Growth<'s>, Halt> {
    let mut growth = Growth::new(Encoding::Intset);
    let mut known = Lookup::new(space.clock().seed);
    for member in sets(space, keys)?.into_iter().flatten().flatten() {
        if known.insert(member) {
            growth.push(member);
        }
    }
    Ok(growth)
}
