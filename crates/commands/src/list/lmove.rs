//! `LMOVE` and `RPOPLPUSH`.

use types::{Change, Reply};
use values::list::Encoding;
use values::{Blobs, List};

use super::{Side, encoding, joined, split_off};
use crate::context::Context;
use crate::errors::ErrorReply;
use crate::row::*;
use crate::space::{Halt, Space};

pub(super) const MODULE: Module = Module { rows: ROWS, operations: &[] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "lmove",
        arity: Exactly(5),
        since: "6.2.0",
        summary: "Moves an element from an end of one list to an end of another and answers it.",
        arguments: &[
            Argument::new("source", ArgumentKind::Key),
            Argument::new("destination", ArgumentKind::Key),
            Argument::one_of("wherefrom", LEFT_OR_RIGHT),
            Argument::one_of("whereto", LEFT_OR_RIGHT),
        ],
        execution: Keys(lmove),
        ..MOVE
    },
    CommandSpec {
        name: "rpoplpush",
        arity: Exactly(3),
        since: "1.2.0",
        summary: "Moves an element from the tail of one list to the head of another and answers it.",
        arguments: &[
            Argument::new("source", ArgumentKind::Key),
            Argument::new("destination", ArgumentKind::Key),
        ],
        deprecated: Some(Deprecated {
            since: "6.2.0",
            replaced_by: "`LMOVE` with the `RIGHT` and `LEFT` arguments",
        }),
        execution: Keys(rpoplpush),
        ..MOVE
    },
];

const MOVE: CommandSpec = CommandSpec {
    complexity: "O(N) where N is the length of both lists.",
    flags: &[Write, DenyOom],
    keys: one_key(&["RW", "access", "delete"]),
    more_keys: &[key_at(2, &["RW", "insert"])],
    access: Some(Access::Update),
    ..LIST
};

pub(super) const LEFT_OR_RIGHT: &[Argument] =
    &[Argument::word("left", "LEFT"), Argument::word("right", "RIGHT")];

fn lmove(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let (from, to) = (Side::parse(args.all[3])?, Side::parse(args.all[4])?);
    move_element(args, space, from, to)
}

fn rpoplpush(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    move_element(args, space, Side::Right, Side::Left)
}

fn move_element(
    args: &Arguments<'_>,
    space: &mut Space,
    from: Side,
    to: Side,
) -> Result<Reply, Halt> {
    let (source, destination) = (args.all[1], args.all[2]);
    let cx = space.context(source)?;
    let Some(list) = cx.list()? else { return Ok(Reply::Null) };
    let (moved, rest) = split_off(list, from, 1);
    let reply = Reply::copy_or_null(moved.iter().next());
    let rest = List { elements: rest, ..list };
    if source == destination {
        let change = push(&cx, rest, to, moved, encoding::shrunk)?;
        space.change(source, change)?;
        return Ok(reply);
    }
    let other = space.context(destination)?;
    let to_list = other.list()?.unwrap_or(List::EMPTY);
    let pushed = push(&other, to_list, to, moved, |encoding, _| encoding)?;
    let parts = &[rest.elements.bytes()];
    let popped = cx.change_list(encoding::shrunk(rest.encoding, parts), parts)?;
    space.change(destination, pushed)?;
    space.change(source, popped)?;
    Ok(reply)
}

/// Adds encoded elements to a list.
fn push(
    cx: &Context<'_>,
    list: List<'_>,
    side: Side,
    new: Blobs<'_>,
    settle: impl FnOnce(Encoding, &[&[u8]]) -> Encoding,
) -> Result<Change, ErrorReply> {
    let encoding = encoding::grown(list, new.iter().map(<[u8]>::len).sum());
    let parts = &joined(list.elements, side, new.bytes());
    cx.change_list(settle(encoding, parts), parts)
}
