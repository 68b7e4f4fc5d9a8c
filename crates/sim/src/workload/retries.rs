//! Clients that repeat requests under `ONCE`: at other nodes, at once, late, after errors.
//!
//! A line is one operation, however often it is transmitted. Its first definite answer is its
//! answer, and all others must be equal. It had no effect only if every transmission had none.
//! [corrections F9] Clients stop repeating a line before the cluster may forget it.

use base::{Millis, Prng};
use bytes::Bytes;
use types::Once;

use crate::workload::operation::Input;

/// Number of recent lines that a client may repeat: the newest, or as many as a key remembers and
/// more.
const RECENT_MAX: usize = 12;
const RECENT_IN_CROWDS_MAX: usize = 150;

/// A line that was transmitted.
#[derive(Clone, Debug)]
pub struct OnceLine {
    pub key: usize,
    pub input: Input,
    /// The client's name for itself.
    pub name: String,
    pub seq: u64,
    /// Time and operation of the first transmission.
    pub sent: u64,
    pub op: usize,
}

/// For how long lines are repeated and remembered.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Nanoseconds from the first transmission to the last.
    pub repeat_for: u64,
    pub window: Millis,
    /// Sessions of one client: with few, lines overtake each other.
    pub sessions: u64,
}

impl Habits {
    /// Every line has a session of its own, and few are repeated: keys remember as many as they
    /// can.
    pub const CROWD: u64 = u64::MAX;
}

impl Default for Habits {
    fn default() -> Habits {
        Habits { repeat_for: 0, window: types::limits::ONCE_WINDOW_DEFAULT, sessions: 16 }
    }
}

/// All lines under `ONCE`.
#[derive(Debug, Default)]
pub struct Retries {
    pub habits: Habits,
    pub lines: Vec<OnceLine>,
}

impl Retries {
    /// The next action of a client on a key.
    ///
    /// `None`: an operation that is not to be repeated. Otherwise the index of a line; a new one is
    /// added once it is sent.
    pub fn draw(&self, rng: &mut Prng, key: usize, now: u64) -> Option<usize> {
        let is_young =
            |line: &OnceLine| line.key == key && now < line.sent + self.habits.repeat_for;
        let recent = self.lines.iter().enumerate().rev().filter(|(_, line)| is_young(line));
        let (among, repeats) = match self.habits.sessions {
            Habits::CROWD => (RECENT_IN_CROWDS_MAX, 2),
            _ => (RECENT_MAX, 4),
        };
        let recent: Vec<usize> = recent.map(|(at, _)| at).take(among).collect();
        match rng.below(8) {
            0 => None,
            dice if dice <= repeats && !recent.is_empty() => Some(*rng.pick(&recent)),
            _ => Some(self.lines.len()),
        }
    }

    /// A new line.
    #[must_use]
    pub fn line(&self, client: usize, key: usize, input: Input, now: u64, op: usize) -> OnceLine {
        let seq = self.lines.len() as u64 + 1;
        let name = format!("c{client}-{}", seq % self.habits.sessions);
        OnceLine { key, input, name, seq, sent: now, op }
    }

    /// The session and number that make a line safe to repeat.
    #[must_use]
    pub fn once(&self, line: &OnceLine) -> Once {
        let session = Bytes::from(line.name.clone().into_bytes());
        Once { session, seq: line.seq, window: self.habits.window }
    }
}

/// The words of a request under `ONCE`.
#[must_use]
pub fn words(line: &OnceLine, command: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let seq = line.seq.to_string().into_bytes();
    [vec![b"ONCE".to_vec(), line.name.clone().into_bytes(), seq], command].concat()
}
