//! `SINTER`, `SINTERSTORE` and `SINTERCARD`.

use base::decimal::parse_i64;
use types::Reply;
use values::Lookup;
use values::set::{Encoding, Growth, Set};

use super::algebra::{sets, store};
use crate::errors::{self, ErrorReply};
use crate::row::*;
use crate::space::{Halt, Space};

pub(super) const MODULE: Module = Module { rows: ROWS, operations: &[] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "sinter",
        arity: AtLeast(2),
        since: "1.0.0",
        summary: "Answers the members that several sets have in common.",
        complexity: COMPLEXITY,
        arguments: &[Argument::key().multiple()],
        flags: &[Readonly],
        tips: &["nondeterministic_output_order"],
        keys: all_keys(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Keys(reply),
        is_heavy: true,
        ..SET
    },
    CommandSpec {
        name: "sintercard",
        arity: AtLeast(3),
        since: "7.0.0",
        summary: "Answers how many members several sets have in common, up to a limit.",
        complexity: COMPLEXITY,
        arguments: &[
            Argument::integer("numkeys"),
            Argument::key().multiple(),
            Argument::integer("limit").after("LIMIT").optional(),
        ],
        flags: &[Readonly],
        keys: counted_keys(2, &["RO", "access"]),
        access: Some(Access::Read),
        execution: Keys(count),
        is_heavy: true,
        ..SET
    },
    CommandSpec {
        name: "sinterstore",
        arity: AtLeast(3),
        since: "1.0.0",
        summary: "Stores the members that several sets have in common at a key.",
        complexity: COMPLEXITY,
        arguments: &[Argument::new("destination", ArgumentKind::Key), Argument::key().multiple()],
        flags: &[Write, DenyOom],
        keys: one_key(&["OW", "update"]),
        more_keys: &[keys_from(2, &["RO", "access"])],
        access: Some(Access::Update),
        execution: Keys(keep),
        is_heavy: true,
        ..SET
    },
];

const COMPLEXITY: &str = "O(N) where N is the length of all sets.";

const NO_KEYS: ErrorReply = errors::fixed(b"ERR numkeys should be greater than 0");
const TOO_MANY_KEYS: ErrorReply =
    errors::fixed(b"ERR Number of keys can't be greater than number of args");
const NEGATIVE_LIMIT: ErrorReply = errors::fixed(b"ERR LIMIT can't be negative");

fn reply(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let common = intersection(space, &args.all[1..])?.members;
    Ok(Reply::Set(super::copies(common)))
}

fn count(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let (keys, limit) = parse(&args.all[1..])?;
    let len = intersection(space, keys)?.members.len();
    Ok(Reply::Integer(limit.map_or(len, |limit| len.min(limit)) as i64))
}

fn keep(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    store(space, args.all[1], |space| {
        let common = intersection(space, &args.all[2..])?;
        let is_intset = common.encoding == Encoding::Intset;
        let mut growth = Growth::new(if is_intset { Encoding::Intset } else { Encoding::Listpack });
        common.members.iter().for_each(|member| growth.push(member));
        growth.shrink();
        Ok(growth)
    })
}

/// The keys and the limit of `numkeys key [key …] [LIMIT limit]`.
fn parse<'k, 'a>(args: &'k [&'a [u8]]) -> Result<(&'k [&'a [u8]], Option<usize>), ErrorReply> {
    let count = parse_i64(args[0]).and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|&count| count > 0).ok_or(NO_KEYS)?;
    let (keys, mut options) = args[1..].split_at_checked(count).ok_or(TOO_MANY_KEYS)?;
    let mut limit = None;
    while let [word, number, rest @ ..] = options {
        if !word.eq_ignore_ascii_case(b"LIMIT") {
            return Err(errors::SYNTAX);
        }
        let number = parse_i64(number).and_then(|limit| usize::try_from(limit).ok());
        limit = Some(number.ok_or(NEGATIVE_LIMIT)?).filter(|&limit| limit > 0);
        options = rest;
    }
    if options.is_empty() { Ok((keys, limit)) } else { Err(errors::SYNTAX) }
}

/// The common members in the order of the smallest set, and its encoding.
struct Intersection<'s> {
    members: Vec<&'s [u8]>,
    encoding: Encoding,
}

fn intersection<'s>(space: &'s Space, keys: &[&[u8]]) -> Result<Intersection<'s>, Halt> {
    let sets: Option<Vec<Set<'_>>> = sets(space, keys)?.into_iter().collect();
    let sets = sets.unwrap_or_default();
    let Some((at, smallest)) = sets.iter().enumerate().min_by_key(|(_, set)| set.len()) else {
        return Ok(Intersection { members: Vec::new(), encoding: Encoding::Intset });
    };
    let seed = space.clock().seed;
    let mut common = Lookup::of(*smallest, seed);
    for (_, set) in sets.iter().enumerate().filter(|&(other, _)| other != at) {
        common = Lookup::of(set.iter().filter(|member| common.contains(member)), seed);
    }
    let members = smallest.iter().filter(|member| common.contains(member)).collect();
    Ok(Intersection { members, encoding: smallest.encoding() })
}
