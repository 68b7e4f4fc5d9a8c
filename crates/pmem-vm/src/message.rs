//! Messages of the guest over its serial line, one per line: all that survives a power cut.
//!
//! A line counts once its end has arrived. A power cut may truncate the output anywhere, and does
//! not damage it otherwise.

use std::fmt;
use std::str::{FromStr, SplitWhitespace};

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// How cache lines are written back on this CPU.
    Flush(String),
    /// A check of the medium passed.
    Passed(String),
    /// `palimpsest verify` found the directory of a node whole.
    Whole { node: u16 },
    /// A node has no data.
    Empty { node: u16 },
    /// The nodes' processes were started.
    Started,
    /// A node maps its file with MAP_SYNC.
    Synced { node: u16 },
    /// All nodes serve, milliseconds after the kernel started.
    Ready { uptime_ms: u64 },
    /// The operation whose value a key holds; `None` for an absent key.
    Holds { client: usize, key: u64, number: Option<u64> },
    /// All keys have been read.
    ReadAll,
    /// The client begins no operation beyond this one without another reservation.
    Reserved { client: usize, number: u64 },
    /// An operation was acknowledged.
    Acked { client: usize, number: u64 },
    /// A deletion was acknowledged and found no key.
    Missed { client: usize, number: u64 },
    /// An operation failed, or its outcome is unknown.
    Unknown { client: usize, number: u64, reply: String },
    /// All nodes stopped cleanly.
    Stopped,
    /// A finding.
    Wrong(String),
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Flush(name) => write!(f, "flush {name}"),
            Message::Passed(check) => write!(f, "passed {check}"),
            Message::Whole { node } => write!(f, "whole {node}"),
            Message::Empty { node } => write!(f, "empty {node}"),
            Message::Started => write!(f, "started"),
            Message::Synced { node } => write!(f, "synced {node}"),
            Message::Ready { uptime_ms } => write!(f, "ready {uptime_ms}"),
            Message::Holds { client, key, number: Some(number) } => {
                write!(f, "holds {client} {key} {number}")
            }
            Message::Holds { client, key, number: None } => write!(f, "holds {client} {key} -"),
            Message::ReadAll => write!(f, "read-all"),
            Message::Reserved { client, number } => write!(f, "reserved {client} {number}"),
            Message::Acked { client, number } => write!(f, "acked {client} {number}"),
            Message::Missed { client, number } => write!(f, "missed {client} {number}"),
            Message::Unknown { client, number, reply } => {
                write!(f, "unknown {client} {number} {}", one_line(reply))
            }
            Message::Stopped => write!(f, "stopped"),
            Message::Wrong(finding) => write!(f, "wrong {}", one_line(finding)),
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " | ")
}

/// The line is no message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an unknown guest message: {0:?}")]
pub struct Unreadable(pub String);

impl FromStr for Message {
    type Err = Unreadable;

    fn from_str(line: &str) -> Result<Message, Unreadable> {
        parse(line).ok_or_else(|| Unreadable(line.to_string()))
    }
}

fn parse(line: &str) -> Option<Message> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let text = || Some(rest.to_string()).filter(|text| !text.is_empty());
    match word {
        "flush" => return Some(Message::Flush(text()?)),
        "passed" => return Some(Message::Passed(text()?)),
        "wrong" => return Some(Message::Wrong(text()?)),
        "unknown" => {
            let mut parts = rest.splitn(3, ' ');
            let (client, number) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            return Some(Message::Unknown { client, number, reply: parts.next()?.to_string() });
        }
        _ => {}
    }
    let mut words = rest.split_whitespace();
    let message = parse_numbers(word, &mut words)?;
    words.next().is_none().then_some(message)
}

fn parse_numbers(word: &str, words: &mut SplitWhitespace<'_>) -> Option<Message> {
    fn next<T: FromStr>(words: &mut SplitWhitespace<'_>) -> Option<T> {
        words.next()?.parse().ok()
    }
    Some(match word {
        "whole" => Message::Whole { node: next(words)? },
        "empty" => Message::Empty { node: next(words)? },
        "started" => Message::Started,
        "synced" => Message::Synced { node: next(words)? },
        "ready" => Message::Ready { uptime_ms: next(words)? },
        "holds" => {
            let (client, key) = (next(words)?, next(words)?);
            let number = match words.next()? {
                "-" => None,
                number => Some(number.parse().ok()?),
            };
            Message::Holds { client, key, number }
        }
        "read-all" => Message::ReadAll,
        "reserved" => Message::Reserved { client: next(words)?, number: next(words)? },
        "acked" => Message::Acked { client: next(words)?, number: next(words)? },
        "missed" => Message::Missed { client: next(words)?, number: next(words)? },
        "stopped" => Message::Stopped,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_a_round_trip() {
        let all = [
            Message::Flush("clwb".into()),
            Message::Passed("a check with words".into()),
            Message::Whole { node: 1 },
            Message::Empty { node: 2 },
            Message::Started,
            Message::Synced { node: 3 },
            Message::Ready { uptime_ms: 4 },
            Message::Holds { client: 5, key: 6, number: Some(7) },
            Message::Holds { client: 5, key: 6, number: None },
            Message::ReadAll,
            Message::Reserved { client: 8, number: 9 },
            Message::Acked { client: 10, number: 11 },
            Message::Missed { client: 14, number: 15 },
            Message::Unknown { client: 12, number: 13, reply: "an error".into() },
            Message::Stopped,
            Message::Wrong("this and that".into()),
        ];
        for message in all {
            assert_eq!(message.to_string().parse(), Ok(message));
        }
    }

    #[test]
    fn other_lines_are_no_messages() {
        for line in ["", "acked 1", "acked 1 2 3", "acked one 2", "holds 1 2", "hello", "wrong"] {
            assert!(line.parse::<Message>().is_err(), "{line:?}");
        }
    }
}
