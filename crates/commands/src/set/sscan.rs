//! `SSCAN`.

use types::Command;
use types::wire::{Malformed, Reader};
use values::set::Encoding;

use crate::context::{Context, RunResult, unchanged};
use crate::elements::{ScanOptions, check_cursor, scan_reply};
use crate::errors::ErrorReply;
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Scan] };

const ROW: CommandSpec = CommandSpec {
    name: "sscan",
    arity: AtLeast(3),
    since: "2.8.0",
    summary: "Lists the members of a set step by step.",
    complexity: "O(N) for every call where N is the length of the set.",
    arguments: &[
        Argument::key(),
        Argument::integer("cursor"),
        Argument::new("pattern", ArgumentKind::Pattern).after("MATCH").optional(),
        Argument::integer("count").after("COUNT").optional(),
    ],
    flags: &[Readonly],
    tips: &["nondeterministic_output"],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    execution: Key(plan),
    ..SET
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    check_cursor(args.all[2])?;
    Ok(args.command(&Scan { options: args.all[2..].to_vec() }))
}

/// redis-server reads the options only if there is a set.
struct Scan<'a> {
    /// The cursor first.
    options: Vec<&'a [u8]>,
}

impl<'a> Operation<'a> for Scan<'a> {
    const CODE: u8 = 96;
    const EXAMPLES: Examples =
        &[("SSCAN k 0", b"\x60\x010"), ("SSCAN k 7 COUNT 5", b"\x60\x017\x05COUNT\x015")];

    fn encode(&self, out: &mut impl Sink) {
        out.blobs(&self.options);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<Scan<'a>, Malformed> {
        Ok(Scan { options: operation::blobs(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let Some(set) = cx.set()? else { return unchanged(scan_reply(0, Vec::new())) };
        let options = ScanOptions::parse(&self.options, false)?;
        let (next, indexes) = options.page(set.iter(), set.encoding() != Encoding::Hashtable);
        let all: Vec<&[u8]> = set.iter().collect();
        let page = super::copies(indexes.into_iter().map(|index| all[index]));
        unchanged(scan_reply(next, page))
    }
}
