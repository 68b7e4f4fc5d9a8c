//! `HSCAN`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::hash::Field;

use crate::context::{Context, RunResult, unchanged};
use crate::elements::{self, ScanOptions};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![ScanFields] };

const ROW: CommandSpec = CommandSpec {
    name: "hscan",
    arity: AtLeast(3),
    since: "2.8.0",
    summary: "Answers some fields of the hash at a key, and the cursor of the next call.",
    complexity: "O(N) for every call, where N is the number of fields.",
    arguments: &[
        Argument::key(),
        Argument::integer("cursor"),
        Argument::new("pattern", ArgumentKind::Pattern).after("MATCH").optional(),
        Argument::integer("count").after("COUNT").optional(),
        Argument::word("novalues", "NOVALUES").optional(),
    ],
    flags: &[Readonly],
    tips: &["nondeterministic_output"],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    execution: Key(plan),
    ..HASH
};

/// `HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]`.
fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let options = ScanOptions::parse(&args.all[2..], true)?;
    Ok(args.command(&ScanFields { options }))
}

struct ScanFields<'a> {
    options: ScanOptions<'a>,
}

impl<'a> Operation<'a> for ScanFields<'a> {
    const CODE: u8 = 40;
    const EXAMPLES: Examples = &[
        ("HSCAN k 0", b"\x28\x00\x00\x0a"),
        ("HSCAN k 5 MATCH a* COUNT 300 NOVALUES", b"\x28\x03\x05\xac\x02a*"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        self.options.put(out);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<ScanFields<'a>, Malformed> {
        Ok(ScanFields { options: ScanOptions::take(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let hash = cx.hash()?;
        let names = hash.iter().map(|field| field.name);
        let (next, indexes) = self.options.page(names, hash.encoding().is_small());
        let fields: Vec<Field<'_>> = hash.iter().collect();
        let mut replies = Vec::new();
        for field in indexes.into_iter().map(|index| fields[index]) {
            replies.push(Reply::copy(field.name));
            if !self.options.names_only {
                replies.push(Reply::copy(field.value));
            }
        }
        unchanged(elements::scan_reply(next, replies))
    }
}
