//! Explanations: the record of each replica of a key, for people.

use base::checksum;
use types::explain::{Held, Record};

use super::register::Report;

/// The newest state of a replica: its vote, if it has one.
pub(super) fn held(report: &Report) -> Held {
    let vote = report.accepted.as_ref().map(|(ballot, state, left)| (*ballot, state, *left));
    let committed = report.committed.as_ref().map(|it| (report.promised, it, report.countdown));
    let Some((ballot, state, countdown)) = vote.or(committed) else { return Held::Absent };
    let value: &[u8] = state.value.as_deref().unwrap_or_default();
    let round = match &report.accepted {
        Some(_) => format!("{}:{}.{}", state.slot, ballot.number, ballot.writer.0),
        None => format!("{}", state.slot),
    };
    Held::Present(Record {
        round,
        version: state.slot,
        is_tombstone: state.value.is_none(),
        value_len: value.len(),
        checksum: checksum::hash(value),
        rest: countdown.rest(),
    })
}
