//! Expiry by a vote [corrections F10]: a key vanishes only when a majority's countdowns of that
//! very deadline are over.
//!
//! Each acceptor counts in its own uptime, from the first state with the deadline's id that it
//! accepted. So no two clocks need to agree, and one wrong clock expires no key. The tombstone is
//! an ordinary proposal.

use base::Millis;

use crate::mutation::{self, Mutation};
use crate::replicas::{Places, Replicas};
use crate::rmwpaxos::message::Report;
use crate::rmwpaxos::progress::reports::Reports;
use crate::rmwpaxos::record::register::Countdown;
use crate::rmwpaxos::record::state::ExpiryId;

/// Majority votes for `id`, and the largest rest that is reported for it.
pub(crate) fn count_votes(
    reports: &Reports,
    replicas: Replicas<'_>,
    id: Option<ExpiryId>,
) -> (Places, Option<Millis>) {
    let Some(id) = id else { return (0, None) };
    let over = reports.places(replicas, |report| {
        report.countdown == Countdown::Over && has_deadline(reports, report, id)
    });
    let mut rest = None;
    for (_, report) in reports.counted(replicas) {
        if !has_deadline(reports, report, id) {
            continue;
        }
        match report.countdown {
            Countdown::Over => rest = rest.max(Some(Millis(0))),
            Countdown::Running(left) => rest = rest.max(Some(left)),
            Countdown::None => {}
        }
    }
    (over, rest)
}

/// True if the state reported has this deadline.
fn has_deadline(reports: &Reports, report: &Report, id: ExpiryId) -> bool {
    reports.state_of(report.accepted).and_then(|state| state.expiry_id()) == Some(id)
}

/// True if the replicas that find it over decide.
pub(crate) fn is_voted(replicas: Replicas<'_>, over: Places) -> bool {
    replicas.set.is_quorum_of(over) || (over != 0 && mutation::is(Mutation::ExpireByOne))
}
