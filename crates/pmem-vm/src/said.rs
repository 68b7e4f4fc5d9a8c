//! What the guest says over its serial line, one line each: what the host knows after the power is gone.
//!
//! A line counts once its end has arrived. The line may end anywhere with the power; it is not otherwise damaged.

use std::fmt;
use std::str::{FromStr, SplitWhitespace};

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
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
    /// Who wrote what a key holds now; `None` where there is no such key.
    Holds { client: usize, key: u64, number: Option<u64> },
    /// All keys have been read.
    ReadAll,
    /// No operation of this client beyond this one is begun before it says so again.
    Reserved { client: usize, number: u64 },
    /// An operation was acknowledged.
    Acked { client: usize, number: u64 },
    /// A deletion was acknowledged that found nothing to delete.
    Missed { client: usize, number: u64 },
    /// An operation failed, or its outcome is unknown.
    Unknown { client: usize, number: u64, reply: String },
    /// All nodes ended as they should when they were asked to.
    Stopped,
    /// Something that must not be.
    Wrong(String),
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Said::Flush(name) => write!(f, "flush {name}"),
            Said::Passed(what) => write!(f, "passed {what}"),
            Said::Whole { node } => write!(f, "whole {node}"),
            Said::Empty { node } => write!(f, "empty {node}"),
            Said::Started => write!(f, "started"),
            Said::Synced { node } => write!(f, "synced {node}"),
            Said::Ready { uptime_ms } => write!(f, "ready {uptime_ms}"),
            Said::Holds { client, key, number: Some(number) } => {
                write!(f, "holds {client} {key} {number}")
            }
            Said::Holds { client, key, number: None } => write!(f, "holds {client} {key} -"),
            Said::ReadAll => write!(f, "read-all"),
            Said::Reserved { client, number } => write!(f, "reserved {client} {number}"),
            Said::Acked { client, number } => write!(f, "acked {client} {number}"),
            Said::Missed { client, number } => write!(f, "missed {client} {number}"),
            Said::Unknown { client, number, reply } => {
                write!(f, "unknown {client} {number} {}", one_line(reply))
            }
            Said::Stopped => write!(f, "stopped"),
            Said::Wrong(what) => write!(f, "wrong {}", one_line(what)),
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " | ")
}

/// A line that is none of these.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the guest said {0:?}, which means nothing")]
pub struct Unreadable(pub String);

impl FromStr for Said {
    type Err = Unreadable;

    fn from_str(line: &str) -> Result<Said, Unreadable> {
        parse(line).ok_or_else(|| Unreadable(line.to_string()))
    }
}

fn parse(line: &str) -> Option<Said> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let text = || Some(rest.to_string()).filter(|text| !text.is_empty());
    match word {
        "flush" => return Some(Said::Flush(text()?)),
        "passed" => return Some(Said::Passed(text()?)),
        "wrong" => return Some(Said::Wrong(text()?)),
        "unknown" => {
            let mut parts = rest.splitn(3, ' ');
            let (client, number) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            return Some(Said::Unknown { client, number, reply: parts.next()?.to_string() });
        }
        _ => {}
    }
    let mut words = rest.split_whitespace();
    let said = parse_numbers(word, &mut words)?;
    words.next().is_none().then_some(said)
}

fn parse_numbers(word: &str, words: &mut SplitWhitespace<'_>) -> Option<Said> {
    fn next<T: FromStr>(words: &mut SplitWhitespace<'_>) -> Option<T> {
        words.next()?.parse().ok()
    }
    Some(match word {
        "whole" => Said::Whole { node: next(words)? },
        "empty" => Said::Empty { node: next(words)? },
        "started" => Said::Started,
        "synced" => Said::Synced { node: next(words)? },
        "ready" => Said::Ready { uptime_ms: next(words)? },
        "holds" => {
            let (client, key) = (next(words)?, next(words)?);
            let number = match words.next()? {
                "-" => None,
                number => Some(number.parse().ok()?),
            };
            Said::Holds { client, key, number }
        }
        "read-all" => Said::ReadAll,
        "reserved" => Said::Reserved { client: next(words)?, number: next(words)? },
        "acked" => Said::Acked { client: next(words)?, number: next(words)? },
        "missed" => Said::Missed { client: next(words)?, number: next(words)? },
        "stopped" => Said::Stopped,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_they_were_made_of() {
        let all = [
            Said::Flush("clwb".into()),
            Said::Passed("a check with words".into()),
            Said::Whole { node: 1 },
            Said::Empty { node: 2 },
            Said::Started,
            Said::Synced { node: 3 },
            Said::Ready { uptime_ms: 4 },
            Said::Holds { client: 5, key: 6, number: Some(7) },
            Said::Holds { client: 5, key: 6, number: None },
            Said::ReadAll,
            Said::Reserved { client: 8, number: 9 },
            Said::Acked { client: 10, number: 11 },
            Said::Missed { client: 14, number: 15 },
            Said::Unknown { client: 12, number: 13, reply: "an error".into() },
            Said::Stopped,
            Said::Wrong("this and that".into()),
        ];
        for said in all {
            assert_eq!(said.to_string().parse(), Ok(said));
        }
    }

    #[test]
    fn other_lines_are_unreadable() {
        for line in ["", "acked 1", "acked 1 2 3", "acked one 2", "holds 1 2", "hello", "wrong"] {
            assert!(line.parse::<Said>().is_err(), "{line:?}");
        }
    }
}
