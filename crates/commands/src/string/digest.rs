//! `DIGEST` (Redis 8.4).

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Digest] };

const ROW: CommandSpec = CommandSpec {
    name: "digest",
    arity: Exactly(2),
    since: "8.4.0",
    summary: "Answers the XXH3 digest of the string at a key, in 16 hexadecimal digits.",
    complexity: "O(N) where N is the length of the value.",
    arguments: &[Argument::key()],
    flags: &[Readonly, Fast],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    execution: Key(plan),
    miss: Some(Miss::Null),
    ..STRING
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Digest))
}

struct Digest;

impl Operation<'_> for Digest {
    const CODE: u8 = 4;
    const EXAMPLES: Examples = &[("DIGEST k", b"\x04")];

    fn encode(&self, _: &mut impl Sink) {}

    fn decode(_: &mut Reader<'_>) -> Result<Digest, Malformed> {
        Ok(Digest)
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let digest = cx.string()?.map(of);
        unchanged(Reply::copy_or_null(digest.as_ref().map(String::as_bytes)))
    }
}

/// XXH3 of 64 bits, in hexadecimal digits.
pub(super) fn of(string: &[u8]) -> String {
    format!("{:016x}", base::checksum::hash(string))
}
