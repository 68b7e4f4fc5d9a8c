//! A store in memory that runs the crate's commands, and scripts of commands with their replies.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base::Millis;
use bytes::Bytes;
use commands::{Interpreter, Plan};
use resp::encode;
use types::{Applied, Change, Clock, Command, ExpiryChange, Reply, TimeToLive, Update, View};

/// One database: keys expire when they are looked at.
pub struct Store {
    pub now: u64,
    pub interpreter: Interpreter,
    entries: BTreeMap<Vec<u8>, Entry>,
}

struct Entry {
    value: Bytes,
    expiry: Expiry,
}

/// A span is counted from when it was set.
#[derive(Clone, Copy)]
enum Expiry {
    Never,
    SpanUntil(u64),
    At(u64),
}

impl Store {
    pub fn new(now: u64) -> Store {
        Store { now, interpreter: Interpreter::default(), entries: BTreeMap::new() }
    }

    /// The reply to `args`.
    pub fn execute<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        let args: Vec<&[u8]> = args.iter().map(AsRef::as_ref).collect();
        if let Some(reply) = self.execute_helper(&args) {
            return reply;
        }
        let clock = Clock { unix: Millis(self.now), seed: 0 };
        match commands::plan(&args, clock) {
            Err(error) => error.into(),
            Ok((_, Plan::Once { .. })) => panic!("scripts have no transaction under ONCE"),
            Ok((_, Plan::Session(verb))) => panic!("scripts have no {verb:?}"),
            Ok((_, Plan::Reply(reply))) => reply,
            Ok((_, Plan::Key { command, key })) => match self.run(&command, args[key]) {
                reply if reply == commands::errors::RUN_AS_TRANSACTION.into() => {
                    self.run_together(&args, &[key])
                }
                reply => reply,
            },
            Ok((_, Plan::PerKey { command, keys, combine })) => {
                combine.replies(keys.map(|key| self.run(&command, args[key])).collect())
            }
            Ok((_, Plan::Keys { keys, .. })) => self.run_together(&args, &keys),
        }
    }

    /// A command of scripts that the table lacks: it empties the database.
    fn execute_helper(&mut self, args: &[&[u8]]) -> Option<Reply> {
        match args {
            [b"FLUSHALL"] => {
                self.entries.clear();
                Some(Reply::OK)
            }
            _ => None,
        }
    }

    fn run_together(&mut self, args: &[&[u8]], keys: &[usize]) -> Reply {
        let interpreter = self.interpreter;
        let clock = Clock { unix: Millis(self.now), seed: 0 };
        let budget = commands::Budget { work: u64::MAX, ..commands::Budget::SHORT };
        let mut space = commands::Space::new(&interpreter, clock)
            .in_database(types::Database(0))
            .with_budget(budget);
        for &key in keys {
            self.drop_expired(args[key]);
            space.load(Bytes::copy_from_slice(args[key]), self.view(args[key]));
        }
        let reply = loop {
            match space.execute(args) {
                Ok(reply) => break reply,
                Err(commands::Halt::Error(error)) => break error.into(),
                Err(commands::Halt::TooLong) => break Reply::error("ERR too long"),
                Err(commands::Halt::Unloaded(key)) => {
                    let keys = [&[key], space.wanted()].concat();
                    for key in keys {
                        self.drop_expired(&key);
                        let view = self.view(&key);
                        space.load(key, view);
                    }
                }
            }
        };
        for (key, change) in space.changes() {
            self.change(key, change);
        }
        reply
    }

    fn view(&self, key: &[u8]) -> View<'_> {
        let entry = self.entries.get(key);
        View {
            value: entry.map(|entry| entry.value.as_ref()),
            ttl: entry.map_or(TimeToLive::Never, |entry| self.ttl(entry.expiry)),
            ends: entry.and_then(|entry| match entry.expiry {
                Expiry::Never => None,
                Expiry::SpanUntil(end) | Expiry::At(end) => Some(Millis(end)),
            }),
        }
    }

    fn run(&mut self, command: &Command, key: &[u8]) -> Reply {
        self.drop_expired(key);
        let clock = Clock { unix: Millis(self.now), seed: 0 };
        let view = self.view(key);
        let Applied { change, reply } = self.interpreter.apply(view, &command.body, clock);
        if command.access == types::Access::Read && !has_lapsed(view, clock) {
            assert_eq!(change, Change::None, "a read changed {key:?}");
        }
        if command.access == types::Access::Write {
            let nothing = View { value: None, ttl: TimeToLive::Never, ends: None };
            let blind = self.interpreter.apply(nothing, &command.body, clock);
            assert_eq!((&blind.change, &blind.reply), (&change, &reply), "a write looked");
        }
        self.change(key, change);
        reply
    }

    fn drop_expired(&mut self, key: &[u8]) {
        let now = self.now;
        let is_over = |entry: &Entry| match entry.expiry {
            Expiry::Never => false,
            Expiry::SpanUntil(end) | Expiry::At(end) => end <= now,
        };
        if self.entries.get(key).is_some_and(is_over) {
            self.entries.remove(key);
        }
    }

    fn ttl(&self, expiry: Expiry) -> TimeToLive {
        match expiry {
            Expiry::Never => TimeToLive::Never,
            Expiry::SpanUntil(end) => TimeToLive::After(Millis(end - self.now)),
            Expiry::At(end) => TimeToLive::At { unix: Millis(end) },
        }
    }

    fn change(&mut self, key: &[u8], change: Change) {
        let now = self.now;
        let changed = |expiry: ExpiryChange, old: Expiry| match expiry {
            ExpiryChange::Keep => old,
            ExpiryChange::Set(TimeToLive::Never) => Expiry::Never,
            ExpiryChange::Set(TimeToLive::After(span)) => Expiry::SpanUntil(now + span.0),
            ExpiryChange::Set(TimeToLive::At { unix }) => Expiry::At(unix.0),
        };
        match change {
            Change::None => {}
            Change::Put { value, expiry } => {
                let old = self.entries.get(key).map_or(Expiry::Never, |entry| entry.expiry);
                let entry = Entry { value, expiry: changed(expiry, old) };
                self.entries.insert(key.to_vec(), entry);
            }
            Change::Expire(expiry) => {
                let entry = self.entries.get_mut(key).expect("only what exists expires");
                entry.expiry = changed(expiry, entry.expiry);
            }
            Change::Delete => {
                self.entries.remove(key).expect("only what exists is deleted");
            }
        }
    }
}

/// Fields of a hash are over: every command removes them.
pub fn has_lapsed(view: View<'_>, clock: Clock) -> bool {
    view.value.is_some_and(|value| values::hash::lapse(value, clock.unix.0).is_some())
}

/// A script: lines `> command`, each with its reply below. `# text` begins a story on an empty
/// database.
/// `@ millis` lets time pass.
pub enum Line {
    Story(String),
    Wait(u64),
    Command { text: String, reply: String },
}

pub fn parse(script: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for line in script.lines().filter(|line| !line.is_empty()) {
        if let Some(text) = line.strip_prefix("> ") {
            lines.push(Line::Command { text: text.to_string(), reply: String::new() });
        } else if let Some(story) = line.strip_prefix("# ") {
            lines.push(Line::Story(story.to_string()));
        } else if let Some(millis) = line.strip_prefix("@ ") {
            lines.push(Line::Wait(millis.parse().expect("milliseconds")));
        } else if let Some(Line::Command { reply, .. }) = lines.last_mut() {
            *reply = line.to_string();
        } else {
            panic!("a reply without a command: {line:?}");
        }
    }
    lines
}

/// Writes a script again, with the replies that `execute` gives.
pub fn replay(
    lines: &[Line],
    mut execute: impl FnMut(&[Vec<u8>]) -> resp::Reply,
    mut wait: impl FnMut(u64),
) -> String {
    let mut script = String::new();
    for line in lines {
        let _ = match line {
            Line::Story(story) => {
                execute(&[b"FLUSHALL".to_vec()]);
                let gap = if script.is_empty() { "" } else { "\n" };
                writeln!(script, "{gap}# {story}")
            }
            Line::Wait(millis) => {
                wait(*millis);
                writeln!(script, "@ {millis}")
            }
            Line::Command { text, .. } => {
                writeln!(script, "> {text}\n{}", render(&execute(&words(text))))
            }
        };
    }
    script
}

/// The words of an inline request.
pub fn words(text: &str) -> Vec<Vec<u8>> {
    let (mut bytes, mut ranges) = (Vec::new(), Vec::new());
    resp::split_args(text.as_bytes(), &mut bytes, &mut ranges).expect("balanced quotes");
    ranges.iter().map(|&(start, end)| bytes[start as usize..end as usize].to_vec()).collect()
}

/// A reply as a client with RESP3 reads it.
pub fn heard(reply: Reply) -> resp::Reply {
    let all = |all: Vec<Reply>| all.into_iter().map(heard).collect();
    match reply {
        Reply::Null | Reply::NullArray => resp::Reply::Null,
        Reply::Simple(text) => resp::Reply::Simple(text.into()),
        Reply::Error(text) => resp::Reply::Error(text.into()),
        Reply::Integer(value) => resp::Reply::Integer(value),
        Reply::Bulk(bytes) => resp::Reply::Bulk(bytes.into()),
        Reply::Array(elements) => resp::Reply::Array(all(elements)),
        Reply::Set(elements) => resp::Reply::Set(all(elements)),
        Reply::Map(pairs) => {
            resp::Reply::Map(pairs.into_iter().map(|(k, v)| (heard(k), heard(v))).collect())
        }
        Reply::Pairs(pairs) => {
            let pair = |(key, value)| resp::Reply::Array(all(vec![key, value]));
            resp::Reply::Array(pairs.into_iter().map(pair).collect())
        }
        Reply::Double(types::Double(value)) => resp::Reply::Double(value),
        Reply::Boolean(value) => resp::Reply::Boolean(value),
        Reply::BigNumber(digits) => resp::Reply::BigNumber(digits.into()),
        Reply::Verbatim { format, text } => resp::Reply::Verbatim { format, text: text.into() },
        Reply::Table(pairs) => heard(Reply::Map(pairs)),
    }
}

/// A reply on one line; different replies look different.
pub fn render(reply: &resp::Reply) -> String {
    let all = |all: &[resp::Reply]| all.iter().map(render).collect::<Vec<_>>().join(" ");
    match reply {
        resp::Reply::Simple(text) => format!("+{}", escape(text)),
        resp::Reply::Error(text) => format!("-{}", escape(text)),
        resp::Reply::Integer(value) => format!(":{value}"),
        resp::Reply::Bulk(bytes) => format!("\"{}\"", escape(bytes)),
        resp::Reply::Null => "_".to_string(),
        resp::Reply::Array(elements) => format!("[{}]", all(elements)),
        resp::Reply::Set(elements) => format!("~[{}]", all(elements)),
        resp::Reply::Map(pairs) => {
            let pairs = pairs.iter().map(|(k, v)| format!("{} {}", render(k), render(v)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        resp::Reply::Double(value) => format!(",{}", encode::double_text(*value)),
        other => format!("{other:?}"),
    }
}

fn escape(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace("\\'", "'")
}
