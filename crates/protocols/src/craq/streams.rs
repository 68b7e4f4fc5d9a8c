//! The head's memory of steered commands, for one epoch: copies of them may come again.

use std::collections::BTreeMap;

use types::{Key, Reply, Serial};

use super::lane::From;
use crate::mutation::{self, Mutation};

/// The commands of each worker of each member that may come again.
#[derive(Debug, Default)]
pub(super) struct Streams(BTreeMap<(Serial, u64), Stream>);

#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Commands below have ended at their origin.
    low: u64,
    /// Those from there on: at most as many as a worker has requests.
    commands: BTreeMap<u64, Command>,
    /// The newest one of each key, by the key's hash. A hash that two keys share is harmless:
    /// then a late command gets no answer.
    newest: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Command {
    hash: u64,
    progress: Progress,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    Running,
    /// `None`: its reply was too long to keep.
    Ended(Option<Reply>),
}

/// The answer to a steered command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    New,
    Copy(Progress),
    /// Its origin knows the outcome.
    Old,
}

impl Streams {
    /// Commands of this worker below `low` have ended at their origin.
    pub fn stream(&mut self, serial: Serial, worker: u64, low: u64) -> &mut Stream {
        let stream = self.0.entry((serial, worker)).or_default();
        stream.raise(low);
        stream
    }

    /// A worker has one command on a key at a time. So it has given up those below the newest
    /// one of the key, and they must not run behind it.
    pub fn admit(&mut self, from: From, low: u64, key: &Key) -> Admission {
        let stream = self.stream(from.serial, from.worker, low);
        if from.seq < stream.low {
            return Admission::Old;
        }
        let is_known = |command: &&Command| {
            command.progress == Progress::Running || !mutation::is(Mutation::ForgetsEnded)
        };
        if let Some(command) = stream.commands.get(&from.seq).filter(is_known) {
            return Admission::Copy(command.progress.clone());
        }
        let newest = stream.newest.entry(key.hash()).or_insert(from.seq);
        if *newest > from.seq && !mutation::is(Mutation::RunsLateSteers) {
            return Admission::Old;
        }
        *newest = from.seq;
        let command = Command { hash: key.hash(), progress: Progress::Running };
        stream.commands.insert(from.seq, command);
        Admission::New
    }

    pub fn end(&mut self, from: From, reply: Option<Reply>) {
        let stream = self.0.get_mut(&(from.serial, from.worker));
        if let Some(command) = stream.and_then(|stream| stream.commands.get_mut(&from.seq)) {
            command.progress = Progress::Ended(reply);
        }
    }

    /// Its origin waits for it no more.
    pub fn has_ended(&self, serial: Serial, worker: u64, seq: u64) -> bool {
        self.0.get(&(serial, worker)).is_some_and(|stream| seq < stream.low)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Stream {
    fn raise(&mut self, low: u64) {
        self.low = low.max(self.low);
        while let Some(oldest) = self.commands.first_entry()
            && *oldest.key() < self.low
        {
            let (seq, Command { hash, .. }) = oldest.remove_entry();
            if self.newest.get(&hash) == Some(&seq) {
                self.newest.remove(&hash);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use types::NodeId;

    use super::*;

    fn from(seq: u64) -> From {
        From { node: NodeId(2), serial: Serial(7), worker: 0, seq }
    }

    #[test]
    fn copies_get_the_first_reply_until_their_origin_has_it() {
        let key = Key::new(b"k");
        let mut streams = Streams::default();
        assert_eq!(streams.admit(from(4), 4, &key), Admission::New);
        assert_eq!(streams.admit(from(4), 4, &key), Admission::Copy(Progress::Running));
        streams.end(from(4), Some(Reply::Integer(0)));
        let ended = Progress::Ended(Some(Reply::Integer(0)));
        assert_eq!(streams.admit(from(4), 4, &key), Admission::Copy(ended));
        assert_eq!(streams.admit(from(6), 6, &key), Admission::New);
        assert_eq!(streams.admit(from(4), 4, &key), Admission::Old);
        assert_eq!(streams.admit(from(5), 5, &key), Admission::Old, "a late low is no lower");
        assert!(streams.has_ended(Serial(7), 0, 5) && !streams.has_ended(Serial(7), 0, 6));
    }

    /// The register remembers the last command of a member. An earlier one behind it would hide it,
    /// and the head of the next epoch would run it again.
    pub(crate) fn late_command() -> Result<(), String> {
        let (key, other) = (Key::new(b"k"), Key::new(b"other"));
        let mut streams = Streams::default();
        assert_eq!(streams.admit(from(6), 3, &key), Admission::New);
        streams.end(from(6), Some(Reply::Integer(0)));
        assert_eq!(streams.admit(from(4), 3, &other), Admission::New, "each key has its order");
        match streams.admit(from(5), 3, &key) {
            Admission::Old => Ok(()),
            admission => Err(format!("a late command: {admission:?}")),
        }
    }

    #[test]
    fn late_command_never_runs_behind_a_newer_one() {
        assert_eq!(late_command(), Ok(()));
    }
}
