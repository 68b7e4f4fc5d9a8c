//! `COPY`: within one database.

use base::decimal::parse_i64;
use types::{Database, Reply};

use crate::errors::{self, ErrorReply};
use crate::row::*;
use crate::space::{Halt, Space};

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "copy",
    arity: AtLeast(3),
    since: "6.2.0",
    summary: "Copies a value and its time to live to another key of the same database.",
    complexity: "O(N) where N is the size of the value.",
    arguments: &[
        Argument::new("source", ArgumentKind::Key),
        Argument::new("destination", ArgumentKind::Key),
        Argument::integer("destination-db").after("DB").optional(),
        Argument::word("replace", "REPLACE").optional(),
    ],
    flags: &[Write, DenyOom],
    keys: one_key(&["RO", "access"]),
    more_keys: &[key_at(2, &["OW", "update"])],
    access: Some(Access::Update),
    execution: Keys(copy),
    ..GENERIC
};

const SAME_OBJECT: ErrorReply = errors::fixed(b"ERR source and destination objects are the same");
const NOT_AN_INT: ErrorReply =
    errors::fixed(b"ERR value is out of range, value must between -2147483648 and 2147483647");
const OUT_OF_RANGE: ErrorReply = errors::fixed(b"ERR DB index is out of range");
const OTHER_DATABASE: ErrorReply =
    errors::fixed(b"ERR 'copy' to another database is not supported: keys stay in their database");

fn copy(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let (from, to) = (args.all[1], args.all[2]);
    let options = Options::parse(&args.all[3..])?;
    let is_same = options.database.is_none() || options.database == space.database();
    // The register of one key does not know its database.
    if from == to && (is_same || space.database().is_none()) {
        return Err(SAME_OBJECT.into());
    }
    if !is_same {
        return Err(OTHER_DATABASE.into());
    }
    let is_free = options.replaces || !space.context(to)?.exists();
    let copies = space.context(from)?.exists() && is_free;
    if copies {
        super::copy_value(space, from, to)?;
    }
    Ok(Reply::count(copies))
}

struct Options {
    database: Option<Database>,
    replaces: bool,
}

impl Options {
    fn parse(mut rest: &[&[u8]]) -> Result<Options, ErrorReply> {
        let mut options = Options { database: None, replaces: false };
        while let [word, tail @ ..] = rest {
            rest = match (word.to_ascii_uppercase().as_slice(), tail) {
                (b"REPLACE", tail) => {
                    options.replaces = true;
                    tail
                }
                (b"DB", [number, tail @ ..]) => {
                    options.database = Some(database(number)?);
                    tail
                }
                _ => return Err(errors::SYNTAX),
            };
        }
        Ok(options)
    }
}

fn database(number: &[u8]) -> Result<Database, ErrorReply> {
    let number = parse_i64(number).ok_or(errors::NOT_AN_INTEGER)?;
    if i32::try_from(number).is_err() {
        return Err(NOT_AN_INT);
    }
    let database = u8::try_from(number).map(Database).ok().filter(|it| it.is_of_users());
    database.ok_or(OUT_OF_RANGE)
}
