//! What `COMMAND` and its subcommands answer, and the `HELP` of containers: the table as RESP3.
//!
//! The shapes are those of redis-server 7.0.15, `COMMAND INFO` byte by byte.

use std::sync::LazyLock;

use bytes::Bytes;
use resp::encode;

use crate::docs;
use crate::errors::{self, ErrorReply};
use crate::glob::{self, Case};
use crate::plan::SessionVerb;
use crate::replies;
use crate::spec::{Argument, CommandSpec, KeyRange, LastKey};
use crate::table;

/// Answers a verb that needs nothing but the table: `COMMAND` and its subcommands, and `HELP`. `None` for
/// every other verb. `args` are those of the whole command.
#[must_use]
pub fn answer(verb: SessionVerb, args: &[&[u8]]) -> Option<Bytes> {
    let rest = args.get(2..).unwrap_or_default();
    let answer = match verb {
        SessionVerb::Command => Ok(all()),
        SessionVerb::CommandCount => Ok(replies::integer(table::rows().count() as i64)),
        SessionVerb::CommandInfo if rest.is_empty() => Ok(all()),
        SessionVerb::CommandInfo => Ok(info(rest)),
        SessionVerb::CommandDocs if rest.is_empty() => Ok(docs_of_all()),
        SessionVerb::CommandDocs => Ok(docs_of(rest)),
        SessionVerb::CommandList => list(rest),
        SessionVerb::CommandGetKeys => keys(rest, put_key),
        SessionVerb::CommandGetKeysAndFlags => keys(rest, put_key_and_flags),
        SessionVerb::CommandHelp => Ok(help("command")),
        SessionVerb::ClientHelp => Ok(help("client")),
        SessionVerb::ConfigHelp => Ok(help("config")),
        SessionVerb::MemoryHelp => Ok(help("memory")),
        SessionVerb::ObjectHelp => Ok(help("object")),
        SessionVerb::LatencyHelp => Ok(help("latency")),
        SessionVerb::SlowlogHelp => Ok(help("slowlog")),
        _ => return None,
    };
    Some(answer.unwrap_or_else(ErrorReply::into_bytes))
}

fn all() -> Bytes {
    static ALL: LazyLock<Bytes> = LazyLock::new(|| {
        let mut out = Vec::new();
        encode::array(&mut out, table::rows().count());
        table::rows().for_each(|spec| put_info(&mut out, spec));
        out.into()
    });
    ALL.clone()
}

fn info(names: &[&[u8]]) -> Bytes {
    let mut out = Vec::new();
    encode::array(&mut out, names.len());
    for name in names {
        match table::lookup_full(name) {
            Some(spec) => put_info(&mut out, spec),
            None => encode::null(&mut out),
        }
    }
    out.into()
}

fn put_info(out: &mut Vec<u8>, spec: &CommandSpec) {
    encode::array(out, 10);
    encode::bulk(out, spec.name.as_bytes());
    encode::integer(out, spec.arity.signed());
    encode::set(out, spec.flags.len());
    spec.flags.iter().for_each(|flag| encode::simple(out, flag.name().as_bytes()));
    let (first, last, step) = spec.keys.map_or((0, 0, 0), |keys| match keys.last {
        LastKey::First => (keys.first as i64, keys.first as i64, keys.step as i64),
        LastKey::End => (keys.first as i64, -1, keys.step as i64),
    });
    [first, last, step].iter().for_each(|&number| encode::integer(out, number));
    let categories = spec.categories();
    encode::set(out, categories.len());
    categories.iter().for_each(|category| encode::simple(out, category.name().as_bytes()));
    encode::set(out, spec.tips.len());
    spec.tips.iter().for_each(|tip| encode::bulk(out, tip.as_bytes()));
    encode::set(out, usize::from(spec.keys.is_some()));
    spec.keys.iter().for_each(|keys| put_key_spec(out, keys));
    if spec.subcommands.is_empty() {
        encode::set(out, 0);
    } else {
        encode::array(out, spec.subcommands.len());
        spec.subcommands.iter().for_each(|sub| put_info(out, sub));
    }
}

fn put_key_spec(out: &mut Vec<u8>, keys: &KeyRange) {
    encode::map(out, 3);
    put_text(out, "flags");
    encode::set(out, keys.flags.len());
    keys.flags.iter().for_each(|flag| encode::simple(out, flag.as_bytes()));
    put_text(out, "begin_search");
    encode::map(out, 2);
    put_pair(out, "type", "index");
    put_text(out, "spec");
    encode::map(out, 1);
    put_number(out, "index", keys.first as i64);
    put_text(out, "find_keys");
    encode::map(out, 2);
    put_pair(out, "type", "range");
    put_text(out, "spec");
    encode::map(out, 3);
    put_number(out, "lastkey", if keys.last == LastKey::End { -1 } else { 0 });
    put_number(out, "keystep", keys.step as i64);
    put_number(out, "limit", 0);
}

fn docs_of_all() -> Bytes {
    static ALL: LazyLock<Bytes> = LazyLock::new(|| put_all_docs(table::rows().collect()));
    ALL.clone()
}

/// Unknown names are left out.
fn docs_of(names: &[&[u8]]) -> Bytes {
    put_all_docs(names.iter().filter_map(|name| table::lookup_full(name)).collect())
}

fn put_all_docs(specs: Vec<&CommandSpec>) -> Bytes {
    let mut out = Vec::new();
    encode::map(&mut out, specs.len());
    specs.iter().for_each(|spec| put_docs(&mut out, spec));
    out.into()
}

fn put_docs(out: &mut Vec<u8>, spec: &CommandSpec) {
    put_text(out, spec.name);
    let has_arguments = !spec.arguments.is_empty();
    let has_subcommands = !spec.subcommands.is_empty();
    let optional = usize::from(!spec.complexity.is_empty())
        + 3 * usize::from(spec.deprecated.is_some())
        + usize::from(has_arguments)
        + usize::from(has_subcommands);
    encode::map(out, 3 + optional);
    put_pair(out, "summary", spec.summary);
    put_pair(out, "since", spec.since);
    put_pair(out, "group", spec.group.name());
    if !spec.complexity.is_empty() {
        put_pair(out, "complexity", spec.complexity);
    }
    if let Some(deprecated) = spec.deprecated {
        put_text(out, "doc_flags");
        encode::set(out, 1);
        encode::simple(out, b"deprecated");
        put_pair(out, "deprecated_since", deprecated.since);
        put_pair(out, "replaced_by", deprecated.replaced_by);
    }
    if has_arguments {
        put_text(out, "arguments");
        put_arguments(out, spec.arguments);
    }
    if has_subcommands {
        put_text(out, "subcommands");
        encode::map(out, spec.subcommands.len());
        spec.subcommands.iter().for_each(|sub| put_docs(out, sub));
    }
}

fn put_arguments(out: &mut Vec<u8>, arguments: &[Argument]) {
    encode::array(out, arguments.len());
    arguments.iter().for_each(|argument| put_argument(out, argument));
}

fn put_argument(out: &mut Vec<u8>, argument: &Argument) {
    let is_key = argument.kind.name() == "key";
    let flags: Vec<&str> = [(argument.optional, "optional"), (argument.multiple, "multiple")]
        .iter()
        .filter_map(|&(is_set, name)| is_set.then_some(name))
        .collect();
    let parts = argument.kind.parts();
    let optional = [
        is_key,
        argument.token.is_some(),
        argument.since.is_some(),
        !flags.is_empty(),
        !parts.is_empty(),
    ];
    encode::map(out, 2 + optional.iter().filter(|&&is_there| is_there).count());
    put_pair(out, "name", argument.name);
    put_pair(out, "type", argument.kind.name());
    if is_key {
        put_number(out, "key_spec_index", 0);
    }
    if let Some(token) = argument.token {
        put_pair(out, "token", token);
    }
    if let Some(since) = argument.since {
        put_pair(out, "since", since);
    }
    if !flags.is_empty() {
        put_text(out, "flags");
        encode::set(out, flags.len());
        flags.iter().for_each(|flag| encode::simple(out, flag.as_bytes()));
    }
    if !parts.is_empty() {
        put_text(out, "arguments");
        put_arguments(out, parts);
    }
}

/// `COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]`.
fn list(filter: &[&[u8]]) -> Result<Bytes, ErrorReply> {
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
    let names: Vec<&str> = all.filter(|spec| fits(spec)).map(|spec| spec.name).collect();
    let mut out = Vec::new();
    encode::array(&mut out, names.len());
    names.iter().for_each(|name| put_text(&mut out, name));
    Ok(out.into())
}

/// `category` is written without its `@`.
fn is_in_category(spec: &CommandSpec, category: &[u8]) -> bool {
    let name =
        |known: &str| known.trim_start_matches('@').as_bytes().eq_ignore_ascii_case(category);
    spec.categories().iter().any(|known| name(known.name()))
}

type PutKey = fn(&mut Vec<u8>, &[u8], &KeyRange);

/// The keys of the whole command `args`.
fn keys(args: &[&[u8]], put: PutKey) -> Result<Bytes, ErrorReply> {
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
    let mut out = Vec::new();
    encode::array(&mut out, spec.key_indexes(args.len()).count());
    spec.key_indexes(args.len()).for_each(|index| put(&mut out, args[index], &keys));
    Ok(out.into())
}

fn put_key(out: &mut Vec<u8>, key: &[u8], _: &KeyRange) {
    encode::bulk(out, key);
}

fn put_key_and_flags(out: &mut Vec<u8>, key: &[u8], keys: &KeyRange) {
    encode::array(out, 2);
    encode::bulk(out, key);
    encode::set(out, keys.flags.len());
    keys.flags.iter().for_each(|flag| encode::simple(out, flag.as_bytes()));
}

/// Subcommands with what they do, in Redis' layout.
fn help(container: &str) -> Bytes {
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
    let mut out = Vec::new();
    encode::array(&mut out, lines.len());
    lines.iter().for_each(|line| encode::simple(&mut out, line.as_bytes()));
    out.into()
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    encode::bulk(out, text.as_bytes());
}

fn put_pair(out: &mut Vec<u8>, name: &str, text: &str) {
    put_text(out, name);
    put_text(out, text);
}

fn put_number(out: &mut Vec<u8>, name: &str, number: i64) {
    put_text(out, name);
    encode::integer(out, number);
}
