//! `BITOP`.

use types::{Change, ExpiryChange, Reply, TimeToLive};

use crate::errors::{self, ErrorReply};
use crate::row::*;
use crate::space::{Halt, Space};

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "bitop",
    arity: AtLeast(4),
    since: "2.6.0",
    summary: "Combines strings bit by bit, puts the result at a key, and answers its length.",
    complexity: "O(N) where N is the length of all strings.",
    arguments: &[
        Argument::one_of(
            "operation",
            &[
                Argument::word("and", "AND"),
                Argument::word("or", "OR"),
                Argument::word("xor", "XOR"),
                Argument::word("not", "NOT"),
            ],
        ),
        Argument::new("destkey", ArgumentKind::Key),
        Argument::key().multiple(),
    ],
    flags: &[Write, DenyOom],
    keys: one_key_at(2, &["OW", "update"]),
    more_keys: &[keys_from(3, &["RO", "access"])],
    access: Some(Access::Update),
    execution: Keys(run),
    ..BITMAP
};

const NOT_OF_SEVERAL: ErrorReply =
    errors::fixed(b"ERR BITOP NOT must be called with a single source key.");

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Combination {
    And,
    Or,
    Xor,
    Not,
}

impl Combination {
    fn parse(word: &[u8]) -> Result<Combination, ErrorReply> {
        match word.to_ascii_uppercase().as_slice() {
            b"AND" => Ok(Combination::And),
            b"OR" => Ok(Combination::Or),
            b"XOR" => Ok(Combination::Xor),
            b"NOT" => Ok(Combination::Not),
            _ => Err(errors::SYNTAX),
        }
    }

    /// Strings continue with zeros to the length of the longest one.
    fn of(self, strings: &[&[u8]]) -> Vec<u8> {
        let len = strings.iter().map(|string| string.len()).max().unwrap_or(0);
        let mut result = strings.first().copied().unwrap_or_default().to_vec();
        result.resize(len, 0);
        if self == Combination::Not {
            result.iter_mut().for_each(|byte| *byte = !*byte);
        }
        strings.iter().skip(1).for_each(|other| self.add(&mut result, other));
        result
    }

    fn add(self, result: &mut [u8], other: &[u8]) {
        let (both, alone) = result.split_at_mut(other.len());
        let pairs = both.iter_mut().zip(other);
        match self {
            Combination::And => {
                pairs.for_each(|(byte, other)| *byte &= other);
                alone.fill(0);
            }
            Combination::Or => pairs.for_each(|(byte, other)| *byte |= other),
            Combination::Xor => pairs.for_each(|(byte, other)| *byte ^= other),
            Combination::Not => {}
        }
    }
}

/// An empty result deletes the key.
fn run(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let combination = Combination::parse(args.all[1])?;
    let (target, sources) = (args.all[2], &args.all[3..]);
    if combination == Combination::Not && sources.len() != 1 {
        return Err(NOT_OF_SEVERAL.into());
    }
    let string = |key: &&[u8]| -> Result<&[u8], Halt> {
        Ok(space.context(key)?.string()?.unwrap_or_default())
    };
    let strings: Vec<&[u8]> = sources.iter().map(string).collect::<Result<_, _>>()?;
    let result = combination.of(&strings);
    space.context(target)?.check_string(b"", result.len() as u64)?;
    let change = if result.is_empty() {
        Change::Delete
    } else {
        let value = values::string::encode(&result);
        Change::Put { value, expiry: ExpiryChange::Set(TimeToLive::Never) }
    };
    space.change(target, change)?;
    Ok(Reply::Integer(result.len() as i64))
}
