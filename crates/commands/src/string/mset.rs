//! `MSET` and `MSETNX`.

use types::{Change, ExpiryChange, Reply, TimeToLive};

use crate::errors;
use crate::row::*;
use crate::space::{Halt, Space};
use crate::spec::{KeyRange, LastKey};

pub(super) const MODULE: Module = Module { rows: ROWS, operations: &[] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "mset",
        arity: AtLeast(3),
        since: "1.0.1",
        summary: "Sets strings at keys, all at one time.",
        complexity: "O(N) where N is the number of keys.",
        arguments: DATA,
        flags: &[Write, DenyOom],
        tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
        keys: every_second(&["OW", "update"]),
        access: Some(Access::Update),
        execution: Keys(mset),
        ..STRING
    },
    CommandSpec {
        name: "msetnx",
        arity: AtLeast(3),
        since: "1.0.1",
        summary: "Sets strings at keys, all at one time, unless one of the keys exists.",
        complexity: "O(N) where N is the number of keys.",
        arguments: DATA,
        flags: &[Write, DenyOom],
        keys: every_second(&["OW", "insert"]),
        access: Some(Access::Update),
        execution: Keys(msetnx),
        ..STRING
    },
];

const DATA: &[Argument] =
    &[Argument::block("data", &[Argument::key(), Argument::string("value")]).multiple()];

const fn every_second(flags: &'static [&'static str]) -> Option<KeyRange> {
    Some(KeyRange { first: 1, last: LastKey::End, step: 2, flags, notes: "" })
}

fn mset(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    check_pairs(args)?;
    put_all(args, space)?;
    Ok(Reply::OK)
}

fn msetnx(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    check_pairs(args)?;
    for pair in args.all[1..].chunks_exact(2) {
        if space.context(pair[0])?.exists() {
            return Ok(Reply::count(false));
        }
    }
    put_all(args, space)?;
    Ok(Reply::count(true))
}

fn check_pairs(args: &Arguments<'_>) -> Result<(), Halt> {
    let is_even = (args.all.len() - 1).is_multiple_of(2);
    if is_even { Ok(()) } else { Err(errors::wrong_arity(args.spec.name).into()) }
}

fn put_all(args: &Arguments<'_>, space: &mut Space) -> Result<(), Halt> {
    for pair in args.all[1..].chunks_exact(2) {
        space.context(pair[0])?.check_string(b"", pair[1].len() as u64)?;
        let value = values::string::encode(pair[1]);
        let expiry = ExpiryChange::Set(TimeToLive::Never);
        space.change(pair[0], Change::Put { value, expiry })?;
    }
    Ok(())
}
