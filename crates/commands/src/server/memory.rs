//! `MEMORY` and its subcommands. Sessions execute all but `MEMORY USAGE`.

use base::decimal::parse_i64;
use types::limits::REGISTER_MEMORY;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::{ALL_SHARDS, LOCAL};
use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![MemoryUsage] };

const SPECIAL: &[&str] =
    &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"];

const ROW: CommandSpec = CommandSpec {
    name: "memory",
    arity: AtLeast(2),
    since: "4.0.0",
    summary: "Holds commands about memory.",
    complexity: "Depends on subcommand.",
    subcommands: MEMORY,
    ..SERVER
};

const MEMORY: &[CommandSpec] = &[
    CommandSpec {
        name: "memory|doctor",
        arity: Exactly(2),
        since: "4.0.0",
        summary: "Answers that there is nothing to report, as redis-server says it.",
        tips: SPECIAL,
        execution: session(SessionVerb::MemoryDoctor),
        ..SERVER
    },
    CommandSpec {
        name: "memory|help",
        arity: Exactly(2),
        since: "4.0.0",
        summary: "Shows this help.",
        flags: LOCAL,
        execution: HELP,
        ..SERVER
    },
    CommandSpec {
        name: "memory|malloc-stats",
        arity: Exactly(2),
        since: "4.0.0",
        summary: "Answers that the allocator's statistics are not supported.",
        tips: SPECIAL,
        execution: session(SessionVerb::MemoryMallocStats),
        ..SERVER
    },
    CommandSpec {
        name: "memory|purge",
        arity: Exactly(2),
        since: "4.0.0",
        summary: "Answers OK: the allocator gives memory back in the background.",
        tips: ALL_SHARDS,
        execution: session(SessionVerb::MemoryPurge),
        ..SERVER
    },
    CommandSpec {
        name: "memory|stats",
        arity: Exactly(2),
        since: "4.0.0",
        summary: "Answers what the process and its keys take, by name.",
        tips: SPECIAL,
        execution: session(SessionVerb::MemoryStats),
        ..SERVER
    },
    CommandSpec {
        name: "memory|usage",
        arity: AtLeast(3),
        since: "4.0.0",
        summary: "Answers how many bytes of memory a key and its value take, about.",
        arguments: &[Argument::key(), Argument::integer("count").after("SAMPLES").optional()],
        flags: &[Readonly],
        keys: one_key_at(2, &["RO"]),
        access: Some(Access::Read),
        execution: Key(plan_usage),
        ..SERVER
    },
];

/// `MEMORY USAGE key [SAMPLES count]`. Strings ignore the number of samples.
fn plan_usage(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let mut rest = args.all.get(3..).unwrap_or_default();
    while let Some((option, after)) = rest.split_first() {
        let (true, Some((count, more))) =
            (option.eq_ignore_ascii_case(b"samples"), after.split_first())
        else {
            return Err(errors::SYNTAX);
        };
        if parse_i64(count).ok_or(errors::NOT_AN_INTEGER)? < 0 {
            return Err(errors::SYNTAX);
        }
        rest = more;
    }
    Ok(args.command(&MemoryUsage { key_len: args.all[2].len() as u64 }))
}

/// Counts the bytes of a key in the memory of a node.
struct MemoryUsage {
    key_len: u64,
}

impl Operation<'_> for MemoryUsage {
    const CODE: u8 = 22;
    const EXAMPLES: Examples =
        &[("MEMORY USAGE key", b"\x16\x03"), ("MEMORY USAGE k SAMPLES 5", b"\x16\x01")];

    fn encode(&self, out: &mut impl Sink) {
        out.varint(self.key_len);
    }

    fn decode(fields: &mut Reader<'_>) -> Result<MemoryUsage, Malformed> {
        Ok(MemoryUsage { key_len: fields.varint()? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let Some(value) = cx.view.value else { return unchanged(Reply::Null) };
        let own = REGISTER_MEMORY as u64 + value.len() as u64;
        let bytes = own.saturating_add(self.key_len);
        unchanged(Reply::Integer(i64::try_from(bytes).unwrap_or(i64::MAX)))
    }
}
