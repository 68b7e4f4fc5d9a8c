//! The states of several keys, on which commands run one after the other.
//!
//! A command with several keys, a transaction and a script each run on a space. Its changes become
//! one change per key. A command that names a key which the space lacks halts: the caller loads
//! that state and runs everything again.

mod parts;

use std::cell::Cell;
use std::collections::BTreeMap;

use bytes::Bytes;
use types::limits::KEY_LEN_MAX;
use types::{
    Applied, Change, Clock, Command, Database, ExpiryChange, Reply, TimeToLive, Update, View,
};
use values::Indexed;

use crate::context::Context;
use crate::errors::ErrorReply;
use crate::interpreter::Interpreter;
use crate::lapse;
use crate::permission::Permission;
use crate::plan::{Arguments, Execution, Plan};
use crate::scripting::{self, Budget};
use crate::table;
use crate::trace::Trace;
use crate::work;

/// The reason why a command did not finish. Its changes do not count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Halt {
    /// The reply.
    Error(ErrorReply),
    /// The state of this key is needed.
    Unloaded(Bytes),
    /// The run exceeds its budget.
    TooLong,
}

impl From<ErrorReply> for Halt {
    fn from(error: ErrorReply) -> Halt {
        Halt::Error(error)
    }
}

/// Keys that a command asks for at a time.
const WANTED_MAX: usize = 1024;

/// States of keys, as found and as changed.
#[derive(Debug)]
pub struct Space {
    interpreter: Interpreter,
    clock: Clock,
    database: Option<Database>,
    keys: BTreeMap<Bytes, Held>,
    /// Values that many commands change. Those in `keys` are older.
    indexed: BTreeMap<Bytes, Indexed>,
    wanted: Vec<Bytes>,
    budget: Budget,
    /// Work of its commands so far.
    work: Cell<u64>,
    permission: Permission,
    trace: Option<Trace>,
    is_scripted: bool,
}

/// A state, and its changes.
#[derive(Clone, Debug)]
struct Held {
    found: Option<Bytes>,
    value: Option<Bytes>,
    ttl: TimeToLive,
    ends: Option<base::Millis>,
    /// The time to live that was set last.
    set: Option<TimeToLive>,
    /// Commands on single elements so far.
    touches: u32,
}

impl Space {
    #[must_use]
    pub fn new(interpreter: &Interpreter, clock: Clock) -> Space {
        Space {
            interpreter: *interpreter,
            clock,
            database: None,
            keys: BTreeMap::new(),
            indexed: BTreeMap::new(),
            wanted: Vec::new(),
            budget: Budget::SHORT,
            work: Cell::new(0),
            permission: Permission::default(),
            trace: None,
            is_scripted: false,
        }
    }

    /// Whether a script calls the commands.
    #[must_use]
    pub(crate) fn is_scripted(&self) -> bool {
        self.is_scripted
    }

    pub(crate) fn set_scripted(&mut self, is_scripted: bool) {
        self.is_scripted = is_scripted;
    }

    /// Sets the limits of the run.
    #[must_use]
    pub fn with_budget(mut self, budget: Budget) -> Space {
        self.budget = budget;
        self
    }

    /// Sets the commands that scripts may call.
    #[must_use]
    pub fn with_permission(mut self, permission: Permission) -> Space {
        self.permission = permission;
        self
    }

    /// Notes the calls of scripts.
    #[must_use]
    pub fn with_trace(mut self, trace: Trace) -> Space {
        self.trace = Some(trace);
        self
    }

    pub fn trace_mut(&mut self) -> Option<&mut Trace> {
        self.trace.as_mut()
    }

    pub fn take_trace(&mut self) -> Option<Trace> {
        self.trace.take()
    }

    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// A script took so many instructions. Later ones have the rest.
    pub fn spend(&mut self, instructions: u64) {
        self.budget.instructions = self.budget.instructions.saturating_sub(instructions);
    }

    /// Begins a step: the first one of a run always may, later ones while budget is left.
    fn begin(&self, work: u64) -> Result<(), Halt> {
        if self.work.get() > self.budget.work {
            return Err(Halt::TooLong);
        }
        self.add(work);
        Ok(())
    }

    fn add(&self, work: u64) {
        self.work.set(self.work.get().saturating_add(work));
    }

    /// Begins a step of a command that knows its work, which must fit into the budget.
    ///
    /// # Errors
    /// [`Halt::TooLong`].
    pub(crate) fn charge(&self, work: u64) -> Result<(), Halt> {
        self.add(work);
        if self.work.get() > self.budget.work { Err(Halt::TooLong) } else { Ok(()) }
    }

    #[must_use]
    pub fn permission(&self) -> Permission {
        self.permission
    }

    /// Bytes of the value at a key, 0 without one.
    #[must_use]
    pub fn value_len(&self, key: &[u8]) -> usize {
        match self.indexed.get(key) {
            Some(indexed) => indexed.encoded_len(),
            None => self.keys.get(key).and_then(|held| held.value.as_ref()).map_or(0, Bytes::len),
        }
    }

    /// Names the database of the keys, for commands that name one.
    #[must_use]
    pub fn in_database(mut self, database: Database) -> Space {
        self.database = Some(database);
        self
    }

    /// Loads the state of a key. Fields that are over are gone, which is its first change.
    pub fn load(&mut self, key: Bytes, view: View<'_>) {
        self.hold(key, view.value.map(Bytes::copy_from_slice), (view.ttl, view.ends));
    }

    /// The same with a value that needs no copy, and the end of the key's time to live.
    pub fn hold(
        &mut self,
        key: Bytes,
        value: Option<Bytes>,
        (ttl, ends): (TimeToLive, Option<base::Millis>),
    ) {
        let mut held = Held { found: value.clone(), value, ttl, ends, set: None, touches: 0 };
        if let Some(lapsed) = lapse::find(held.view(), self.clock) {
            held.change(lapse::removal(lapsed), self.clock);
        }
        self.keys.insert(key, held);
    }

    /// The interpreter of its commands.
    #[must_use]
    pub fn interpreter(&self) -> Interpreter {
        self.interpreter
    }

    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The state of a key, as an operation sees it.
    ///
    /// # Errors
    /// [`Halt::Unloaded`].
    pub(crate) fn context(&self, key: &[u8]) -> Result<Context<'_>, Halt> {
        let held = self.keys.get(key).ok_or_else(|| unloaded(key))?;
        self.add(held.reading());
        Ok(self.interpreter.context(held.view(), self.clock))
    }

    /// The value at a key and its time to live.
    ///
    /// # Errors
    /// [`Halt::Unloaded`].
    pub(crate) fn value(&self, key: &[u8]) -> Result<(Option<Bytes>, TimeToLive), Halt> {
        let held = self.keys.get(key).ok_or_else(|| unloaded(key))?;
        Ok((held.value.clone(), held.ttl))
    }

    /// Halts unless all of `keys` are loaded.
    ///
    /// # Errors
    /// [`Halt::Unloaded`].
    pub(crate) fn need(&mut self, keys: impl IntoIterator<Item = Vec<u8>>) -> Result<(), Halt> {
        let missing = keys.into_iter().filter(|key| !self.keys.contains_key(key.as_slice()));
        self.wanted = missing.take(WANTED_MAX).map(Bytes::from).collect();
        self.wanted.iter().map(|key| unloaded(key)).next().map_or(Ok(()), Err)
    }

    /// The keys that the last command asked for when it halted, if it knew several. They may
    /// repeat, and the command may ask for more once these are loaded.
    #[must_use]
    pub fn wanted(&self) -> &[Bytes] {
        &self.wanted
    }

    pub(crate) fn database(&self) -> Option<Database> {
        self.database
    }

    /// Changes the state of a loaded key.
    ///
    /// # Errors
    /// [`Halt::Unloaded`].
    pub(crate) fn change(&mut self, key: &[u8], change: Change) -> Result<(), Halt> {
        let held = self.keys.get_mut(key).ok_or_else(|| unloaded(key))?;
        self.work.set(self.work.get().saturating_add(work::writing(&change)));
        held.change(change, self.clock);
        Ok(())
    }

    /// Runs a command of one key.
    ///
    /// # Errors
    /// [`Halt::Unloaded`] and [`Halt::TooLong`]. A command that fails answers its error.
    pub fn run(&mut self, key: &[u8], command: &Command) -> Result<Reply, Halt> {
        if let Some(reply) = self.run_on_part(key, command)? {
            return Ok(reply);
        }
        let work = self.keys.get(key).map_or(0, Held::reading);
        self.begin(work)?;
        let held = self.keys.get_mut(key).ok_or_else(|| unloaded(key))?;
        let Applied { change, reply } =
            self.interpreter.apply(held.view(), &command.body, self.clock);
        let work = work::writing(&change) + work::answering(&reply);
        self.work.set(self.work.get().saturating_add(work));
        held.change(change, self.clock);
        Ok(reply)
    }

    /// Runs a command line on the keys that it names. An error changes no state.
    ///
    /// # Errors
    /// [`Halt::Unloaded`] and [`Halt::TooLong`], or the reply.
    pub fn execute(&mut self, args: &[&[u8]]) -> Result<Reply, Halt> {
        self.begin(work::COMMAND)?;
        self.wanted.clear();
        // Each line draws anew.
        self.clock.seed = base::Prng::new(self.clock.seed).next_u64();
        let spec = table::resolve(args)?;
        let arguments = Arguments { spec, all: args, clock: self.clock };
        match spec.execution {
            Execution::Keys(run) => return self.attempt(|space| run(&arguments, space)),
            Execution::Script => return self.attempt(|space| scripting::run(&arguments, space)),
            _ => {}
        }
        match spec.plan(args, self.clock)? {
            Plan::Reply(reply) => Ok(reply),
            Plan::Key { command, key } => self.run(args[key], &command),
            Plan::PerKey { command, keys, combine } => {
                let replies: Result<_, _> = keys.map(|key| self.run(args[key], &command)).collect();
                Ok(combine.replies(replies?))
            }
            Plan::Session(_) | Plan::Keys { .. } | Plan::Once { .. } => {
                Err(crate::errors::INVALID_COMMAND.into())
            }
        }
    }

    /// Undoes the changes of a run that halts.
    fn attempt<T>(&mut self, run: impl FnOnce(&mut Space) -> Result<T, Halt>) -> Result<T, Halt> {
        self.settle_all();
        let before = self.keys.clone();
        let result = run(self);
        if result.is_err() {
            self.keys = before;
            self.indexed.clear();
        }
        result
    }

    /// The change of each key, in the order of the keys. Keys that stay as they were found are left
    /// out.
    pub fn changes(&mut self) -> impl Iterator<Item = (&Bytes, Change)> {
        self.settle_all();
        self.keys
            .iter()
            .map(|(key, held)| (key, held.net()))
            .filter(|(_, change)| *change != Change::None)
    }
}

fn unloaded(key: &[u8]) -> Halt {
    match key.len() > KEY_LEN_MAX {
        true => Halt::Error(crate::errors::key_too_large(key.len())),
        false => Halt::Unloaded(Bytes::copy_from_slice(key)),
    }
}

impl Held {
    fn reading(&self) -> u64 {
        self.value.as_deref().map_or(0, work::reading)
    }

    fn view(&self) -> View<'_> {
        View { value: self.value.as_deref(), ttl: self.ttl, ends: self.ends }
    }

    fn change(&mut self, change: Change, clock: Clock) {
        match change {
            Change::None => {}
            Change::Put { value, expiry } => {
                self.value = Some(value);
                self.expire(expiry, clock);
            }
            Change::Expire(expiry) => self.expire(expiry, clock),
            Change::Delete => {
                self.value = None;
                self.expire(ExpiryChange::Set(TimeToLive::Never), clock);
            }
        }
    }

    fn expire(&mut self, expiry: ExpiryChange, clock: Clock) {
        if let ExpiryChange::Set(ttl) = expiry {
            self.ttl = ttl;
            self.ends = ttl.ends(clock.unix);
            self.set = Some(ttl);
        }
    }

    /// All changes as one.
    fn net(&self) -> Change {
        let expiry = self.set.map_or(ExpiryChange::Keep, ExpiryChange::Set);
        match (&self.found, &self.value) {
            (None, None) => Change::None,
            (Some(_), None) => Change::Delete,
            (found, Some(value)) if found.as_ref() != Some(value) => {
                Change::Put { value: value.clone(), expiry }
            }
            _ if self.set.is_some() => Change::Expire(expiry),
            _ => Change::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use base::Millis;

    use super::*;

    const CLOCK: Clock = Clock { unix: Millis(1_000), seed: 0 };

    fn space(interpreter: &Interpreter) -> Space {
        let mut space = Space::new(interpreter, CLOCK);
        let value = values::string::encode(b"1");
        let ttl = TimeToLive::After(Millis(500));
        space.load("a".into(), View::fresh(Some(&value), ttl, CLOCK.unix));
        space.load("b".into(), View::fresh(None, TimeToLive::Never, CLOCK.unix));
        space
    }

    fn execute(space: &mut Space, line: &str) -> Result<Reply, Halt> {
        space.execute(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    }

    fn net(lines: &[&str]) -> Vec<(String, Change)> {
        let interpreter = Interpreter::default();
        let mut space = space(&interpreter);
        lines.iter().for_each(|line| drop(execute(&mut space, line).expect("a reply")));
        let name = |key: &Bytes| String::from_utf8_lossy(key).to_string();
        space.changes().map(|(key, change)| (name(key), change)).collect()
    }

    fn put(text: &str, expiry: ExpiryChange) -> Change {
        Change::Put { value: values::string::encode(text.as_bytes()), expiry }
    }

    #[test]
    fn changes_of_a_key_become_one() {
        let key = |change| vec![("a".to_string(), change)];
        assert_eq!(net(&["INCR a", "INCR a"]), key(put("3", ExpiryChange::Keep)));
        assert_eq!(net(&["INCR a", "DECR a"]), []);
        assert_eq!(net(&["DEL a"]), key(Change::Delete));
        let never = ExpiryChange::Set(TimeToLive::Never);
        assert_eq!(net(&["DEL a", "SET a 2"]), key(put("2", never)));
        assert_eq!(net(&["DEL a", "APPEND a 1"]), key(Change::Expire(never)));
        assert_eq!(net(&["SET b x", "DEL b"]), []);
        let ttl = ExpiryChange::Set(TimeToLive::After(Millis(9_000)));
        assert_eq!(net(&["EXPIRE a 9"]), key(Change::Expire(ttl)));
    }

    #[test]
    fn later_commands_see_earlier_changes() {
        let interpreter = Interpreter::default();
        let mut space = space(&interpreter);
        assert_eq!(execute(&mut space, "MSET b 7 a 8"), Ok(Reply::OK));
        assert_eq!(execute(&mut space, "INCR b"), Ok(Reply::Integer(8)));
        assert_eq!(execute(&mut space, "TTL a"), Ok(Reply::Integer(-1)));
        assert_eq!(execute(&mut space, "MSETNX c 1 a 2"), Err(Halt::Unloaded("c".into())));
        assert_eq!(execute(&mut space, "EXISTS a b"), Ok(Reply::Integer(2)));
    }

    #[test]
    fn failed_command_changes_no_key() {
        let interpreter = Interpreter { max_value_len: 4, scripts: None };
        let mut space = space(&interpreter);
        let halt = execute(&mut space, "MSET a 22 b 55555").expect_err("one is too large");
        assert!(matches!(halt, Halt::Error(_)));
        assert_eq!(space.changes().count(), 0);
    }
}
