//! Arguments behind `numkeys`.

use base::decimal::parse_i64;
use values::double;

use super::{Operator, Use};
use crate::errors::{self, ErrorReply};
use crate::plan::Arguments;

const WEIGHT: ErrorReply = errors::fixed(b"ERR weight value is not a float");
const LIMIT: ErrorReply = errors::fixed(b"ERR LIMIT can't be negative");

/// The sources. Argument `at` is their number.
///
/// # Errors
/// The reply to send.
pub(super) fn keys<'b>(args: &Arguments<'b>, at: usize) -> Result<&'b [&'b [u8]], ErrorReply> {
    let numkeys = parse_i64(args.all[at]).ok_or(errors::NOT_AN_INTEGER)?;
    if numkeys < 1 {
        let name = args.spec.name;
        let text = format!("ERR at least 1 input key is needed for '{name}' command");
        return Err(ErrorReply::new(text.as_bytes()));
    }
    let keys = usize::try_from(numkeys).ok().and_then(|count| args.all[at + 1..].get(..count));
    keys.ok_or(errors::SYNTAX)
}

pub(super) struct Options {
    /// Of the sources, in their order. Empty: all are 1.
    pub(super) weights: Vec<f64>,
    pub(super) aggregate: Aggregate,
    pub(super) with_scores: bool,
    pub(super) limit: Option<usize>,
}

/// The score of a member out of its scores in two sources.
#[derive(Clone, Copy)]
pub(super) enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn parse(word: &[u8]) -> Result<Aggregate, ErrorReply> {
        match word.to_ascii_uppercase().as_slice() {
            b"SUM" => Ok(Aggregate::Sum),
            b"MIN" => Ok(Aggregate::Min),
            b"MAX" => Ok(Aggregate::Max),
            _ => Err(errors::SYNTAX),
        }
    }

    /// `new` may be NaN; the result is not.
    pub(super) fn of(self, old: f64, new: f64) -> f64 {
        match self {
            Aggregate::Sum => super::zero_if_nan(old + new),
            Aggregate::Min => {
                if new < old {
                    new
                } else {
                    old
                }
            }
            Aggregate::Max => {
                if new > old {
                    new
                } else {
                    old
                }
            }
        }
    }
}

impl Options {
    /// # Errors
    /// The reply to send.
    pub(super) fn parse(
        mut args: &[&[u8]],
        numkeys: usize,
        operator: Operator,
        to: Use,
    ) -> Result<Options, ErrorReply> {
        let mut options = Options {
            weights: Vec::new(),
            aggregate: Aggregate::Sum,
            with_scores: false,
            limit: None,
        };
        let has_scores = operator != Operator::Difference && to != Use::Count;
        while let [word, rest @ ..] = args {
            args = match (word.to_ascii_uppercase().as_slice(), rest) {
                (b"WEIGHTS", rest) if has_scores && rest.len() >= numkeys => {
                    let (weights, rest) = rest.split_at(numkeys);
                    let weight = |text: &&[u8]| double::parse(text).ok_or(WEIGHT);
                    options.weights = weights.iter().map(weight).collect::<Result<_, _>>()?;
                    rest
                }
                (b"AGGREGATE", [aggregate, rest @ ..]) if has_scores => {
                    options.aggregate = Aggregate::parse(aggregate)?;
                    rest
                }
                (b"WITHSCORES", rest) if to == Use::Answer => {
                    options.with_scores = true;
                    rest
                }
                (b"LIMIT", [limit, rest @ ..]) if to == Use::Count => {
                    let limit = parse_i64(limit).and_then(|limit| usize::try_from(limit).ok());
                    // Zero is no limit.
                    options.limit = Some(limit.ok_or(LIMIT)?).filter(|&limit| limit > 0);
                    rest
                }
                _ => return Err(errors::SYNTAX),
            };
        }
        Ok(options)
    }
}
