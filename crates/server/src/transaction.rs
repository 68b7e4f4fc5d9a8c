//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`.
//!
//! Commands between `MULTI` and `EXEC` are queued. `EXEC` runs them at one time: on one key by one
//! command of its register, else as a transaction. A command that cannot be queued makes `EXEC`
//! answer `EXECABORT`.

use bytes::Bytes;
use commands::spec::Flag;
use commands::{CommandSpec, Execution, ONCE_ARGUMENTS, SessionVerb};
use node::session::SessionContext;
use types::{Database, Key, Once, Outcome, Reply};

use crate::budget::Cost;
use crate::exec::{self, Executing, is_local};
use crate::outcomes;
use crate::pipeline::{Answer, token};
use crate::program;
use crate::script_command::{self, ScriptRun};
use crate::session::{Hold, Session};

/// Commands of one transaction.
const COMMANDS_MAX: usize = 4096;

const OTHER_DATABASE: &str = "ERR the watched keys are of another database";
/// Bytes of the commands of one transaction. A peer's frame holds as many.
const QUEUE_LEN_MAX: usize = 32 << 20;

pub(crate) const ONCE_WITHOUT_KEYS: &str = "ERR ONCE needs a key to remember the transaction by";
const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";

/// Where a connection is between `MULTI` and `EXEC`, and the keys that it watches.
#[derive(Default, Debug)]
pub(crate) struct Transaction {
    queue: Queue,
    /// With the versions that last changed them, `None` without a value; of one database.
    watched: Vec<(Key, Option<u64>)>,
    database: Option<Database>,
    /// The number and the keys of the `WATCH` under way.
    watching: Option<(u64, Vec<Key>)>,
}

/// Queued commands.
#[derive(Default, Debug)]
struct Lines {
    lines: Vec<Vec<Bytes>>,
    len: usize,
    /// The row that decides whether `EXEC` may begin: one that writes, or that needs room.
    gate: Option<&'static CommandSpec>,
}

#[derive(Default, Debug)]
enum Queue {
    #[default]
    Closed,
    Open(Lines),
    /// A command was refused in it: `EXEC` aborts.
    Failed,
}

impl Transaction {
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.queue, Queue::Closed)
    }

    /// A command was refused.
    pub(crate) fn fail(&mut self) {
        if self.is_open() {
            self.queue = Queue::Failed;
        }
    }

    /// True for a command that an open transaction holds until `EXEC`.
    pub(crate) fn holds(&self, spec: &CommandSpec, args: &[&[u8]]) -> bool {
        self.is_open() && !acts_at_once(spec, args)
    }

    /// The row whose rules hold for `EXEC` too.
    pub(crate) fn gate(&self) -> Option<&'static CommandSpec> {
        match &self.queue {
            Queue::Open(lines) => lines.gate,
            Queue::Closed | Queue::Failed => None,
        }
    }

    pub(crate) fn watch(&mut self, keys: Vec<(Key, Option<u64>)>) {
        for (key, version) in keys {
            if !self.watched.iter().any(|(watched, _)| *watched == key) {
                self.watched.push((key, version));
            }
        }
    }
}

/// Commands that a transaction does not hold, as in redis-server.
fn acts_at_once(spec: &CommandSpec, args: &[&[u8]]) -> bool {
    use SessionVerb::{Discard, Exec, Multi, Quit, Reset, Watch};
    match spec.execution {
        Execution::Session(Multi | Exec | Discard | Watch | Quit | Reset) => true,
        Execution::Around(_) => {
            let inner = args.get(ONCE_ARGUMENTS);
            inner.is_some_and(|name| name.eq_ignore_ascii_case(b"exec"))
        }
        _ => false,
    }
}

/// The error for a command that may not be queued.
fn obstacle(spec: &CommandSpec) -> Option<String> {
    let is_pure = match spec.execution {
        Execution::Key(_) | Execution::PerKey(..) | Execution::Keys(_) => true,
        Execution::Table(_) | Execution::Script => true,
        Execution::Session(_) => is_local(spec),
        Execution::Around(_) | Execution::Container => false,
    };
    (!is_pure).then(|| format!("ERR '{}' is not supported inside MULTI", spec.name))
}

impl Session {
    pub(crate) fn multi(&mut self, cx: &mut SessionContext<'_>) {
        if self.transaction.is_open() {
            return self.say_error(cx, "ERR MULTI calls can not be nested");
        }
        self.transaction.queue = Queue::Open(Lines::default());
        self.say_ok(cx);
    }

    /// Holds a command until `EXEC`.
    pub(crate) fn queue(
        &mut self,
        spec: &'static CommandSpec,
        args: &[&[u8]],
        cx: &mut SessionContext<'_>,
    ) {
        let obstacle = obstacle(spec).or_else(|| self.leaves_database(spec, args));
        if let Some(obstacle) = obstacle {
            self.transaction.fail();
            return self.say_error(cx, &obstacle);
        }
        let Queue::Open(queue) = &mut self.transaction.queue else {
            return self.say(cx, Reply::simple("QUEUED"));
        };
        queue.len += args.iter().map(|arg| arg.len()).sum::<usize>();
        let obstacle = if queue.lines.len() >= COMMANDS_MAX {
            format!("ERR transaction has too many commands (max {COMMANDS_MAX})")
        } else if queue.len > QUEUE_LEN_MAX {
            format!("ERR transaction is too large (max {QUEUE_LEN_MAX} bytes)")
        } else {
            queue.lines.push(args.iter().map(|arg| Bytes::copy_from_slice(arg)).collect());
            let is_stricter =
                |gate: &CommandSpec| spec.has(Flag::DenyOom) && !gate.has(Flag::DenyOom);
            if spec.may_write() && queue.gate.is_none_or(is_stricter) {
                queue.gate = Some(spec);
            }
            return self.say(cx, Reply::simple("QUEUED"));
        };
        self.transaction.fail();
        self.say_error(cx, &obstacle);
    }

    /// The error for `SELECT` of another database.
    fn leaves_database(&self, spec: &CommandSpec, args: &[&[u8]]) -> Option<String> {
        let own = self.database().0.to_string();
        let is_select = matches!(spec.execution, Execution::Session(SessionVerb::Select));
        let leaves = is_select && args.get(1).is_some_and(|index| *index != own.as_bytes());
        leaves.then(|| "ERR SELECT of another database is not supported inside MULTI".into())
    }

    pub(crate) fn exec(&mut self, once: Option<Once>, cx: &mut SessionContext<'_>) {
        if !self.transaction.is_open() {
            return self.say_error(cx, "ERR EXEC without MULTI");
        }
        let Transaction { queue, watched, database, .. } = std::mem::take(&mut self.transaction);
        let Queue::Open(Lines { lines, gate, .. }) = queue else {
            return self.say_error(cx, ABORTED);
        };
        if !watched.is_empty() && database != Some(self.database()) {
            return self.say_error(cx, OTHER_DATABASE);
        }
        let shown = self.show_lines(&lines, cx);
        let (specs, lines, local) = exec::split(lines);
        let has_keys = !lines.is_empty() || !watched.is_empty();
        if specs.is_empty() && (watched.is_empty() || once.is_some()) {
            return self.say(cx, Reply::Array(Vec::new()));
        }
        let executing = Executing::new(specs, local, shown, cx.moment);
        if has_keys {
            return self.run_transaction(lines, watched, (gate.is_some(), once), executing, cx);
        }
        if once.is_some() {
            return self.say_error(cx, ONCE_WITHOUT_KEYS);
        }
        let replies = self.complete(executing, Vec::new(), cx);
        self.say(cx, Reply::Array(replies));
    }

    fn wait_for_exec(&mut self, cost: Cost, mut executing: Executing) -> u64 {
        let number = self.wait(Answer::Waiting(cost));
        executing.number = number;
        self.executing = Some(executing);
        number
    }

    /// Shows the lines to monitors. Returns those to be shown later, among the calls of scripts.
    fn show_lines(&mut self, lines: &[Vec<Bytes>], cx: &SessionContext<'_>) -> Vec<Vec<Bytes>> {
        if self.shared.monitors.is_empty() {
            return Vec::new();
        }
        let runs_script = |line: &Vec<Bytes>| {
            program::is_script(&line.iter().map(AsRef::as_ref).collect::<Vec<_>>())
        };
        if lines.iter().any(runs_script) {
            return lines.to_vec();
        }
        self.show_executed(lines, cx);
        Vec::new()
    }

    fn run_transaction(
        &mut self,
        lines: Vec<Vec<Bytes>>,
        watched: Vec<(Key, Option<u64>)>,
        (writes, once): (bool, Option<Once>),
        executing: Executing,
        cx: &mut SessionContext<'_>,
    ) {
        let clock = self.clock(cx);
        let Some(positions) = cx.positions() else {
            return self.say(cx, outcomes::reply(Outcome::Loading));
        };
        let borrowed: Vec<Vec<&[u8]>> =
            lines.iter().map(|line| line.iter().map(AsRef::as_ref).collect()).collect();
        let keys: Vec<&[u8]> = borrowed.iter().flat_map(|line| program::keys_of(line)).collect();
        if let Some(key) = keys.iter().find(|key| key.len() > types::limits::KEY_LEN_MAX) {
            return self.say(cx, commands::errors::key_too_large(key.len()).into());
        }
        // Its register may hand it on to a transaction, and must not remember that.
        let is_on_one_key =
            watched.is_empty() && once.is_none() && program::one_key(&borrowed, clock).is_some();
        let asked_len = lines.iter().flatten().map(Bytes::len).sum();
        let cost = Cost { asked_len, values: 1 };
        let database = self.database();
        self.hold = Hold::Answers;
        if borrowed.iter().any(|line| program::is_script(line)) {
            let number = self.wait_for_exec(cost, executing);
            let lines = script_command::Lines { lines, is_list: true, watched, once };
            return self.run_lines(number, lines, cx);
        }
        match keys.first() {
            Some(first) if is_on_one_key => {
                let key = positions.key(first);
                let command = commands::lines_on_one_key(borrowed);
                let number = self.wait_for_exec(cost, executing);
                let lines = script_command::Lines { lines, is_list: true, watched, once };
                self.script_run = Some(ScriptRun::plain(number, lines));
                cx.run(token(number, 0), database, key, command);
            }
            None if once.is_some() => self.say_error(cx, ONCE_WITHOUT_KEYS),
            None if watched.is_empty() => {
                self.hold = Hold::No;
                let replies = borrowed.iter().map(|line| match commands::plan(line, clock) {
                    Ok((_, commands::Plan::Reply(reply))) => reply,
                    Ok(_) => Reply::from(commands::errors::SYNTAX),
                    Err(error) => error.into(),
                });
                let replies = replies.collect();
                let replies = self.complete(executing, replies, cx);
                self.say(cx, Reply::Array(replies));
            }
            _ => {
                let max = self.shared.limits.max_value_len();
                let transaction =
                    program::of_lines(positions, database, lines, watched, clock, max, writes);
                let number = self.wait_for_exec(cost, executing);
                cx.transact(token(number, 0), transaction.under(once));
            }
        }
    }

    pub(crate) fn discard(&mut self, cx: &mut SessionContext<'_>) {
        if !self.transaction.is_open() {
            return self.say_error(cx, "ERR DISCARD without MULTI");
        }
        self.transaction = Transaction::default();
        self.say_ok(cx);
    }

    pub(crate) fn watch(&mut self, args: &[&[u8]], cx: &mut SessionContext<'_>) {
        if self.transaction.is_open() {
            return self.say_error(cx, "ERR WATCH inside MULTI is not allowed");
        }
        let database = self.database();
        if !self.transaction.watched.is_empty() && self.transaction.database != Some(database) {
            return self.say_error(cx, OTHER_DATABASE);
        }
        self.transaction.database = Some(database);
        let clock = self.clock(cx);
        let Some(positions) = cx.positions() else {
            return self.say(cx, outcomes::reply(Outcome::Loading));
        };
        if let Some(key) = args[1..].iter().find(|key| key.len() > types::limits::KEY_LEN_MAX) {
            return self.say(cx, commands::errors::key_too_large(key.len()).into());
        }
        let is_new = |key: &Key| !self.transaction.watched.iter().any(|(other, _)| other == key);
        let mut keys: Vec<Key> =
            args[1..].iter().map(|key| positions.key(key)).filter(is_new).collect();
        keys.sort();
        keys.dedup();
        if keys.is_empty() {
            return self.say_ok(cx);
        }
        if keys.len() + self.transaction.watched.len() > types::limits::TRANSACTION_KEYS_MAX {
            let max = types::limits::TRANSACTION_KEYS_MAX;
            return self.say_error(cx, &format!("ERR too many watched keys (max {max})"));
        }
        let transaction = program::of_watch(database, keys.clone(), clock);
        self.hold = Hold::Answers;
        let number = self.wait(Answer::Waiting(Cost::default()));
        self.transaction.watching = Some((number, keys));
        cx.transact(token(number, 0), transaction);
    }

    pub(crate) fn unwatch(&mut self, cx: &mut SessionContext<'_>) {
        self.transaction.watched.clear();
        self.say_ok(cx);
    }

    /// The outcome for the client: a `WATCH` under way takes the versions.
    pub(crate) fn on_watched(&mut self, number: u64, outcome: Outcome) -> Outcome {
        let is_it = |watching: &mut (u64, Vec<Key>)| watching.0 == number;
        let Some((_, keys)) = self.transaction.watching.take_if(is_it) else { return outcome };
        match outcome {
            Outcome::Reply(Reply::Array(versions)) => {
                let versions = program::versions(keys, &Reply::Array(versions));
                self.transaction.watch(versions);
                Outcome::Reply(Reply::OK)
            }
            other => other,
        }
    }
}
