//! Makes a sequence that differs as short as it can be while it still differs.

use anyhow::Result;

use super::{Segment, Sequence, Step};

/// Runs that shrinking may take.
const TRIES_MAX: usize = 400;

/// The shortest sequence found for which `differs` holds.
///
/// # Errors
/// Those of `differs`.
pub(super) fn shrink(
    sequence: &Sequence,
    mut differs: impl FnMut(&Sequence) -> Result<bool>,
) -> Result<Sequence> {
    let mut best = sequence.clone();
    let mut tries = 0;
    loop {
        let mut is_better = false;
        for shorter in candidates(&best) {
            tries += 1;
            if tries > TRIES_MAX {
                return Ok(best);
            }
            if differs(&shorter)? {
                best = shorter;
                is_better = true;
                break;
            }
        }
        if !is_better {
            return Ok(best);
        }
    }
}

/// Sequences that say less: large parts are left out first.
fn candidates(sequence: &Sequence) -> Vec<Sequence> {
    let segments = &sequence.segments;
    let mut all = Vec::new();
    let mut len = segments.len() / 2;
    while len > 0 {
        for start in (0..segments.len()).step_by(len) {
            let mut shorter = sequence.clone();
            shorter.segments.drain(start..(start + len).min(segments.len()));
            all.push(shorter);
        }
        len /= 2;
    }
    for (index, segment) in segments.iter().enumerate() {
        for changed in simpler(segment) {
            let mut shorter = sequence.clone();
            shorter.segments[index] = changed;
            all.push(shorter);
        }
    }
    all
}

fn simpler(segment: &Segment) -> Vec<Segment> {
    let mut all = Vec::new();
    let mut len = segment.steps.len() / 2;
    while len > 0 {
        for start in (0..segment.steps.len()).step_by(len) {
            let mut shorter = segment.clone();
            shorter.steps.drain(start..(start + len).min(segment.steps.len()));
            all.push(shorter);
        }
        len /= 2;
    }
    if segment.cuts != 0 {
        all.push(Segment { cuts: 0, ..segment.clone() });
    }
    for (index, step) in segment.steps.iter().enumerate() {
        let mut changed = segment.clone();
        match step {
            Step::Inline(args) => changed.steps[index] = Step::Request(args.clone()),
            Step::Request(args) if args.len() > 2 => {
                let mut args = args.clone();
                args.pop();
                changed.steps[index] = Step::Request(args);
            }
            Step::Request(_) | Step::Raw(_) => continue,
        }
        all.push(changed);
    }
    all
}
