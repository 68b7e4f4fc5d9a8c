//! `ZPOPMIN` and `ZPOPMAX`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Applied, Change, Command, ExpiryChange, Reply};
use values::SortedSet;
use values::sorted_set::Element;

use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;
use crate::sorted_set::{NOT_POSITIVE, bounds, double, elements_reply};

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![Pop] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "zpopmax",
        summary: "Removes elements with the highest scores and answers them.",
        execution: Key(plan_max),
        ..POP
    },
    CommandSpec {
        name: "zpopmin",
        summary: "Removes elements with the lowest scores and answers them.",
        execution: Key(plan_min),
        ..POP
    },
];

const POP: CommandSpec = CommandSpec {
    arity: AtLeast(2),
    since: "5.0.0",
    complexity: "O(N) where N is the number of elements.",
    arguments: &[Argument::key(), Argument::integer("count").optional()],
    flags: &[Write, Fast],
    keys: one_key(&["RW", "access", "delete"]),
    access: Some(Access::Update),
    ..SORTED_SET
};

fn plan_max(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, End::Highest)
}

fn plan_min(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, End::Lowest)
}

fn plan(args: &Arguments<'_>, end: End) -> Result<Command, ErrorReply> {
    let count = match &args.all[2..] {
        [] => None,
        [count] => {
            let count = parse_i64(count).and_then(|count| u64::try_from(count).ok());
            Some(count.ok_or(NOT_POSITIVE)?)
        }
        _ => return Err(errors::SYNTAX),
    };
    Ok(args.command(&Pop { end, count }))
}

/// An end of a sorted set. Variants stand in the order of their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Lowest,
    Highest,
}

const ENDS: [End; 2] = [End::Lowest, End::Highest];

/// Up to `count` elements from one end, and the change that removes them.
pub(super) fn pop<'a>(set: &SortedSet<'a>, end: End, count: u64) -> (Vec<Element<'a>>, Change) {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(set.len());
    let ranks = match end {
        End::Lowest => 0..count,
        End::Highest => set.len() - count..set.len(),
    };
    let elements = bounds::elements(set, ranks.clone(), end == End::Highest);
    let change = if count == 0 {
        Change::None
    } else if count == set.len() {
        Change::Delete
    } else {
        let value = set.changed(set.encoding(), ranks, &[]);
        Change::Put { value, expiry: ExpiryChange::Keep }
    };
    (elements, change)
}

struct Pop {
    end: End,
    /// `None`: one element, not in an array of its own.
    count: Option<u64>,
}

impl Operation<'_> for Pop {
    const CODE: u8 = 113;
    const EXAMPLES: Examples =
        &[("ZPOPMIN k", b"\x71\x00"), ("ZPOPMAX k 3", b"\x71\x01\x03\0\0\0\0\0\0\0")];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(self.end as u8);
        if let Some(count) = self.count {
            out.bytes(&count.to_le_bytes());
        }
    }

    fn decode(fields: &mut Reader<'_>) -> Result<Pop, Malformed> {
        let end = operation::variant(&ENDS, fields.u8()?)?;
        let count = if fields.is_empty() { None } else { Some(fields.u64()?) };
        Ok(Pop { end, count })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let Some(set) = cx.sorted_set()? else { return unchanged(Reply::Array(Vec::new())) };
        let (elements, change) = pop(&set, self.end, self.count.unwrap_or(1));
        let reply = match self.count {
            Some(_) => elements_reply(&elements, true),
            None => Reply::array(
                elements.iter().flat_map(|it| [Reply::copy(it.member), double(it.score)]),
            ),
        };
        Ok(Applied { change, reply })
    }
}
