//! Command lines as the program of a transaction.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use commands::{Budget, Execution, Halt, Interpreter, Interrupt, Permission, Plan, Space, Trace};
use transactions::{Mode, Program, Ran, States, Stop, Transaction};
use types::{Change, Clock, Database, Key, Positions, Reply};

use crate::script_calls::TraceSlot;
use crate::script_command::Lines as ScriptLines;

/// Lines that run on one snapshot of all keys that they name.
#[derive(Debug)]
struct Lines {
    lines: Vec<Vec<Bytes>>,
    /// The reply is a list, one element per line. Otherwise there is one line.
    is_list: bool,
    positions: Positions,
    database: Database,
    max_value_len: usize,
    /// Writes that scripts may not do.
    permission: Permission,
    /// For the calls of scripts.
    traced: Option<Arc<TraceSlot>>,
    /// Some line is a script.
    is_scripted: bool,
}

/// The keys of a line, as the table finds them.
pub(crate) fn keys_of<'a>(line: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let Ok(spec) = commands::find(line) else { return Vec::new() };
    spec.key_indexes(line).into_iter().filter_map(|index| line.get(index).copied()).collect()
}

/// A transaction of one command line.
pub(crate) fn of_line(
    positions: &Positions,
    database: Database,
    args: &[&[u8]],
    clock: Clock,
    max_value_len: usize,
) -> Transaction {
    let lines = vec![args.iter().map(|arg| Bytes::copy_from_slice(arg)).collect()];
    let mut transaction =
        transaction(positions, database, (lines, false), Vec::new(), clock, max_value_len);
    transaction.mode = mode(writes(args));
    transaction
}

/// The line may change a key. A script says in its first line if it does not, and `SORT` writes to
/// a second key only.
pub(crate) fn writes(line: &[&[u8]]) -> bool {
    let Ok(spec) = commands::find(line) else { return false };
    let is_quiet = match spec.execution {
        Execution::Script => line.get(1).is_some_and(|source| scripts::is_read_only(source)),
        _ => spec.name == "sort" && spec.key_indexes(line).len() == 1,
    };
    spec.may_write() && !is_quiet
}

/// The line runs a script.
pub(crate) fn is_script(line: &[&[u8]]) -> bool {
    commands::find(line).is_ok_and(|spec| matches!(spec.execution, Execution::Script))
}

fn is_script_line(line: &[Bytes]) -> bool {
    is_script(&line.iter().map(AsRef::as_ref).collect::<Vec<_>>())
}

/// The one key of all lines.
pub(crate) fn one_key<'a>(lines: &[Vec<&'a [u8]>], clock: Clock) -> Option<&'a [u8]> {
    let keys: Vec<&[u8]> = lines.iter().flat_map(|line| keys_of(line)).collect();
    // Some lines read keys that they do not name.
    let is_alone =
        |line: &Vec<&[u8]>| !matches!(commands::plan(line, clock), Ok((_, Plan::Keys { .. })));
    let first = keys.first()?;
    let is_one = keys.iter().all(|key| key == first) && lines.iter().all(is_alone);
    is_one.then_some(first)
}

/// The transaction of lines with scripts.
pub(crate) fn of_scripts(
    positions: &Positions,
    database: Database,
    lines: ScriptLines,
    clock: Clock,
    max_value_len: usize,
    permission: Permission,
    traced: Arc<TraceSlot>,
) -> Transaction {
    let ScriptLines { lines, is_list, watched, .. } = lines;
    let has_writes =
        |line: &Vec<Bytes>| writes(&line.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    let mode = mode(lines.iter().any(has_writes));
    let lines = Lines {
        permission,
        traced: Some(traced),
        ..Lines::new(positions, database, (lines, is_list), max_value_len)
    };
    Transaction { mode, ..of_program(lines, watched, clock) }
}

/// The transaction of `EXEC`.
pub(crate) fn of_lines(
    positions: &Positions,
    database: Database,
    lines: Vec<Vec<Bytes>>,
    watched: Vec<(Key, Option<u64>)>,
    clock: Clock,
    max_value_len: usize,
    writes: bool,
) -> Transaction {
    let mut transaction =
        transaction(positions, database, (lines, true), watched, clock, max_value_len);
    transaction.mode = mode(writes);
    transaction
}

fn mode(writes: bool) -> Mode {
    if writes { Mode::Update } else { Mode::Snapshot }
}

fn transaction(
    positions: &Positions,
    database: Database,
    lines: (Vec<Vec<Bytes>>, bool),
    watched: Vec<(Key, Option<u64>)>,
    clock: Clock,
    max_value_len: usize,
) -> Transaction {
    of_program(Lines::new(positions, database, lines, max_value_len), watched, clock)
}

fn of_program(program: Lines, watched: Vec<(Key, Option<u64>)>, clock: Clock) -> Transaction {
    let mut named: BTreeSet<Key> = BTreeSet::new();
    for line in &program.lines {
        let line: Vec<&[u8]> = line.iter().map(AsRef::as_ref).collect();
        named.extend(keys_of(&line).into_iter().map(|key| program.positions.key(key)));
    }
    let mut keys: Vec<Key> = named.into_iter().collect();
    keys.extend(watched.first().map(|(key, _)| key.clone()).filter(|_| keys.is_empty()));
    let database = program.database;
    let program = Arc::new(program);
    Transaction { database, keys, watched, program, clock, mode: Mode::Update, once: None }
}

/// Ends a script as its thread says.
#[derive(Debug)]
struct Interrupted(Arc<dyn Stop>);

impl Interrupt for Interrupted {
    fn ends(&self) -> Option<&'static str> {
        self.0.reason()
    }
}

/// Bytes of the values of one script.
const SCRIPT_MEMORY_MAX: usize = 64 << 20;

impl Program for Lines {
    fn run(&self, states: &States, clock: Clock) -> Ran {
        self.run_within(states, clock, Budget::SHORT, None)
    }

    fn run_long(&self, states: &States, clock: Clock, stop: &Arc<dyn Stop>) -> Ran {
        let interrupt: Arc<dyn Interrupt> = Arc::new(Interrupted(Arc::clone(stop)));
        let budget = Budget {
            instructions: u64::MAX,
            memory: SCRIPT_MEMORY_MAX,
            work: u64::MAX,
            interrupt: Some(interrupt),
        };
        self.run_within(states, clock, budget, Some(stop))
    }

    fn is_scripted(&self) -> bool {
        self.is_scripted
    }
}

impl Lines {
    /// Lines, and whether their replies are a list.
    fn new(
        positions: &Positions,
        database: Database,
        (lines, is_list): (Vec<Vec<Bytes>>, bool),
        max_value_len: usize,
    ) -> Lines {
        let is_scripted = lines.iter().any(|line| is_script_line(line));
        Lines {
            lines,
            is_list,
            positions: positions.clone(),
            database,
            max_value_len,
            permission: Permission::default(),
            traced: None,
            is_scripted,
        }
    }

    /// Lines end by the budget, and a run between two lines by `stop`.
    fn run_within(
        &self,
        states: &States,
        clock: Clock,
        budget: Budget,
        stop: Option<&Arc<dyn Stop>>,
    ) -> Ran {
        let interpreter =
            Interpreter { max_value_len: self.max_value_len, scripts: Some(scripts::ENGINE) };
        let mut space = Space::new(&interpreter, clock)
            .in_database(self.database)
            .with_permission(self.permission)
            .with_budget(budget);
        if let Some(traced) = &self.traced {
            space = space.with_trace(traced.begin());
        }
        for (key, found) in states {
            let key = Bytes::copy_from_slice(key.bytes());
            space.hold(key, found.value.clone(), (found.ttl, found.ends));
        }
        let mut replies: Vec<Reply> = Vec::with_capacity(self.lines.len());
        let mut len = 0;
        for line in &self.lines {
            len += replies.last().map_or(0, Reply::len);
            if len > commands::REPLIES_LEN_MAX {
                let reply = commands::errors::REPLIES_TOO_LARGE.into();
                return Ran::Done { changes: Vec::new(), reply };
            }
            if let Some(reason) = stop.and_then(|stop| stop.reason()) {
                return Ran::Refused(Reply::error(reason));
            }
            let line: Vec<&[u8]> = line.iter().map(AsRef::as_ref).collect();
            replies.push(match space.execute(&line) {
                Ok(reply) => reply,
                Err(Halt::Error(error)) => error.into(),
                Err(Halt::Unloaded(key)) => {
                    let wanted = space.wanted().iter().chain([&key]);
                    return Ran::Needs(wanted.map(|key| self.positions.key(key)).collect());
                }
                Err(Halt::TooLong) => return Ran::TooLong,
            });
            space.trace_mut().into_iter().for_each(Trace::end_line);
        }
        if let (Some(traced), Some(trace)) = (&self.traced, space.take_trace()) {
            traced.put(trace);
        }
        let changes: Vec<(Key, Change)> =
            space.changes().map(|(key, change)| (self.positions.key(key), change)).collect();
        let len = |change: &Change| match change {
            Change::Put { value, .. } => value.len(),
            _ => 0,
        };
        let total: usize = changes.iter().map(|(_, change)| len(change)).sum();
        if changes.len() > 1 && total > self.max_value_len {
            let error = commands::errors::value_too_large(total as u64, self.max_value_len);
            return Ran::Done { changes: Vec::new(), reply: error.into() };
        }
        let reply = match self.is_list {
            true => Reply::Array(replies),
            false => replies.pop().unwrap_or(Reply::Null),
        };
        Ran::Done { changes, reply }
    }
}

/// Answers the versions that last changed keys, null without a value.
#[derive(Debug)]
struct Versions {
    keys: Vec<Key>,
}

/// The transaction of `WATCH`.
pub(crate) fn of_watch(database: Database, keys: Vec<Key>, clock: Clock) -> Transaction {
    let program = Arc::new(Versions { keys: keys.clone() });
    Transaction {
        database,
        keys,
        watched: Vec::new(),
        program,
        clock,
        mode: Mode::PerKey,
        once: None,
    }
}

impl Program for Versions {
    fn run(&self, states: &States, _clock: Clock) -> Ran {
        let version = |key: &Key| match states.get(key).filter(|found| found.value.is_some()) {
            Some(found) => Reply::Integer(found.mod_version.cast_signed()),
            None => Reply::Null,
        };
        Ran::Done { changes: Vec::new(), reply: Reply::array(self.keys.iter().map(version)) }
    }
}

/// The versions that the transaction of `WATCH` answered.
pub(crate) fn versions(keys: Vec<Key>, reply: &Reply) -> Vec<(Key, Option<u64>)> {
    let Reply::Array(all) = reply else { return Vec::new() };
    let version = |reply: &Reply| match reply {
        Reply::Integer(version) => Some(version.cast_unsigned()),
        _ => None,
    };
    keys.into_iter().zip(all.iter().map(version)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sort_writes_only_with_a_destination() {
        for (line, expected) in [
            ("SORT k BY w_* GET #", false),
            ("SORT k STORE k", true),
            ("sort k by store store k", true),
            ("SORT_RO k BY w_*", false),
            ("GET k", false),
            ("SET k v", true),
        ] {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            assert_eq!(writes(&words), expected, "{line}");
        }
    }
}
