//! Commands over the keyspace: listings of its 256 shards from quorums, several shards at a time.
//!
//! `SCAN` takes one step per call, its cursor is a position in the hash space plus one. `KEYS`, `DBSIZE` and the flushes
//! walk everything. `FLUSHALL` deletes key by key: a write that is concurrent may survive.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use commands::SessionVerb;
use commands::glob::{Case, matches};
use node::front::SessionContext;
use node::status::Facts;
use resp::encode;
use types::{Clock, Command, Database, Key, Outcome};

use crate::outcomes;
use crate::pipeline::token;

/// Shards listed at a time.
const SHARDS_AT_ONCE: usize = 16;
/// Keys of one listing.
const LISTING_LEN: usize = 1024;
/// Deletes of a flush under way at a time.
const DELETES_AT_ONCE: usize = 256;
/// Bytes of keys that `KEYS` may answer with.
const KEYS_LEN_MAX: usize = 256 << 20;
const SHARDS: u64 = 256;
/// Parts from here on are deletes; below, the shard of a listing.
const DELETE_PARTS: usize = 1 << 10;

/// What is to be found out.
pub(crate) struct WalkKind {
    what: What,
    databases: VecDeque<Database>,
}

enum What {
    Scan { from_hash: u64, pattern: Option<Vec<u8>>, count: usize, wants_strings: bool },
    Keys { pattern: Vec<u8> },
    Count,
    Random { start: u64 },
    Flush { delete: Command },
}

/// A walk under way.
pub(crate) struct Walk {
    kind: WalkKind,
    /// Next shard to begin.
    next_shard: u64,
    /// Listings under way or to be continued, by shard: the position.
    listing: BTreeMap<u64, Option<u64>>,
    found: Vec<Key>,
    found_len: usize,
    count: i64,
    to_delete: VecDeque<Key>,
    deleting: usize,
    error: Option<Bytes>,
    scan_next: Option<Option<u64>>,
    visited: u64,
}

impl WalkKind {
    pub(crate) fn parse(
        verb: SessionVerb,
        args: &[&[u8]],
        database: Database,
        node: &dyn Facts,
        seed: u64,
    ) -> Result<WalkKind, Bytes> {
        let mut databases = VecDeque::from([database]);
        let what = match verb {
            SessionVerb::Scan => scan(args)?,
            SessionVerb::Keys => What::Keys { pattern: args[1].to_vec() },
            SessionVerb::RandomKey => What::Random { start: seed },
            SessionVerb::FlushAll | SessionVerb::FlushDb => {
                check_flush(args)?;
                if verb == SessionVerb::FlushAll {
                    databases = node.config().databases.iter().map(|one| one.database).collect();
                }
                What::Flush { delete: delete_command() }
            }
            _ => What::Count,
        };
        Ok(WalkKind { what, databases })
    }
}

fn error(text: &str) -> Bytes {
    let mut reply = Vec::new();
    encode::error(&mut reply, text.as_bytes());
    reply.into()
}

fn check_flush(args: &[&[u8]]) -> Result<(), Bytes> {
    match args {
        [_] => Ok(()),
        [_, how] if how.eq_ignore_ascii_case(b"sync") || how.eq_ignore_ascii_case(b"async") => {
            Ok(())
        }
        _ => Err(error("ERR syntax error")),
    }
}

/// The same deletion as `DEL` of one key.
fn delete_command() -> Command {
    let clock = Clock { unix: base::Millis(0), seed: 0 };
    match commands::plan(&[b"DEL", b"k"], clock) {
        Ok((_, commands::Plan::Key { command, .. } | commands::Plan::PerKey { command, .. })) => {
            command
        }
        _ => unreachable!("DEL of one key is a command on one key"),
    }
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`.
fn scan(args: &[&[u8]]) -> Result<What, Bytes> {
    let cursor = std::str::from_utf8(args[1]).ok().and_then(|text| text.parse::<u64>().ok());
    let Some(cursor) = cursor else { return Err(error("ERR invalid cursor")) };
    let (mut pattern, mut count, mut wants_strings) = (None, 10, true);
    let mut rest = &args[2..];
    while let Some((option, after)) = rest.split_first() {
        let Some((value, more)) = after.split_first() else {
            return Err(error("ERR syntax error"));
        };
        if option.eq_ignore_ascii_case(b"match") {
            pattern = Some(value.to_vec());
        } else if option.eq_ignore_ascii_case(b"count") {
            match base::decimal::parse_i64(value) {
                Some(number) if number >= 1 => count = number.min(LISTING_LEN as i64) as usize,
                Some(_) => return Err(error("ERR syntax error")),
                None => return Err(error("ERR value is not an integer or out of range")),
            }
        } else if option.eq_ignore_ascii_case(b"type") {
            wants_strings = value.eq_ignore_ascii_case(b"string");
        } else {
            return Err(error("ERR syntax error"));
        }
        rest = more;
    }
    Ok(What::Scan { from_hash: cursor, pattern, count, wants_strings })
}

impl Walk {
    pub(crate) fn new(kind: WalkKind) -> Walk {
        let next_shard = match kind.what {
            What::Scan { .. } | What::Random { .. } => SHARDS,
            _ => 0,
        };
        let mut listing = BTreeMap::new();
        match kind.what {
            What::Scan { from_hash, .. } => listing.insert(from_hash >> 56, Some(from_hash)),
            What::Random { start } => listing.insert(start >> 56, Some(start)),
            _ => None,
        };
        Walk {
            kind,
            next_shard,
            listing,
            found: Vec::new(),
            found_len: 0,
            count: 0,
            to_delete: VecDeque::new(),
            deleting: 0,
            error: None,
            scan_next: None,
            visited: 0,
        }
    }

    /// Asks for what comes next, within bounds.
    pub(crate) fn go_on(&mut self, number: u64, cx: &mut SessionContext<'_>) {
        let Some(&database) = self.kind.databases.front() else { return };
        if self.error.is_some() {
            return;
        }
        while self.deleting < DELETES_AT_ONCE {
            let (Some(key), What::Flush { delete }) = (self.to_delete.pop_front(), &self.kind.what)
            else {
                break;
            };
            self.deleting += 1;
            cx.run(token(number, DELETE_PARTS), database, key, delete.clone());
        }
        // Listing waits for deleting: neither piles up.
        if self.to_delete.len() >= LISTING_LEN {
            return;
        }
        while self.next_shard < SHARDS && self.listing.len() < SHARDS_AT_ONCE {
            self.listing.insert(self.next_shard, Some(self.next_shard << 56));
            self.next_shard += 1;
        }
        let limit = match self.kind.what {
            What::Scan { count, .. } => count,
            What::Random { .. } => 1,
            _ => LISTING_LEN,
        };
        for (shard, position) in &mut self.listing {
            if let Some(from_hash) = position.take() {
                cx.list(token(number, *shard as usize), database, from_hash, limit);
            }
        }
    }

    pub(crate) fn take(&mut self, part: usize, outcome: Outcome) {
        if part >= DELETE_PARTS {
            self.deleting -= 1;
            let reply = outcomes::reply(outcome);
            if reply.first() == Some(&b'-') {
                self.fail(reply);
            }
            return;
        }
        let shard = part as u64;
        self.listing.remove(&shard);
        match outcome {
            Outcome::Listed { keys, next_hash } => self.take_listing(shard, keys, next_hash),
            other => self.fail(outcomes::reply(other)),
        }
    }

    fn fail(&mut self, reply: Bytes) {
        let known = self.error.take();
        self.error = Some(known.map_or(reply.clone(), |known| outcomes::graver(known, reply)));
    }

    fn take_listing(&mut self, shard: u64, keys: Vec<Key>, next_hash: Option<u64>) {
        match &self.kind.what {
            What::Scan { pattern, wants_strings, .. } => {
                let fits = |key: &Key| {
                    let pattern = pattern.as_deref();
                    *wants_strings
                        && pattern.is_none_or(|p| matches(p, key.bytes(), Case::Sensitive))
                };
                self.found = keys.into_iter().filter(fits).collect();
                let next = next_hash.or((shard + 1 < SHARDS).then_some((shard + 1) << 56));
                self.scan_next = Some(next);
                return;
            }
            What::Random { .. } => {
                self.visited += 1;
                if let Some(key) = keys.into_iter().next() {
                    self.found.push(key);
                } else if let Some(next) = next_hash {
                    self.listing.insert(shard, Some(next));
                } else if self.visited <= SHARDS {
                    let next = (shard + 1) % SHARDS;
                    self.listing.insert(next, Some(next << 56));
                }
                return;
            }
            What::Keys { pattern } => {
                let fits = |key: &Key| matches(pattern, key.bytes(), Case::Sensitive);
                for key in keys.into_iter().filter(fits) {
                    self.found_len += key.bytes().len() + 16;
                    self.found.push(key);
                }
                if self.found_len > KEYS_LEN_MAX {
                    self.fail(error("ERR too many keys for one reply: use SCAN"));
                }
            }
            What::Count => self.count += keys.len() as i64,
            What::Flush { .. } => self.to_delete.extend(keys),
        }
        if let Some(next) = next_hash {
            self.listing.insert(shard, Some(next));
        }
    }

    /// The reply, once there is nothing left to ask or wait for.
    pub(crate) fn finished(&mut self) -> Option<Bytes> {
        if self.error.is_some() {
            // What is under way ends on its own; its outcomes find nobody.
            return self.error.take();
        }
        self.is_through().then(|| self.reply())
    }

    fn is_through(&self) -> bool {
        let under_way = !self.listing.is_empty() || self.deleting > 0 || !self.to_delete.is_empty();
        !under_way && self.next_shard == SHARDS
    }

    /// Begins the next database once one is through. False when there is none.
    pub(crate) fn next_database(&mut self) -> bool {
        let goes_on = self.error.is_none() && self.is_through() && self.kind.databases.len() > 1;
        if goes_on {
            self.kind.databases.pop_front();
            self.next_shard = 0;
        }
        goes_on
    }

    fn reply(&mut self) -> Bytes {
        let mut out = Vec::new();
        match self.kind.what {
            What::Scan { .. } => {
                let next = self.scan_next.flatten().unwrap_or(0);
                encode::array(&mut out, 2);
                encode::bulk(&mut out, next.to_string().as_bytes());
                put_keys(&mut out, &self.found);
            }
            What::Keys { .. } => put_keys(&mut out, &self.found),
            What::Count => encode::integer(&mut out, self.count),
            What::Random { .. } => match self.found.first() {
                Some(key) => encode::bulk(&mut out, key.bytes()),
                None => encode::null(&mut out),
            },
            What::Flush { .. } => encode::simple(&mut out, b"OK"),
        }
        out.into()
    }
}

fn put_keys(out: &mut Vec<u8>, keys: &[Key]) {
    encode::array(out, keys.len());
    keys.iter().for_each(|key| encode::bulk(out, key.bytes()));
}
