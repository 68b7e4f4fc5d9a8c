//! The command table as text: the syntax of a command, and `docs/reference/commands.md`.

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
        _ => argument.display.to_string(),
    };
    let mut text = [argument.token.unwrap_or_default(), &name].join(" ").trim().to_string();
    if argument.multiple {
        text = format!("{text} [{name} ...]");
    }
    if argument.optional { format!("[{text}]") } else { text }
}

fn join(parts: &[Argument], separator: &str) -> String {
    // All parts of a choice are optional.
    let bare = |part: &Argument| {
        let text = argument(part);
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        if separator == " | " { inner.map_or(text.clone(), str::to_string) } else { text }
    };
    parts.iter().map(bare).collect::<Vec<_>>().join(separator)
}

const INTRODUCTION: &str = "# Commands

Reference for developers, generated from the command table: `UPDATE=1 cargo test -p commands` rewrites it.

## Contents

- [Deviations from Redis](#deviations-from-redis)
- [ONCE](#once)
- [Limits](#limits)
- [Compatibility](#compatibility)
- GROUPS

Replies and errors are those of Redis 7.4.
*Access* is the effect on a key: `read` changes nothing, `write` replaces the value, `update` depends on the old value.
A plain `SET` is a `write`. With a condition, `GET` or `KEEPTTL` it is an `update`. `GETEX` without an option is a `read`.

## Deviations from Redis

| subject | here |
|---|---|
| `DEL`, `UNLINK`, `EXISTS`, `TOUCH` | each key on its own: linearizable per key; atomic together within `MULTI` |
| other commands on several keys, transactions | at most 128 keys (16,384 if they only read), 4,096 commands, 32 MiB of commands; changes of at most `max-value-size` together |
| in `MULTI` | `FLUSHALL`, `FLUSHDB`, `SCAN`, `KEYS`, `DBSIZE`, `RANDOMKEY`, `WAIT`, `SCRIPT`, `HELLO`, `AUTH`, `MONITOR`, and `SELECT` of another database are refused: `EXEC` answers `-EXECABORT` |
| `WATCH` | a `SET` and a `DEL` of an absent key in between pass; the keys are of one database |
| `EXPIREAT`, `EXAT` in the past | the key ends once a quorum of clocks agrees; later commands of the same pipeline may still see it |
| wrong options | an error, whether the key exists or not |
| `LSET` with an index beyond 32 bits | an error; Redis replaces another element |
| `OBJECT ENCODING` of lists | a short rest of two quicklist nodes is a listpack; a failed `LSET` or `LINSERT` converts no list |
| `OBJECT ENCODING` of strings | by content: a number is `int`. Redis says `raw` after `APPEND` and `SETRANGE` |
| thresholds of encodings, such as `hash-max-listpack-entries` | `CONFIG SET` takes them without effect |
| patterns of `KEYS` and its like | may nest more than 1,000 stars deep, at which Redis ends |
| `PFCOUNT` | a read: it keeps no count in the key |
| `DBSIZE` | a list from a quorum below 100,000 keys; above, the count that the node maintains |
| `INFO keyspace` | that count: exact below 100,000 keys per worker, within 1 % above; without `avg_ttl` |
| `OBJECT IDLETIME` | an error: times of access are not kept |
| `CLUSTER` | slots are dealt over the nodes that are up and decide nothing else; no redirection is sent; `CLUSTER LINKS` is empty; keys by slot and changes are refused |
| `LASTSAVE`, `ROLE` | the start of the process; always a master |
| full disk | `-OOM` to commands with the flag `denyoom`, and to `ONCE`; no effect |

## ONCE

`ONCE session seq command key …` runs a command on one key at most once, however often the line arrives, at whichever nodes.

- A repeat gets the first reply, for `once-window` (ten minutes by default). It gets `-ALREADYDONE` if that reply exceeded 1024 bytes.
- A session is a name of 1 to 64 bytes that no other client uses.
- On one key a session sends one command at a time. The next command has a higher `seq`; a lower `seq` is an error.
- Errors and the replies of reads are remembered like any reply.
- Session and number identify a line. Another command under a used number does not run.
- A key remembers 64 sessions. Further ones get `-TRYAGAIN` until a window is over.
- A command under `ONCE` looks for a quorum for `request-timeout`, for 5 s at most.
- A line that `CLIENT PAUSE` holds arrives when the pause ends: keep pauses shorter than `once-window`.
- Send the same line again after `-UNKNOWN`, `-CLUSTERDOWN`, `-OOM` or a lost connection.

## Limits

| limit | value | beyond |
|---|---|---|
| value of a key | `max-value-size`, 1 MiB by default | `-ERR value too large …` |
| one reply | 256 MiB | `-ERR reply too large: ask for fewer keys`, `-ERR too many keys for one reply: use SCAN` |
| requests and replies held for one connection | about 32 MiB, 128 MiB while lengths jump | the node reads on once the client has read |
";

/// The groups and their titles, in the order of the page. A group without rows has no section.
const SECTIONS: &[(Group, &str)] = &[
    (Group::String, "Strings"),
    (Group::Bitmap, "Bitmaps"),
    (Group::HyperLogLog, "HyperLogLog"),
    (Group::Hash, "Hashes"),
    (Group::List, "Lists"),
    (Group::Set, "Sets"),
    (Group::SortedSet, "Sorted sets"),
    (Group::Generic, "Keys"),
    (Group::Transactions, "Transactions"),
    (Group::Scripting, "Scripting"),
    (Group::Connection, "Connection"),
    (Group::Cluster, "Cluster clients"),
    (Group::Server, "Server"),
];

/// `docs/reference/commands.md`. `shares` is the text of `compat/shares.toml`.
#[must_use]
pub fn markdown(shares: &str) -> String {
    let sections = SECTIONS.iter().map(|&(group, title)| {
        (title, table::rows().filter(|spec| spec.group == group).collect::<Vec<_>>())
    });
    let sections: Vec<_> = sections.filter(|(_, rows)| !rows.is_empty()).collect();
    let link = |title: &str| format!("[{title}](#{})", title.to_lowercase().replace(' ', "-"));
    let links: Vec<String> = sections.iter().map(|(title, _)| link(title)).collect();
    let mut page = INTRODUCTION.replace("- GROUPS", &format!("- {}", links.join(", ")));
    page.push_str(&compatibility(shares));
    for (title, rows) in sections {
        let _ = write!(
            page,
            "\n## {title}\n\n| Command | Since | Access | Meaning |\n|---|---|---|---|\n"
        );
        for spec in rows {
            put_row(&mut page, spec);
            spec.subcommands.iter().for_each(|sub| put_row(&mut page, sub));
        }
    }
    page
}

const COMPATIBILITY: &str = "
## Compatibility

Own tests of client libraries, and one of ours for each lock library, run on three nodes by `./x suites redis_py go_redis locks`.
Tests that need a feature which this store does not have are left out: `compat/` names each with its reason.

| tests | passed | failed | share |
|---|---|---|---|
";

/// A section with a row for each line `"SUITE" = { passed = N, failed = N }`.
fn compatibility(shares: &str) -> String {
    let row = |line: &str| {
        let (suite, counts) = line.strip_prefix('"')?.split_once("\" = { passed = ")?;
        let (passed, failed) = counts.strip_suffix(" }")?.split_once(", failed = ")?;
        let (good, bad): (u32, u32) = (passed.parse().ok()?, failed.parse().ok()?);
        let share = 100.0 * f64::from(good) / f64::from((good + bad).max(1));
        Some(format!("| {suite} | {good} | {bad} | {share:.1} % |\n"))
    };
    let rows: String = shares.lines().filter_map(row).collect();
    format!("{COMPATIBILITY}{rows}")
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
        (Some(Access::Read), Execution::PerKey(_, Combine::Sum)) => "read per key",
        (Some(Access::Read), Execution::PerKey(_, Combine::Array)) => "read",
        (Some(_), Execution::PerKey(..)) => "update per key",
        (Some(Access::Read | Access::OrderedRead | Access::UncommittedRead), _) => "read",
        (Some(Access::Write), _) => "write",
        (Some(Access::Update | Access::Delete), _) => "update",
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
