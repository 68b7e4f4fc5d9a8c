//! `GETEX`: a read that sets or removes the time to live.

use types::wire::{Malformed, Reader};
use types::{Command, Reply, TimeToLive};

use super::expiration::{Bare, Expiration, Expiry};
use super::get::Get;
use crate::context::{Context, RunResult, expires, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![GetExpire] };

const EXPIRATIONS: &[Argument] = &[
    Argument::integer("seconds").after("EX"),
    Argument::integer("milliseconds").after("PX"),
    Argument::unix_time("unix-time-seconds").after("EXAT"),
    Argument::unix_time("unix-time-milliseconds").after("PXAT"),
    Argument::word("persist", "PERSIST"),
];

const ROW: CommandSpec = CommandSpec {
    name: "getex",
    arity: AtLeast(2),
    since: "6.2.0",
    summary: "Answers the string at a key and sets or removes its time to live.",
    arguments: &[Argument::key(), Argument::one_of("expiration", EXPIRATIONS).optional()],
    flags: &[Write, Fast],
    keys: one_key_noted(&["RW", "access", "update"], "RW and UPDATE because it changes the TTL"),
    access: Some(Access::Update),
    execution: Key(plan),
    miss: Some(Miss::Null),
    ..STRING
};

/// `GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]`. Without an option it is a `GET`.
fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let mut expiration = Expiration::new(Bare::Persist);
    let mut rest = args.all.get(2..).unwrap_or_default();
    while let [option, tail @ ..] = rest {
        let taken = expiration.take(option, tail.first().copied()).ok_or(errors::SYNTAX)?;
        rest = &rest[taken..];
    }
    // Departure: redis-server answers null for a missing key before it reads the time.
    Ok(match expiration.expiry(args.spec.name, args.clock)? {
        Some(expiry) => args.command(&GetExpire { expiry }),
        None => Command::new(Access::Read, Get.body()),
    })
}

struct GetExpire {
    expiry: Expiry,
}

impl Operation<'_> for GetExpire {
    const CODE: u8 = 7;
    const EXAMPLES: Examples = &[
        ("GETEX k PERSIST", b"\x07\x01"),
        ("GETEX k PX 300", b"\x07\x02\xac\x02"),
        ("GETEX k PXAT 300", b"\x07\x03\xac\x02"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        self.expiry.encode(out);
    }

    fn decode(fields: &mut Reader<'_>) -> Result<GetExpire, Malformed> {
        Ok(GetExpire { expiry: Expiry::decode(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let Some(string) = cx.string()? else { return unchanged(Reply::Null) };
        let reply = Reply::copy(string);
        match self.expiry {
            Expiry::Keep => unchanged(reply),
            Expiry::Never if cx.view.ttl == TimeToLive::Never => unchanged(reply),
            Expiry::Never => expires(TimeToLive::Never, reply),
            Expiry::After(span) => expires(TimeToLive::After(span), reply),
            Expiry::At { unix } => expires(TimeToLive::At { unix }, reply),
        }
    }
}
