//! Commands on single elements of large collections: many of them share one index.

use bytes::Bytes;
use types::{Applied, Change, Command, Reply, Update, View};
use values::Indexed;

use super::{Halt, Space};
use crate::work;

/// A collection of so many bytes gets an index ...
const INDEXED_LEN_MIN: usize = 16 << 10;
/// ... after so many commands on single elements. They took as long as the index does.
const TOUCHES_MIN: u32 = 8;

impl Space {
    /// Runs a command on the elements that it names, if the value is large and many commands did so
    /// before.
    pub(super) fn run_on_part(
        &mut self,
        key: &[u8],
        command: &Command,
    ) -> Result<Option<Reply>, Halt> {
        let Some(held) = self.keys.get_mut(key) else { return Ok(None) };
        let is_large = held.value.as_ref().is_some_and(|value| value.len() >= INDEXED_LEN_MIN);
        let is_indexed = !self.indexed.is_empty() && self.indexed.contains_key(key);
        if !is_large && !is_indexed {
            return Ok(None);
        }
        let Some(names) = self.interpreter.names(&command.body) else {
            self.settle(key);
            return Ok(None);
        };
        held.touches += 1;
        if !is_indexed && held.touches > TOUCHES_MIN {
            held.touches = 0;
            let value = held.value.clone().unwrap_or_default();
            let work = value.len() as u64 * work::INDEXED;
            if self.work.get().saturating_add(work) <= self.budget.work {
                self.add(work);
                let indexed = Indexed::of(&value, self.clock.seed);
                indexed.and_then(|it| self.indexed.insert(Bytes::copy_from_slice(key), it));
            }
        }
        if !self.indexed.contains_key(key) {
            return Ok(None);
        }
        self.charge(work::ON_PART * names.len().max(1) as u64)?;
        let reply = self.apply_to_part(key, &names, command);
        if reply.is_none() {
            self.settle(key);
        }
        Ok(reply)
    }

    /// `None` for an error: it may be about the whole value.
    fn apply_to_part(&mut self, key: &[u8], names: &[&[u8]], command: &Command) -> Option<Reply> {
        let (held, indexed) = (self.keys.get_mut(key)?, self.indexed.get_mut(key)?);
        let part = indexed.part(names);
        let view = View { value: Some(&part), ttl: held.ttl, ends: held.ends };
        let Applied { change, reply } = self.interpreter.apply(view, &command.body, self.clock);
        let new_len = match &change {
            Change::Put { value, .. } => indexed.encoded_len() + value.len() - part.len(),
            _ => 0,
        };
        let is_too_large = new_len > self.interpreter.max_value_len.max(indexed.encoded_len());
        if reply.is_error() || is_too_large {
            return None;
        }
        let work = work::writing(&change) + work::answering(&reply);
        match change {
            Change::None => {}
            Change::Put { value, expiry } => {
                indexed.replace(names, Some(&value));
                held.expire(expiry, self.clock);
            }
            Change::Expire(expiry) => held.expire(expiry, self.clock),
            Change::Delete => {
                indexed.replace(names, None);
                if indexed.count() == 0 {
                    self.indexed.remove(key);
                    held.change(Change::Delete, self.clock);
                }
            }
        }
        self.add(work);
        Some(reply)
    }

    /// Puts the value of a key together that commands changed in parts.
    fn settle(&mut self, key: &[u8]) {
        let Some(indexed) = self.indexed.remove(key) else { return };
        self.add(indexed.encoded_len() as u64 / 2);
        if let Some(held) = self.keys.get_mut(key) {
            held.value = indexed.value();
        }
    }

    pub(super) fn settle_all(&mut self) {
        while let Some((key, _)) = self.indexed.first_key_value() {
            let key = key.clone();
            self.settle(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use base::Millis;
    use proptest::prelude::*;
    use types::{Clock, TimeToLive};

    use super::*;
    use crate::{Budget, Interpreter, Plan};

    const CLOCK: Clock = Clock { unix: Millis(1_000), seed: 7 };
    const INTERPRETER: Interpreter = Interpreter { max_value_len: 64 << 10, scripts: None };

    /// Elements are this long, so that few make a large collection.
    fn name(number: u8) -> Vec<u8> {
        vec![b'a' + number % 26; 1_000 + usize::from(number % 2) * 200]
    }

    fn body(line: &[&[u8]]) -> Bytes {
        match crate::plan(line, CLOCK) {
            Ok((_, Plan::Key { command, .. })) => command.body,
            other => panic!("{other:?}"),
        }
    }

    /// Applies a line to a value by itself.
    fn apply(value: &mut Option<Bytes>, line: &[&[u8]]) -> Reply {
        let view = View { value: value.as_deref(), ttl: TimeToLive::Never, ends: None };
        let Applied { change, reply } = INTERPRETER.apply(view, &body(line), CLOCK);
        match change {
            Change::Put { value: new, .. } => *value = Some(new),
            Change::Delete => *value = None,
            Change::None | Change::Expire(_) => {}
        }
        reply
    }

    const COMMANDS: [&[&str]; 3] = [
        &["HSET", "HDEL", "HGET", "HINCRBY", "HMGET", "HSETNX", "HLEN", "HSTRLEN", "HINCRBYFLOAT"],
        &["SADD", "SREM", "SISMEMBER", "SMISMEMBER", "SCARD", "SMEMBERS", "SADD", "SREM", "SADD"],
        &["ZADD", "ZREM", "ZSCORE", "ZINCRBY", "ZMSCORE", "ZRANK", "ZADD", "ZADD CH", "ZADD GT"],
    ];

    fn line(kind: usize, command: usize, element: u8, number: i8) -> Vec<Vec<u8>> {
        let mut words: Vec<Vec<u8>> = Vec::new();
        let mut names = COMMANDS[kind][command].split(' ').map(|word| word.as_bytes().to_vec());
        words.extend(names.next());
        words.push(b"k".to_vec());
        words.extend(names);
        let number = number.to_string().into_bytes();
        let (first, second) = (name(element), name(element / 3));
        match COMMANDS[kind][command] {
            "HSET" => words.extend([first, number.clone(), second, number]),
            "HSETNX" | "HINCRBY" | "HINCRBYFLOAT" => words.extend([first, number]),
            "HGET" | "HSTRLEN" | "SISMEMBER" | "ZSCORE" | "ZRANK" => words.push(first),
            "HLEN" | "SCARD" | "SMEMBERS" => {}
            "ZADD" | "ZADD CH" | "ZADD GT" => {
                words.extend([number.clone(), first, number, second]);
            }
            "ZINCRBY" => words.extend([number, first]),
            _ => words.extend([first, second]),
        }
        words
    }

    proptest! {
        #[test]
        fn replies_and_value_are_those_of_whole_commands(
            kind in 0..3_usize,
            commands in prop::collection::vec((0..9_usize, 0..60_u8, -3..3_i8), 20..60),
        ) {
            let mut value = None;
            for element in 0..24 {
                let first = line(kind, 0, element, 5);
                apply(&mut value, &first.iter().map(Vec::as_slice).collect::<Vec<_>>());
            }
            let budget = Budget { work: u64::MAX, ..Budget::SHORT };
            let mut space = Space::new(&INTERPRETER, CLOCK).with_budget(budget);
            space.hold("k".into(), value.clone(), (TimeToLive::Never, None));
            let mut was_indexed = false;
            for (command, element, number) in commands {
                let line = line(kind, command, element, number);
                let line: Vec<&[u8]> = line.iter().map(Vec::as_slice).collect();
                let command = Command::new(types::Access::Update, body(&line));
                let reply = space.run(b"k", &command).unwrap();
                prop_assert_eq!(reply, apply(&mut value, &line));
                was_indexed |= !space.indexed.is_empty();
            }
            space.settle_all();
            prop_assert_eq!(&space.keys[&b"k"[..]].value, &value);
            prop_assume!(was_indexed);
        }
    }

    #[test]
    fn deleted_and_too_large_values_are_told() {
        let mut value = None;
        let names: Vec<Vec<u8>> = (0..20).map(name).collect();
        for name in &names {
            apply(&mut value, &[b"SADD", b"k", name]);
        }
        let mut space = Space::new(&INTERPRETER, CLOCK);
        space.hold("k".into(), value, (TimeToLive::Never, None));
        let large = vec![b'x'; 60 << 10];
        for _ in 0..10 {
            assert_eq!(space.execute(&[b"SISMEMBER", b"k", b"x"]), Ok(Reply::Integer(0)));
        }
        assert!(!space.indexed.is_empty());
        let halt = space.execute(&[b"SADD", b"k", &large]);
        assert!(matches!(halt, Ok(Reply::Error(_))), "{halt:?}");
        for name in names.iter().chain(&names) {
            space.execute(&[b"SREM", b"k", name]).unwrap();
        }
        assert_eq!(space.changes().map(|(_, change)| change).collect::<Vec<_>>(), [Change::Delete]);
    }
}
