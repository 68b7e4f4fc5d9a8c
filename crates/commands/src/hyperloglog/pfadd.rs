//! `PFADD`.

use types::wire::{Malformed, Reader};
use types::{Command, ExpiryChange, Reply};

use super::REGISTERS;
use super::element::{RANK_MAX, Raise};
use super::sketch::{Draft, Sketch};
use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![PfAdd] };

const ROW: CommandSpec = CommandSpec {
    name: "pfadd",
    arity: AtLeast(2),
    since: "2.8.9",
    summary: "Adds elements to the HyperLogLog at a key, which begins empty, and answers whether it changed.",
    complexity: "O(1) for each element.",
    arguments: &[Argument::key(), Argument::string("element").optional().multiple()],
    flags: &[Write, DenyOom, Fast],
    keys: one_key(&["RW", "insert"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..HYPERLOGLOG
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let raises = args.all[2..].iter().map(|element| Raise::of(element)).collect();
    Ok(args.command(&PfAdd { raises }))
}

/// Elements travel as their registers and ranks.
struct PfAdd {
    raises: Vec<Raise>,
}

impl Operation<'_> for PfAdd {
    const CODE: u8 = 149;
    const EXAMPLES: Examples = &[("PFADD k", b"\x95"), ("PFADD k a b", b"\x95\xa71\x02\xa4=\x01")];

    fn encode(&self, out: &mut impl Sink) {
        for raise in &self.raises {
            out.bytes(&raise.index.to_le_bytes());
            out.byte(raise.rank);
        }
    }

    fn decode(fields: &mut Reader<'_>) -> Result<PfAdd, Malformed> {
        let mut raises = Vec::new();
        while !fields.is_empty() {
            let (index, rank) = (fields.u16()?, fields.u8()?);
            if usize::from(index) >= REGISTERS || !(1..=RANK_MAX).contains(&rank) {
                return Err(Malformed);
            }
            raises.push(Raise { index, rank });
        }
        Ok(PfAdd { raises })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let found = cx.string()?;
        let mut draft = match found {
            Some(string) => Draft::of(Sketch::of(string)?),
            None => Draft::new(),
        };
        let mut has_changed = found.is_none();
        for &Raise { index, rank } in &self.raises {
            has_changed |= draft.raise(index.into(), rank)?;
        }
        if !has_changed {
            return unchanged(Reply::count(false));
        }
        let string = draft.finish();
        let old = found.unwrap_or_default();
        cx.change_string(old, &[&string], ExpiryChange::Keep, Reply::count(true))
    }
}
