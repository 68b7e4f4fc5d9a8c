//! A chart of a run, for people. Kept only when a failing seed runs again.
//!
//! One line per message: send time, link, latency or the reason for its loss, and its fields. Times
//! are milliseconds of true time.

use std::collections::VecDeque;

use node::frame_payload;
use node::registry;
use types::Key;

/// Lines kept; older ones are dropped.
const LINES_MAX: usize = 160;
/// Characters of a line's text.
const TEXT_MAX: usize = 180;
/// Times that one character is shown in a row.
const REPEATS_MAX: usize = 6;
/// Fields without information.
const SILENT: &[&str] = &[": None", ": false", ": b-", ": 0"];

#[derive(Clone, PartialEq, Eq, Debug)]
enum MessageEnd {
    UnderWay,
    Arrived(Vec<u64>),
    Not(String),
}

#[derive(Clone, Debug)]
enum ChartText {
    Message { from: usize, to: usize, text: String, end: MessageEnd },
    Asked { session: u64, node: usize, text: String },
    Answered { session: u64, node: usize, text: String },
    Note(String),
}

#[derive(Clone, Debug)]
struct ChartLine {
    at: u64,
    text: ChartText,
}

/// The last lines of a run that concern one key.
#[derive(Debug, Default)]
pub struct Trace {
    /// Messages of other keys are left out; `None` shows all.
    key: Option<Key>,
    /// The chart ends here.
    until: Option<u64>,
    entries: VecDeque<ChartLine>,
}

impl Trace {
    #[must_use]
    pub fn new(key: Option<Key>, until: Option<u64>) -> Trace {
        Trace { key, until, entries: VecDeque::new() }
    }

    /// True when only lines about one key are kept.
    #[must_use]
    pub fn is_of_one_key(&self) -> bool {
        self.key.is_some()
    }

    fn push(&mut self, at: u64, text: ChartText) {
        if self.until.is_some_and(|until| at > until) {
            return;
        }
        if self.entries.len() == LINES_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(ChartLine { at, text });
    }

    /// Adds a line.
    pub fn note(&mut self, now: u64, text: String) {
        self.push(now, ChartText::Note(text));
    }

    /// Adds a line for a client's request, if it concerns the key.
    pub fn asked(&mut self, now: u64, key: &Key, (session, node): (u64, usize), text: String) {
        if self.key.as_ref().is_none_or(|traced| traced == key) {
            self.push(now, ChartText::Asked { session, node, text });
        }
    }

    /// The same for an answer.
    pub fn answered(&mut self, now: u64, key: &Key, (session, node): (u64, usize), text: String) {
        if self.key.as_ref().is_none_or(|traced| traced == key) {
            self.push(now, ChartText::Answered { session, node, text });
        }
    }

    /// Adds a line for every message of a sent frame that concerns the key.
    pub fn sent(&mut self, now: u64, protocol: &str, link: (usize, usize), frame: &[u8]) {
        for text in self.texts(protocol, frame) {
            let (from, to) = link;
            self.push(now, ChartText::Message { from, to, text, end: MessageEnd::UnderWay });
        }
    }

    /// Records that a frame arrived, or why it did not.
    pub fn ended(
        &mut self,
        now: u64,
        protocol: &str,
        link: (usize, usize),
        frame: &[u8],
        lost: Option<&str>,
    ) {
        if self.until.is_some_and(|until| now > until) {
            return;
        }
        for said in self.texts(protocol, frame) {
            let found = self.entries.iter_mut().rev().find_map(|entry| match &mut entry.text {
                ChartText::Message { from, to, text, end }
                    if (*from, *to) == link && *text == said =>
                {
                    Some(end)
                }
                _ => None,
            });
            match (found, lost) {
                (Some(end), Some(reason)) => *end = MessageEnd::Not(reason.to_owned()),
                (Some(MessageEnd::Arrived(times)), None) => times.push(now),
                (Some(end), None) => *end = MessageEnd::Arrived(vec![now]),
                (None, _) => {}
            }
        }
    }

    /// Texts of the messages in a frame that concern the key.
    fn texts(&self, protocol: &str, frame: &[u8]) -> Vec<String> {
        let Some(registration) = registry::find(protocol) else { return Vec::new() };
        let Ok((_, _, messages)) = frame_payload::decode(frame) else { return Vec::new() };
        let described =
            messages.flatten().filter_map(|message| registration.describe(message.bytes));
        // Comparison and recovery of whole shards have too many messages.
        let of_keys = described.filter(|it| it.key.is_some());
        let concern = of_keys.filter(|it| self.key.is_none() || it.key == self.key);
        concern.map(|it| terse(&it.text, it.key.as_ref())).collect()
    }

    /// The chart, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.entries.iter().map(ChartLine::line)
    }
}

impl ChartLine {
    fn line(&self) -> String {
        let at = self.at as f64 / 1e6;
        let (who, took, text) = match &self.text {
            ChartText::Message { from, to, text, end } => {
                let (arrow, took) = match end {
                    MessageEnd::UnderWay => ("..>", "never".to_owned()),
                    MessageEnd::Not(reason) => ("-x ", reason.clone()),
                    MessageEnd::Arrived(times) => ("-->", spans(self.at, times)),
                };
                (format!("n{} {arrow} n{}", from + 1, to + 1), took, text)
            }
            ChartText::Asked { session, node, text } => {
                (format!("s{session} ==> n{}", node + 1), String::new(), text)
            }
            ChartText::Answered { session, node, text } => {
                (format!("n{} ==> s{session}", node + 1), String::new(), text)
            }
            ChartText::Note(text) => ("*".to_owned(), String::new(), text),
        };
        let text: String = squeeze(text).chars().take(TEXT_MAX).collect();
        format!("{at:>12.3}  {who:<11} {took:<9} {text}")
    }
}

/// How long each copy took.
fn spans(sent: u64, times: &[u64]) -> String {
    let spans = times.iter().map(|at| format!("+{:.3}", (at - sent) as f64 / 1e6));
    spans.collect::<Vec<_>>().join(" ")
}

/// The text of a message without its key and without empty fields.
fn terse(text: &str, key: Option<&Key>) -> String {
    let mut terse = text.to_owned();
    if let Some(key) = key {
        terse =
            terse.replace(&format!("key: {key:?}, "), "").replace(&format!("key: {key:?} "), "");
    }
    for silent in SILENT {
        while let Some((start, end)) = field_that_ends_in(&terse, silent) {
            terse.replace_range(start..end, "");
        }
    }
    squeeze(&as_text(terse.replace(", }", " }")))
}

/// Shows bytes as text, where a field is printed as numbers.
fn as_text(mut text: String) -> String {
    while let Some(start) = text.find("Some([") {
        let Some(len) = text[start..].find("])") else { break };
        let numbers = text[start + 6..start + len].split(", ");
        let Ok(bytes) = numbers.map(str::parse::<u8>).collect::<Result<Vec<u8>, _>>() else {
            break;
        };
        let shown = format!("Some(\"{}\")", bytes.escape_ascii());
        text.replace_range(start..start + len + 2, &shown);
    }
    text
}

/// Shortens repetitions.
fn squeeze(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut last, mut times) = (' ', 0);
    for c in text.chars() {
        times = if c == last { times + 1 } else { 0 };
        last = c;
        match times {
            0..REPEATS_MAX => out.push(c),
            REPEATS_MAX => out.push('~'),
            _ => {}
        }
    }
    out
}

/// The position of a field with this value, together with one comma.
fn field_that_ends_in(text: &str, silent: &str) -> Option<(usize, usize)> {
    let ends = |at: usize| text[at..].starts_with([',', ' ', '}']);
    let (at, _) = text.match_indices(silent).find(|(at, _)| ends(at + silent.len()))?;
    let mut end = at + silent.len();
    let name = text[..at].rfind(|c: char| !(c.is_ascii_lowercase() || c == '_'))? + 1;
    if text[end..].starts_with(", ") {
        end += 2;
        return Some((name, end));
    }
    let start = if text[..name].ends_with(", ") { name - 2 } else { name };
    Some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_fields_are_left_out() {
        let key = Key::new(b"k0");
        let text = "State { key: \"k0\", id: 7, report: Report { accepted: b1/1, state: None, \
                    chosen: true, floor_ballot: b-, version: 0, countdown: None } }";
        let expected = "State { id: 7, report: Report { accepted: b1/1, chosen: true } }";
        assert_eq!(terse(text, Some(&key)), expected);
        assert_eq!(terse("Told { value: Some([118, 48]) }", None), "Told { value: Some(\"v0\") }");
        assert_eq!(terse("Ask { id: 10, state: None }", None), "Ask { id: 10 }");
    }

    #[test]
    fn chart_ends_at_the_given_time() {
        let mut trace = Trace::new(None, Some(10));
        trace.note(10, "in time".to_owned());
        trace.note(11, "late".to_owned());
        assert_eq!(trace.lines().count(), 1);
    }
}
