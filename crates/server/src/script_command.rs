//! `EVAL` and its variants, and `SCRIPT`.
//!
//! A script by its digest runs once its source is known: from this node's cache, or from the system
//! database. There a source is a register of its own, and holds the generation of scripts at which
//! it was stored.

use std::sync::Arc;

use base::decimal::parse_i64;
use bytes::Bytes;
use commands::{CommandSpec, ErrorReply, Plan, SessionVerb, Trace, errors};
use node::session::SessionContext;
use types::{Access, Clock, Command, Database, Key, Once, Outcome, Positions, Refusal, Reply};

use crate::budget::Cost;
use crate::outcomes;
use crate::pipeline::{Answer, token};
use crate::program;
use crate::script_calls::TraceSlot;
use crate::session::{Hold, Session, permission};
use crate::transaction::ONCE_WITHOUT_KEYS;
use crate::walk::{Walk, WalkKind};

const GENERATION: &[u8] = b"scripts";
pub(crate) const SOURCE_PREFIX: &[u8] = b"script:";
/// Holds a generation, and the bytes that its sources take.
const ROOM: &[u8] = b"scripts-len";
/// Bytes that the sources of `SCRIPT LOAD` may take, and those of one besides its length.
const ROOM_MAX: usize = 64 << 20;
const SOURCE_COST: usize = 128;
const TOO_MANY_SCRIPTS: &str = "ERR loaded scripts take too much room, use SCRIPT FLUSH";
/// Takes room for a source: generation, bytes, the most that all may take.
const TAKE_ROOM: &[u8] = b"\
    local generation, len = string.match(redis.call('get', KEYS[1]) or '', '^(%d+):(%d+)$') \
    len = (generation == ARGV[1] and tonumber(len) or 0) + tonumber(ARGV[2]) \
    if len > tonumber(ARGV[3]) then return 0 end \
    redis.call('set', KEYS[1], string.format('%s:%d', ARGV[1], len)) \
    return 1";
/// Deletes a source that was stored before a generation.
const DELETE_BEFORE: &[u8] = b"\
    local stored = string.match(redis.call('get', KEYS[1]) or '', '^%d+') \
    if stored and tonumber(stored) < tonumber(ARGV[1]) then redis.call('del', KEYS[1]) end \
    return 1";
/// Separates the generation from the source.
const SEPARATOR: u8 = b':';
/// Digits of a generation, and the separator.
const HEADER_LEN_MAX: usize = 21;

/// Digests of one `SCRIPT EXISTS`.
const DIGESTS_MAX: usize = 512;
/// The part of a request that asks for the generation.
const GENERATION_PART: usize = 1 << 20;

/// A request of a session that asks the system database first.
#[derive(Debug)]
pub(crate) struct Lookup {
    number: u64,
    began: base::Nanos,
    /// Digests to be found, with the stored values.
    wanted: Vec<(Vec<u8>, Option<Option<Bytes>>)>,
    /// The generation, once it is known.
    generation: Option<u64>,
    failed: Option<Outcome>,
    then: Then,
}

/// The rest of such a request.
#[derive(Debug)]
enum Then {
    /// Run lines whose digests are known then.
    Run(Lines),
    Exists(Vec<Vec<u8>>),
    Store {
        digest: Vec<u8>,
        source: Bytes,
    },
    /// Store it, if there is room.
    TakeRoom {
        digest: Vec<u8>,
        source: Bytes,
    },
    Stored {
        digest: Vec<u8>,
        source: Bytes,
    },
    Flush,
}

/// A line under `ONCE` whose sources take longer is refused: an earlier copy of it may be forgotten
/// before it runs.
const ONCE_LOOKUP_MAX: base::Nanos = base::Nanos::from_secs(1);

/// Lines of a client that run at one time.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) lines: Vec<Vec<Bytes>>,
    pub(crate) is_list: bool,
    pub(crate) watched: Vec<(Key, Option<u64>)>,
    pub(crate) once: Option<Once>,
}

/// A run of lines that its register may hand on, or with scripts.
#[derive(Debug)]
pub(crate) struct ScriptRun {
    number: u64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// On one key, without a script. The lines run as a transaction if they take a worker too long.
    Plain(Lines),
    /// On one key. The lines run as a transaction if a script needs more.
    Key(Lines),
    Transaction {
        is_list: bool,
        traced: Arc<TraceSlot>,
    },
}

impl ScriptRun {
    /// The run of an `EXEC` without scripts on one key.
    pub(crate) fn plain(number: u64, lines: Lines) -> ScriptRun {
        ScriptRun { number, place: Place::Plain(lines) }
    }
}

fn digest_in(line: &[Bytes]) -> Option<Vec<u8>> {
    let name = String::from_utf8_lossy(line.first()?).to_ascii_lowercase();
    let is_one = commands::is_by_digest(&name) && line.len() > 2;
    let digest = line.get(1).filter(|digest| is_one && digest.len() == commands::DIGEST_LEN);
    digest.map(|digest| digest.to_ascii_lowercase())
}

fn stored(generation: u64, source: &[u8]) -> Vec<u8> {
    let mut value = generation.to_string().into_bytes();
    value.push(SEPARATOR);
    value.extend_from_slice(source);
    value
}

/// The generation and the source of a stored value.
fn read_stored(value: &Bytes) -> Option<(u64, Bytes)> {
    let at = value.iter().position(|&byte| byte == SEPARATOR)?;
    let generation = parse_i64(&value[..at]).and_then(|it| u64::try_from(it).ok())?;
    Some((generation, value.slice(at + 1..)))
}

fn system(positions: &Positions, line: &[&[u8]]) -> Option<(Key, Command)> {
    let clock = Clock { unix: base::Millis(0), seed: 0 };
    match commands::plan(line, clock) {
        Ok((_, Plan::Key { command, key })) => Some((positions.key(line[key]), command)),
        _ => None,
    }
}

/// Deletes a source, unless it was stored at this generation or later.
pub(crate) fn delete_before(key: &Key, generation: &[u8]) -> Option<Command> {
    let line: [&[u8]; 5] = [b"EVAL", DELETE_BEFORE, b"1", key.bytes(), generation];
    system(&types::positions::PUBLIC, &line).map(|(_, command)| command)
}

impl Session {
    /// Runs `EVAL` or a variant of it.
    pub(crate) fn eval(
        &mut self,
        spec: &'static CommandSpec,
        args: &[&[u8]],
        cx: &mut SessionContext<'_>,
    ) {
        let clock = self.clock(cx);
        if let Err(error) = spec.plan(args, clock) {
            return self.say(cx, error.into());
        }
        self.eval_under(None, args, cx);
    }

    /// The same, checked, and perhaps safe to repeat.
    pub(crate) fn eval_under(
        &mut self,
        once: Option<Once>,
        args: &[&[u8]],
        cx: &mut SessionContext<'_>,
    ) {
        let line: Vec<Bytes> = args.iter().map(|arg| Bytes::copy_from_slice(arg)).collect();
        self.hold = Hold::Answers;
        let asked_len = args.iter().map(|arg| arg.len()).sum();
        let number = self.wait(Answer::Waiting(Cost { asked_len, values: 1 }));
        let watched = Vec::new();
        let lines = Lines { lines: vec![line], is_list: false, watched, once };
        self.run_lines(number, lines, cx);
    }

    /// Runs lines, some of which may be scripts. Asks for sources that this node lacks.
    pub(crate) fn run_lines(&mut self, number: u64, lines: Lines, cx: &mut SessionContext<'_>) {
        let digests: Vec<Vec<u8>> = lines.lines.iter().filter_map(|line| digest_in(line)).collect();
        let cache = &self.shared.scripts;
        let is_fresh = cache.is_fresh(cx.now);
        let missing: Vec<Vec<u8>> =
            digests.iter().filter(|digest| cache.get(digest).is_none()).cloned().collect();
        if digests.is_empty() || is_fresh && missing.is_empty() {
            return self.run_known(number, lines, cx);
        }
        // An old generation makes all sources doubtful.
        let wanted = if is_fresh { missing } else { digests };
        self.look_up(number, wanted, Then::Run(lines), cx);
    }

    fn look_up(
        &mut self,
        number: u64,
        mut digests: Vec<Vec<u8>>,
        then: Then,
        cx: &mut SessionContext<'_>,
    ) {
        digests.sort();
        digests.dedup();
        let Some(positions) = cx.positions().cloned() else {
            return self.answer(number, Outcome::Loading, cx);
        };
        for (part, digest) in digests.iter().enumerate() {
            let key = [SOURCE_PREFIX, digest].concat();
            self.ask_system(number, part, &positions, &[b"GET", &key], cx);
        }
        self.ask_system(number, GENERATION_PART, &positions, &[b"GET", GENERATION], cx);
        self.lookup = Some(Lookup {
            number,
            began: cx.now,
            wanted: digests.into_iter().map(|digest| (digest, None)).collect(),
            generation: None,
            failed: None,
            then,
        });
    }

    fn ask_system(
        &self,
        number: u64,
        part: usize,
        positions: &Positions,
        line: &[&[u8]],
        cx: &mut SessionContext<'_>,
    ) {
        if let Some((key, command)) = system(positions, line) {
            cx.run(token(number, part), Database::SYSTEM, key, command);
        }
    }

    /// Takes an outcome that a lookup or a rerun waits for. Returns any other one.
    pub(crate) fn on_script(
        &mut self,
        number: u64,
        part: usize,
        outcome: Outcome,
        cx: &mut SessionContext<'_>,
    ) -> Option<Outcome> {
        if self.lookup.as_ref().is_some_and(|lookup| lookup.number == number) {
            self.on_looked_up(part, outcome, cx);
            return None;
        }
        let Some(run) = self.script_run.take_if(|run| run.number == number) else {
            return Some(outcome);
        };
        match (run.place, outcome) {
            (Place::Plain(lines) | Place::Key(lines), Outcome::Reply(reply))
                if reply == errors::RUN_AS_TRANSACTION.into() =>
            {
                self.transact(number, lines, cx);
                None
            }
            (Place::Key(_), Outcome::Reply(reply)) => {
                let (reply, trace) = Trace::unwrap(reply);
                self.note_trace(trace);
                Some(Outcome::Reply(reply))
            }
            (Place::Transaction { is_list, traced }, outcome) => {
                self.take_trace(&traced, is_list, &outcome);
                Some(outcome)
            }
            (Place::Plain(_) | Place::Key(_), outcome) => Some(outcome),
        }
    }

    fn on_looked_up(&mut self, part: usize, outcome: Outcome, cx: &mut SessionContext<'_>) {
        let Some(mut lookup) = self.lookup.take() else { return };
        let shared = self.shared.clone();
        match (part, outcome) {
            (GENERATION_PART, Outcome::Reply(reply)) if !reply.is_error() => {
                let generation = match reply {
                    Reply::Integer(value) => u64::try_from(value).unwrap_or(0),
                    Reply::Bulk(text) => parse_i64(&text).unwrap_or(0).unsigned_abs(),
                    _ => 0,
                };
                shared.scripts.learn(generation, lookup.began);
                lookup.generation = Some(generation);
            }
            (part, Outcome::Reply(reply)) if !reply.is_error() => {
                if matches!(lookup.then, Then::TakeRoom { .. }) && reply == Reply::Integer(0) {
                    let text = format!("{TOO_MANY_SCRIPTS} (max {ROOM_MAX} bytes)");
                    lookup.failed = Some(Outcome::Reply(Reply::error(text)));
                }
                if let Some((_, slot)) = lookup.wanted.get_mut(part) {
                    *slot = Some(match reply {
                        Reply::Bulk(value) => Some(value),
                        _ => None,
                    });
                }
            }
            (GENERATION_PART, failed) => {
                lookup.generation = Some(0);
                lookup.failed = Some(failed);
            }
            (part, failed) => {
                if let Some((_, slot)) = lookup.wanted.get_mut(part) {
                    *slot = Some(None);
                }
                lookup.failed = Some(failed);
            }
        }
        let is_waiting =
            lookup.generation.is_none() || lookup.wanted.iter().any(|(_, found)| found.is_none());
        if is_waiting {
            self.lookup = Some(lookup);
            return;
        }
        if let Some(failed) = lookup.failed {
            // The request has no effect yet.
            let failed = match failed {
                Outcome::Unknown if !matches!(lookup.then, Then::Stored { .. } | Then::Flush) => {
                    Outcome::NoQuorum
                }
                Outcome::Reply(reply) if reply == errors::RUN_AS_TRANSACTION.into() => {
                    Outcome::NoQuorum
                }
                failed => failed,
            };
            return self.answer(lookup.number, failed, cx);
        }
        let generation = lookup.generation.unwrap_or(0);
        for (digest, found) in &lookup.wanted {
            if let Some(Some(value)) = found
                && let Some((of, source)) = read_stored(value)
                && of == generation
            {
                shared.scripts.put_of(Some(generation), digest, &source);
            }
        }
        if let (Then::Store { digest, .. }, Some((_, Some(Some(value))))) =
            (&lookup.then, lookup.wanted.first())
            && read_stored(value).is_some_and(|(of, _)| of == generation)
        {
            let reply = Reply::bulk(digest.clone());
            return self.answer(lookup.number, Outcome::Reply(reply), cx);
        }
        let is_once = matches!(&lookup.then, Then::Run(lines) if lines.once.is_some());
        if is_once && cx.now.since(lookup.began) > ONCE_LOOKUP_MAX {
            return self.answer(lookup.number, Outcome::Refused(Refusal::Conflict), cx);
        }
        self.go_on_after(lookup.number, lookup.then, generation, cx);
    }

    fn go_on_after(
        &mut self,
        number: u64,
        then: Then,
        generation: u64,
        cx: &mut SessionContext<'_>,
    ) {
        match then {
            Then::Run(lines) => self.run_known(number, lines, cx),
            Then::Exists(digests) => {
                let is_known = |digest: &Vec<u8>| self.shared.scripts.get(digest).is_some();
                let reply = digests.iter().map(|digest| Reply::count(is_known(digest)));
                let reply = Reply::array(reply);
                self.answer(number, Outcome::Reply(reply), cx);
            }
            Then::Store { digest, source } => {
                let Some(positions) = cx.positions().cloned() else {
                    return self.answer(number, Outcome::Loading, cx);
                };
                let (len, max) = (source.len() + SOURCE_COST, ROOM_MAX);
                let (of, len, max) = (generation.to_string(), len.to_string(), max.to_string());
                let words = [of.as_bytes(), len.as_bytes(), max.as_bytes()];
                let line = [&[&b"EVAL"[..], TAKE_ROOM, b"1", ROOM], &words[..]].concat();
                self.ask_system(number, 0, &positions, &line, cx);
                let then = Then::TakeRoom { digest, source };
                self.await_one(number, generation, then, cx);
            }
            Then::TakeRoom { digest, source } => {
                let Some(positions) = cx.positions().cloned() else {
                    return self.answer(number, Outcome::Loading, cx);
                };
                let key = [SOURCE_PREFIX, &digest].concat();
                let value = stored(generation, &source);
                self.ask_system(number, 0, &positions, &[b"SET", &key, &value], cx);
                self.await_one(number, generation, Then::Stored { digest, source }, cx);
            }
            Then::Stored { digest, source } => {
                self.shared.scripts.put_of(Some(generation), &digest, &source);
                self.answer(number, Outcome::Reply(Reply::bulk(digest)), cx);
            }
            Then::Flush => {
                let Some(pending) = self.pipeline.get_mut(number) else { return };
                let walk = Walk::new(WalkKind::sources_before(generation));
                pending.answer = Answer::Walk(Box::new(walk));
                self.go_on(number, cx);
            }
        }
    }

    /// Waits for the reply to the one request that was sent to the system database.
    fn await_one(&mut self, number: u64, generation: u64, then: Then, cx: &mut SessionContext<'_>) {
        let (began, generation, failed) = (cx.now, Some(generation), None);
        let wanted = vec![(Vec::new(), None)];
        self.lookup = Some(Lookup { number, began, wanted, generation, failed, then });
    }

    /// Runs lines whose digests are known, or unknown to the cluster.
    fn run_known(&mut self, number: u64, mut lines: Lines, cx: &mut SessionContext<'_>) {
        for line in &mut lines.lines {
            self.put_source(line);
        }
        let clock = self.clock(cx);
        let borrowed: Vec<Vec<&[u8]>> =
            lines.lines.iter().map(|line| line.iter().map(AsRef::as_ref).collect()).collect();
        if lines.once.is_some() && lines.lines.iter().any(|line| digest_in(line).is_some()) {
            // A transaction would be remembered with this error.
            return self.answer(number, Outcome::Reply(errors::NO_SCRIPT.into()), cx);
        }
        let is_short_of_room = cx.shortage() != node::session::Shortage::None;
        let reads = !lines.is_list && !program::writes(&borrowed[0]);
        let one_key = program::one_key(&borrowed, clock)
            .filter(|_| lines.watched.is_empty() && lines.once.is_none());
        match (one_key, cx.positions()) {
            (Some(key), Some(positions)) if reads || !is_short_of_room => {
                let key = positions.key(key);
                if let (false, Err(error)) = (lines.is_list, commands::plan(&borrowed[0], clock)) {
                    return self.answer(number, Outcome::Reply(error.into()), cx);
                }
                let access = if reads { self.consistency.of(Access::Read) } else { Access::Update };
                let command = commands::traced_lines_on_one_key(
                    borrowed,
                    lines.is_list,
                    self.lists_calls(),
                    access,
                );
                self.script_run = Some(ScriptRun { number, place: Place::Key(lines) });
                cx.run(token(number, 0), self.database(), key, command);
            }
            (_, Some(_)) => self.transact(number, lines, cx),
            (_, None) => self.answer(number, Outcome::Loading, cx),
        }
    }

    fn transact(&mut self, number: u64, lines: Lines, cx: &mut SessionContext<'_>) {
        let clock = self.clock(cx);
        let Some(positions) = cx.positions() else {
            return self.answer(number, Outcome::Loading, cx);
        };
        let max = self.shared.limits.max_value_len();
        let (database, once) = (self.database(), lines.once.clone());
        let traced = Arc::new(TraceSlot::new(self.lists_calls()));
        let place = Place::Transaction { is_list: lines.is_list, traced: Arc::clone(&traced) };
        let transaction =
            program::of_scripts(positions, database, lines, clock, max, permission(cx), traced);
        if once.is_some() && transaction.keys.is_empty() {
            let error = Reply::error(ONCE_WITHOUT_KEYS);
            return self.answer(number, Outcome::Reply(error), cx);
        }
        self.script_run = Some(ScriptRun { number, place });
        cx.transact(token(number, 0), transaction.under(once));
    }

    /// Puts the source in the place of a known digest, and remembers the source of `EVAL`.
    fn put_source(&self, line: &mut [Bytes]) {
        if let Some(digest) = digest_in(line) {
            if let Some(source) = self.shared.scripts.get(&digest) {
                let is_read_only = line[0].len() > "evalsha".len();
                let name: &[u8] = if is_read_only { b"EVAL_RO" } else { b"EVAL" };
                line[0] = Bytes::from_static(name);
                line[1] = source;
            }
            return;
        }
        let name = line.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
        if matches!(&name[..], b"eval" | b"eval_ro")
            && let Some(source) = line.get(1)
        {
            let (digest, cache) = (scripts::digest(source), &self.shared.scripts);
            if cache.get(digest.as_bytes()).is_none() && (scripts::ENGINE.check)(source).is_ok() {
                cache.put(digest.as_bytes(), source);
            }
        }
    }

    pub(crate) fn script(
        &mut self,
        verb: SessionVerb,
        args: &[&[u8]],
        cx: &mut SessionContext<'_>,
    ) {
        match verb {
            SessionVerb::ScriptLoad => self.load_script(args[2], cx),
            SessionVerb::ScriptExists => self.find_scripts(&args[2..], cx),
            SessionVerb::ScriptFlush => self.flush_scripts(&args[2..], cx),
            SessionVerb::ScriptKill if cx.node.client_settings().long_runs().kill() => {
                self.say_ok(cx);
            }
            SessionVerb::ScriptKill => {
                self.say_error(cx, "NOTBUSY No scripts in execution right now.");
            }
            _ => match args[2] {
                mode if mode.eq_ignore_ascii_case(b"no") => self.say_ok(cx),
                mode if [&b"yes"[..], b"sync"].iter().any(|it| mode.eq_ignore_ascii_case(it)) => {
                    self.say_error(cx, "ERR SCRIPT DEBUG is not supported: there is no debugger");
                }
                _ => self.say_error(cx, "ERR Use SCRIPT DEBUG YES/SYNC/NO"),
            },
        }
    }

    fn load_script(&mut self, source: &[u8], cx: &mut SessionContext<'_>) {
        if let Err(error) = self.check_script(source) {
            return self.say(cx, error.into());
        }
        let digest = scripts::digest(source).into_bytes();
        self.hold = Hold::Answers;
        let number = self.wait(Answer::Waiting(Cost { asked_len: source.len(), values: 0 }));
        let source = Bytes::copy_from_slice(source);
        self.look_up(number, vec![digest.clone()], Then::Store { digest, source }, cx);
    }

    fn check_script(&self, source: &[u8]) -> Result<(), ErrorReply> {
        let max = self.shared.limits.max_value_len();
        if source.len() + HEADER_LEN_MAX > max {
            return Err(errors::value_too_large(source.len() as u64, max));
        }
        (scripts::ENGINE.check)(source)
    }

    fn find_scripts(&mut self, digests: &[&[u8]], cx: &mut SessionContext<'_>) {
        if digests.len() > DIGESTS_MAX {
            let text = format!("ERR SCRIPT EXISTS takes at most {DIGESTS_MAX} digests");
            return self.say_error(cx, &text);
        }
        // As in redis-server, digests are found in any case.
        let digests: Vec<Vec<u8>> = digests.iter().map(|it| it.to_ascii_lowercase()).collect();
        self.hold = Hold::Answers;
        let number = self.wait(Answer::Waiting(Cost::default()));
        let is_digest = |digest: &&Vec<u8>| digest.len() == commands::DIGEST_LEN;
        let wanted = digests.iter().filter(is_digest).cloned().collect();
        self.look_up(number, wanted, Then::Exists(digests), cx);
    }

    fn flush_scripts(&mut self, modes: &[&[u8]], cx: &mut SessionContext<'_>) {
        let is_known = |mode: &&[u8]| {
            mode.eq_ignore_ascii_case(b"sync") || mode.eq_ignore_ascii_case(b"async")
        };
        if modes.len() > 1 || !modes.iter().all(is_known) {
            return self.say_error(cx, "ERR SCRIPT FLUSH only support SYNC|ASYNC option");
        }
        let Some(positions) = cx.positions().cloned() else {
            return self.say(cx, outcomes::reply(Outcome::Loading));
        };
        self.hold = Hold::Answers;
        let number = self.wait(Answer::Waiting(Cost::default()));
        self.ask_system(number, GENERATION_PART, &positions, &[b"INCR", GENERATION], cx);
        self.lookup = Some(Lookup {
            number,
            began: cx.now,
            wanted: Vec::new(),
            generation: None,
            failed: None,
            then: Then::Flush,
        });
    }
}
