//! Events for operators. Each is a log line, and the node keeps the latest.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use base::Millis;

/// Events that a node keeps; the oldest makes room.
pub const EVENTS_MAX: usize = 256;

/// Bytes of a message or a field that are kept.
const TEXT_LEN_MAX: usize = 2048;

/// Log lines that this process could not write. The writer of the log counts here.
pub static LINES_DROPPED: AtomicU64 = AtomicU64::new(0);

/// The severity of an event. An error needs a person.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Error,
    Warn,
    Info,
}

impl Level {
    /// As in a log line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
        }
    }

    pub(crate) fn of(level: tracing::Level) -> Level {
        match level {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warn,
            _ => Level::Info,
        }
    }
}

/// One event of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeEvent {
    /// By the wall clock.
    pub at: Millis,
    pub level: Level,
    /// The part of the node, such as `cluster` or `storage`.
    pub target: &'static str,
    pub message: String,
    /// Details by name, such as `peer` and `addr`.
    pub fields: Vec<(&'static str, String)>,
}

impl NodeEvent {
    /// Message and details in one line, as the log has them.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.message.clone();
        for (name, value) in &self.fields {
            text.push_str(&format!(" {name}={}", quote(value)));
        }
        text
    }
}

/// The value of a field as one word: quoted if it would not be one otherwise.
#[must_use]
pub fn quote(value: &str) -> Cow<'_, str> {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '"' && c != '=';
    match !value.is_empty() && value.chars().all(is_plain) {
        true => Cow::Borrowed(value),
        false => Cow::Owned(format!("{value:?}")),
    }
}

/// The last events of a node.
#[derive(Debug, Default)]
pub(crate) struct EventLog(Mutex<VecDeque<NodeEvent>>);

impl EventLog {
    pub(crate) fn add(&self, mut event: NodeEvent) {
        cut(&mut event.message);
        event.fields.iter_mut().for_each(|(_, value)| cut(value));
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// Oldest first.
    pub(crate) fn all(&self) -> Vec<NodeEvent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

fn cut(text: &mut String) {
    text.truncate(text.floor_char_boundary(TEXT_LEN_MAX));
}

pub(crate) fn lines_dropped() -> u64 {
    LINES_DROPPED.load(Ordering::Relaxed)
}

/// Logs an event of a node and keeps it. Values are evaluated twice.
///
/// Example: `event!(node_status, WARN, "cluster", "member lost", peer = 2)`.
macro_rules! event {
    ($status:expr, $level:ident, $target:literal, $message:expr $(, $name:ident = $value:expr)* $(,)?) => {{
        let message: String = $message.into();
        tracing::event!(target: $target, tracing::Level::$level, $($name = $value,)* "{message}");
        $status.note_event(
            $crate::events::Level::of(tracing::Level::$level),
            $target,
            message,
            vec![$((stringify!($name), $value.to_string())),*],
        );
    }};
}
pub(crate) use event;

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64) -> NodeEvent {
        NodeEvent {
            at: Millis(number),
            level: Level::Warn,
            target: "cluster",
            message: "member lost".into(),
            fields: vec![("peer", "2".into()), ("reason", "connection closed".into())],
        }
    }

    #[test]
    fn oldest_events_make_room() {
        let events = EventLog::default();
        (0..EVENTS_MAX as u64 + 10).for_each(|number| events.add(event(number)));
        let kept = events.all();
        assert_eq!(kept.len(), EVENTS_MAX);
        assert_eq!((kept[0].at, kept[EVENTS_MAX - 1].at), (Millis(10), Millis(265)));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let events = EventLog::default();
        events.add(NodeEvent { message: "ä".repeat(TEXT_LEN_MAX), ..event(0) });
        assert_eq!(events.all()[0].message.len(), TEXT_LEN_MAX);
    }

    #[test]
    fn text_quotes_values_that_are_no_words() {
        assert_eq!(event(0).text(), "member lost peer=2 reason=\"connection closed\"");
        assert_eq!(quote("a=b\n"), "\"a=b\\n\"");
        assert_eq!(quote(""), "\"\"");
    }
}
