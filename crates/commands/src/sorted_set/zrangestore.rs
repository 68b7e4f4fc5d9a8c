//! `ZRANGESTORE`.

use types::Reply;
use values::SortedSet;

use crate::row::*;
use crate::sorted_set::store;
use crate::sorted_set::zrange::{LIMIT, Query, SORT_BY};
use crate::space::{Halt, Space};

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "zrangestore",
    arity: AtLeast(5),
    since: "6.2.0",
    summary: "Stores the elements of a range in another key.",
    complexity: "O(N) where N is the number of elements.",
    arguments: &[
        Argument::new("dst", ArgumentKind::Key),
        Argument::new("src", ArgumentKind::Key),
        Argument::string("min"),
        Argument::string("max"),
        SORT_BY,
        Argument::word("rev", "REV").optional(),
        LIMIT,
    ],
    flags: &[Write, DenyOom],
    keys: one_key(&["OW", "update"]),
    more_keys: &[key_at(2, &["RO", "access"])],
    access: Some(Access::Update),
    execution: Keys(run),
    ..SORTED_SET
};

fn run(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let (to, from) = (args.all[1], args.all[2]);
    let query = Query::parse_stored(&args.all[3..])?;
    let set = space.context(from)?.sorted_set()?.unwrap_or(SortedSet::EMPTY);
    let elements = query.elements(&set);
    let count = elements.len();
    let value = store::value_of(elements, query.has_rank_bounds());
    store::put(space, to, value)?;
    Ok(Reply::Integer(count as i64))
}
