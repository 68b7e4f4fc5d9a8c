//! `COMMAND` and its subcommands: the table as clients read it.
//!
//! The shapes are those of redis-server 7.0.15, `COMMAND INFO` byte by byte.

use std::sync::LazyLock;

use types::Reply;

use super::LOCAL;
use crate::errors::{self, ErrorReply};
use crate::glob::{self, Case};
use crate::row::*;
use crate::spec::{KeyRange, LastKey};
use crate::table;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const UNORDERED: &[&str] = &["nondeterministic_output_order"];

const ROW: CommandSpec = CommandSpec {
    name: "command",
    arity: AtLeast(1),
    since: "2.8.13",
    summary: "Answers details about all commands.",
    complexity: "O(N) where N is the number of commands.",
    flags: LOCAL,
    categories: &[Category::Connection],
    tips: UNORDERED,
    execution: Table(all),
    subcommands: COMMAND,
    ..SERVER
};

const WHOLE_COMMAND: &[Argument] =
    &[Argument::string("command"), Argument::string("arg").optional().multiple()];

const COMMAND: &[CommandSpec] = &[
    CommandSpec {
        name: "command|count",
        arity: Exactly(2),
        since: "2.8.13",
        summary: "Answers how many commands there are.",
        flags: LOCAL,
        categories: &[Category::Connection],
        execution: Table(count),
        ..SERVER
    },
    CommandSpec {
        name: "command|docs",
        arity: AtLeast(2),
        since: "7.0.0",
        summary: "Answers the documentation of the given commands, or of all.",
        complexity: "O(N) where N is the number of commands to look up.",
        arguments: &[Argument::string("command-name").optional().multiple()],
        flags: LOCAL,
        categories: &[Category::Connection],
        tips: UNORDERED,
        execution: Table(docs),
        ..SERVER
    },
    CommandSpec {
        name: "command|getkeys",
        arity: AtLeast(3),
        since: "2.8.13",
        summary: "Answers the keys among the arguments of a whole command.",
        complexity: "O(N) where N is the number of arguments.",
        arguments: WHOLE_COMMAND,
        flags: LOCAL,
        categories: &[Category::Connection],
        execution: Table(get_keys),
        ..SERVER
    },
    CommandSpec {
        name: "command|getkeysandflags",
        arity: AtLeast(3),
        since: "7.0.0",
        summary: "Answers the keys among the arguments of a whole command, and what it does to them.",
        complexity: "O(N) where N is the number of arguments.",
        arguments: WHOLE_COMMAND,
        flags: LOCAL,
        categories: &[Category::Connection],
        execution: Table(get_keys_and_flags),
        ..SERVER
    },
    CommandSpec {
        name: "command|help",
        arity: Exactly(2),
        since: "5.0.0",
        summary: "Shows this help.",
        flags: LOCAL,
        categories: &[Category::Connection],
        execution: HELP,
        ..SERVER
    },
    CommandSpec {
        name: "command|info",
        arity: AtLeast(2),
        since: "2.8.13",
        summary: "Answers details about the given commands, or about all.",
        complexity: "O(N) where N is the number of commands to look up.",
        arguments: &[Argument::string("command-name").optional().multiple()],
        flags: LOCAL,
        categories: &[Category::Connection],
        tips: UNORDERED,
        execution: Table(info),
        ..SERVER
    },
    CommandSpec {
        name: "command|list",
        arity: AtLeast(2),
        since: "7.0.0",
        summary: "Answers the names of commands.",
        complexity: "O(N) where N is the number of commands.",
        arguments: &[Argument::one_of(
            "filterby",
            &[
                Argument::string("module-name").after("MODULE"),
                Argument::string("category").after("ACLCAT"),
                Argument::new("pattern", ArgumentKind::Pattern).after("PATTERN"),
            ],
        )
        .after("FILTERBY")
        .optional()],
        flags: LOCAL,
        categories: &[Category::Connection],
        tips: UNORDERED,
        execution: Table(list),
        ..SERVER
    },
];

fn all(_: &Arguments<'_>) -> Result<Reply, ErrorReply> {
    static ALL: LazyLock<Reply> = LazyLock::new(|| Reply::array(table::rows().map(info_of)));
    Ok(ALL.clone())
}

fn count(_: &Arguments<'_>) -> Result<Reply, ErrorReply> {
    Ok(Reply::Integer(table::rows().count() as i64))
}

/// An unknown command is null.
fn info(args: &Arguments<'_>) -> Result<Reply, ErrorReply> {
    let names = &args.all[2..];
    if names.is_empty() {
        return all(args);
    }
    let one = |name: &&[u8]| table::lookup_full(name).map_or(Reply::Null, info_of);
    Ok(Reply::array(names.iter().map(one)))
}

/// Leaves unknown commands out.
fn docs(args: &Arguments<'_>) -> Result<Reply, ErrorReply> {
    static ALL: LazyLock<Reply> = LazyLock::new(|| docs_of(table::rows()));
    let names = &args.all[2..];
    if names.is_empty() {
        return Ok(ALL.clone());
    }
    Ok(docs_of(names.iter().filter_map(|name| table::lookup_full(name))))
}

fn get_keys(args: &Arguments<'_>) -> Result<Reply, ErrorReply> {
    keys(&args.all[2..], |key, _| Reply::copy(key))
}

fn get_keys_and_flags(args: &Arguments<'_>) -> Result<Reply, ErrorReply> {
    let line = &args.all[2..];
    keys(line, |key, range| {
        let flags = flags_for(line).unwrap_or(range.flags);
        Reply::array([Reply::copy(key), flag_set(flags)])
    })
}

/// `COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]`.
fn list(args: &Arguments<'_>) -> Result<Reply, ErrorReply> {
    let fits: Box<dyn Fn(&CommandSpec) -> bool> = match &args.all[2..] {
        [] => Box::new(|_| true),
        [word, kind, operand] if word.eq_ignore_ascii_case(b"FILTERBY") => {
            let operand = operand.to_vec();
            match kind.to_ascii_uppercase().as_slice() {
                b"MODULE" => Box::new(|_| false),
                b"ACLCAT" => Box::new(move |spec| is_in_category(spec, &operand)),
                b"PATTERN" => Box::new(move |spec| {
                    glob::matches(&operand, spec.name.as_bytes(), Case::Insensitive)
                }),
                _ => return Err(errors::SYNTAX),
            }
        }
        _ => return Err(errors::SYNTAX),
    };
    let all = table::rows().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands));
    Ok(Reply::array(all.filter(|spec| fits(spec)).map(|spec| Reply::bulk(spec.name))))
}

/// `category` is written without its `@`.
fn is_in_category(spec: &CommandSpec, category: &[u8]) -> bool {
    let name =
        |known: &str| known.trim_start_matches('@').as_bytes().eq_ignore_ascii_case(category);
    spec.categories().iter().any(|known| name(known.name()))
}

/// The keys of the whole command `args`, each rendered by `show`.
fn keys(args: &[&[u8]], show: impl Fn(&[u8], &KeyRange) -> Reply) -> Result<Reply, ErrorReply> {
    let name = args.first().copied().unwrap_or_default();
    let spec = table::lookup(name).ok_or(errors::INVALID_COMMAND)?;
    let spec = match args.get(1) {
        Some(subcommand) if !spec.subcommands.is_empty() => {
            spec.subcommand(subcommand).ok_or(errors::INVALID_COMMAND)?
        }
        _ => spec,
    };
    if spec.keys.is_none() && spec.more_keys.is_empty() {
        return Err(errors::NO_KEYS);
    }
    spec.check_arity(args.len()).map_err(|_| errors::INVALID_ARITY)?;
    let mut ranges = spec.keys.iter().chain(spec.more_keys);
    // redis-server refuses an optional range that has no key.
    if ranges.any(|range| range.last == LastKey::End && range.first >= args.len()) {
        return Err(errors::INVALID_ARGUMENTS);
    }
    let show_key = |(index, range): (usize, &KeyRange)| show(args[index], range);
    let found: Vec<Reply> = spec.named_keys(args).into_iter().map(show_key).collect();
    if found.is_empty() && !spec.has(Flag::NoMandatoryKeys) {
        return Err(errors::INVALID_ARGUMENTS);
    }
    Ok(Reply::Array(found))
}

/// The flags of the key of commands whose options decide about them.
fn flags_for(line: &[&[u8]]) -> Option<&'static [&'static str]> {
    match line[0].to_ascii_lowercase().as_slice() {
        b"set" => {
            let gets = line.iter().skip(3).any(|word| word.eq_ignore_ascii_case(b"GET"));
            Some(if gets { &["RW", "access", "update"] } else { &["OW", "update"] })
        }
        b"bitfield" => {
            let reads = only_gets(&line[2..]);
            Some(if reads { &["RO", "access"] } else { &["RW", "access", "update"] })
        }
        _ => None,
    }
}

/// Whether `BITFIELD` with these arguments changes no bit. A wrong argument counts as a change.
fn only_gets(mut rest: &[&[u8]]) -> bool {
    while let [word, tail @ ..] = rest {
        rest = match (word.to_ascii_uppercase().as_slice(), tail) {
            (b"GET", [_, _, tail @ ..]) | (b"OVERFLOW", [_, tail @ ..]) => tail,
            _ => return false,
        };
    }
    true
}

fn info_of(spec: &CommandSpec) -> Reply {
    let (first, last, step) = spec.plain_keys().unwrap_or_default();
    let mut flags: Vec<Reply> = spec.flags.iter().map(|flag| Reply::simple(flag.name())).collect();
    if spec.has_movable_keys() {
        flags.push(Reply::simple("movablekeys"));
    }
    let subcommands = match spec.subcommands {
        [] => Reply::Set(Vec::new()),
        all => Reply::array(all.iter().map(info_of)),
    };
    Reply::array([
        Reply::bulk(spec.name),
        Reply::Integer(spec.arity.signed()),
        Reply::Set(flags),
        Reply::Integer(first),
        Reply::Integer(last),
        Reply::Integer(step),
        Reply::set(spec.categories().iter().map(|category| Reply::simple(category.name()))),
        Reply::set(spec.tips.iter().map(|&tip| Reply::bulk(tip))),
        Reply::set(spec.keys.iter().chain(spec.more_keys).map(key_spec)),
        subcommands,
    ])
}

fn key_spec(keys: &KeyRange) -> Reply {
    let numbers = |numbers: &[(&'static str, usize)]| {
        Reply::map(numbers.iter().map(|&(name, number)| (name, Reply::Integer(number as i64))))
    };
    let found =
        |kind: &'static str, spec: Reply| Reply::map([("type", Reply::bulk(kind)), ("spec", spec)]);
    let (begin, find) = match keys.last {
        LastKey::First => (keys.first, found("range", range(0, keys.step))),
        LastKey::Next => (keys.first, found("range", range(1, keys.step))),
        LastKey::End => (keys.first, found("range", range(-1, keys.step))),
        LastKey::Counted => {
            let count = [("keynumidx", 0), ("firstkey", 1), ("keystep", keys.step)];
            (keys.first - 1, found("keynum", numbers(&count)))
        }
        LastKey::After(_) | LastKey::Hidden => {
            let unknown = || found("unknown", Reply::Map(Vec::new()));
            return noted(keys, [unknown(), unknown()]);
        }
    };
    noted(keys, [found("index", numbers(&[("index", begin)])), find])
}

fn noted(keys: &KeyRange, [begin, find]: [Reply; 2]) -> Reply {
    let notes = (!keys.notes.is_empty()).then(|| ("notes", Reply::bulk(keys.notes)));
    let fields = [("flags", flag_set(keys.flags)), ("begin_search", begin), ("find_keys", find)];
    Reply::map(notes.into_iter().chain(fields))
}

fn range(last: i64, step: usize) -> Reply {
    let numbers = [("lastkey", last), ("keystep", step as i64), ("limit", 0)];
    Reply::map(numbers.map(|(name, number)| (name, Reply::Integer(number))))
}

fn flag_set(flags: &[&'static str]) -> Reply {
    Reply::set(flags.iter().map(|&flag| Reply::simple(flag)))
}

fn docs_of<'a>(specs: impl Iterator<Item = &'a CommandSpec>) -> Reply {
    Reply::map(specs.map(|spec| (spec.name, docs_of_one(spec))))
}

fn docs_of_one(spec: &CommandSpec) -> Reply {
    let mut fields = vec![
        ("summary", Reply::bulk(spec.summary)),
        ("since", Reply::bulk(spec.since)),
        ("group", Reply::bulk(spec.group.name())),
    ];
    if !spec.complexity.is_empty() {
        fields.push(("complexity", Reply::bulk(spec.complexity)));
    }
    if let Some(deprecated) = spec.deprecated {
        fields.push(("doc_flags", Reply::set([Reply::simple("deprecated")])));
        fields.push(("deprecated_since", Reply::bulk(deprecated.since)));
        fields.push(("replaced_by", Reply::bulk(deprecated.replaced_by)));
    }
    if !spec.arguments.is_empty() {
        let mut key_specs = KeySpecs { next: 0, last: spec.more_keys.len() };
        fields.push(("arguments", arguments_of(spec.arguments, &mut key_specs)));
    }
    if !spec.subcommands.is_empty() {
        fields.push(("subcommands", docs_of(spec.subcommands.iter())));
    }
    Reply::map(fields)
}

/// The index of the next key argument's specification. The last one is that of all further keys.
struct KeySpecs {
    next: usize,
    last: usize,
}

fn arguments_of(arguments: &[Argument], key_specs: &mut KeySpecs) -> Reply {
    Reply::Array(arguments.iter().map(|argument| argument_of(argument, key_specs)).collect())
}

fn argument_of(argument: &Argument, key_specs: &mut KeySpecs) -> Reply {
    let mut fields =
        vec![("name", Reply::bulk(argument.name)), ("type", Reply::bulk(argument.kind.name()))];
    let parts = argument.kind.parts();
    if parts.is_empty() {
        fields.push(("display_text", Reply::bulk(argument.display)));
    }
    if argument.kind.name() == "key" {
        fields.push(("key_spec_index", Reply::Integer(key_specs.next as i64)));
        key_specs.next = key_specs.last.min(key_specs.next + 1);
    }
    if let Some(token) = argument.token {
        fields.push(("token", Reply::bulk(token)));
    }
    if let Some(since) = argument.since {
        fields.push(("since", Reply::bulk(since)));
    }
    let flags: Vec<Reply> = [
        (argument.optional, "optional"),
        (argument.multiple, "multiple"),
        (argument.multiple_token, "multiple_token"),
    ]
    .iter()
    .filter_map(|&(is_set, name)| is_set.then_some(Reply::simple(name)))
    .collect();
    if !flags.is_empty() {
        fields.push(("flags", Reply::Set(flags)));
    }
    if !parts.is_empty() {
        fields.push(("arguments", arguments_of(parts, key_specs)));
    }
    Reply::map(fields)
}
