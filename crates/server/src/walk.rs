//! Commands over the keyspace: listings of its 256 shards from quorums, several shards at a time.
//!
//! `SCAN` goes on until it has looked at `COUNT` keys; its [cursor] is a position in the hash
//! space. `KEYS`, `DBSIZE` and the flushes walk the whole hash space. `FLUSHALL` deletes key by
//! key, so a concurrent write may survive. A walk begins once all earlier requests of its
//! connection are answered, and later ones wait for it.

use std::collections::{BTreeMap, VecDeque};

use commands::SessionVerb;
use commands::glob::{Case, matches};
use node::session::SessionContext;
use node::status::Facts;
use types::{Clock, Command, Database, Key, Outcome, Reply};
use values::Kind;

use crate::key_reads::{KeyReads, Settled, Wanted};
use crate::pipeline::token;
use crate::script_command::{self, SOURCE_PREFIX};
use crate::{cursor, outcomes};

/// Shards listed at a time.
const SHARDS_AT_ONCE: u64 = 16;
/// Registers of one listing. Those without a key take part while they are in memory, so it may come
/// without any.
const LISTING_LEN: usize = 1024;
/// Registers that `RANDOMKEY` draws from, where they all are keys.
const DRAW_LEN: usize = 16;
/// Keys that one `SCAN` looks at; asked for more, it answers with fewer.
const SCAN_COUNT_MAX: i64 = 16 * LISTING_LEN as i64;
/// Deletes of a flush under way at a time: as many as a client's pipeline has, so that commits are
/// as large.
const DELETES_AT_ONCE: usize = 1024;
/// The same while storage cannot keep up.
const DELETES_WHEN_FULL: usize = 32;
/// Keys to be deleted before a flush lists no more.
const LISTED_AHEAD: usize = 4 * DELETES_AT_ONCE;
/// Bytes of keys that `KEYS` may answer with.
const KEYS_LEN_MAX: usize = 256 << 20;
const SHARDS: u64 = 256;
/// Parts from here on are deletes; below, the stretch of a listing.
const DELETE_PARTS: usize = 1 << 10;
/// Parts from here on ask whether a key exists.
const EXISTS_PARTS: usize = 1 << 11;
/// Parts from here on ask for the type of a key.
const TYPE_PARTS: usize = 1 << 12;

/// A request for a walk.
pub(crate) struct WalkKind {
    task: Task,
    databases: VecDeque<Database>,
}

enum Task {
    /// `None` behind the end of the hash space.
    Scan {
        from_hash: Option<u64>,
        pattern: Option<Vec<u8>>,
        count: usize,
        wanted: WantedType,
    },
    Keys {
        pattern: Vec<u8>,
    },
    Count,
    Random {
        start: u64,
    },
    Flush {
        victims: Victims,
    },
}

/// The keys that a flush deletes.
enum Victims {
    All {
        delete: Command,
    },
    /// Sources of scripts that were stored before this generation.
    Sources {
        generation: Vec<u8>,
    },
}

/// The types of the keys that a scan finds.
#[derive(Clone, Copy)]
enum WantedType {
    Any,
    Only(Kind),
    /// A name that no type has.
    Unknown,
}

/// A walk under way: a number of stretches of the hash space, each within one shard, in order.
pub(crate) struct Walk {
    kind: WalkKind,
    /// Where the first stretch begins; the others begin where a shard does.
    start: u64,
    stretches: u64,
    /// Next stretch to begin.
    next: u64,
    /// Stretches that are through, counted from the first.
    through: u64,
    /// Listings under way or to be continued, by stretch: the position.
    listing: BTreeMap<u64, Option<u64>>,
    /// Listings of a scan that came before those of earlier stretches: keys, and where they go on.
    early: BTreeMap<u64, (Vec<Key>, Option<u64>)>,
    undecided: KeyReads,
    /// Keys that a scan found, if it wants one type: some are still of another.
    types: Option<KeyReads>,
    /// Keys looked at, of those that `SCAN` counts, and the cursor of the last one.
    visited: usize,
    /// Lists of keys whose types were asked for.
    batches: u64,
    last_cursor: Option<u64>,
    /// Listings without a key that were not the last of their shard. The next ones ask for more
    /// registers.
    barren: u32,
    found: Vec<Key>,
    found_len: usize,
    count: i64,
    to_delete: VecDeque<Key>,
    deleting: usize,
    has_deleted: bool,
    error: Option<Outcome>,
    /// Enough was found: where a scan goes on, 0 for nowhere.
    ended_at: Option<u64>,
}

impl WalkKind {
    pub(crate) fn parse(
        verb: SessionVerb,
        args: &[&[u8]],
        database: Database,
        node: &dyn Facts,
        seed: u64,
    ) -> Result<WalkKind, Reply> {
        let mut databases = VecDeque::from([database]);
        let task = match verb {
            SessionVerb::Scan => scan(args)?,
            SessionVerb::Keys => Task::Keys { pattern: args[1].to_vec() },
            SessionVerb::RandomKey => Task::Random { start: seed },
            SessionVerb::FlushAll | SessionVerb::FlushDb => {
                check_flush(args)?;
                if verb == SessionVerb::FlushAll {
                    databases = node.config().databases.iter().map(|one| one.database).collect();
                }
                Task::Flush { victims: Victims::All { delete: of_one_key(b"DEL") } }
            }
            _ => Task::Count,
        };
        Ok(WalkKind { task, databases })
    }

    /// The end of `SCRIPT FLUSH`.
    pub(crate) fn sources_before(generation: u64) -> WalkKind {
        let victims = Victims::Sources { generation: generation.to_string().into() };
        WalkKind { task: Task::Flush { victims }, databases: VecDeque::from([Database::SYSTEM]) }
    }
}

fn error(text: &'static str) -> Reply {
    Reply::error(text)
}

fn check_flush(args: &[&[u8]]) -> Result<(), Reply> {
    match args {
        [_] => Ok(()),
        [_, how] if how.eq_ignore_ascii_case(b"sync") || how.eq_ignore_ascii_case(b"async") => {
            Ok(())
        }
        _ => Err(error("ERR syntax error")),
    }
}

/// The command on one key that a command on several keys consists of.
pub(crate) fn of_one_key(name: &[u8]) -> Command {
    let clock = Clock { unix: base::Millis(0), seed: 0 };
    match commands::plan(&[name, b"k"], clock) {
        Ok((_, commands::Plan::Key { command, .. } | commands::Plan::PerKey { command, .. })) => {
            command
        }
        _ => unreachable!("it takes one key"),
    }
}

impl Victims {
    fn has(&self, key: &Key) -> bool {
        match self {
            Victims::All { .. } => true,
            Victims::Sources { .. } => key.bytes().starts_with(SOURCE_PREFIX),
        }
    }

    /// Deletes one.
    fn delete(&self, key: &Key) -> Option<Command> {
        match self {
            Victims::All { delete } => Some(delete.clone()),
            Victims::Sources { generation } => script_command::delete_before(key, generation),
        }
    }
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`.
fn scan(args: &[&[u8]]) -> Result<Task, Reply> {
    let Some(cursor) = cursor::parse(args[1]) else { return Err(error("ERR invalid cursor")) };
    let (mut pattern, mut count, mut wanted) = (None, 10, WantedType::Any);
    let mut rest = &args[2..];
    while let Some((option, after)) = rest.split_first() {
        let Some((value, more)) = after.split_first() else {
            return Err(error("ERR syntax error"));
        };
        if option.eq_ignore_ascii_case(b"match") {
            pattern = Some(value.to_vec());
        } else if option.eq_ignore_ascii_case(b"count") {
            match base::decimal::parse_i64(value) {
                Some(number) if number >= 1 => count = number.min(SCAN_COUNT_MAX) as usize,
                Some(_) => return Err(error("ERR syntax error")),
                None => return Err(error("ERR value is not an integer or out of range")),
            }
        } else if option.eq_ignore_ascii_case(b"type") {
            wanted = WantedType::named(value);
        } else {
            return Err(error("ERR syntax error"));
        }
        rest = more;
    }
    let from_hash = cursor::position(cursor);
    Ok(Task::Scan { from_hash, pattern, count, wanted })
}

impl WantedType {
    fn named(name: &[u8]) -> WantedType {
        let is_named = |kind: &Kind| kind.name().as_bytes().eq_ignore_ascii_case(name);
        Kind::ALL.into_iter().find(is_named).map_or(WantedType::Unknown, WantedType::Only)
    }
}

impl Walk {
    pub(crate) fn new(kind: WalkKind) -> Walk {
        let (start, stretches) = match kind.task {
            Task::Scan { from_hash: Some(from), .. } => (from, SHARDS - (from >> 56)),
            Task::Scan { from_hash: None, .. } => (0, 0),
            // Once around: the first shard comes again, for the part before the start.
            Task::Random { start } => (start, SHARDS + 1),
            _ => (0, SHARDS),
        };
        let types = match kind.task {
            Task::Scan { wanted: WantedType::Only(kind), .. } => {
                Some(KeyReads::new(Wanted::OfType(kind.name()), TYPE_PARTS))
            }
            _ => None,
        };
        Walk {
            kind,
            start,
            stretches,
            next: 0,
            through: 0,
            listing: BTreeMap::new(),
            early: BTreeMap::new(),
            undecided: KeyReads::new(Wanted::Existing, EXISTS_PARTS),
            types,
            visited: 0,
            batches: 0,
            last_cursor: None,
            barren: 0,
            found: Vec::new(),
            found_len: 0,
            count: 0,
            to_delete: VecDeque::new(),
            deleting: 0,
            has_deleted: false,
            error: None,
            ended_at: None,
        }
    }

    /// Where a stretch begins.
    fn position(&self, stretch: u64) -> u64 {
        match stretch {
            0 => self.start,
            later => (((self.start >> 56) + later) % SHARDS) << 56,
        }
    }

    /// Stretches at a time. A walk that may end early begins with one and widens while it finds no
    /// key.
    fn width(&self) -> u64 {
        match self.kind.task {
            Task::Scan { .. } | Task::Random { .. } => (self.through + 1).min(SHARDS_AT_ONCE),
            _ => SHARDS_AT_ONCE,
        }
    }

    /// Registers of the next listings.
    fn limit(&self) -> usize {
        let wanted = match self.kind.task {
            Task::Scan { count, .. } => match count.saturating_sub(self.visited) {
                // The keys of the last cursor are still to come.
                0 => LISTING_LEN,
                missing => missing,
            },
            Task::Random { .. } => DRAW_LEN,
            _ => LISTING_LEN,
        };
        wanted.saturating_mul(1 << self.barren.min(16)).min(LISTING_LEN)
    }

    /// Sends the next requests, within bounds.
    pub(crate) fn go_on(&mut self, number: u64, cx: &mut SessionContext<'_>) {
        let Some(&database) = self.kind.databases.front() else { return };
        if self.error.is_some() {
            return;
        }
        if let Some(types) = &mut self.types {
            types.go_on(number, database, cx);
        }
        if self.ended_at.is_some() {
            return;
        }
        self.go_on_deleting(number, database, cx);
        self.undecided.go_on(number, database, cx);
        // Listing waits for deleting: neither piles up.
        if self.to_delete.len() >= LISTED_AHEAD {
            return;
        }
        let waiting = self.listing.len() + self.early.len() + self.undecided.len();
        let room = self.width().saturating_sub(waiting as u64);
        for _ in 0..room.min(self.stretches - self.next) {
            self.listing.insert(self.next, Some(self.position(self.next)));
            self.next += 1;
        }
        let limit = self.limit();
        for (stretch, position) in &mut self.listing {
            if let Some(from_hash) = position.take() {
                cx.list(token(number, *stretch as usize), database, from_hash, limit);
            }
        }
    }

    fn go_on_deleting(&mut self, number: u64, database: Database, cx: &mut SessionContext<'_>) {
        let Task::Flush { victims } = &self.kind.task else { return };
        // In portions: each delete alone would be a commit of its own.
        if self.deleting > DELETES_AT_ONCE / 2 {
            return;
        }
        while self.deleting < DELETES_WHEN_FULL
            || (self.deleting < DELETES_AT_ONCE && cx.takes_writes())
        {
            let Some(key) = self.to_delete.pop_front() else { return };
            let Some(delete) = victims.delete(&key) else { continue };
            self.deleting += 1;
            self.has_deleted = true;
            cx.run(token(number, DELETE_PARTS), database, key, delete);
        }
    }

    pub(crate) fn take(&mut self, part: usize, outcome: Outcome) {
        if part >= TYPE_PARTS {
            let settled = self.types.as_mut().map(|types| types.take(part, outcome));
            match settled {
                None | Some(Settled::NotYet) => {}
                Some(Settled::Listing(_, keys, _)) => self.found.extend(keys),
                Some(Settled::Error(outcome)) => self.fail(outcome),
            }
            return;
        }
        if part >= EXISTS_PARTS {
            match self.undecided.take(part, outcome) {
                Settled::NotYet => {}
                Settled::Listing(stretch, keys, next) => self.take_listing(stretch, keys, next),
                Settled::Error(outcome) => self.fail(outcome),
            }
            return;
        }
        if part >= DELETE_PARTS {
            self.deleting -= 1;
            if outcomes::is_error(&outcome) {
                self.fail(outcome);
            }
            return;
        }
        let stretch = part as u64;
        self.listing.remove(&stretch);
        match outcome {
            Outcome::Listed { mut keys, undecided, next_hash } => {
                if matches!(self.kind.task, Task::Flush { .. }) {
                    // Deleting an absent key has no effect.
                    keys.extend(undecided);
                } else if !undecided.is_empty() {
                    return self.undecided.add(stretch, keys, next_hash, undecided);
                }
                self.take_listing(stretch, keys, next_hash);
            }
            other => self.fail(other),
        }
    }

    fn fail(&mut self, outcome: Outcome) {
        let outcome = outcomes::of_several(outcome, self.has_deleted);
        self.error = Some(match self.error.take() {
            Some(known) => outcomes::graver(known, outcome),
            None => outcome,
        });
    }

    fn take_listing(&mut self, stretch: u64, mut keys: Vec<Key>, next_hash: Option<u64>) {
        if keys.is_empty() && next_hash.is_some() {
            self.barren += 1;
        }
        match &self.kind.task {
            Task::Scan { .. } => {
                self.early.insert(stretch, (keys, next_hash));
                return self.go_on_scanning();
            }
            Task::Random { start } if !keys.is_empty() => {
                self.ended_at = Some(0);
                let drawn = *start as usize % keys.len();
                self.found = vec![keys.swap_remove(drawn)];
            }
            Task::Random { .. } => {}
            Task::Keys { pattern } => {
                let fits = |key: &Key| matches(pattern, key.bytes(), Case::Sensitive);
                for key in keys.into_iter().filter(fits) {
                    self.found_len += key.bytes().len() + 16;
                    self.found.push(key);
                }
                if self.found_len > KEYS_LEN_MAX {
                    self.fail(Outcome::Reply(error("ERR too many keys for one reply: use SCAN")));
                }
            }
            Task::Count => self.count += keys.len() as i64,
            Task::Flush { victims } => {
                self.to_delete.extend(keys.into_iter().filter(|key| victims.has(key)));
            }
        }
        match next_hash {
            Some(next) => {
                self.listing.insert(stretch, Some(next));
            }
            None => self.through += 1,
        }
    }

    /// Takes listed keys in the order of the hash space until there are enough. The cursor is then
    /// the position of the next key; keys listed beyond it are dropped.
    fn go_on_scanning(&mut self) {
        let Task::Scan { pattern, count, wanted, .. } = &self.kind.task else { return };
        let (count, wanted) = (*count, *wanted);
        while let Some((mut keys, mut next_hash)) = self.early.remove(&self.through) {
            let room = count.saturating_sub(self.visited);
            next_hash = cursor::cut(&mut keys, room, self.last_cursor).or(next_hash);
            self.visited += keys.len();
            self.last_cursor = keys.last().map(|key| cursor::of(key.hash())).or(self.last_cursor);
            let fits = |key: &Key| {
                let fits_pattern = |p: &Vec<u8>| matches(p, key.bytes(), Case::Sensitive);
                pattern.as_ref().is_none_or(fits_pattern)
            };
            keys.retain(fits);
            match (wanted, &mut self.types) {
                (WantedType::Unknown, _) => {}
                (WantedType::Only(_), Some(types)) if !keys.is_empty() => {
                    self.batches += 1;
                    types.add(self.batches, Vec::new(), None, keys);
                }
                _ => self.found.append(&mut keys),
            }
            match next_hash {
                Some(next)
                    if self.visited < count || self.last_cursor == Some(cursor::of(next)) =>
                {
                    self.listing.insert(self.through, Some(next));
                    return;
                }
                Some(next) => return self.ended_at = Some(next),
                None => self.through += 1,
            }
            if self.visited >= count && self.through < self.stretches {
                return self.ended_at = Some(self.position(self.through));
            }
        }
    }

    /// The outcome, once no request is left to be sent or answered.
    pub(crate) fn finished(&mut self) -> Option<Outcome> {
        if let Some(error) = self.error.take() {
            // Outcomes of requests under way are ignored.
            return Some(match self.kind.task {
                // The sources count no more. A later flush finds those that stay.
                Task::Flush { victims: Victims::Sources { .. } } => Outcome::Reply(Reply::OK),
                _ => error,
            });
        }
        self.is_through().then(|| Outcome::Reply(self.reply()))
    }

    fn is_through(&self) -> bool {
        let is_deleted = self.deleting == 0 && self.to_delete.is_empty();
        let is_typed = self.types.as_ref().is_none_or(|types| types.len() == 0);
        let is_listed = self.through == self.stretches && is_deleted;
        (self.ended_at.is_some() || is_listed) && is_typed
    }

    /// Begins the next database once one is through. False when there is none.
    pub(crate) fn next_database(&mut self) -> bool {
        let goes_on = self.error.is_none() && self.is_through() && self.kind.databases.len() > 1;
        if goes_on {
            self.kind.databases.pop_front();
            (self.next, self.through) = (0, 0);
        }
        goes_on
    }

    fn reply(&mut self) -> Reply {
        match self.kind.task {
            Task::Scan { .. } => {
                let next = cursor::of(self.ended_at.unwrap_or(0));
                Reply::array([Reply::bulk(next.to_string()), self.found_keys()])
            }
            Task::Keys { .. } => self.found_keys(),
            Task::Count => Reply::Integer(self.count),
            Task::Random { .. } => Reply::copy_or_null(self.found.first().map(Key::bytes)),
            Task::Flush { .. } => Reply::OK,
        }
    }

    fn found_keys(&self) -> Reply {
        Reply::array(self.found.iter().map(|key| Reply::copy(key.bytes())))
    }
}
