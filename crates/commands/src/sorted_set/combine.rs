//! `ZUNION`, `ZINTER` and `ZDIFF`, `ZINTERCARD`, and the commands that store such results.

mod options;
mod rows;

use types::Reply;
use values::lookup::{self, Index};
use values::set::Set;
use values::sorted_set::Element;
use values::{Kind, SortedSet};

use crate::context::Context;
use crate::errors::ErrorReply;
use crate::plan::Arguments;
use crate::sorted_set::{elements_reply, store};
use crate::space::{Halt, Space};
use crate::work;

use options::{Aggregate, Options};

pub(super) use rows::MODULE;

/// Variants of the commands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operator {
    Union,
    Intersection,
    Difference,
}

/// The use of a result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Answer,
    Store,
    Count,
}

fn run(
    args: &Arguments<'_>,
    space: &mut Space,
    operator: Operator,
    to: Use,
) -> Result<Reply, Halt> {
    let first = if to == Use::Store { 2 } else { 1 };
    let keys = options::keys(args, first)?;
    let mut sources = Vec::new();
    for key in keys {
        sources.push(Source { elements: elements_of(&space.context(key)?)?, weight: 1.0 });
    }
    let options = Options::parse(&args.all[first + 1 + keys.len()..], keys.len(), operator, to)?;
    let count: usize = sources.iter().map(|source| source.elements.len()).sum();
    space.charge(count as u64 * work::ORDERED)?;
    for (source, weight) in sources.iter_mut().zip(&options.weights) {
        source.weight = *weight;
    }
    let elements = combine(sources, operator, options.aggregate, args.clock.seed);
    match to {
        Use::Answer => {
            let mut elements = elements;
            elements.sort_unstable_by(Element::order);
            Ok(elements_reply(&elements, options.with_scores))
        }
        Use::Count => {
            let most = options.limit.unwrap_or(usize::MAX);
            Ok(Reply::Integer(elements.len().min(most) as i64))
        }
        Use::Store => {
            let count = elements.len() as i64;
            let value = store::value_of_all(elements);
            store::put(space, args.all[1], value)?;
            Ok(Reply::Integer(count))
        }
    }
}

/// A key's elements, and the factor of their scores.
struct Source<'a> {
    elements: Vec<Element<'a>>,
    weight: f64,
}

/// Members of a set count as elements of score 1.
fn elements_of<'a>(cx: &Context<'a>) -> Result<Vec<Element<'a>>, ErrorReply> {
    if cx.view.value.is_some_and(|value| Kind::of(value) == Ok(Kind::Set)) {
        let set = cx.set()?.unwrap_or(Set::EMPTY);
        return Ok(set.iter().map(|member| Element { score: 1.0, member }).collect());
    }
    Ok(cx.sorted_set()?.unwrap_or(SortedSet::EMPTY).iter().collect())
}

/// Elements in any order.
fn combine<'a>(
    mut sources: Vec<Source<'a>>,
    operator: Operator,
    aggregate: Aggregate,
    seed: u64,
) -> Vec<Element<'a>> {
    if operator != Operator::Difference {
        // As redis-server: sums of fractions depend on the order.
        sources.sort_by_key(|source| source.elements.len());
    }
    let Some((first, others)) = sources.split_first() else { return Vec::new() };
    let mut result: Combined<'_> = lookup::index(seed);
    for element in &first.elements {
        let score = first.weight * element.score;
        result.insert(element.member, (zero_if_nan(score), 1));
    }
    for (number, source) in (1..).zip(others) {
        for element in &source.elements {
            let score = source.weight * element.score;
            match operator {
                Operator::Union => {
                    let score = zero_if_nan(score);
                    let unite = |(sum, _): &mut (f64, usize)| *sum = aggregate.of(*sum, score);
                    result.entry(element.member).and_modify(unite).or_insert((score, 1));
                }
                Operator::Intersection => {
                    if let Some((sum, sources)) = result.get_mut(element.member)
                        && *sources == number
                    {
                        *sum = aggregate.of(*sum, score);
                        *sources += 1;
                    }
                }
                Operator::Difference => drop(result.remove(element.member)),
            }
        }
    }
    let is_there = |sources| operator != Operator::Intersection || sources == others.len() + 1;
    let all = result.into_iter().filter(|(_, (_, sources))| is_there(*sources));
    all.map(|(member, (score, _))| Element { score, member }).collect()
}

/// Scores by member, each with the number of sources that it comes from.
type Combined<'a> = Index<'a, (f64, usize)>;

/// Infinity times zero counts as zero.
fn zero_if_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}
