//! `ZMPOP`.

use base::decimal::parse_i64;
use types::Reply;

use crate::errors::{self, ErrorReply};
use crate::row::*;
use crate::sorted_set::double;
use crate::sorted_set::zpop::{End, pop};
use crate::space::{Halt, Space};

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "zmpop",
    arity: AtLeast(4),
    since: "7.0.0",
    summary: "Removes elements of the first key that has any, from one end, and answers them.",
    complexity: "O(K + N) for K keys and N elements of the sorted set.",
    arguments: &[
        Argument::integer("numkeys"),
        Argument::key().multiple(),
        Argument::one_of("where", &[Argument::word("min", "MIN"), Argument::word("max", "MAX")]),
        Argument::integer("count").after("COUNT").optional(),
    ],
    flags: &[Write],
    keys: counted_keys(2, &["RW", "access", "delete"]),
    access: Some(Access::Update),
    execution: Keys(run),
    ..SORTED_SET
};

const NUMKEYS: ErrorReply = errors::fixed(b"ERR numkeys should be greater than 0");
const COUNT: ErrorReply = errors::fixed(b"ERR count should be greater than 0");

fn run(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let (keys, end, count) = parse(&args.all[1..])?;
    for &key in keys {
        let Some(set) = space.context(key)?.sorted_set()? else { continue };
        let (elements, change) = pop(&set, end, count);
        let pair = |score, member| Reply::array([Reply::copy(member), double(score)]);
        let elements = Reply::array(elements.iter().map(|it| pair(it.score, it.member)));
        space.change(key, change)?;
        return Ok(Reply::array([Reply::copy(key), elements]));
    }
    Ok(Reply::NullArray)
}

/// Parses `numkeys key [key …] MIN|MAX [COUNT count]`.
fn parse<'a, 'b>(args: &'b [&'a [u8]]) -> Result<(&'b [&'a [u8]], End, u64), ErrorReply> {
    let positive = |text, error: ErrorReply| {
        let number = parse_i64(text).and_then(|number| u64::try_from(number).ok());
        number.filter(|&number| number > 0).ok_or(error)
    };
    let numkeys = positive(args[0], NUMKEYS)?;
    let numkeys = usize::try_from(numkeys).unwrap_or(usize::MAX);
    let Some((keys, [end, options @ ..])) = args[1..].split_at_checked(numkeys) else {
        return Err(errors::SYNTAX);
    };
    let end = if end.eq_ignore_ascii_case(b"MIN") {
        End::Lowest
    } else if end.eq_ignore_ascii_case(b"MAX") {
        End::Highest
    } else {
        return Err(errors::SYNTAX);
    };
    let count = match options {
        [] => 1,
        [word, count, rest @ ..] if word.eq_ignore_ascii_case(b"COUNT") => {
            let count = positive(count, COUNT)?;
            if !rest.is_empty() {
                return Err(errors::SYNTAX);
            }
            count
        }
        _ => return Err(errors::SYNTAX),
    };
    Ok((keys, end, count))
}
