//! Clients that repeat what they send under `ONCE`: at other nodes, at once, late, after errors.
//!
//! A line is one operation however often it is sent. Its first definite answer is its answer, and every other must be
//! the same; it had no effect only where every transmission was told so. [corrections F9] Nobody repeats a line for so
//! long that the cluster may have forgotten it.

use base::{Millis, Prng};
use bytes::Bytes;
use checker::model::kv::KvInput;
use types::Once;

/// Lines among which a client chooses what to repeat: the newest, or as many as a key remembers and more.
const RECENT_MAX: usize = 12;
const RECENT_IN_CROWDS_MAX: usize = 150;

/// A line that was sent.
#[derive(Clone, Debug)]
pub struct Line {
    pub key: usize,
    pub input: KvInput,
    /// The client's name for itself.
    pub name: String,
    pub seq: u64,
    /// When it was sent first, and as which operation.
    pub sent: u64,
    pub op: usize,
}

/// How long lines are repeated and remembered.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Nanoseconds from the first transmission to the last.
    pub repeat_for: u64,
    pub window: Millis,
    /// Sessions of one client: of few, lines overtake each other.
    pub sessions: u64,
}

impl Habits {
    /// Every line has a session of its own, and few are repeated: keys remember as many as they can.
    pub const CROWD: u64 = u64::MAX;
}

impl Default for Habits {
    fn default() -> Habits {
        Habits { repeat_for: 0, window: types::limits::ONCE_WINDOW_DEFAULT, sessions: 16 }
    }
}

/// Everything that was sent under `ONCE`.
#[derive(Debug, Default)]
pub struct Retries {
    pub habits: Habits,
    pub lines: Vec<Line>,
}

impl Retries {
    /// What a client does next with a key: `None`, something that is not to be repeated; else the place of its line,
    /// which may be a new one, to be added once it is sent.
    pub fn draw(&self, rng: &mut Prng, key: usize, now: u64) -> Option<usize> {
        let is_young = |line: &Line| line.key == key && now < line.sent + self.habits.repeat_for;
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
    pub fn line(&self, client: usize, key: usize, input: KvInput, now: u64, op: usize) -> Line {
        let seq = self.lines.len() as u64 + 1;
        let name = format!("c{client}-{}", seq % self.habits.sessions);
        Line { key, input, name, seq, sent: now, op }
    }

    /// What makes a line safe to repeat.
    #[must_use]
    pub fn once(&self, line: &Line) -> Once {
        let session = Bytes::from(line.name.clone().into_bytes());
        Once { session, seq: line.seq, window: self.habits.window }
    }
}

/// The words of a request under `ONCE`.
#[must_use]
pub fn words(line: &Line, command: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let seq = line.seq.to_string().into_bytes();
    [vec![b"ONCE".to_vec(), line.name.clone().into_bytes(), seq], command].concat()
}
