//! `RENAME` and `RENAMENX`: the time to live moves with the value.

use types::{Change, Reply};

use super::NO_SUCH_KEY;
use crate::row::*;
use crate::space::{Halt, Space};

pub(super) const MODULE: Module = Module { rows: ROWS, operations: &[] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "rename",
        arity: Exactly(3),
        summary: "Moves a value to another key, in place of the value there.",
        arguments: NAMES,
        flags: &[Write],
        keys: one_key(&["RW", "access", "delete"]),
        more_keys: &[key_at(2, &["OW", "update"])],
        access: Some(Access::Update),
        execution: Keys(rename),
        ..GENERIC
    },
    CommandSpec {
        name: "renamenx",
        arity: Exactly(3),
        summary: "Moves a value to another key, unless there is a value.",
        arguments: NAMES,
        flags: &[Write, Fast],
        keys: one_key(&["RW", "access", "delete"]),
        more_keys: &[key_at(2, &["OW", "insert"])],
        access: Some(Access::Update),
        execution: Keys(rename_if_free),
        ..GENERIC
    },
];

const NAMES: &[Argument] = &[Argument::key(), Argument::new("newkey", ArgumentKind::Key)];

fn rename(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let (from, to) = (args.all[1], args.all[2]);
    if !space.context(from)?.exists() {
        return Err(NO_SUCH_KEY.into());
    }
    if from != to {
        move_value(space, from, to)?;
    }
    Ok(Reply::OK)
}

fn rename_if_free(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let (from, to) = (args.all[1], args.all[2]);
    if !space.context(from)?.exists() {
        return Err(NO_SUCH_KEY.into());
    }
    let is_free = !space.context(to)?.exists();
    if is_free {
        move_value(space, from, to)?;
    }
    Ok(Reply::count(is_free))
}

fn move_value(space: &mut Space, from: &[u8], to: &[u8]) -> Result<(), Halt> {
    super::copy_value(space, from, to)?;
    space.change(from, Change::Delete)
}
