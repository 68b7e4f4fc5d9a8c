//! `SPOP`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::set::{Encoding, Growth, Set};

use crate::context::{Context, RunResult, deleted, unchanged};
use crate::elements::draw;
use crate::errors::{self, ErrorReply};
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Pop] };

const ROW: CommandSpec = CommandSpec {
    name: "spop",
    arity: AtLeast(2),
    since: "1.0.0",
    summary: "Removes random members from a set and answers them. Without members left the key goes.",
    complexity: "O(N) where N is the length of the set.",
    arguments: &[Argument::key(), Argument::integer("count").optional().since("3.2.0")],
    flags: &[Write, Fast],
    tips: &["nondeterministic_output"],
    keys: one_key(&["RW", "access", "delete"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..SET
};

const NO_COUNT: ErrorReply = errors::fixed(b"ERR value is out of range, must be positive");

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let count = match args.all[2..] {
        [] => None,
        [count] => {
            let count = parse_i64(count).and_then(|count| u64::try_from(count).ok());
            Some(count.ok_or(NO_COUNT)?)
        }
        _ => return Err(errors::SYNTAX),
    };
    Ok(args.command(&Pop { count }))
}

struct Pop {
    /// Without it the reply is one member, not a set of them.
    count: Option<u64>,
}

impl Operation<'_> for Pop {
    const CODE: u8 = 94;
    const EXAMPLES: Examples =
        &[("SPOP k", b"\x5e"), ("SPOP k 0", b"\x5e\x00"), ("SPOP k 128", b"\x5e\x80\x01")];

    fn encode(&self, out: &mut impl Sink) {
        if let Some(count) = self.count {
            out.varint(count);
        }
    }

    fn decode(fields: &mut Reader<'_>) -> Result<Pop, Malformed> {
        let count = if fields.is_empty() { None } else { Some(fields.varint()?) };
        Ok(Pop { count })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        match (cx.set()?, self.count) {
            (None, None) => unchanged(Reply::Null),
            (None, Some(_)) | (Some(_), Some(0)) => unchanged(Reply::Set(Vec::new())),
            (Some(set), None) => pop_one(set, cx.clock.seed),
            (Some(set), Some(count)) if count >= set.len() as u64 => pop_all(set),
            (Some(set), Some(count)) => pop_some(set, count as i64, cx),
        }
    }
}

fn pop_one(set: Set<'_>, seed: u64) -> RunResult {
    let member = super::random(set, seed);
    let reply = Reply::copy(member);
    super::retain(set, |other| other != member, |_| reply)
}

/// In the order of a set that is built anew, as redis-server answers.
fn pop_all(set: Set<'_>) -> RunResult {
    let mut growth = Growth::new(Encoding::Intset);
    set.iter().for_each(|member| growth.push(member));
    deleted(Reply::Set(super::copies(growth.into_members())))
}

fn pop_some(set: Set<'_>, count: i64, cx: &Context<'_>) -> RunResult {
    let drawn = draw(set.len(), count, cx.clock.seed, |_| 0)?;
    let mut is_drawn = vec![false; set.len()];
    drawn.iter().for_each(|&index| is_drawn[index] = true);
    let pick = |wanted: bool| {
        let flags = is_drawn.iter();
        set.iter().zip(flags).filter(move |&(_, &flag)| flag == wanted).map(|(member, _)| member)
    };
    let reply = Reply::Set(super::copies(pick(true)));
    if set.encoding() == Encoding::Hashtable && is_rebuilt(set.len(), drawn.len()) {
        let mut growth = Growth::new(Encoding::Listpack);
        pick(false).for_each(|member| growth.push(member));
        return super::put(growth.encode(), reply);
    }
    let mut flags = is_drawn.iter();
    super::retain(set, |_| flags.next() == Some(&false), |_| reply)
}

/// redis-server builds the rest of a set anew if it keeps few members. That may shrink a hash table
/// to a listpack.
fn is_rebuilt(len: usize, popped: usize) -> bool {
    (len - popped) * 5 <= popped
}
