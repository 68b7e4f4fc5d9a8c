//! `/readyz`: whether the node can serve, and whether it takes writes.

use std::fmt::Write as _;

use axum::http::StatusCode;
use node::status::{NodeStatus, Phase, WriteRefusal};

use crate::status::{helpful, phase};

/// Options of a readiness probe.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Question {
    /// Writes count, too.
    pub(crate) writes: bool,
    /// Show each check.
    pub(crate) verbose: bool,
}

/// One word for the state of writes: `ok`, or why they are refused.
pub(crate) fn writes(status: &NodeStatus) -> String {
    match status.writes_refused {
        None => "ok".into(),
        Some(reason) => format!("refused ({reason})"),
    }
}

/// Status code and text of `/readyz`.
pub(crate) fn readiness(status: &NodeStatus, question: Question) -> (StatusCode, String) {
    let is_ready = status.ready && !(question.writes && status.writes_refused.is_some());
    let mut text = String::new();
    if question.verbose {
        for (name, result) in checks(status) {
            let _ = match result {
                Ok(()) => writeln!(text, "[+]{name} ok"),
                Err(reason) => writeln!(text, "[-]{name} failed: {reason}"),
            };
        }
        for member in &status.members {
            if let Some(reason) = &member.refused {
                let _ = writeln!(text, "[-]node {} refused: {reason}", member.node);
            }
        }
    }
    text.push_str(if is_ready { "ready\n" } else { "not ready\n" });
    if status.writes_refused.is_some() {
        let _ = writeln!(text, "writes: {}", writes(status));
    }
    let code = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, text)
}

/// Name of each check, and why it fails.
fn checks(status: &NodeStatus) -> [(&'static str, Result<(), String>); 4] {
    let members = status.members.len();
    let quorum = members / 2 + 1;
    let helpful = helpful(status);
    let when = |fails: bool, reason: String| if fails { Err(reason) } else { Ok(()) };
    let formed = when(status.phase != Phase::Formed, phase(&status.phase));
    let too_few = format!("{helpful} of {members} members can help, {quorum} are needed");
    let memory = when(status.loading, "state is not recovered yet".into());
    let reason = status.writes_refused.map(|reason| reason.to_string());
    [
        ("formed", formed),
        ("quorum", when(helpful < quorum, too_few)),
        ("memory", memory),
        ("writes", reason.map_or(Ok(()), Err)),
    ]
}

/// All reasons, for a metric with one series each.
pub(crate) fn refusals(status: &NodeStatus) -> impl Iterator<Item = (WriteRefusal, bool)> {
    let now = status.writes_refused;
    WriteRefusal::ALL.into_iter().map(move |reason| (reason, now == Some(reason)))
}
