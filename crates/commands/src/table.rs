//! The command table: one row per command. No other place knows the meaning of a command's name.
//!
//! The rows stand in the files of the commands, and each folder lists its files. This file lists
//! the folders and finds rows.

use types::Clock;

use crate::errors::{self, ErrorReply};
use crate::module::Module;
use crate::plan::Plan;
use crate::refused;
use crate::spec::CommandSpec;

/// The folders, in the order in which `COMMAND` lists them.
pub(crate) static GROUPS: &[&[Module]] = &[
    crate::connection::MODULES,
    crate::server::MODULES,
    crate::keys::MODULES,
    crate::string::MODULES,
    crate::bitmap::MODULES,
    crate::hyperloglog::MODULES,
    crate::list::MODULES,
    crate::set::MODULES,
    crate::hash::MODULES,
    crate::sorted_set::MODULES,
    crate::transactions::MODULES,
    crate::scripting::MODULES,
    crate::monitoring::MODULES,
    crate::cluster::MODULES,
];

/// All rows, subcommands within their containers. The compiler sorts them by name within a folder.
static ROWS: [&CommandSpec; COUNT] = list();

/// Rows in the order of the table.
pub fn rows() -> impl Iterator<Item = &'static CommandSpec> {
    ROWS.iter().copied()
}

/// The row of the command called `name`, in any case. Does not look for subcommands.
#[must_use]
pub fn lookup(name: &[u8]) -> Option<&'static CommandSpec> {
    let mut slot = slot_of(name);
    while let Some(spec) = INDEX[slot] {
        if spec.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some(spec);
        }
        slot = (slot + 1) % SLOTS;
    }
    None
}

/// The row that `args` name, with the subcommand where there is one. Does not check their number.
///
/// # Errors
/// Unknown or refused command, or unknown subcommand: to be sent as they are.
pub fn find(args: &[&[u8]]) -> Result<&'static CommandSpec, ErrorReply> {
    let name = args.first().copied().unwrap_or_default();
    let Some(spec) = lookup(name) else {
        return Err(refused::error(name).unwrap_or_else(|| errors::unknown_command(args)));
    };
    match args.get(1) {
        Some(subcommand) if !spec.subcommands.is_empty() => {
            spec.subcommand(subcommand).ok_or_else(|| {
                refused::subcommand_error(spec.name, subcommand)
                    .unwrap_or_else(|| errors::unknown_subcommand(name, subcommand))
            })
        }
        _ => Ok(spec),
    }
}

/// [`find`], with a number of arguments that fits. Checks are in Redis' order.
///
/// # Errors
/// Unknown command, unknown subcommand, wrong number of arguments: to be sent as they are.
pub fn resolve(args: &[&[u8]]) -> Result<&'static CommandSpec, ErrorReply> {
    let spec = find(args)?;
    spec.check_arity(args.len())?;
    Ok(spec)
}

/// The row that `args` name, and their plan: [`resolve`], then [`CommandSpec::plan`].
///
/// # Errors
/// The reply to send.
pub fn plan(args: &[&[u8]], clock: Clock) -> Result<(&'static CommandSpec, Plan), ErrorReply> {
    let spec = resolve(args)?;
    Ok((spec, spec.plan(args, clock)?))
}

/// The row of `client|getname` or `get`, in any case.
#[must_use]
pub fn lookup_full(name: &[u8]) -> Option<&'static CommandSpec> {
    match name.iter().position(|&byte| byte == b'|') {
        Some(bar) => lookup(&name[..bar])?.subcommand(&name[bar + 1..]),
        None => lookup(name),
    }
}

/// At least twice the number of rows, so that chains are short.
const SLOTS: usize = (2 * COUNT).next_power_of_two();

const COUNT: usize = count();

/// Rows by the hash of their name, built by the compiler. A collision takes the next free slot.
static INDEX: [Option<&CommandSpec>; SLOTS] = build_index();

const fn count() -> usize {
    let mut count = 0;
    let mut group = 0;
    while group < GROUPS.len() {
        let mut module = 0;
        while module < GROUPS[group].len() {
            count += GROUPS[group][module].rows.len();
            module += 1;
        }
        group += 1;
    }
    count
}

const fn list() -> [&'static CommandSpec; COUNT] {
    let mut all = [&GROUPS[0][0].rows[0]; COUNT];
    let mut len = 0;
    let mut group = 0;
    while group < GROUPS.len() {
        let first = len;
        let mut module = 0;
        while module < GROUPS[group].len() {
            let rows = GROUPS[group][module].rows;
            let mut row = 0;
            while row < rows.len() {
                insert(&mut all, first, len, &rows[row]);
                len += 1;
                row += 1;
            }
            module += 1;
        }
        group += 1;
    }
    all
}

/// Inserts `spec` into `all[first..len]`, which is sorted by name.
const fn insert(
    all: &mut [&'static CommandSpec],
    first: usize,
    len: usize,
    spec: &'static CommandSpec,
) {
    let mut at = len;
    while at > first && is_before(spec.name.as_bytes(), all[at - 1].name.as_bytes()) {
        all[at] = all[at - 1];
        at -= 1;
    }
    all[at] = spec;
}

const fn is_before(name: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < name.len() && at < other.len() {
        if name[at] != other[at] {
            return name[at] < other[at];
        }
        at += 1;
    }
    name.len() < other.len()
}

const fn build_index() -> [Option<&'static CommandSpec>; SLOTS] {
    let mut index: [Option<&'static CommandSpec>; SLOTS] = [None; SLOTS];
    let mut row = 0;
    while row < COUNT {
        let mut slot = slot_of(ROWS[row].name.as_bytes());
        while index[slot].is_some() {
            slot = (slot + 1) % SLOTS;
        }
        index[slot] = Some(ROWS[row]);
        row += 1;
    }
    index
}

/// FNV-1a over the letters without their case, folded.
const fn slot_of(name: &[u8]) -> usize {
    let mut hash = 0x811c_9dc5_u32;
    let mut at = 0;
    while at < name.len() {
        hash = (hash ^ (name[at] | 0x20) as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    (hash ^ hash >> 15) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use base::Millis;

    use super::*;
    use crate::plan::{Combine, Execution};
    use crate::session_verb::SessionVerb;
    use crate::spec::{Arity, Flag, LastKey};

    const CLOCK: Clock = Clock { unix: Millis(1_000_000), seed: 0 };

    fn all() -> impl Iterator<Item = &'static CommandSpec> {
        rows().flat_map(|row| std::iter::once(row).chain(row.subcommands))
    }

    #[test]
    fn every_row_is_found_in_any_case() {
        for spec in rows() {
            assert!(std::ptr::eq(lookup(spec.name.as_bytes()).unwrap(), spec), "{}", spec.name);
            let shouted = spec.name.to_ascii_uppercase();
            assert!(std::ptr::eq(lookup(shouted.as_bytes()).unwrap(), spec), "{}", spec.name);
        }
        assert!(all().all(|spec| lookup_full(spec.name.as_bytes()).is_some()));
        for name in ["", "nosuch", "ge", "gett", "client|getname", "GET ", "ge\u{7}"] {
            assert!(lookup(name.as_bytes()).is_none(), "{name:?}");
        }
    }

    #[test]
    fn chains_are_short() {
        let occupied = INDEX.iter().filter(|slot| slot.is_some()).count();
        assert_eq!(occupied, rows().count());
        assert!(occupied <= SLOTS / 2, "{occupied} rows: enlarge the index");
    }

    #[test]
    fn rows_agree_with_themselves() {
        for spec in all() {
            let name = spec.name;
            assert_eq!(name, name.to_ascii_lowercase());
            assert!(spec.summary.ends_with('.'), "{name}: a summary is a sentence");
            let on_keys = matches!(
                spec.execution,
                Execution::Key(_)
                    | Execution::PerKey(..)
                    | Execution::Keys(_)
                    | Execution::Around(_)
                    | Execution::Script
            );
            let is_local = matches!(spec.execution, Execution::Session(_) | Execution::Table(_));
            let has_keys = spec.keys.is_some() && !is_local;
            assert_eq!(on_keys, has_keys, "{name}: keys");
            assert_eq!(on_keys, spec.access.is_some(), "{name}: access");
            if let Some(access) = spec.access {
                let flag = if access == types::Access::Read { Flag::Readonly } else { Flag::Write };
                // As in redis-server, scripts have no flag of writes.
                let is_said = spec.has(flag) || matches!(spec.execution, Execution::Script);
                assert!(is_said, "{name}: {access:?} contradicts its flags");
            }
            let many = has_keys
                && (spec.keys.is_some_and(|keys| keys.last != LastKey::First)
                    || !spec.more_keys.is_empty());
            assert_eq!(
                many,
                matches!(
                    spec.execution,
                    Execution::PerKey(..) | Execution::Keys(_) | Execution::Script
                ),
                "{name}: last key"
            );
            assert!(spec.flags.is_sorted() && spec.categories.is_sorted(), "{name}: order");
            let is_container = matches!(spec.execution, Execution::Container);
            assert!(!is_container || !spec.subcommands.is_empty(), "{name}: empty container");
            for sub in spec.subcommands {
                assert_eq!(sub.name, format!("{name}|{}", sub.short_name()));
            }
        }
    }

    #[test]
    fn session_verbs_have_one_row_each() {
        let mut verbs: Vec<SessionVerb> = all()
            .filter_map(|spec| match spec.execution {
                Execution::Session(verb) => Some(verb),
                _ => None,
            })
            .collect();
        let count = verbs.len();
        verbs.sort_unstable();
        verbs.dedup();
        assert_eq!(verbs.len(), count);
        assert_eq!(
            count,
            SessionVerb::ClusterCountFailureReports as usize + 1,
            "a verb without a row"
        );
    }

    #[test]
    fn the_number_of_arguments_is_checked_first() {
        let text = |args: &[&[u8]]| {
            let error = plan(args, CLOCK).expect_err("wrong number of arguments");
            String::from_utf8(error.text().to_vec()).unwrap()
        };
        for (args, name) in [
            (&[b"GET".as_slice()][..], "get"),
            (&[b"get", b"a", b"b"], "get"),
            (&[b"Client"], "client"),
            (&[b"client", b"GETNAME", b"x"], "client|getname"),
            (&[b"mget"], "mget"),
        ] {
            let expected = format!("ERR wrong number of arguments for '{name}' command");
            assert_eq!(text(args), expected);
        }
        assert_eq!(lookup(b"set").unwrap().arity, Arity::AtLeast(3));
    }

    #[test]
    fn commands_on_several_keys_are_split() {
        let Ok((_, Plan::PerKey { keys, combine, .. })) = plan(&[b"DEL", b"a", b"b"], CLOCK) else {
            panic!("one command per key")
        };
        assert_eq!((keys, combine), (1..3, Combine::Sum));
        assert!(matches!(plan(&[b"DEL", b"a"], CLOCK), Ok((_, Plan::Key { key: 1, .. }))));
        assert!(matches!(plan(&[b"MGET", b"a"], CLOCK), Ok((_, Plan::PerKey { .. }))));
    }

    #[test]
    fn keys_have_a_greatest_length() {
        let long = vec![b'k'; types::limits::KEY_LEN_MAX + 1];
        assert!(plan(&[b"GET", &long[1..]], CLOCK).is_ok());
        let error = plan(&[b"MGET", b"a", &long], CLOCK).expect_err("too long");
        assert!(error.text().starts_with(b"ERR key too large: 65537 bytes"));
    }
}
