//! Messages of the guest over its serial line, one per line: all that survives a power cut.
//!
//! A line counts once its end has arrived. A power cut may truncate the output anywhere, and does
//! not damage it otherwise.

use std::fmt;
use std::str::{FromStr, SplitWhitespace};

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GuestMessage {
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

impl fmt::Display for GuestMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GuestMessage::Flush(name) => write!(f, "flush {name}"),
            GuestMessage::Passed(check) => write!(f, "passed {check}"),
            GuestMessage::Whole { node } => write!(f, "whole {node}"),
            GuestMessage::Empty { node } => write!(f, "empty {node}"),
            GuestMessage::Started => write!(f, "started"),
            GuestMessage::Synced { node } => write!(f, "synced {node}"),
            GuestMessage::Ready { uptime_ms } => write!(f, "ready {uptime_ms}"),
            GuestMessage::Holds { client, key, number: Some(number) } => {
                write!(f, "holds {client} {key} {number}")
            }
            GuestMessage::Holds { client, key, number: None } => {
                write!(f, "holds {client} {key} -")
            }
            GuestMessage::ReadAll => write!(f, "read-all"),
            GuestMessage::Reserved { client, number } => write!(f, "reserved {client} {number}"),
            GuestMessage::Acked { client, number } => write!(f, "acked {client} {number}"),
            GuestMessage::Missed { client, number } => write!(f, "missed {client} {number}"),
            GuestMessage::Unknown { client, number, reply } => {
                write!(f, "unknown {client} {number} {}", one_line(reply))
            }
            GuestMessage::Stopped => write!(f, "stopped"),
            GuestMessage::Wrong(finding) => write!(f, "wrong {}", one_line(finding)),
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

impl FromStr for GuestMessage {
    type Err = Unreadable;

    fn from_str(line: &str) -> Result<GuestMessage, Unreadable> {
        parse(line).ok_or_else(|| Unreadable(line.to_string()))
    }
}

fn parse(line: &str) -> Option<GuestMessage> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let text = || Some(rest.to_string()).filter(|text| !text.is_empty());
    match word {
        "flush" => return Some(GuestMessage::Flush(text()?)),
        "passed" => return Some(GuestMessage::Passed(text()?)),
        "wrong" => return Some(GuestMessage::Wrong(text()?)),
        "unknown" => {
            let mut parts = rest.splitn(3, ' ');
            let (client, number) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            return Some(GuestMessage::Unknown {
                client,
                number,
                reply: parts.next()?.to_string(),
            });
        }
        _ => {}
    }
    let mut words = rest.split_whitespace();
    let message = parse_numbers(word, &mut words)?;
    words.next().is_none().then_some(message)
}

fn parse_numbers(word: &str, words: &mut SplitWhitespace<'_>) -> Option<GuestMessage> {
    fn next<T: FromStr>(words: &mut SplitWhitespace<'_>) -> Option<T> {
        words.next()?.parse().ok()
    }
    Some(match word {
        "whole" => GuestMessage::Whole { node: next(words)? },
        "empty" => GuestMessage::Empty { node: next(words)? },
        "started" => GuestMessage::Started,
        "synced" => GuestMessage::Synced { node: next(words)? },
        "ready" => GuestMessage::Ready { uptime_ms: next(words)? },
        "holds" => {
            let (client, key) = (next(words)?, next(words)?);
            let number = match words.next()? {
                "-" => None,
                number => Some(number.parse().ok()?),
            };
            GuestMessage::Holds { client, key, number }
        }
        "read-all" => GuestMessage::ReadAll,
        "reserved" => GuestMessage::Reserved { client: next(words)?, number: next(words)? },
        "acked" => GuestMessage::Acked { client: next(words)?, number: next(words)? },
        "missed" => GuestMessage::Missed { client: next(words)?, number: next(words)? },
        "stopped" => GuestMessage::Stopped,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_a_round_trip() {
        let all = [
            GuestMessage::Flush("clwb".into()),
            GuestMessage::Passed("a check with words".into()),
            GuestMessage::Whole { node: 1 },
            GuestMessage::Empty { node: 2 },
            GuestMessage::Started,
            GuestMessage::Synced { node: 3 },
            GuestMessage::Ready { uptime_ms: 4 },
            GuestMessage::Holds { client: 5, key: 6, number: Some(7) },
            GuestMessage::Holds { client: 5, key: 6, number: None },
            GuestMessage::ReadAll,
            GuestMessage::Reserved { client: 8, number: 9 },
            GuestMessage::Acked { client: 10, number: 11 },
            GuestMessage::Missed { client: 14, number: 15 },
            GuestMessage::Unknown { client: 12, number: 13, reply: "an error".into() },
            GuestMessage::Stopped,
            GuestMessage::Wrong("this and that".into()),
        ];
        for message in all {
            assert_eq!(message.to_string().parse(), Ok(message));
        }
    }

    #[test]
    fn other_lines_are_no_messages() {
        for line in ["", "acked 1", "acked 1 2 3", "acked one 2", "holds 1 2", "hello", "wrong"] {
            assert!(line.parse::<GuestMessage>().is_err(), "{line:?}");
        }
    }
}
