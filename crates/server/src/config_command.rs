//! `CONFIG GET` and `CONFIG SET`: what tools ask for and what they insist on setting.

use std::collections::BTreeMap;
use std::sync::Mutex;

use base::decimal::parse_i64;
use bytes::Bytes;
use commands::SessionVerb;
use commands::glob::{Case, matches};
use node::front::SessionContext;
use resp::encode;

use crate::front::Shared;
use crate::session::bulk_len_max;
use crate::slow::{self, SlowChange};

/// Knobs that tune what this store does not have, with the defaults of Redis: taken and remembered without effect, so
/// that scripts go on.
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

/// What was set since the node started.
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
) -> Bytes {
    let mut out = Vec::new();
    match verb {
        SessionVerb::ConfigGet => {
            let known = values(shared, cx);
            let found = found(&known, &args[2..]);
            encode::map(&mut out, found.len());
            for (name, value) in found {
                encode::bulk(&mut out, name.as_bytes());
                encode::bulk(&mut out, value.as_bytes());
            }
        }
        SessionVerb::ConfigSet => match set(shared, &args[2..], cx) {
            Ok(()) => encode::simple(&mut out, b"OK"),
            Err(text) => encode::error(&mut out, text.as_bytes()),
        },
        _ => encode::error(&mut out, b"ERR The server is running without a config file"),
    }
    out.into()
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
        Err(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
    };
    if !pairs.len().is_multiple_of(2) {
        return Err("ERR syntax error".into());
    }
    let known = values(shared, cx);
    let mut wanted: Vec<(&'static str, String)> = Vec::new();
    let mut slow_wanted: Vec<(&'static str, SlowChange)> = Vec::new();
    for pair in pairs.chunks_exact(2) {
        let name = String::from_utf8_lossy(pair[0]).to_lowercase();
        let value = String::from_utf8_lossy(pair[1]).into_owned();
        let Some((name, present)) = known.iter().find(|(one, _)| *one == name) else {
            return Err(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
            ));
        };
        if wanted.iter().any(|(one, _)| one == name)
            || slow_wanted.iter().any(|(one, _)| one == name)
        {
            return failed(name, "duplicate parameter");
        }
        if let Some(change) = slow::check(name, &value) {
            match change {
                Ok(change) => slow_wanted.push((name, change)),
                Err(why) => return failed(name, &why),
            }
            continue;
        }
        if let Some((_, default)) = IGNORED.iter().find(|(one, _)| one == name) {
            if let Some(why) = fault(default, &value) {
                return failed(name, why);
            }
            wanted.push((name, value));
        } else if !present.eq_ignore_ascii_case(&value) {
            let why = "can't set immutable config, change it in the configuration file";
            return failed(name, why);
        }
    }
    wanted.into_iter().for_each(|(name, value)| shared.settings.set(name, value));
    slow_wanted.into_iter().for_each(|(_, change)| shared.slow.apply(change));
    Ok(())
}

/// What is wrong with a value in the place of `default`.
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
    let config = cx.node.config();
    let (host, port) = config.listen.rsplit_once(':').unwrap_or((&config.listen, "6379"));
    let mut values: Vec<(&'static str, String)> = vec![
        ("appendfsync", "always".into()),
        ("appendonly", "no".into()),
        ("bind", host.into()),
        ("databases", types::limits::DATABASES.to_string()),
        ("dir", config.data_dir.display().to_string()),
        ("maxclients", config.clients_max.to_string()),
        ("maxmemory", "0".into()),
        ("maxmemory-policy", "noeviction".into()),
        ("max-value-size", shared.limits.max_value_len().to_string()),
        ("once-window", shared.limits.once_window().0.to_string()),
        ("port", port.into()),
        // Nothing is notified, and nobody is told otherwise.
        ("notify-keyspace-events", String::new()),
        ("proto-max-bulk-len", bulk_len_max(shared).to_string()),
        ("request-timeout", config.request_timeout.0.to_string()),
        ("requirepass", String::new()),
        ("save", String::new()),
        ("tcp-keepalive", "300".into()),
        ("timeout", "0".into()),
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
