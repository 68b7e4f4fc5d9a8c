//! `ZSCAN`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::double;
use values::sorted_set::{Element, Encoding};

use crate::context::{Context, RunResult, unchanged};
use crate::elements::{ScanOptions, check_cursor, scan_reply};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;
use crate::sorted_set::members;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Scan] };

const ROW: CommandSpec = CommandSpec {
    name: "zscan",
    arity: AtLeast(3),
    since: "2.8.0",
    summary: "Lists the elements of the sorted set at a key step by step.",
    complexity: "O(N) for every call where N is the number of elements.",
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
    ..SORTED_SET
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    // redis-server reads the options after the key.
    check_cursor(args.all[2])?;
    Ok(args.command(&Scan { words: args.all[2..].to_vec() }))
}

struct Scan<'a> {
    /// The cursor and the options of the request.
    words: Vec<&'a [u8]>,
}

impl<'a> Operation<'a> for Scan<'a> {
    const CODE: u8 = 115;
    const EXAMPLES: Examples =
        &[("ZSCAN k 0", b"\x73\x010"), ("ZSCAN k 7 COUNT 20", b"\x73\x017\x05COUNT\x0220")];

    fn encode(&self, out: &mut impl Sink) {
        members::encode(out, &self.words);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<Scan<'a>, Malformed> {
        Ok(Scan { words: members::decode(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let Some(set) = cx.sorted_set()? else { return unchanged(scan_reply(0, Vec::new())) };
        let options = ScanOptions::parse(&self.words, false)?;
        let is_small = set.encoding() == Encoding::Listpack;
        let all: Vec<Element<'_>> = set.iter().collect();
        let (next, page) = options.page(all.iter().map(|element| element.member), is_small);
        let pair = |at: usize| {
            let Element { score, member } = all[at];
            // redis-server keeps texts of scores in a listpack, and prints the others another way.
            let text = if is_small { double::text(score) } else { double::precise_text(score) };
            [Reply::copy(member), Reply::bulk(text)]
        };
        unchanged(scan_reply(next, page.into_iter().flat_map(pair).collect()))
    }
}
