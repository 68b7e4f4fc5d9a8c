//! `PFCOUNT`.

use types::Reply;

use super::sketch::{Sketch, Union};
use crate::row::*;
use crate::space::{Halt, Space};
use crate::spec::{KeyRange, LastKey};

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "pfcount",
    arity: AtLeast(2),
    since: "2.8.9",
    summary: "Estimates how many different elements were added to the HyperLogLogs at the given keys.",
    complexity: "O(N) where N is the number of keys.",
    arguments: &[Argument::key().multiple()],
    flags: &[Readonly],
    keys: Some(KeyRange {
        first: 1,
        last: LastKey::End,
        step: 1,
        flags: &["RW", "access"],
        notes: "RW because it may change the internal representation of the key, \
and propagate to replicas",
    }),
    access: Some(Access::Read),
    execution: Keys(run),
    miss: Some(Miss::Integer(0)),
    ..HYPERLOGLOG
};

fn run(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let keys = &args.all[1..];
    if let [key] = keys {
        let string = space.context(key)?.string()?;
        let count = string.map_or(Ok(0), |string| Sketch::of(string)?.count())?;
        return Ok(Reply::Integer(count));
    }
    let mut union = Union::new();
    for key in keys {
        if let Some(string) = space.context(key)?.string()? {
            union.add(Sketch::of(string)?)?;
        }
    }
    Ok(Reply::Integer(union.count()))
}
