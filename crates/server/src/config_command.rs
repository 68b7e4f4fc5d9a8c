//! `CONFIG GET` and `CONFIG SET`: parameters of Redis that tools read and set.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Mutex;

use base::Millis;
use base::decimal::parse_i64;
use commands::SessionVerb;
use commands::glob::{Case, matches};
use node::session::SessionContext;
use types::Reply;

use crate::session::bulk_len_max;
use crate::session_factory::Shared;
use crate::slow::{self, SlowChange};

/// Parameters of features that this store does not have, with the defaults of Redis. They are
/// remembered without effect, so that scripts go on.
const IGNORED: &[(&str, &str)] = &[
    ("activerehashing", "yes"),
    ("hash-max-listpack-entries", "512"),
    ("hash-max-listpack-value", "64"),
    ("hash-max-ziplist-entries", "512"),
    ("hash-max-ziplist-value", "64"),
    ("hll-sparse-max-bytes", "3000"),
    ("lazyfree-lazy-eviction", "no"),
    ("lazyfree-lazy-expire", "no"),
    ("lazyfree-lazy-server-del", "no"),
    ("lazyfree-lazy-user-del", "no"),
    ("lazyfree-lazy-user-flush", "no"),
    ("list-compress-depth", "0"),
    ("list-max-listpack-size", "-2"),
    ("list-max-ziplist-size", "-2"),
    ("set-max-intset-entries", "512"),
    ("set-max-listpack-entries", "128"),
    ("set-max-listpack-value", "64"),
    ("stream-node-max-bytes", "4096"),
    ("stream-node-max-entries", "100"),
    ("zset-max-listpack-entries", "128"),
    ("zset-max-listpack-value", "64"),
    ("zset-max-ziplist-entries", "128"),
    ("zset-max-ziplist-value", "64"),
];
/// Bytes of a value that is remembered.
const VALUE_LEN_MAX: usize = 64;

/// Parameters that redis-server does not let be set either, not even to the present value.
const ALWAYS_IMMUTABLE: &[&str] = &["databases"];

const IMMUTABLE: &str = "can't set immutable config";

/// Seconds that a parameter may have.
const SECONDS_MAX: u64 = i32::MAX as u64;

/// Milliseconds that a parameter may have.
const MILLIS_MAX: u64 = i64::MAX as u64;

/// Values set since the node started.
#[derive(Default)]
pub(crate) struct Settings {
    changed: Mutex<BTreeMap<&'static str, String>>,
}

impl Settings {
    fn all(&self) -> BTreeMap<&'static str, String> {
        self.changed.lock().map(|changed| changed.clone()).unwrap_or_default()
    }

    fn set(&self, name: &'static str, value: String) {
        if let Ok(mut changed) = self.changed.lock() {
            changed.insert(name, value);
        }
    }
}

pub(crate) fn reply(
    shared: &Shared,
    verb: SessionVerb,
    args: &[&[u8]],
    cx: &SessionContext<'_>,
) -> Reply {
    match verb {
        SessionVerb::ConfigGet => {
            let known = values(shared, cx);
            let found = found(&known, &args[2..]).into_iter();
            Reply::map(found.map(|(name, value)| (name, Reply::copy(value.as_bytes()))))
        }
        SessionVerb::ConfigSet => match set(shared, &args[2..], cx) {
            Ok(()) => Reply::OK,
            Err(text) => Reply::error(text),
        },
        _ => Reply::error("ERR The server is running without a config file"),
    }
}

/// Names and values that fit any of `patterns`. A plain name comes back as it was written.
fn found<'a>(known: &'a [(&'static str, String)], patterns: &[&[u8]]) -> Vec<(String, &'a str)> {
    let fits = |name: &str| {
        let one = |p: &&&[u8]| matches(p, name.as_bytes(), Case::Insensitive);
        patterns.iter().find(one).map(|pattern| match pattern {
            plain if plain.eq_ignore_ascii_case(name.as_bytes()) => {
                String::from_utf8_lossy(plain).into_owned()
            }
            _ => name.to_string(),
        })
    };
    known.iter().filter_map(|(name, value)| Some((fits(name)?, value.as_str()))).collect()
}

/// Sets all of the pairs, or none.
fn set(shared: &Shared, pairs: &[&[u8]], cx: &SessionContext<'_>) -> Result<(), String> {
    let failed = |name: &str, why: &str| {
        format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
    };
    if !pairs.len().is_multiple_of(2) {
        return Err("ERR syntax error".into());
    }
    let known = values(shared, cx);
    let mut changes: Vec<(&'static str, Change)> = Vec::new();
    for pair in pairs.chunks_exact(2) {
        let typed = String::from_utf8_lossy(pair[0]);
        let is_it = |(one, _): &&(&'static str, String)| one.eq_ignore_ascii_case(&typed);
        let Some((name, present)) = known.iter().find(is_it) else {
            let text =
                format!("ERR Unknown option or number of arguments for CONFIG SET - '{typed}'");
            return Err(text);
        };
        if changes.iter().any(|(one, _)| one == name) {
            return Err(failed(name, "duplicate parameter"));
        }
        let change =
            change(shared, cx, name, present, pair[1]).map_err(|why| failed(name, &why))?;
        changes.push((name, change));
    }
    changes.into_iter().for_each(|(name, change)| change.apply(name, shared, cx));
    cx.node.step_sessions();
    Ok(())
}

/// One checked pair of `CONFIG SET`.
enum Change {
    /// The value stays the same.
    None,
    /// Taken without effect.
    Remember(String),
    Timeout(u64),
    TcpKeepalive(u64),
    ClientsMax(usize),
    ScriptLimit(u64),
    Password(Option<Vec<u8>>),
    Slow(SlowChange),
}

impl Change {
    fn apply(self, name: &'static str, shared: &Shared, cx: &SessionContext<'_>) {
        let settings = cx.node.client_settings();
        match self {
            Change::None => {}
            Change::Remember(value) => shared.settings.set(name, value),
            Change::Timeout(seconds) => settings.set_timeout(seconds),
            Change::TcpKeepalive(seconds) => settings.set_tcp_keepalive(seconds),
            Change::ScriptLimit(millis) => settings.long_runs().set_limit(Millis(millis)),
            Change::ClientsMax(count) => settings.set_clients_max(count),
            Change::Password(password) => shared.password.set(password),
            Change::Slow(change) => shared.slow.apply(change),
        }
    }
}

/// Checks one pair.
///
/// # Errors
/// The end of the error's text, as redis-server writes it.
fn change(
    shared: &Shared,
    cx: &SessionContext<'_>,
    name: &'static str,
    present: &str,
    value: &[u8],
) -> Result<Change, Cow<'static, str>> {
    let text = String::from_utf8_lossy(value);
    if let Some(change) = slow::check(name, &text) {
        return change.map(Change::Slow);
    }
    match name {
        "timeout" => Ok(Change::Timeout(number(&text, 0, SECONDS_MAX)?)),
        "tcp-keepalive" => Ok(Change::TcpKeepalive(number(&text, 0, SECONDS_MAX)?)),
        "busy-reply-threshold" | "lua-time-limit" => {
            Ok(Change::ScriptLimit(number(&text, 0, MILLIS_MAX)?))
        }
        "maxclients" => {
            let count = number(&text, 1, u64::from(u32::MAX))?;
            let possible = cx.node.client_settings().clients_possible();
            match usize::try_from(count) {
                Ok(count) if count <= possible => Ok(Change::ClientsMax(count)),
                _ => Err(format!(
                    "The operating system is not able to handle the specified number of clients, try with {possible}"
                )
                .into()),
            }
        }
        "requirepass" if value.is_empty() => {
            let is_loopback = cx.node.status().listen.ip().is_loopback();
            match shared.password.may_be_removed(is_loopback) {
                true => Ok(Change::Password(None)),
                false => Err("clients beyond loopback need a password".into()),
            }
        }
        "requirepass" => Ok(Change::Password(Some(value.to_vec()))),
        "maxmemory" => match memory(&text) {
            None => Err("argument must be a memory value".into()),
            Some(0) => Ok(Change::None),
            Some(_) => Err(IMMUTABLE.into()),
        },
        _ => match IGNORED.iter().find(|(one, _)| *one == name) {
            Some((_, default)) => match fault(default, &text) {
                None => Ok(Change::Remember(text.into_owned())),
                Some(why) => Err(why.into()),
            },
            None if ALWAYS_IMMUTABLE.contains(&name) => Err(IMMUTABLE.into()),
            None if present.eq_ignore_ascii_case(&text) => Ok(Change::None),
            None => Err(IMMUTABLE.into()),
        },
    }
}

fn number(text: &str, least: u64, most: u64) -> Result<u64, Cow<'static, str>> {
    let Some(number) = parse_i64(text.as_bytes()) else {
        return Err("argument couldn't be parsed into an integer".into());
    };
    match u64::try_from(number).ok().filter(|number| (least..=most).contains(number)) {
        Some(number) => Ok(number),
        None => Err(format!("argument must be between {least} and {most} inclusive").into()),
    }
}

/// Bytes, with a unit or without.
fn memory(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// The fault of a value in the place of `default`.
fn fault(default: &str, value: &str) -> Option<&'static str> {
    if matches!(default, "yes" | "no") {
        let is_one = ["yes", "no"].iter().any(|word| word.eq_ignore_ascii_case(value));
        return (!is_one).then_some("argument must be 'yes' or 'no'");
    }
    // Some are lengths, which may have a unit.
    let number = value.trim_end_matches(|letter: char| "bkmgBKMG".contains(letter));
    let is_number = value.len() <= VALUE_LEN_MAX && parse_i64(number.as_bytes()).is_some();
    (!is_number).then_some("argument couldn't be parsed into an integer")
}

fn values(shared: &Shared, cx: &SessionContext<'_>) -> Vec<(&'static str, String)> {
    let (config, settings) = (cx.node.config(), cx.node.client_settings());
    let password = shared.password.get().unwrap_or_default();
    let password = String::from_utf8_lossy(&password).into_owned();
    let (host, port) = config.listen.rsplit_once(':').unwrap_or((&config.listen, "6379"));
    let mut values: Vec<(&'static str, String)> = vec![
        ("appendfsync", "always".into()),
        ("appendonly", "no".into()),
        ("bind", host.into()),
        ("busy-reply-threshold", settings.long_runs().limit().0.to_string()),
        ("databases", types::limits::DATABASES.to_string()),
        ("dir", config.data_dir.display().to_string()),
        ("lua-time-limit", settings.long_runs().limit().0.to_string()),
        ("maxclients", settings.clients_max().to_string()),
        ("maxmemory", "0".into()),
        ("maxmemory-policy", "noeviction".into()),
        ("max-value-size", shared.limits.max_value_len().to_string()),
        ("once-window", shared.limits.once_window().0.to_string()),
        ("port", port.into()),
        // There are no notifications.
        ("notify-keyspace-events", String::new()),
        ("proto-max-bulk-len", bulk_len_max(shared).to_string()),
        ("request-timeout", config.request_timeout.0.to_string()),
        ("requirepass", password),
        ("save", String::new()),
        ("tcp-keepalive", settings.tcp_keepalive().to_string()),
        ("timeout", settings.timeout().to_string()),
        ("workers", config.workers.to_string()),
    ];
    values.extend(shared.slow.parameters());
    let mut changed = shared.settings.all();
    values.extend(IGNORED.iter().map(|&(name, default)| {
        (name, changed.remove(name).unwrap_or_else(|| default.to_string()))
    }));
    values.sort();
    values
}
