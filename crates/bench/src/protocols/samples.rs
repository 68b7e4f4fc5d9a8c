//! Operations on checked keys, and the verdict of the checker on them.

use checker::history::History;
use checker::model::keyed::Keyed;
use checker::model::register::{Register, RegisterInput, RegisterOutput};
use checker::sequential::WriteOrder;
use checker::{ClientId, Limit, Outcome, Verdict, linearizable, sequential};
use protocols::Consistency;
use serde::Serialize;

use super::values::WriteId;

/// One operation on a checked key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// One at a time: a slot of a session.
    pub(super) client: u64,
    pub(super) key: u64,
    /// None: a read.
    pub(super) write: Option<WriteId>,
    pub(super) invoked: u64,
    pub(super) ended: Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Read {
        found: Option<WriteId>,
        at: u64,
    },
    Written {
        at: u64,
    },
    /// Surely without effect.
    Failed {
        at: u64,
    },
    Unknown,
}

/// The verdict on a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sampled {
    /// There is an order that explains all replies.
    Holds,
    /// The checker met its limit first.
    Undecided,
}

/// Checks operations of one window.
///
/// # Errors
/// The explanation of a violation.
pub(super) fn check(samples: &[Sample], consistency: Consistency) -> Result<Sampled, String> {
    let history = history(samples);
    let limit = Limit { explored_max: 500_000 };
    let verdicts = match consistency {
        Consistency::Linearizable => {
            linearizable::check_partitioned(&Register, &history, split, limit)
                .into_iter()
                .map(|(key, verdict)| (format!("key {key} is "), verdict))
                .collect()
        }
        Consistency::SequentialReads => {
            let model = Keyed::new(Register);
            let verdict = sequential::check(&model, &history, WriteOrder::RealTime, limit);
            vec![("the sample is ".to_string(), verdict)]
        }
    };
    let mut sampled = Sampled::Holds;
    for (name, verdict) in verdicts {
        match verdict {
            Verdict::Holds { .. } => {}
            Verdict::Undecided { .. } => sampled = Sampled::Undecided,
            Verdict::Violation(violation) => return Err(format!("{name}{violation}")),
        }
    }
    Ok(sampled)
}

fn split(input: &(u64, RegisterInput)) -> (&u64, &RegisterInput) {
    (&input.0, &input.1)
}

fn history(samples: &[Sample]) -> History<(u64, RegisterInput), RegisterOutput> {
    let mut sorted: Vec<&Sample> = samples.iter().collect();
    sorted.sort_by_key(|sample| sample.invoked);
    let mut history = History::new();
    for sample in sorted {
        let input = match sample.write {
            None => RegisterInput::Read,
            Some(write) => RegisterInput::Write(write.0),
        };
        let operation =
            history.invoke(ClientId(sample.client), (sample.key, input), sample.invoked);
        let (outcome, at) = match sample.ended {
            Ended::Read { found, at } => {
                (Outcome::Returned(RegisterOutput::Value(found.map(|write| write.0))), at)
            }
            Ended::Written { at } => (Outcome::Returned(RegisterOutput::Written), at),
            Ended::Failed { at } => (Outcome::Failed, at),
            Ended::Unknown => (Outcome::Unknown, sample.invoked),
        };
        history.complete(operation, outcome, at);
    }
    history
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(client: u64, sequence: u64, (invoked, at): (u64, u64)) -> Sample {
        let write = Some(WriteId::new(client as u32, sequence));
        Sample { client, key: 1, write, invoked, ended: Ended::Written { at } }
    }

    fn read(client: u64, found: Option<(u32, u64)>, (invoked, at): (u64, u64)) -> Sample {
        let found = found.map(|(session, sequence)| WriteId::new(session, sequence));
        Sample { client, key: 1, write: None, invoked, ended: Ended::Read { found, at } }
    }

    #[test]
    fn stale_read_is_no_linearizable_one() {
        let stale = [write(1, 1, (0, 1)), read(2, None, (2, 3))];
        assert!(check(&stale, Consistency::Linearizable).is_err());
        assert_eq!(check(&stale, Consistency::SequentialReads), Ok(Sampled::Holds));
    }

    #[test]
    fn session_that_goes_back_is_not_sequential() {
        let back = [write(1, 1, (0, 1)), read(2, Some((1, 1)), (2, 3)), read(2, None, (4, 5))];
        assert!(check(&back, Consistency::SequentialReads).is_err());
    }

    #[test]
    fn unknown_write_may_be_read() {
        let mut unknown = write(1, 1, (0, 1));
        unknown.ended = Ended::Unknown;
        let seen = [unknown, read(2, Some((1, 1)), (5, 6))];
        assert_eq!(check(&seen, Consistency::Linearizable), Ok(Sampled::Holds));
    }
}
