//! The work of commands: about the nanoseconds that a core takes for them.
//!
//! It is counted from lengths, so it is the same at every node and in every run.

use types::{Change, Reply};
use values::Kind;

/// Work of one program on a worker. Other clients wait meanwhile.
pub const WORK_MAX: u64 = 5_000_000;

/// Work of any command.
pub(crate) const COMMAND: u64 = 500;
/// A byte of a value that gets an index.
pub(crate) const INDEXED: u64 = 6;
/// An element that a command on an indexed collection names.
pub(crate) const ON_PART: u64 = 2_000;
/// A pair of bytes of two strings.
pub(crate) const CELL: u64 = 2;
/// An element that is hashed.
pub(crate) const HASHED: u64 = 100;
/// An element that is compared with others to find its place.
pub(crate) const ORDERED: u64 = 400;

/// Work to find elements of a value. Strings are read in place.
pub(crate) fn reading(value: &[u8]) -> u64 {
    match Kind::of(value) {
        Ok(Kind::String) => value.len() as u64 / 32,
        _ => value.len() as u64 / 2,
    }
}

/// Work to put a new value together.
pub(crate) fn writing(change: &Change) -> u64 {
    match change {
        Change::Put { value, .. } => value.len() as u64 / 8,
        _ => 0,
    }
}

/// Work to put a reply together.
pub(crate) fn answering(reply: &Reply) -> u64 {
    match reply {
        // One copy.
        Reply::Bulk(bytes) => bytes.len() as u64 / 32,
        reply => 2 * reply.len() as u64,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use base::Millis;
    use bytes::Bytes;
    use types::{Clock, TimeToLive, Update, View};

    use super::*;
    use crate::space::{Halt, Space};
    use crate::{Budget, Execution, Interpreter, Plan, errors, table};

    const CLOCK: Clock = Clock { unix: Millis(1_000), seed: 7 };
    const INTERPRETER: Interpreter = Interpreter { max_value_len: 64 << 20, scripts: None };

    fn apply(value: Option<&[u8]>, body: &[u8]) -> types::Applied {
        let view = View { value, ttl: TimeToLive::Never, ends: None };
        INTERPRETER.apply(view, body, CLOCK)
    }

    /// The value that a line makes of a missing key.
    fn made(line: &[&[u8]]) -> Bytes {
        let Ok((_, Plan::Key { command, .. })) = crate::plan(line, CLOCK) else {
            panic!("a line on one key")
        };
        match apply(None, &command.body).change {
            Change::Put { value, .. } => value,
            other => panic!("no value: {other:?}"),
        }
    }

    /// A collection of so many elements.
    fn many(name: &str, count: usize) -> Bytes {
        let all: Vec<String> = (0..count).map(|number| format!("element:{number}")).collect();
        let mut line: Vec<&[u8]> = vec![name.as_bytes(), b"k"];
        for element in &all {
            match name {
                "HSET" => line.extend([element.as_bytes(), b"v"]),
                "ZADD" => line.extend([b"1", element.as_bytes()]),
                _ => line.push(element.as_bytes()),
            }
        }
        made(&line)
    }

    fn space(value: &Bytes) -> Space {
        let mut space = Space::new(&INTERPRETER, CLOCK);
        space.hold("k".into(), Some(value.clone()), (TimeToLive::Never, None));
        space
    }

    fn words(line: &str) -> Vec<&[u8]> {
        line.split(' ').map(str::as_bytes).collect()
    }

    #[test]
    fn later_commands_need_budget() {
        let value = many("RPUSH", 20_000);
        let set = words("LSET k 7 v");
        let mut space = space(&value);
        let ran = (0..100).take_while(|_| space.execute(&set).is_ok()).count();
        assert!((2..50).contains(&ran), "{ran} commands");
        assert_eq!(space.execute(&set), Err(Halt::TooLong));
        assert_eq!(space.execute(&words("PING")), Err(Halt::TooLong), "the run is over");
        let unbounded = Budget { work: u64::MAX, ..Budget::SHORT };
        let mut space = self::space(&value).with_budget(unbounded);
        assert!((0..50).all(|_| space.execute(&set).is_ok()));
    }

    #[test]
    fn elements_that_a_command_names_are_counted() {
        let mut space = space(&many("SADD", 5_000));
        let add = words("SADD k new");
        assert!((0..20).all(|_| space.execute(&add).is_ok()));
        let names: Vec<String> = (0..5_000).map(|number| format!("element:{number}")).collect();
        let mut line = words("SMISMEMBER k");
        line.extend(names.iter().map(String::as_bytes));
        assert_eq!(space.execute(&line), Err(Halt::TooLong));
    }

    #[test]
    fn first_command_always_runs() {
        let element = vec![b'x'; 6 << 20];
        let value = made(&[b"RPUSH", b"k", &element, &element]);
        assert!(reading(&value) > WORK_MAX);
        assert!(space(&value).execute(&words("LLEN k")).is_ok());
        assert!(space(&value).execute(&words("LMOVE k k LEFT RIGHT")).is_ok());
    }

    #[test]
    fn small_commands_of_one_transaction_fit() {
        let value = made(&[b"SET", b"k", b"1"]);
        let mut space = space(&value);
        let line = words("INCR k");
        assert!((0..4096).all(|_| space.execute(&line).is_ok()));
    }

    #[test]
    fn lines_on_one_key_end_without_effect() {
        let value = many("RPUSH", 20_000);
        let lines = vec![words("LSET k 7 v"); 100];
        let types::Applied { change, reply } =
            apply(Some(&value), &crate::lines_on_one_key(lines).body);
        assert_eq!((change, reply), (Change::None, errors::RUN_AS_TRANSACTION.into()));
    }

    /// A line of each row that reads states of keys, and the command that makes them.
    fn line_of(name: &str) -> (&'static str, &'static str) {
        match name {
            "sort" | "sort_ro" => ("RPUSH", "k ALPHA"),
            "lcs" => ("SET", "k k"),
            "mset" | "msetnx" => ("SET", "k v"),
            "bitop" => ("SET", "NOT k k"),
            "pfcount" | "pfmerge" => ("PFADD", "k k"),
            "lmove" => ("RPUSH", "k k LEFT RIGHT"),
            "lmpop" => ("RPUSH", "1 k LEFT"),
            "rpoplpush" => ("RPUSH", "k k"),
            "rename" | "renamenx" => ("SET", "k k"),
            "copy" => ("SET", "k k REPLACE"),
            "smove" => ("SADD", "k k element:1"),
            "zmpop" => ("ZADD", "1 k MIN"),
            "zrangestore" => ("ZADD", "k k 0 -1"),
            "sintercard" => ("SADD", "1 k"),
            name if name.ends_with("store") && name.starts_with('s') => ("SADD", "k k"),
            name if name.ends_with("store") => ("ZADD", "k 1 k"),
            name if name.starts_with('s') => ("SADD", "k"),
            _ => ("ZADD", "1 k"),
        }
    }

    /// Sessions expect of heavy rows only that a register hands their line on.
    #[test]
    fn only_heavy_rows_are_refused_alone() {
        let large = vec![b'x'; 11 << 20];
        let mut values: BTreeMap<&str, (Bytes, Bytes)> = BTreeMap::new();
        for spec in table::rows().filter(|spec| matches!(spec.execution, Execution::Keys(_))) {
            let (maker, rest) = line_of(spec.name);
            let (few, many) = values.entry(maker).or_insert_with(|| match maker {
                "PFADD" => (made(&words("PFADD k x")), made(&words("PFADD k y"))),
                "SET" => (made(&[b"SET", b"k", &large]), made(&[b"SET", b"k", &large[..4_000]])),
                "ZADD" => (made(&[b"ZADD", b"k", b"1", &large]), many("ZADD", 60_000)),
                _ => (made(&[maker.as_bytes(), b"k", &large]), many(maker, 60_000)),
            });
            let line = format!("{} {rest}", spec.name);
            let Ok((_, Plan::Key { command, .. })) = crate::plan(&words(&line), CLOCK) else {
                panic!("{line}: not on one key");
            };
            let is_refused = |value: &Bytes| {
                let reply = apply(Some(value), &command.body).reply;
                reply == Reply::from(errors::RUN_AS_TRANSACTION)
            };
            assert_eq!(is_refused(many), spec.is_heavy, "{line}: many elements");
            assert!(spec.is_heavy || !is_refused(few), "{line}: large elements");
        }
    }
}
