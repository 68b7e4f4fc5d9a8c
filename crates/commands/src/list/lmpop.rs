//! `LMPOP`.

use base::decimal::parse_i64;
use types::Reply;

use super::lmove::LEFT_OR_RIGHT;
use super::{Side, encoding, popped, split_off};
use crate::errors::{self, ErrorReply};
use crate::row::*;
use crate::space::{Halt, Space};

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "lmpop",
    arity: AtLeast(4),
    since: "7.0.0",
    summary: "Takes elements off an end of the first list that exists and answers them.",
    complexity: "O(N+M) where N is the number of keys and M the length of the list.",
    arguments: &[
        Argument::integer("numkeys"),
        Argument::key().multiple(),
        Argument::one_of("where", LEFT_OR_RIGHT),
        Argument::integer("count").after("COUNT").optional(),
    ],
    flags: &[Write],
    keys: counted_keys(2, &["RW", "access", "delete"]),
    access: Some(Access::Update),
    execution: Keys(lmpop),
    ..LIST
};

const NUMKEYS_NOT_POSITIVE: ErrorReply = errors::fixed(b"ERR numkeys should be greater than 0");
const COUNT_NOT_POSITIVE: ErrorReply = errors::fixed(b"ERR count should be greater than 0");

fn lmpop(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let (keys, side, count) = parse(args.all)?;
    for &key in keys {
        let cx = space.context(key)?;
        let Some(list) = cx.list()? else { continue };
        let (taken, rest) = split_off(list, side, count);
        let reply = Reply::array([Reply::copy(key), popped(taken, side)]);
        let parts = &[rest.bytes()];
        let change = cx.change_list(encoding::shrunk(list.encoding, parts), parts)?;
        space.change(key, change)?;
        return Ok(reply);
    }
    Ok(Reply::NullArray)
}

/// The keys, the end, and the number of elements.
fn parse<'s, 'a>(args: &'s [&'a [u8]]) -> Result<(&'s [&'a [u8]], Side, usize), ErrorReply> {
    let numkeys = positive(args[1], NUMKEYS_NOT_POSITIVE)?;
    let (keys, rest) = args[2..].split_at_checked(numkeys).ok_or(errors::SYNTAX)?;
    let [side, options @ ..] = rest else { return Err(errors::SYNTAX) };
    let side = Side::parse(side)?;
    let count = match options {
        [] => 1,
        [word, count, rest @ ..] if word.eq_ignore_ascii_case(b"count") => {
            let count = positive(count, COUNT_NOT_POSITIVE)?;
            if rest.is_empty() { count } else { return Err(errors::SYNTAX) }
        }
        _ => return Err(errors::SYNTAX),
    };
    Ok((keys, side, count))
}

fn positive(text: &[u8], error: ErrorReply) -> Result<usize, ErrorReply> {
    let number = parse_i64(text).filter(|&number| number > 0).ok_or(error)?;
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}
