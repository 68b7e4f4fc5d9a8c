//! Outcomes that are not a reply, in the words of the contract.

use commands::Combine;
use types::{Outcome, Refusal, Reply};

use crate::explain;

const CLUSTERDOWN: &str = "CLUSTERDOWN not enough replicas answered in time; \
the command had and will have no effect, retry freely";
const UNKNOWN: &str = "UNKNOWN no quorum confirmed the command in time; \
it may or may not take effect, read before retrying";
const LOADING: &str = "LOADING this node is still starting, or forgot its state and has not recovered it from a quorum yet";
const ALREADY_DONE: &str =
    "ALREADYDONE the command ran before, and its reply was too long to be remembered";

/// The reply to a command on a key.
pub(crate) fn reply(outcome: Outcome) -> Reply {
    match outcome {
        Outcome::Reply(reply) => reply,
        Outcome::NoQuorum => Reply::error(CLUSTERDOWN),
        Outcome::Unknown => Reply::error(UNKNOWN),
        Outcome::Loading => Reply::error(LOADING),
        Outcome::AlreadyDone => Reply::error(ALREADY_DONE),
        Outcome::Refused(refusal) => Reply::error(refusal_text(refusal)),
        Outcome::Unsupported("none") => Reply::error(
            "ERR this database is not configured, see [[database]] in the configuration",
        ),
        Outcome::Unsupported(protocol) => Reply::error(format!(
            "ERR not supported by protocol '{protocol}': it cannot change a value depending on what it was"
        )),
        Outcome::NoTransactions(protocol) => Reply::error(format!(
            "ERR not supported by protocol '{protocol}': it has no transactions, which commands on several keys and long ones need"
        )),
        Outcome::NoRetries(protocol) => Reply::error(format!(
            "ERR not supported by protocol '{protocol}': it does not remember commands, as ONCE needs"
        )),
        Outcome::NoUncommittedReads(protocol) => Reply::error(format!(
            "ERR not supported by protocol '{protocol}': it shows committed values only, see CLIENT CONSISTENCY"
        )),
        Outcome::Explained(explanation) => explain::reply(&explanation),
        Outcome::Held(_) | Outcome::Locked(_) => {
            Reply::error("ERR internal error: a transaction's outcome for a command")
        }
        Outcome::Listed { .. } => Reply::error("ERR internal error: a listing for a command"),
    }
}

fn refusal_text(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NoRoom => {
            "TRYAGAIN the key remembers as many sessions as it can, all of them younger than once-window"
        }
        Refusal::Older => "ERR ONCE a command with a higher seq of this session ran before",
        Refusal::Conflict => {
            "TRYAGAIN the transaction met others for too long; it had no effect, retry freely"
        }
        Refusal::TooLate => "ERR ONCE too late",
    }
}

pub(crate) fn is_error(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Reply(reply) => reply.is_error(),
        Outcome::Explained(_) => false,
        _ => true,
    }
}

/// About as many bytes as the outcome takes on a connection.
pub(crate) fn len(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Reply(reply) => reply.len(),
        _ => 0,
    }
}

/// The outcome of a command on several keys out of those of its keys, in their order.
pub(crate) fn of_parts(parts: Vec<Outcome>, combine: Combine, is_update: bool) -> Outcome {
    let mut replies = Vec::with_capacity(parts.len());
    let mut error: Option<Outcome> = None;
    for part in parts {
        match part {
            Outcome::Reply(reply) if !reply.is_error() => replies.push(reply),
            other => error = Some(error.map_or(other.clone(), |known| graver(known, other))),
        }
    }
    match error {
        Some(error) => of_several(error, is_update && !replies.is_empty()),
        None => Outcome::Reply(combine.replies(replies)),
    }
}

/// The outcome of a command of several parts, made of the error of one part. If other parts may
/// have had an effect, it does not deny that effect.
pub(crate) fn of_several(error: Outcome, others_changed: bool) -> Outcome {
    match error {
        Outcome::NoQuorum | Outcome::Loading if others_changed => Outcome::Unknown,
        _ => error,
    }
}

/// The graver of two errors in the parts of one command: an unknown effect outweighs none.
pub(crate) fn graver(one: Outcome, other: Outcome) -> Outcome {
    let weight = |outcome: &Outcome| match outcome {
        Outcome::Unknown => 2,
        Outcome::NoQuorum | Outcome::Loading => 1,
        _ => 0,
    };
    if weight(&other) > weight(&one) { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gravest_error_of_the_parts_is_told() {
        let one = || Outcome::Reply(Reply::Integer(1));
        let of = |parts: &[Outcome]| of_parts(parts.to_vec(), Combine::Sum, true);
        assert_eq!(of(&[one(), one()]), Outcome::Reply(Reply::Integer(2)));
        let mixed = [Outcome::NoQuorum, Outcome::Unknown, one()];
        assert_eq!(of(&mixed), Outcome::Unknown);
        assert_eq!(of(&[Outcome::Loading, Outcome::NoQuorum]), Outcome::Loading);
        assert_eq!(of(&[Outcome::NoQuorum, one()]), Outcome::Unknown, "a part had an effect");
        let error = Outcome::Reply(Reply::error("ERR x"));
        assert_eq!(of(&[one(), error.clone(), one()]), error);
    }
}
