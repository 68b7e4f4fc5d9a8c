//! What happened, as lines for a person. Kept only when a failing seed is run again.

use std::collections::VecDeque;
use std::fmt::Write as _;

use base::Nanos;
use node::frame_payload;
use node::registry;
use types::Key;

/// Lines kept; older ones are dropped.
const LINES_MAX: usize = 400;

/// The last lines of a run that concern one key.
#[derive(Debug, Default)]
pub struct Trace {
    /// Messages of other keys are left out; `None` shows all.
    key: Option<Key>,
    lines: VecDeque<String>,
}

impl Trace {
    #[must_use]
    pub fn new(key: Option<Key>) -> Trace {
        Trace { key, lines: VecDeque::new() }
    }

    /// Adds a line.
    pub fn note(&mut self, now: u64, text: String) {
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        let at = Nanos(now);
        self.lines.push_back(format!("{:>9}us  {text}", at.as_micros()));
    }

    /// Adds a line if the trace is of this key.
    pub fn note_of(&mut self, key: &Key, now: u64, text: String) {
        if self.key.as_ref().is_none_or(|traced| traced == key) {
            self.note(now, text);
        }
    }

    /// Adds a line for every message of a frame that concerns the key.
    pub fn note_frame(
        &mut self,
        now: u64,
        verb: &str,
        protocol: &str,
        from: usize,
        to: usize,
        frame: &[u8],
    ) {
        let Some(registration) = registry::find_anywhere(protocol) else { return };
        let Ok((header, _, messages)) = frame_payload::decode(frame) else { return };
        for message in messages.flatten() {
            let Some(described) = registration.describe(message.bytes) else { continue };
            if self.key.is_some() && described.key.is_some() && described.key != self.key {
                continue;
            }
            let arrow = arrow(verb, from, to);
            let sender = (header.incarnation, header.loss);
            let mut line = format!("{arrow} {}", described.text);
            let _ = write!(line, "   [{:?} {:?}]", sender.0, sender.1);
            self.note(now, line);
        }
    }

    /// The lines, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}

fn arrow(verb: &str, from: usize, to: usize) -> String {
    let (from, to) = (from + 1, to + 1);
    match verb {
        "sends" => format!("n{from} --> n{to}   "),
        "gets" => format!("   n{from} --> n{to}*"),
        other => format!("n{from} --x n{to} ({other})"),
    }
}
