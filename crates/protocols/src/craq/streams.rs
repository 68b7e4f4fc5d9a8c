//! The head's memory of steered commands, for one epoch: copies of them may come again.

use std::collections::BTreeMap;

use types::{Reply, Serial};

use super::lane::From;

/// The commands of each worker of each member that may come again.
#[derive(Debug, Default)]
pub(super) struct Streams(BTreeMap<(Serial, u64), Stream>);

#[derive(Debug, Default)]
struct Stream {
    /// Commands below have ended at their origin.
    low: u64,
    /// Those from there on: at most as many as a worker has requests.
    commands: BTreeMap<u64, Progress>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    Running,
    /// `None`: it is refused.
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
    pub fn admit(&mut self, from: From, low: u64) -> Admission {
        let stream = self.0.entry((from.serial, from.worker)).or_default();
        if low > stream.low {
            stream.low = low;
            stream.commands = stream.commands.split_off(&low);
        }
        if from.seq < stream.low {
            return Admission::Old;
        }
        match stream.commands.get(&from.seq) {
            Some(progress) => Admission::Copy(progress.clone()),
            None => {
                stream.commands.insert(from.seq, Progress::Running);
                Admission::New
            }
        }
    }

    pub fn end(&mut self, from: From, reply: Option<Reply>) {
        let stream = self.0.get_mut(&(from.serial, from.worker));
        if let Some(progress) = stream.and_then(|stream| stream.commands.get_mut(&from.seq)) {
            *progress = Progress::Ended(reply);
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

#[cfg(test)]
mod tests {
    use types::NodeId;

    use super::*;

    #[test]
    fn copies_get_the_first_reply_until_their_origin_has_it() {
        let from = |seq| From { node: NodeId(2), serial: Serial(7), worker: 0, seq };
        let mut streams = Streams::default();
        assert_eq!(streams.admit(from(4), 4), Admission::New);
        assert_eq!(streams.admit(from(4), 4), Admission::Copy(Progress::Running));
        streams.end(from(4), Some(Reply::Integer(0)));
        let ended = Progress::Ended(Some(Reply::Integer(0)));
        assert_eq!(streams.admit(from(4), 4), Admission::Copy(ended));
        assert_eq!(streams.admit(from(6), 6), Admission::New);
        assert_eq!(streams.admit(from(4), 4), Admission::Old);
        assert_eq!(streams.admit(from(5), 5), Admission::Old, "a late low is no lower");
        assert!(streams.has_ended(Serial(7), 0, 5) && !streams.has_ended(Serial(7), 0, 6));
    }
}
