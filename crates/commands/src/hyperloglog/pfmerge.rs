//! `PFMERGE`.

use types::{Change, ExpiryChange, Reply};

use super::sketch::{Draft, Sketch, Union};
use crate::row::*;
use crate::space::{Halt, Space};

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "pfmerge",
    arity: AtLeast(2),
    since: "2.8.9",
    summary: "Adds all elements of HyperLogLogs to the one at a key, which begins empty.",
    complexity: "O(N) where N is the number of keys.",
    arguments: &[
        Argument::new("destkey", ArgumentKind::Key),
        Argument::new("sourcekey", ArgumentKind::Key).optional().multiple(),
    ],
    flags: &[Write, DenyOom],
    keys: one_key(&["RW", "access", "insert"]),
    more_keys: &[keys_from(2, &["RO", "access"])],
    access: Some(Access::Update),
    execution: Keys(run),
    ..HYPERLOGLOG
};

/// The result is dense if one of the values is.
fn run(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let (mut union, mut is_dense) = (Union::new(), false);
    for key in &args.all[1..] {
        if let Some(string) = space.context(key)?.string()? {
            let sketch = Sketch::of(string)?;
            is_dense |= sketch.is_dense();
            union.add(sketch)?;
        }
    }
    let target = space.context(args.all[1])?;
    let found = target.string()?;
    let mut draft = match found {
        Some(string) => Draft::of(Sketch::of(string)?),
        None => Draft::new(),
    };
    if is_dense {
        draft.make_dense()?;
    }
    for (index, rank) in union.ranks() {
        draft.raise(index, rank)?;
    }
    let string = draft.finish();
    target.check_string(found.unwrap_or_default(), string.len() as u64)?;
    let value = values::string::encode(&string);
    space.change(args.all[1], Change::Put { value, expiry: ExpiryChange::Keep })?;
    Ok(Reply::OK)
}
