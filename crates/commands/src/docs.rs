//! The table for people: how a command is written, and `docs/commands.md`.

use std::fmt::Write as _;

use types::Access;

use crate::plan::{Combine, Execution};
use crate::spec::{Argument, ArgumentKind, CommandSpec, Flag, Group};
use crate::table;

/// How a command is written: `GETEX key [EX seconds | … | PERSIST]`.
#[must_use]
pub fn syntax(spec: &CommandSpec) -> String {
    let mut words = vec![spec.name.replace('|', " ").to_ascii_uppercase()];
    words.extend(spec.arguments.iter().map(argument));
    words.join(" ")
}

fn argument(argument: &Argument) -> String {
    let name = match &argument.kind {
        ArgumentKind::PureToken => String::new(),
        ArgumentKind::OneOf(parts) if argument.optional && argument.token.is_none() => {
            join(parts, " | ")
        }
        ArgumentKind::OneOf(parts) => format!("<{}>", join(parts, " | ")),
        ArgumentKind::Block(parts) => join(parts, " "),
        _ => argument.name.to_string(),
    };
    let mut text = [argument.token.unwrap_or_default(), &name].join(" ").trim().to_string();
    if argument.multiple {
        text = format!("{text} [{name} ...]");
    }
    if argument.optional { format!("[{text}]") } else { text }
}

fn join(parts: &[Argument], separator: &str) -> String {
    // Within a choice, being optional says nothing more.
    let bare = |part: &Argument| {
        let text = argument(part);
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        if separator == " | " { inner.map_or(text.clone(), str::to_string) } else { text }
    };
    parts.iter().map(bare).collect::<Vec<_>>().join(separator)
}

const INTRODUCTION: &str = "# Commands

Generated from the command table (`crates/commands/src/table`); `UPDATE=1 cargo test -p commands` rewrites it.

Replies and errors are those of Redis.
*Access* says what a command may do to a key: `read` changes nothing, `write` replaces the value whatever it was, `update` depends on it.
A plain `SET` is a `write`, with a condition, `GET` or `KEEPTTL` an `update`; `GETEX` without an option is a `read`.
Commands on several keys run on each key on its own: linearizable per key, not atomic together.
A deadline that has passed (`EXPIREAT`, `EXAT`) ends a key when a quorum of clocks agrees: for every command that is sent after the reply, not for those behind it in the same pipeline.
`ONCE session seq command key …` is answered like the command, and a repeat of the line like the first one, by any node, for `once-window` (ten minutes by default); `-ALREADYDONE` where that reply was over 1024 bytes.
A session is a name of 1 to 64 bytes that no other client uses; on one key it sends one command at a time, the next with a higher `seq`, and a lower `seq` is an error.
Errors are remembered like any reply, and so is what a `GET` answered.
What is compared is the session and the number, not the command: another command under a number that was used does not run and is answered with the first one's reply.
A key remembers 64 sessions; until a window is over further ones get `-TRYAGAIN`.
After `-UNKNOWN`, `-CLUSTERDOWN`, `-OOM` or a lost connection the same line may be sent again; that it had no effect is certain only when every transmission of it was answered so.
While a node's file system has too little room (`docs/operations/failures.md`) commands with Redis' flag `denyoom`, and `ONCE`, answer `-OOM` and have no effect.
Options are checked before the key is looked at: a wrong time in a `GETEX` of a missing key is an error, where Redis answers null.
A node takes no more requests from a connection while what it holds for it comes to about 32 MiB: requests under way, their replies as long as the last ones were, and replies that wait for an earlier one. Where their lengths jump it may come to 128 MiB, or 32 values where they can be longer than 4 MiB. It goes on once the client has read; nothing is dropped.
One reply is at most 256 MiB long: `MGET` of more answers `ERR reply too large: ask for fewer keys`, `KEYS` of more `ERR too many keys for one reply: use SCAN`.
Transactions are not supported yet: `MULTI` answers OK, each command behind it `ERR transactions are not supported yet`, `EXEC` then `EXECABORT`. Nothing runs.
`INFO keyspace` is empty, because counting keys takes a quorum: ask `DBSIZE`.
";

/// `docs/commands.md`.
#[must_use]
pub fn markdown() -> String {
    let mut page = INTRODUCTION.to_string();
    for (group, title) in [
        (Group::String, "Strings"),
        (Group::Generic, "Keys"),
        (Group::Transactions, "Transactions"),
        (Group::Connection, "Connection"),
        (Group::Cluster, "Cluster clients"),
        (Group::Server, "Server"),
    ] {
        let _ = write!(
            page,
            "\n## {title}\n\n| Command | Since | Access | Meaning |\n|---|---|---|---|\n"
        );
        for spec in table::rows().filter(|spec| spec.group == group) {
            put_row(&mut page, spec);
            spec.subcommands.iter().for_each(|sub| put_row(&mut page, sub));
        }
    }
    page
}

fn put_row(page: &mut String, spec: &CommandSpec) {
    if matches!(spec.execution, Execution::Container) {
        return;
    }
    let syntax = syntax(spec).replace('|', "\\|");
    let _ = write!(page, "| `{syntax}` | {} | {} | {}", spec.since, access(spec), spec.summary);
    if let Some(deprecated) = spec.deprecated {
        let _ = write!(page, " Use {} instead.", deprecated.replaced_by.replace('!', ""));
    }
    page.push_str(" |\n");
}

fn access(spec: &CommandSpec) -> &'static str {
    match (spec.access, spec.execution) {
        (Some(Access::Read), Execution::PerKey(_, Combine::Sum | Combine::Array)) => "read per key",
        (Some(_), Execution::PerKey(..)) => "update per key",
        (Some(Access::Read), _) => "read",
        (Some(Access::Write), _) => "write",
        (Some(Access::Update), _) => "update",
        (None, _) if spec.has(Flag::Write) => "all keys",
        (None, _) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expected: &str) {
        let spec = table::lookup_full(name.as_bytes()).expect("a row");
        assert_eq!(syntax(spec), expected);
    }

    #[test]
    fn syntax_is_written_as_people_write_it() {
        check("get", "GET key");
        check("mget", "MGET key [key ...]");
        check(
            "getex",
            "GETEX key [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | PERSIST]",
        );
        check("hello", "HELLO [protover [AUTH username password] [SETNAME clientname]]");
        check("client|reply", "CLIENT REPLY <ON | OFF | SKIP>");
        check("config|set", "CONFIG SET parameter value [parameter value ...]");
        check("scan", "SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]");
    }
}
