//! A sequence: segments of steps for one of two connections. Within a segment nothing is waited for.

use std::fmt;

use base::Prng;
use resp::encode;

use super::commands::{self, Drawn};

/// Steps of a sequence at most.
const STEPS_MAX: u64 = 60;
/// Steps of a segment at most.
const PIPELINE_MAX: u64 = 16;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sequence {
    pub(super) segments: Vec<Segment>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    /// 0 or 1.
    pub connection: usize,
    /// How its bytes are cut: see [`crate::input::cut`].
    pub cuts: u64,
    pub steps: Vec<Step>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// As clients send it.
    Request(Vec<Vec<u8>>),
    /// As a person types it: words without blanks or quotes.
    Inline(Vec<Vec<u8>>),
    /// Bytes that say something other than one command with one reply.
    Raw(Vec<u8>),
}

impl Step {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Step::Request(args) => encode::request(out, args),
            Step::Inline(args) => {
                out.extend(args.join(&b' '));
                out.extend_from_slice(b"\r\n");
            }
            Step::Raw(bytes) => out.extend_from_slice(bytes),
        }
    }
}

impl Segment {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.steps.iter().for_each(|step| step.write(&mut out));
        out
    }

    pub(super) fn is_malformed(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Raw(_)))
    }

    /// The command of each reply, where that is certain.
    pub(super) fn commands(&self) -> Option<Vec<&[Vec<u8>]>> {
        let command = |step| match step {
            &Step::Request(ref args) | &Step::Inline(ref args) => Some(args.as_slice()),
            Step::Raw(_) => None,
        };
        self.steps.iter().map(command).collect()
    }
}

impl Sequence {
    /// The sequence of this number. `collections`: with commands on lists, sets, hashes and sorted
    /// sets.
    #[must_use]
    pub fn draw(seed: u64, collections: bool) -> Sequence {
        let mut prng = Prng::new(seed);
        let mut left = prng.between(1, STEPS_MAX);
        let mut segments = Vec::new();
        while left > 0 {
            let count = prng.between(1, PIPELINE_MAX.min(left));
            segments.push(segment(&mut prng, count, collections));
            left -= count;
        }
        Sequence { segments }
    }
}

fn segment(prng: &mut Prng, count: u64, collections: bool) -> Segment {
    let connection = usize::from(prng.chance_ppm(200_000));
    let cuts = match prng.below(10) {
        0 => prng.next_u64().max(2),
        1 => 1,
        _ => 0,
    };
    let mut steps = Vec::new();
    let is_wild = prng.chance_ppm(60_000);
    for _ in 0..count {
        if is_wild && prng.chance_ppm(300_000) {
            steps.push(Step::Raw(commands::raw(prng)));
            continue;
        }
        let Drawn { args, must_be_first, must_settle } = commands::draw(prng, is_wild, collections);
        if must_be_first && !steps.is_empty() {
            continue;
        }
        let is_plain = |arg: &Vec<u8>| {
            !arg.is_empty()
                && arg.iter().all(|b| b.is_ascii_alphanumeric() || b".-+:_*".contains(b))
        };
        let is_inline = prng.chance_ppm(50_000) && args.iter().all(is_plain) && args[0][0] != b'*';
        steps.push(if is_inline { Step::Inline(args) } else { Step::Request(args) });
        if must_settle {
            break;
        }
    }
    // Single bytes take long.
    let len: usize = steps.len();
    let cuts = if cuts == 1 && len > 3 { 0 } else { cuts };
    Segment { connection, cuts, steps }
}

/// A command as one would type it.
pub(super) fn show(args: &[Vec<u8>]) -> String {
    let word = |arg: &Vec<u8>| {
        let text = arg.escape_ascii().to_string();
        if text.is_empty() || text.contains(' ') { format!("\"{text}\"") } else { text }
    };
    args.iter().map(word).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            let cuts = if segment.cuts == 0 { "" } else { ", cut into pieces" };
            writeln!(f, "connection {}{cuts}:", segment.connection)?;
            for step in &segment.steps {
                match step {
                    Step::Request(args) => writeln!(f, "  > {}", show(args))?,
                    Step::Inline(args) => writeln!(f, "  > {}  (inline)", show(args))?,
                    Step::Raw(bytes) => writeln!(f, "  > bytes \"{}\"", bytes.escape_ascii())?,
                }
            }
        }
        Ok(())
    }
}
