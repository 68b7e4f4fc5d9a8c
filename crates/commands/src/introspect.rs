//! What `COMMAND` and its subcommands answer, and the `HELP` of containers: from the table.
//!
//! The shapes are those of redis-server 7.0.15, `COMMAND INFO` byte by byte.

use std::sync::LazyLock;

use types::Reply;

use crate::docs;
use crate::errors::{self, ErrorReply};
use crate::glob::{self, Case};
use crate::session_verb::SessionVerb;
use crate::spec::{Argument, CommandSpec, KeyRange, LastKey};
use crate::table;

/// Answers a verb that needs nothing but the table: `COMMAND` and its subcommands, and `HELP`. `None` for
/// every other verb. `args` are those of the whole command.
#[must_use]
pub fn answer(verb: SessionVerb, args: &[&[u8]]) -> Option<Reply> {
    let rest = args.get(2..).unwrap_or_default();
    let answer = match verb {
        SessionVerb::Command => Ok(all()),
        SessionVerb::CommandCount => Ok(Reply::Integer(table::rows().count() as i64)),
        SessionVerb::CommandInfo if rest.is_empty() => Ok(all()),
        SessionVerb::CommandInfo => Ok(info(rest)),
        SessionVerb::CommandDocs if rest.is_empty() => Ok(docs_of_all()),
        // Unknown names are left out.
        SessionVerb::CommandDocs => {
            Ok(docs_of(rest.iter().filter_map(|name| table::lookup_full(name))))
        }
        SessionVerb::CommandList => list(rest),
        SessionVerb::CommandGetKeys => keys(rest, |key, _| Reply::copy(key)),
        SessionVerb::CommandGetKeysAndFlags => keys(rest, key_and_flags),
        SessionVerb::CommandHelp => Ok(help("command")),
        SessionVerb::ClientHelp => Ok(help("client")),
        SessionVerb::ConfigHelp => Ok(help("config")),
        SessionVerb::MemoryHelp => Ok(help("memory")),
        SessionVerb::ObjectHelp => Ok(help("object")),
        SessionVerb::LatencyHelp => Ok(help("latency")),
        SessionVerb::SlowlogHelp => Ok(help("slowlog")),
        _ => return None,
    };
    Some(answer.unwrap_or_else(Reply::from))
}

fn all() -> Reply {
    static ALL: LazyLock<Reply> = LazyLock::new(|| Reply::array(table::rows().map(info_of)));
    ALL.clone()
}

fn info(names: &[&[u8]]) -> Reply {
    let one = |name: &&[u8]| table::lookup_full(name).map_or(Reply::Null, info_of);
    Reply::array(names.iter().map(one))
}

fn info_of(spec: &CommandSpec) -> Reply {
    let (first, last, step) = spec.keys.map_or((0, 0, 0), |keys| match keys.last {
        LastKey::First => (keys.first as i64, keys.first as i64, keys.step as i64),
        LastKey::End => (keys.first as i64, -1, keys.step as i64),
    });
    let subcommands = match spec.subcommands {
        [] => Reply::Set(Vec::new()),
        all => Reply::array(all.iter().map(info_of)),
    };
    Reply::array([
        Reply::bulk(spec.name),
        Reply::Integer(spec.arity.signed()),
        Reply::set(spec.flags.iter().map(|flag| Reply::simple(flag.name()))),
        Reply::Integer(first),
        Reply::Integer(last),
        Reply::Integer(step),
        Reply::set(spec.categories().iter().map(|category| Reply::simple(category.name()))),
        Reply::set(spec.tips.iter().map(|&tip| Reply::bulk(tip))),
        Reply::set(spec.keys.iter().map(key_spec)),
        subcommands,
    ])
}

fn key_spec(keys: &KeyRange) -> Reply {
    let last = if keys.last == LastKey::End { -1 } else { 0 };
    let range = [("lastkey", last), ("keystep", keys.step as i64), ("limit", 0)];
    let index = [("index", keys.first as i64)];
    let numbers = |numbers: &[(&'static str, i64)]| {
        Reply::map(numbers.iter().map(|&(name, number)| (name, Reply::Integer(number))))
    };
    let found =
        |kind: &'static str, spec: Reply| Reply::map([("type", Reply::bulk(kind)), ("spec", spec)]);
    Reply::map([
        ("flags", flags_of(keys)),
        ("begin_search", found("index", numbers(&index))),
        ("find_keys", found("range", numbers(&range))),
    ])
}

fn flags_of(keys: &KeyRange) -> Reply {
    Reply::set(keys.flags.iter().map(|&flag| Reply::simple(flag)))
}

fn docs_of_all() -> Reply {
    static ALL: LazyLock<Reply> = LazyLock::new(|| docs_of(table::rows()));
    ALL.clone()
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
        fields.push(("arguments", Reply::array(spec.arguments.iter().map(argument))));
    }
    if !spec.subcommands.is_empty() {
        fields.push(("subcommands", docs_of(spec.subcommands.iter())));
    }
    Reply::map(fields)
}

fn argument(argument: &Argument) -> Reply {
    let mut fields =
        vec![("name", Reply::bulk(argument.name)), ("type", Reply::bulk(argument.kind.name()))];
    if argument.kind.name() == "key" {
        fields.push(("key_spec_index", Reply::Integer(0)));
    }
    if let Some(token) = argument.token {
        fields.push(("token", Reply::bulk(token)));
    }
    if let Some(since) = argument.since {
        fields.push(("since", Reply::bulk(since)));
    }
    let flags: Vec<Reply> = [(argument.optional, "optional"), (argument.multiple, "multiple")]
        .iter()
        .filter_map(|&(is_set, name)| is_set.then_some(Reply::simple(name)))
        .collect();
    if !flags.is_empty() {
        fields.push(("flags", Reply::Set(flags)));
    }
    let parts = argument.kind.parts();
    if !parts.is_empty() {
        fields.push(("arguments", Reply::array(parts.iter().map(self::argument))));
    }
    Reply::map(fields)
}

/// `COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]`.
fn list(filter: &[&[u8]]) -> Result<Reply, ErrorReply> {
    let fits: Box<dyn Fn(&CommandSpec) -> bool> = match filter {
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

/// The keys of the whole command `args`, each shown by `show`.
fn keys(args: &[&[u8]], show: impl Fn(&[u8], &KeyRange) -> Reply) -> Result<Reply, ErrorReply> {
    let name = args.first().copied().unwrap_or_default();
    let spec = table::lookup(name).ok_or(errors::INVALID_COMMAND)?;
    let spec = match args.get(1) {
        Some(subcommand) if !spec.subcommands.is_empty() => {
            spec.subcommand(subcommand).ok_or(errors::INVALID_COMMAND)?
        }
        _ => spec,
    };
    let keys = spec.keys.ok_or(errors::NO_KEYS)?;
    spec.check_arity(args.len()).map_err(|_| errors::INVALID_ARITY)?;
    Ok(Reply::array(spec.key_indexes(args.len()).map(|index| show(args[index], &keys))))
}

fn key_and_flags(key: &[u8], keys: &KeyRange) -> Reply {
    Reply::array([Reply::copy(key), flags_of(keys)])
}

/// Subcommands with what they do, in Redis' layout.
fn help(container: &str) -> Reply {
    let upper = container.to_ascii_uppercase();
    let mut lines =
        vec![format!("{upper} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    let spec = table::lookup(container.as_bytes());
    let (helps, others): (Vec<_>, Vec<_>) = spec
        .into_iter()
        .flat_map(|spec| spec.subcommands)
        .partition(|sub| sub.short_name() == "help");
    for sub in others.into_iter().chain(helps) {
        let syntax = docs::syntax(sub);
        lines.push(syntax.strip_prefix(&format!("{upper} ")).unwrap_or(&syntax).to_string());
        lines.push(format!("    {}", sub.summary));
    }
    Reply::array(lines.into_iter().map(Reply::simple))
}
