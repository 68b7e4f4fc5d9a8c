//! What is there in the end: all keys of the databases that sequences use, their values and times to live.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use bench::client::{Client, Value};

use super::Difference;
use super::deviations::MILLIS_SLACK;
use super::hashes;

/// Databases that sequences select.
pub(super) const DATABASES: [&str; 4] = ["0", "1", "2", "15"];

const LIMIT: Duration = Duration::from_secs(10);

/// Value and time to live in milliseconds, by database and key.
pub(super) type State = BTreeMap<(usize, Vec<u8>), (Vec<u8>, i64)>;

pub(super) fn of(address: SocketAddr) -> Result<State> {
    let mut client = Client::connect(address, LIMIT)?;
    let mut state = State::new();
    for (index, database) in DATABASES.iter().enumerate() {
        client.command(&format!("SELECT {database}"))?;
        let Value::List(keys) = client.ask(&[b"KEYS", b"*"])? else { bail!("KEYS is no list") };
        for key in keys {
            let Value::Bulk(key) = key else { bail!("a key is {key:?}") };
            let value = value_of(&mut client, &key)?;
            let Value::Integer(ttl) = client.ask(&[b"PTTL", &key])? else { bail!("no time") };
            state.insert((index, key), (value, ttl));
        }
    }
    Ok(state)
}

/// The value of any type as one text. Sets and hashes are sorted, since they have no order.
fn value_of(client: &mut Client, key: &[u8]) -> Result<Vec<u8>> {
    let kind = client.ask(&[b"TYPE", key])?;
    let Value::Simple(kind) = kind else { bail!("TYPE: {kind:?}") };
    let value = match kind.as_str() {
        "string" => client.ask(&[b"GET", key])?,
        "list" => client.ask(&[b"LRANGE", key, b"0", b"-1"])?,
        "set" => sorted(client.ask(&[b"SMEMBERS", key])?, 1),
        "hash" => sorted(client.ask(&[b"HGETALL", key])?, 2),
        "zset" => client.ask(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"])?,
        other => bail!("no sequence makes a {other}"),
    };
    match value {
        Value::Bulk(value) => Ok(value),
        Value::List(all) if kind == "list" => Ok(format!("{kind} {all:?}").into_bytes()),
        Value::List(all) => {
            let ends = if kind == "hash" { ends_of(client, key, &all)? } else { Vec::new() };
            let encoding = client.ask(&[b"OBJECT", b"ENCODING", key])?;
            Ok(format!("{kind} {encoding:?} {all:?} {ends:?}").into_bytes())
        }
        other => bail!("{kind} {}: {other:?}", key.escape_ascii()),
    }
}

/// When fields end, of those whose end was given as a Unix time.
fn ends_of(client: &mut Client, key: &[u8], pairs: &[Value]) -> Result<Vec<i64>> {
    let names = pairs.iter().step_by(2).filter_map(|name| match name {
        Value::Bulk(name) => Some(name.as_slice()),
        _ => None,
    });
    let count = pairs.len().div_ceil(2).to_string();
    let words = [&b"HPEXPIRETIME"[..], key, b"FIELDS", count.as_bytes()];
    let reply = client.ask(&words.into_iter().chain(names).collect::<Vec<_>>())?;
    let Value::List(ends) = reply else { bail!("HPEXPIRETIME: {reply:?}") };
    let end = |end: Value| match end {
        Value::Integer(end) if end < hashes::DEADLINES_FROM => end.signum(),
        Value::Integer(end) => end,
        _ => 0,
    };
    Ok(ends.into_iter().map(end).collect())
}

/// The reply with its groups of `width` elements in order.
fn sorted(reply: Value, width: usize) -> Value {
    let Value::List(all) = reply else { return reply };
    let mut groups: Vec<&[Value]> = all.chunks(width).collect();
    groups.sort_by_key(|group| format!("{group:?}"));
    Value::List(groups.concat())
}

pub(super) fn difference(ours: &State, theirs: &State) -> Option<Difference> {
    let keys: std::collections::BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    keys.into_iter().find_map(|key| {
        let (our, their) = (ours.get(key), theirs.get(key));
        let same = match (our, their) {
            (Some((a, ttl_a)), Some((b, ttl_b))) => {
                a == b
                    && (ttl_a == ttl_b
                        || (*ttl_a > 0 && *ttl_b > 0 && ttl_a.abs_diff(*ttl_b) <= MILLIS_SLACK))
            }
            _ => false,
        };
        let show = |state: Option<&(Vec<u8>, i64)>| {
            state.map_or("no such key".to_owned(), |(value, ttl)| {
                format!("\"{}\", PTTL {ttl}", value.escape_ascii())
            })
        };
        let (database, name) = (DATABASES[key.0], key.1.escape_ascii());
        (!same).then(|| Difference {
            what: format!("in the end, key {name} of database {database}"),
            ours: show(our),
            theirs: show(their),
        })
    })
}
