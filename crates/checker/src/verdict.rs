//! Verdicts of a check, and the explanation of a violation for people.

use std::fmt;

use crate::history::OpId;
use crate::timeline::Timeline;

/// How far a check may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// Configurations entered. Memory grows with it: about 100 bytes and one state each.
    pub explored_max: u64,
}

impl Default for Limit {
    /// Two million configurations: seconds, and a few hundred megabytes at the very worst.
    fn default() -> Self {
        Limit { explored_max: 2_000_000 }
    }
}

/// The criterion of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Criterion {
    /// One order that respects real time.
    Linearizable,
    /// One order that respects real time and the program order of each client.
    LinearizableInSessions,
    /// One order that respects the program order of each client.
    Sequential,
    /// One order that respects the program order of each client, and real time among writes.
    SequentialWithOrderedWrites,
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Criterion::Linearizable => "linearizable",
            Criterion::LinearizableInSessions => "linearizable in the order of its sessions",
            Criterion::Sequential => "sequentially consistent",
            Criterion::SequentialWithOrderedWrites => "sequentially consistent with ordered writes",
        })
    }
}

/// The answer of a check.
#[derive(Clone, Debug)]
#[must_use]
pub enum Verdict {
    /// The criterion holds.
    Holds {
        /// An order that explains every answer: all operations that returned, and those of unknown
        /// outcome that took effect in it.
        order: Vec<OpId>,
    },
    /// No order explains every answer.
    Violation(Box<Violation>),
    /// The check met its limit first and has no verdict.
    Undecided {
        /// Configurations entered.
        explored: u64,
    },
}

impl Verdict {
    /// True only if the criterion was shown to hold.
    #[must_use]
    pub fn holds(&self) -> bool {
        matches!(self, Verdict::Holds { .. })
    }

    /// True only if the criterion was shown not to hold.
    #[must_use]
    pub fn is_violation(&self) -> bool {
        matches!(self, Verdict::Violation(_))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Holds { order } => write!(f, "holds: {} operations ordered", order.len()),
            Verdict::Violation(violation) => violation.fmt(f),
            Verdict::Undecided { explored } => {
                write!(f, "undecided: limit met after {explored} configurations")
            }
        }
    }
}

/// Why no order exists, as far as one dead end can tell. `Display` draws it.
#[derive(Clone, Debug)]
pub struct Violation {
    pub criterion: Criterion,
    /// The longest order found that explains the answers of its own operations.
    pub prefix: Vec<OpId>,
    /// The state after `prefix`, as the model prints it.
    pub state: String,
    /// The operation that could not be placed.
    ///
    /// The first to respond of those not in `prefix`, or one whose answer can never be right after
    /// it.
    pub blocked: OpId,
    /// Operations that overlap `blocked` in time, whether in `prefix` or not.
    pub concurrent: Vec<OpId>,
    /// How many operations returned, so had to be placed.
    pub required_count: usize,
    pub(crate) timeline: Timeline,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "not {}: operation {} cannot be placed", self.criterion, self.blocked)?;
        writeln!(
            f,
            "longest order found: {} operations, of {} that returned; state after it: {}",
            self.prefix.len(),
            self.required_count,
            self.state
        )?;
        write!(f, "{}", self.timeline)
    }
}
