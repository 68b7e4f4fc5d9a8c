//! `CONFIG GET` and `CONFIG SET`: what tools ask for and what they insist on setting.

use bytes::Bytes;
use commands::SessionVerb;
use commands::glob::{Case, matches};
use node::front::SessionContext;
use resp::encode;

use crate::front::Shared;

/// Knobs that tune what this store does not have: taken and ignored, so that scripts go on.
const IGNORED: &[&str] = &[
    "activerehashing",
    "hash-max-listpack-entries",
    "hash-max-listpack-value",
    "hash-max-ziplist-entries",
    "hash-max-ziplist-value",
    "hll-sparse-max-bytes",
    "latency-monitor-threshold",
    "lazyfree-lazy-eviction",
    "lazyfree-lazy-expire",
    "lazyfree-lazy-server-del",
    "lazyfree-lazy-user-del",
    "lazyfree-lazy-user-flush",
    "list-compress-depth",
    "list-max-listpack-size",
    "list-max-ziplist-size",
    "notify-keyspace-events",
    "set-max-intset-entries",
    "set-max-listpack-entries",
    "set-max-listpack-value",
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "stream-node-max-bytes",
    "stream-node-max-entries",
    "zset-max-listpack-entries",
    "zset-max-listpack-value",
    "zset-max-ziplist-entries",
    "zset-max-ziplist-value",
];

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
            let fits = |name: &str| {
                args[2..].iter().any(|p| matches(p, name.as_bytes(), Case::Insensitive))
            };
            let found: Vec<_> = known.iter().filter(|(name, _)| fits(name)).collect();
            encode::map(&mut out, found.len());
            for (name, value) in found {
                encode::bulk(&mut out, name.as_bytes());
                encode::bulk(&mut out, value.as_bytes());
            }
        }
        SessionVerb::ConfigSet => match set(args) {
            Ok(()) => encode::simple(&mut out, b"OK"),
            Err(text) => encode::error(&mut out, text.as_bytes()),
        },
        _ => encode::error(&mut out, b"ERR The server is running without a config file"),
    }
    out.into()
}

fn set(args: &[&[u8]]) -> Result<(), String> {
    for pair in args[2..].chunks(2) {
        let [name, value] = pair else {
            return Err("ERR wrong number of arguments for 'config|set' command".into());
        };
        let name = String::from_utf8_lossy(name).to_lowercase();
        let is_noeviction = name == "maxmemory-policy" && value.eq_ignore_ascii_case(b"noeviction");
        if !IGNORED.contains(&name.as_str()) && !is_noeviction {
            return Err(format!(
                "ERR CONFIG SET failed (possibly related to argument '{name}') - \
                 can't set immutable config, change it in the configuration file"
            ));
        }
    }
    Ok(())
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
        ("max-value-size", shared.config.max_value_size.to_string()),
        ("port", port.into()),
        ("proto-max-bulk-len", "536870912".into()),
        ("request-timeout", config.request_timeout.0.to_string()),
        ("requirepass", String::new()),
        ("save", String::new()),
        ("tcp-keepalive", "300".into()),
        ("timeout", "0".into()),
        ("workers", config.workers.to_string()),
    ];
    values.extend(IGNORED.iter().map(|name| (*name, "0".to_string())));
    values.sort();
    values
}
