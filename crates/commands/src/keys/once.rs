//! `ONCE session seq command …`: makes a command on keys, or `EXEC`, safe to repeat.
//!
//! The inner command's own row plans it. A register runs a command on its key at most once. A
//! transaction is remembered by its first key in byte order.

use base::decimal::parse_i64;
use bytes::Bytes;
use types::Once;
use types::limits::{ONCE_SESSION_LEN_MAX, ONCE_WINDOW_DEFAULT};

use crate::errors::{self, ErrorReply};
use crate::plan::{Execution, ONCE_ARGUMENTS, Plan};
use crate::row::*;
use crate::session_verb::SessionVerb;
use crate::table;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

/// The place of the inner command's key, which follows its name.
const KEY: usize = ONCE_ARGUMENTS + 1;

const ROW: CommandSpec = CommandSpec {
    name: "once",
    arity: AtLeast(4),
    since: "7.4.0",
    summary: "Runs a command on keys, or EXEC, at most once, however often the line is sent (Palimpsest only).",
    complexity: "Depends on the command.",
    arguments: &[
        Argument::string("session"),
        Argument::integer("seq"),
        Argument::string("command"),
        Argument::key().optional(),
        Argument::string("argument").optional().multiple(),
    ],
    flags: &[Write, DenyOom, NoScript],
    keys: one_key_at(KEY, &["RW", "access", "update"]),
    access: Some(Access::Update),
    execution: Around(plan),
    ..GENERIC
};

/// Sets the default window. A node with another configuration replaces it.
fn plan(arguments: &Arguments<'_>) -> Result<Plan, ErrorReply> {
    let session = arguments.all[1];
    if session.is_empty() || session.len() > ONCE_SESSION_LEN_MAX {
        return Err(errors::once_session(session.len()));
    }
    let seq = parse_i64(arguments.all[2]).and_then(|seq| u64::try_from(seq).ok());
    let seq = seq.ok_or(errors::NOT_AN_INTEGER)?;
    let inner = &arguments.all[ONCE_ARGUMENTS..];
    let spec = table::resolve(inner)?;
    if std::ptr::eq(spec, arguments.spec) {
        return Err(errors::ONCE_NESTED);
    }
    let session = Bytes::copy_from_slice(session);
    let once = Once { session, seq, window: ONCE_WINDOW_DEFAULT };
    match spec.plan(inner, arguments.clock)? {
        // Its register may hand it on to a transaction.
        Plan::Key { .. } if spec.is_heavy || matches!(spec.execution, Execution::Script) => {
            Ok(Plan::Once { once, inner: ONCE_ARGUMENTS })
        }
        Plan::Key { command, key } => {
            Ok(Plan::Key { command: command.under(once), key: ONCE_ARGUMENTS + key })
        }
        Plan::Keys { .. } | Plan::PerKey { .. } | Plan::Session(SessionVerb::Exec) => {
            Ok(Plan::Once { once, inner: ONCE_ARGUMENTS })
        }
        _ => Err(errors::once_without_keys(spec.name)),
    }
}

#[cfg(test)]
mod tests {
    use base::Millis;
    use types::{Access, Clock, Command};

    use super::*;

    const CLOCK: Clock = Clock { unix: Millis(1_000_000), seed: 0 };

    fn planned(line: &str) -> Result<(Command, usize), String> {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        match crate::plan(&args, CLOCK) {
            Ok((_, Plan::Key { command, key })) => Ok((command, key)),
            Ok((_, other)) => panic!("{line}: {other:?}"),
            Err(error) => Err(String::from_utf8_lossy(error.text()).trim_end().to_string()),
        }
    }

    #[test]
    fn body_is_the_same_as_without_once() {
        for line in ["incr k", "GET k", "set k v nx ex 5", "del k", "EXISTS k", "ttl k", "getex k"]
        {
            let (bare, key) = planned(line).expect("a command on one key");
            let (command, once_key) = planned(&format!("ONCE s-1 7 {line}")).expect("the same");
            assert_eq!((&command.body, once_key), (&bare.body, key + ONCE_ARGUMENTS), "{line}");
            assert_eq!(command.access, Access::Update, "{line}: it is remembered, so it writes");
            let once = command.once.expect("it is safe to repeat");
            assert_eq!((&once.session[..], once.seq), (b"s-1".as_slice(), 7), "{line}");
            assert_eq!(bare.once, None);
        }
    }

    #[test]
    fn several_keys_are_a_transaction() {
        for line in ["mget a", "del a b", "mset a 1 b 2", "exec"] {
            let line = format!("once s 7 {line}");
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let Ok((_, Plan::Once { once, inner })) = crate::plan(&args, CLOCK) else {
                panic!("{line}");
            };
            assert_eq!((once.seq, inner), (7, ONCE_ARGUMENTS), "{line}");
        }
    }

    #[test]
    fn other_commands_are_refused() {
        let long = "s".repeat(ONCE_SESSION_LEN_MAX + 1);
        for (line, text) in [
            ("once s 1", "ERR wrong number of arguments for 'once' command"),
            ("once s 1 ping x", "ERR ONCE runs commands on keys, and EXEC: 'ping' is neither"),
            (
                "once s 1 client getname",
                "ERR ONCE runs commands on keys, and EXEC: 'client|getname' is neither",
            ),
            ("once s 1 scan 0", "ERR ONCE runs commands on keys, and EXEC: 'scan' is neither"),
            ("once s 1 once s 1 get a", "ERR ONCE calls can not be nested"),
            ("once s x get a", "ERR value is not an integer or out of range"),
            ("once s -1 get a", "ERR value is not an integer or out of range"),
            ("once s 1 get a b", "ERR wrong number of arguments for 'get' command"),
            ("once s 1 set a b c", "ERR syntax error"),
            ("once s 1 nosuch a", "ERR unknown command 'nosuch', with args beginning with: 'a' "),
            ("once  1 get a", "ERR ONCE session must be 1 to 64 bytes, not 0"),
            (&format!("once {long} 1 get a"), "ERR ONCE session must be 1 to 64 bytes, not 65"),
        ] {
            let expected = text.trim_end().to_string();
            assert_eq!(planned(line).map(|_| ()), Err(expected), "{line}");
        }
    }
}
