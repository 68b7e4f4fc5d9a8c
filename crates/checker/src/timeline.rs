//! The operations around a dead end, as a table with a line of time for each.
//!
//! ```text
//!   op  client  time      invoked  responded  call
//!   #0  1       |---|           0         10  Write(1) -> Written  placed 1st
//! ```

use std::fmt;

use crate::history::OpId;
use crate::model::Model;
use crate::prepared::{Prepared, PreparedCall};
use crate::search::DeadEnd;
use crate::verdict::{Criterion, Violation};

/// Most rows drawn that overlap the blocked operation.
const CONCURRENT_ROWS_MAX: usize = 32;
/// How many of the last operations placed are drawn.
const PREFIX_ROWS_MAX: usize = 8;
/// Characters of the line of time.
const LINE_WIDTH: usize = 32;
/// Characters of a call or state drawn before it is cut off.
const TEXT_WIDTH: usize = 100;

/// Drawn by `Display`.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    // By invocation.
    rows: Vec<TimelineRow>,
}

#[derive(Clone, Debug)]
struct TimelineRow {
    id: OpId,
    client: u64,
    invoked: u64,
    responded: Option<u64>,
    call: String,
    place: Placement,
}

#[derive(Clone, Copy, Debug)]
enum Placement {
    /// Counted from 1.
    At(usize),
    Blocked,
    NotPlaced,
    Failed,
}

/// Explains a dead end of a search over `prepared`.
pub(crate) fn explain<M: Model>(
    criterion: Criterion,
    prepared: &Prepared<'_, M>,
    dead_end: DeadEnd<M::State>,
) -> Violation {
    let blocked = &prepared.required[dead_end.blocked];
    let overlaps = |call: &PreparedCall<'_, M>| {
        call.id != blocked.id
            && call.invoked <= blocked.responded
            && call.responded >= blocked.invoked
    };
    let mut concurrent: Vec<OpId> =
        all(prepared).filter(|(call, _)| overlaps(call)).map(|(call, _)| call.id).collect();
    concurrent.sort_unstable();
    Violation {
        criterion,
        state: cut_off(format!("{:?}", dead_end.state)),
        blocked: blocked.id,
        timeline: Timeline { rows: rows(prepared, &dead_end.prefix, blocked.id, &concurrent) },
        concurrent,
        required_count: prepared.required.iter().filter(|call| call.output.is_some()).count(),
        prefix: dead_end.prefix,
    }
}

/// Every call, with whether it failed.
fn all<'p, 'a, M: Model>(
    prepared: &'p Prepared<'a, M>,
) -> impl Iterator<Item = (&'p PreparedCall<'a, M>, bool)> {
    let placeable = prepared.required.iter().chain(&prepared.optional).map(|call| (call, false));
    placeable.chain(prepared.left_out.iter().map(|out| (&out.call, out.is_failed)))
}

fn rows<M: Model>(
    prepared: &Prepared<'_, M>,
    prefix: &[OpId],
    blocked: OpId,
    concurrent: &[OpId],
) -> Vec<TimelineRow> {
    // Those recorded last are nearest to the blocked operation.
    let around = &concurrent[concurrent.len().saturating_sub(CONCURRENT_ROWS_MAX)..];
    let last_placed = &prefix[prefix.len().saturating_sub(PREFIX_ROWS_MAX)..];
    let is_shown = |id: OpId| id == blocked || around.contains(&id) || last_placed.contains(&id);
    let mut rows: Vec<TimelineRow> = all(prepared)
        .filter(|(call, _)| is_shown(call.id))
        .map(|(call, is_failed)| {
            let placed = prefix.iter().position(|id| *id == call.id);
            let place = match placed {
                _ if call.id == blocked => Placement::Blocked,
                _ if is_failed => Placement::Failed,
                Some(at) => Placement::At(at + 1),
                None => Placement::NotPlaced,
            };
            row(call, place)
        })
        .collect();
    rows.sort_by_key(|row| (row.invoked, row.id));
    rows
}

fn row<M: Model>(call: &PreparedCall<'_, M>, place: Placement) -> TimelineRow {
    let answer = match (call.output, place) {
        (Some(output), _) => format!("{output:?}"),
        (None, Placement::Failed) => "failed".to_owned(),
        (None, _) => "unknown".to_owned(),
    };
    TimelineRow {
        id: call.id,
        client: call.client.0,
        invoked: call.invoked,
        responded: (call.responded != u64::MAX).then_some(call.responded),
        call: cut_off(format!("{:?} -> {answer}", call.input)),
        place,
    }
}

fn cut_off(text: String) -> String {
    if text.chars().count() <= TEXT_WIDTH {
        return text;
    }
    // Keep both ends of a long text: the input and the answer.
    let chars: Vec<char> = text.chars().collect();
    let half = TEXT_WIDTH / 2 - 2;
    let start: String = chars[..half].iter().collect();
    let end: String = chars[chars.len() - half..].iter().collect();
    format!("{start} .. {end}")
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = self.rows.iter().map(|row| row.invoked).min().unwrap_or(0);
        let times = self.rows.iter().flat_map(|row| [Some(row.invoked), row.responded]);
        let to = times.flatten().max().unwrap_or(from);
        writeln!(
            f,
            "  {:<8} {:<7} {:<LINE_WIDTH$} {:>14} {:>14}  {:<10} call",
            "op", "client", "time", "invoked", "responded", "placed"
        )?;
        for row in &self.rows {
            let mark = if matches!(row.place, Placement::Blocked) { '>' } else { ' ' };
            let responded = row.responded.map_or("-".to_owned(), |at| at.to_string());
            writeln!(
                f,
                "{mark} {:<8} {:<7} {:<LINE_WIDTH$} {:>14} {:>14}  {:<10} {}",
                row.id.to_string(),
                row.client,
                line(row, from, to),
                row.invoked,
                responded,
                row.place.to_string(),
                row.call
            )?;
        }
        Ok(())
    }
}

/// `|---|` from invocation to response, `|--->` when it never responded.
fn line(row: &TimelineRow, from: u64, to: u64) -> String {
    let column = |at: u64| {
        let span = u128::from(to - from).max(1);
        let offset = u128::from(at - from) * (LINE_WIDTH as u128 - 1) / span;
        usize::try_from(offset).expect("a column is below LINE_WIDTH")
    };
    let start = column(row.invoked);
    let (end, tip) = row.responded.map_or((LINE_WIDTH - 1, '>'), |at| (column(at), '|'));
    let body = "-".repeat(end.saturating_sub(start + 1));
    let tip = if end > start { tip.to_string() } else { String::new() };
    format!("{}|{body}{tip}", " ".repeat(start))
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::At(at) => write!(f, "{at}"),
            Placement::Blocked => f.write_str("CANNOT"),
            Placement::NotPlaced => f.write_str("not yet"),
            Placement::Failed => f.write_str("never"),
        }
    }
}
