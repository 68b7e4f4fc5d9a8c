//! What is there in the end: all keys of the databases that sequences use, their values and times to live.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use bench::client::{Client, Value};

use super::Difference;
use super::deviations::MILLIS_SLACK;

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
            let Value::Bulk(value) = client.ask(&[b"GET", &key])? else { bail!("no value") };
            let Value::Integer(ttl) = client.ask(&[b"PTTL", &key])? else { bail!("no time") };
            state.insert((index, key), (value, ttl));
        }
    }
    Ok(state)
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
