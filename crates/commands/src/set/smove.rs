//! `SMOVE`.

use types::Reply;

use super::sadd::add;
use super::srem::remove;
use crate::row::*;
use crate::space::{Halt, Space};

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "smove",
    arity: Exactly(4),
    since: "1.0.0",
    summary: "Moves a member from one set to another.",
    complexity: "O(N) where N is the length of both sets.",
    arguments: &[
        Argument::new("source", ArgumentKind::Key),
        Argument::new("destination", ArgumentKind::Key),
        Argument::string("member"),
    ],
    flags: &[Write, Fast],
    keys: one_key(&["RW", "access", "delete"]),
    more_keys: &[key_at(2, &["RW", "insert"])],
    access: Some(Access::Update),
    execution: Keys(run),
    ..SET
};

fn run(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let (from, to, member) = (args.all[1], args.all[2], &args.all[3..4]);
    let (source, target) = (space.context(from)?, space.context(to)?);
    let Some(set) = source.set()? else { return Ok(Reply::Integer(0)) };
    // redis-server checks the type of the destination only if there is a source.
    target.set()?;
    let is_member = set.contains(member[0]);
    if !is_member || from == to {
        return Ok(Reply::count(is_member));
    }
    let (taken, given) = (remove(&source, member)?, add(&target, member)?);
    space.change(from, taken.change)?;
    space.change(to, given.change)?;
    Ok(Reply::count(true))
}
