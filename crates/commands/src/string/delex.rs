//! `DELEX`: deletes a key on a condition (Redis 8.4).

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::condition::{self, COMPARISONS, Condition};
use crate::context::{Context, RunResult, deleted, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![DeleteIf] };

const ROW: CommandSpec = CommandSpec {
    name: "delex",
    arity: AtLeast(2),
    since: "8.4.0",
    summary: "Deletes a key if its value, or the digest of it, fits a condition.",
    complexity: "O(N) where N is the length of the value, with a condition on it.",
    arguments: &[Argument::key(), Argument::one_of("condition", COMPARISONS).optional()],
    flags: &[Write, Fast],
    keys: one_key(&["RM", "delete"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..STRING
};

/// `DELEX key [IFEQ v | IFNE v | IFDEQ d | IFDNE d]`.
fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let condition = match args.all {
        [_, _] => Condition::Always,
        // Departure: redis-server answers 0 for a missing key before it reads the condition's name.
        [_, _, option, operand] => {
            condition::comparison(option, operand).ok_or(errors::CONDITION_UNKNOWN)?
        }
        _ => return Err(errors::wrong_arity(args.spec.name)),
    };
    Ok(args.command(&DeleteIf { condition }))
}

struct DeleteIf<'a> {
    condition: Condition<'a>,
}

impl<'a> Operation<'a> for DeleteIf<'a> {
    const CODE: u8 = 14;
    const EXAMPLES: Examples = &[
        ("DELEX k", b"\x0e\x00"),
        ("DELEX k IFEQ value", b"\x0e\x03\x05value"),
        ("DELEX k IFNE value", b"\x0e\x04\x05value"),
        ("DELEX k IFDEQ d", b"\x0e\x05\x01d"),
        ("DELEX k IFDNE d", b"\x0e\x06\x01d"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        self.condition.encode(out);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<DeleteIf<'a>, Malformed> {
        Ok(DeleteIf { condition: Condition::decode(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        if !cx.exists() {
            return unchanged(Reply::count(false));
        }
        if self.condition != Condition::Always && cx.string().is_err() {
            return Err(errors::CONDITION_NEEDS_STRING);
        }
        delete_when(self.condition.holds(cx)?)
    }
}

/// Deletes the key and answers 1, or answers 0.
pub(super) fn delete_when(holds: bool) -> RunResult {
    if holds { deleted(Reply::count(true)) } else { unchanged(Reply::count(false)) }
}
