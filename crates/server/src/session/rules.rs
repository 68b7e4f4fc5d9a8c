//! Rules that decide when a request may begin, and how large it may be.

use commands::{Combine, CommandSpec, Execution, ONCE_ARGUMENTS, Permission, SessionVerb};
use node::session::{self, SessionContext};
use resp::Limits;
use types::{Access, Command};

use crate::budget::Cost;
use crate::pipeline::PARTS_AT_ONCE;
use crate::session_factory::Shared;

/// Commands that a client may send before it is authenticated.
pub(super) fn opens(args: &[&[u8]]) -> bool {
    let name = args.first().copied().unwrap_or_default();
    [b"auth".as_slice(), b"hello", b"quit", b"reset"]
        .iter()
        .any(|open| name.eq_ignore_ascii_case(open))
}

/// A command that reads the old value may answer with it.
pub(super) fn cost_of(command: &Command, key: &[u8]) -> Cost {
    let values = usize::from(command.access != Access::Write);
    Cost { asked_len: command.body.len() + key.len(), values }
}

/// Bytes of one argument. The input buffer is the last limit; a value beyond its own limit gets an
/// error.
pub(crate) fn bulk_len_max(shared: &Shared) -> usize {
    shared.config.max_value_size.saturating_mul(2).clamp(32 << 20, session::INPUT_LEN_MAX)
}

pub(super) fn limits(shared: &Shared) -> Limits {
    let bulk_len_max = bulk_len_max(shared);
    Limits { bulk_len_max, request_len_max: session::INPUT_LEN_MAX, authenticated: true }
}

/// True for commands that read statistics, and for commands on more keys than are under way at a
/// time. Earlier requests of the connection end before the first key, later ones begin after the
/// last key.
pub(super) fn takes_turns(spec: &CommandSpec, args: &[&[u8]]) -> bool {
    let argc = args.len();
    match spec.execution {
        Execution::Around(_) => {
            let inner = args.get(ONCE_ARGUMENTS..).unwrap_or_default();
            commands::find(inner).is_ok_and(|spec| match spec.execution {
                Execution::PerKey(..) => true,
                _ => takes_turns(spec, inner),
            })
        }
        Execution::PerKey(_, Combine::Sum) => argc > PARTS_AT_ONCE,
        Execution::PerKey(_, Combine::Array) => argc > 2,
        Execution::Keys(_) | Execution::Script => true,
        Execution::Session(verb) => matches!(
            verb,
            SessionVerb::Exec
                | SessionVerb::Watch
                | SessionVerb::ScriptExists
                | SessionVerb::ScriptFlush
                | SessionVerb::ScriptLoad
                | SessionVerb::DbSize
                | SessionVerb::FlushAll
                | SessionVerb::FlushDb
                | SessionVerb::Scan
                | SessionVerb::Keys
                | SessionVerb::RandomKey
                | SessionVerb::Info
                | SessionVerb::ConfigResetStat
                | SessionVerb::Monitor
                | SessionVerb::SlowlogGet
                | SessionVerb::SlowlogLen
                | SessionVerb::SlowlogReset
                | SessionVerb::LatencyHistogram
                | SessionVerb::LatencyHistory
                | SessionVerb::LatencyLatest
                | SessionVerb::LatencyReset
        ),
        _ => false,
    }
}

/// The decision about the commands of this session.
pub(crate) fn permission(cx: &SessionContext<'_>) -> Permission {
    Permission::of(cx.shortage())
}

pub(crate) fn is_http(args: &[&[u8]]) -> bool {
    let name = args.first().copied().unwrap_or_default();
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}
