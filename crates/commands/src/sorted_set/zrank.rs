//! `ZRANK` and `ZREVRANK`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;
use crate::sorted_set::double;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![Rank] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "zrank",
        summary: "Answers how many elements stand before a member, from the lowest score on.",
        execution: Key(plan_rank),
        ..ON_MEMBER
    },
    CommandSpec {
        name: "zrevrank",
        summary: "Answers how many elements stand before a member, from the highest score on.",
        execution: Key(plan_reverse),
        ..ON_MEMBER
    },
];

const ON_MEMBER: CommandSpec = CommandSpec {
    arity: AtLeast(3),
    since: "2.0.0",
    complexity: "O(N) where N is the number of elements.",
    arguments: &[
        Argument::key(),
        Argument::string("member"),
        Argument::word("withscore", "WITHSCORE").optional(),
    ],
    flags: &[Readonly, Fast],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    miss: Some(Miss::Null),
    ..SORTED_SET
};

fn plan_rank(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, 0)
}

fn plan_reverse(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, REVERSE)
}

fn plan(args: &Arguments<'_>, options: u8) -> Result<Command, ErrorReply> {
    let options = match &args.all[3..] {
        [] => options,
        [word] if word.eq_ignore_ascii_case(b"WITHSCORE") => options | WITH_SCORE,
        [_] => return Err(errors::SYNTAX),
        _ => return Err(errors::wrong_arity(args.spec.name)),
    };
    Ok(args.command(&Rank { options, member: args.all[2] }))
}

const REVERSE: u8 = 1;
const WITH_SCORE: u8 = 2;

struct Rank<'a> {
    options: u8,
    member: &'a [u8],
}

impl<'a> Operation<'a> for Rank<'a> {
    const CODE: u8 = 108;
    const EXAMPLES: Examples =
        &[("ZRANK k m", b"\x6c\x00m"), ("ZREVRANK k m WITHSCORE", b"\x6c\x03m")];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(self.options);
        out.bytes(self.member);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<Rank<'a>, Malformed> {
        let options = fields.u8()?;
        if options > REVERSE | WITH_SCORE {
            return Err(Malformed);
        }
        Ok(Rank { options, member: operation::rest(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let with_score = self.options & WITH_SCORE != 0;
        let found = cx.sorted_set()?.and_then(|set| Some((set.len(), set.find(self.member)?)));
        let Some((len, found)) = found else {
            return unchanged(if with_score { Reply::NullArray } else { Reply::Null });
        };
        let is_reverse = self.options & REVERSE != 0;
        let rank = if is_reverse { len - 1 - found.rank } else { found.rank };
        let rank = Reply::Integer(rank as i64);
        unchanged(if with_score { Reply::array([rank, double(found.score)]) } else { rank })
    }
}
