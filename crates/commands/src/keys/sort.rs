//! `SORT` and `SORT_RO`.
//!
//! Patterns name keys that no argument names. The runner asks for all that one pattern needs.

use std::cmp::Ordering;
use std::ops::Range;

use base::decimal::parse_i64;
use types::{Change, ExpiryChange, Reply, TimeToLive};
use values::{Kind, SortedSet, blobs, list, set};

use super::pattern::Pattern;
use crate::context::Context;
use crate::elements::check_reply_len;
use crate::errors::{self, ErrorReply};
use crate::row::*;
use crate::space::{Halt, Space};
use crate::spec::KeyRange;
use crate::work;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: &[] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "sort",
        summary: "Answers or stores the elements of a list, set or sorted set in order.",
        arguments: &[KEY, BY, LIMIT, GET, ORDER, ALPHA, STORE],
        flags: &[Write, DenyOom],
        more_keys: &[OF_PATTERNS, DESTINATION],
        access: Some(Access::Update),
        execution: Keys(sort),
        ..SORT
    },
    CommandSpec {
        name: "sort_ro",
        since: "7.0.0",
        summary: "Answers the elements of a list, set or sorted set in order.",
        arguments: &[KEY, BY, LIMIT, GET, ORDER, ALPHA],
        flags: &[Readonly],
        more_keys: &[OF_PATTERNS],
        access: Some(Access::Read),
        execution: Keys(sort_read_only),
        ..SORT
    },
];

const SORT: CommandSpec = CommandSpec {
    arity: AtLeast(2),
    complexity: "O(N*log(N)) where N is the number of elements.",
    categories: &[Category::Set, Category::SortedSet, Category::List, Category::Dangerous],
    keys: one_key(&["RO", "access"]),
    is_heavy: true,
    ..GENERIC
};

const KEY: Argument = Argument::key();
const BY: Argument = Argument::new("by-pattern", ArgumentKind::Pattern).after("BY").optional();
const LIMIT: Argument =
    Argument::block("limit", &[Argument::integer("offset"), Argument::integer("count")])
        .after("LIMIT")
        .optional();
const GET: Argument =
    Argument::new("get-pattern", ArgumentKind::Pattern).after("GET").optional().multiple();
const ORDER: Argument =
    Argument::one_of("order", &[Argument::word("asc", "ASC"), Argument::word("desc", "DESC")])
        .optional();
const ALPHA: Argument = Argument::word("sorting", "ALPHA").optional();
const STORE: Argument = Argument::new("destination", ArgumentKind::Key).after("STORE").optional();

/// The notes are those that clients read in Redis' table.
const OF_PATTERNS: KeyRange = hidden_keys(
    &["RO", "access"],
    "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort",
);
const DESTINATION: KeyRange = KeyRange {
    notes: "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument array",
    ..key_after("STORE", 2, &["OW", "update"])
};

const NO_SCORE: ErrorReply =
    errors::fixed(b"ERR One or more scores can't be converted into double");

/// Bytes of a reply besides its elements, for each.
const ELEMENT_OVERHEAD: usize = 16;

fn sort(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let options = Options::parse(&args.all[2..], true)?;
    let Some(destination) = options.destination else {
        return answer(args.all[1], &options, space);
    };
    store(args.all[1], destination, &options, space)
}

fn sort_read_only(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    answer(args.all[1], &Options::parse(&args.all[2..], false)?, space)
}

fn answer(key: &[u8], options: &Options<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let (mut replies, mut len) = (Vec::new(), 0);
    visit(key, options, space, |found| {
        len += found.map_or(0, <[u8]>::len) + ELEMENT_OVERHEAD;
        replies.push(Reply::copy_or_null(found));
        check_reply_len(len)
    })?;
    Ok(Reply::Array(replies))
}

/// A missing string counts as an empty one.
fn store(
    key: &[u8],
    destination: &[u8],
    options: &Options<'_>,
    space: &mut Space,
) -> Result<Reply, Halt> {
    let target = space.context(destination)?;
    let (exists, max) = (target.exists(), target.max_value_len);
    let (mut elements, mut count) = (Vec::new(), 0);
    visit(key, options, space, |found| {
        blobs::put(&mut elements, found.unwrap_or_default());
        count += 1;
        let len = list::OVERHEAD + elements.len();
        if len > max { Err(errors::value_too_large(len as u64, max)) } else { Ok(()) }
    })?;
    if count > 0 {
        let encoding = crate::list::encoding_of(&elements);
        let value = list::encode_parts(encoding, &[&elements]);
        let expiry = ExpiryChange::Set(TimeToLive::Never);
        space.change(destination, Change::Put { value, expiry })?;
    } else if exists {
        space.change(destination, Change::Delete)?;
    }
    Ok(Reply::Integer(count))
}

/// Visits the strings of the reply in order.
fn visit(
    key: &[u8],
    options: &Options<'_>,
    space: &mut Space,
    mut visitor: impl FnMut(Option<&[u8]>) -> Result<(), ErrorReply>,
) -> Result<(), Halt> {
    space.charge(options.work(Elements::of(&space.context(key)?)?.all.len()))?;
    need_weights(key, options, space)?;
    let elements = selected(key, options, space)?;
    need(space, elements.iter().map(Vec::as_slice), &options.gets)?;
    for element in &elements {
        if options.gets.is_empty() {
            visitor(Some(element))?;
        }
        for pattern in &options.gets {
            visitor(pattern.find(element, space)?)?;
        }
    }
    Ok(())
}

/// Asks for the keys that `BY` names.
fn need_weights(key: &[u8], options: &Options<'_>, space: &mut Space) -> Result<(), Halt> {
    let Some(pattern) = options.by.filter(|_| !options.is_unsorted) else { return Ok(()) };
    let elements = Elements::of(&space.context(key)?)?;
    let keys: Vec<Vec<u8>> =
        elements.all.iter().filter_map(|element| pattern.key(element)).collect();
    space.need(keys)
}

/// Asks for the keys that patterns name for elements.
fn need<'e>(
    space: &mut Space,
    elements: impl Iterator<Item = &'e [u8]>,
    patterns: &[Pattern<'_>],
) -> Result<(), Halt> {
    let keys = elements.flat_map(|element| patterns.iter().filter_map(|it| it.key(element)));
    space.need(keys)
}

/// The elements in the order and the range that the options ask for.
fn selected(key: &[u8], options: &Options<'_>, space: &Space) -> Result<Vec<Vec<u8>>, Halt> {
    let Elements { all, is_set } = Elements::of(&space.context(key)?)?;
    let range = options.range(all.len());
    let needs_order = options.destination.is_some() || space.is_scripted();
    let sorted = match (options.is_unsorted, is_set && needs_order) {
        // A set has no order of its own. A stored list must have one, and scripts rely on one.
        (true, true) => {
            order(all, &Options { by: None, is_alpha: true, ..options.clone() }, space)?
        }
        (true, false) => unsorted(all, is_set, options),
        (false, _) => order(all, options, space)?,
    };
    Ok(sorted[range].iter().map(|element| element.to_vec()).collect())
}

fn unsorted<'s>(mut all: Vec<&'s [u8]>, is_set: bool, options: &Options<'_>) -> Vec<&'s [u8]> {
    if options.is_descending && !is_set {
        all.reverse();
    }
    all
}

fn order<'s>(
    all: Vec<&'s [u8]>,
    options: &Options<'_>,
    space: &'s Space,
) -> Result<Vec<&'s [u8]>, Halt> {
    let mut weighed = Vec::with_capacity(all.len());
    for element in all {
        let text = match options.by {
            Some(pattern) => pattern.find(element, space)?,
            None => Some(element),
        };
        weighed.push((Weight::of(text, options.is_alpha)?, element));
    }
    weighed.sort_by(|(weight, element), (other_weight, other)| {
        let by_name = if options.is_alpha { Ordering::Equal } else { element.cmp(other) };
        let ascending = weight.order(other_weight).then(by_name);
        if options.is_descending { ascending.reverse() } else { ascending }
    });
    Ok(weighed.into_iter().map(|(_, element)| element).collect())
}

/// The place of an element among the others.
enum Weight<'s> {
    Number(f64),
    /// A missing text comes before all others.
    Text(Option<&'s [u8]>),
}

impl<'s> Weight<'s> {
    fn of(text: Option<&'s [u8]>, is_alpha: bool) -> Result<Weight<'s>, ErrorReply> {
        match text {
            text if is_alpha => Ok(Weight::Text(text)),
            None => Ok(Weight::Number(0.0)),
            Some(text) => number(text).map(Weight::Number).ok_or(NO_SCORE),
        }
    }

    fn order(&self, other: &Weight<'_>) -> Ordering {
        match (self, other) {
            (Weight::Number(a), Weight::Number(b)) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
            (Weight::Text(a), Weight::Text(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }
}

/// Reads a number as C does: blanks may stand in front, a zero byte ends the text, an empty text
/// is 0. `None` for numbers too large or too small.
fn number(text: &[u8]) -> Option<f64> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_blank(byte))?;
    values::double::parse(&text[start..]).filter(|number| !number.is_subnormal())
}

struct Elements<'s> {
    /// In the order of the value.
    all: Vec<&'s [u8]>,
    is_set: bool,
}

impl<'s> Elements<'s> {
    fn of(cx: &Context<'s>) -> Result<Elements<'s>, ErrorReply> {
        let Some(value) = cx.view.value else {
            return Ok(Elements { all: Vec::new(), is_set: false });
        };
        let (all, is_set) = match Kind::of(value)? {
            Kind::List => (list::decode(value)?.elements.iter().collect(), false),
            Kind::Set => (set::decode(value)?.iter().collect(), true),
            Kind::SortedSet => {
                (SortedSet::decode(value)?.iter().map(|element| element.member).collect(), false)
            }
            _ => return Err(errors::WRONG_TYPE),
        };
        Ok(Elements { all, is_set })
    }
}

#[derive(Clone)]
struct Options<'a> {
    is_descending: bool,
    is_alpha: bool,
    offset: i64,
    count: i64,
    by: Option<Pattern<'a>>,
    /// `BY` named a constant.
    is_unsorted: bool,
    gets: Vec<Pattern<'a>>,
    destination: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(mut rest: &[&'a [u8]], allows_store: bool) -> Result<Options<'a>, ErrorReply> {
        let mut options = Options {
            is_descending: false,
            is_alpha: false,
            offset: 0,
            count: -1,
            by: None,
            is_unsorted: false,
            gets: Vec::new(),
            destination: None,
        };
        while let [word, tail @ ..] = rest {
            rest = match (word.to_ascii_uppercase().as_slice(), tail) {
                (b"ASC", tail) => {
                    options.is_descending = false;
                    tail
                }
                (b"DESC", tail) => {
                    options.is_descending = true;
                    tail
                }
                (b"ALPHA", tail) => {
                    options.is_alpha = true;
                    tail
                }
                (b"LIMIT", [offset, count, tail @ ..]) => {
                    options.offset = parse_i64(offset).ok_or(errors::NOT_AN_INTEGER)?;
                    options.count = parse_i64(count).ok_or(errors::NOT_AN_INTEGER)?;
                    tail
                }
                (b"STORE", [destination, tail @ ..]) if allows_store => {
                    options.destination = Some(destination);
                    tail
                }
                (b"BY", [pattern, tail @ ..]) => {
                    let pattern = Pattern::parse(pattern);
                    options.is_unsorted |= !matches!(pattern, Pattern::Key { .. });
                    options.by = Some(pattern);
                    tail
                }
                (b"GET", [pattern, tail @ ..]) => {
                    options.gets.push(Pattern::parse(pattern));
                    tail
                }
                _ => return Err(errors::SYNTAX),
            };
        }
        Ok(options)
    }

    /// The work on `len` elements.
    fn work(&self, len: usize) -> u64 {
        let ordered = match (self.is_unsorted, self.by) {
            (true, _) => 0,
            (false, None) => len,
            (false, Some(_)) => 2 * len,
        };
        let looks = ordered + self.range(len).len() * self.gets.len();
        looks as u64 * work::ORDERED
    }

    /// Indexes of `len` elements: an offset, and a count or all for a negative one.
    fn range(&self, len: usize) -> Range<usize> {
        let start = usize::try_from(self.offset.max(0)).unwrap_or(usize::MAX).min(len);
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        start..start.saturating_add(count).min(len)
    }
}
