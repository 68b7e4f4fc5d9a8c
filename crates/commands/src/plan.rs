//! Plans: the arguments of a command, checked and parsed, for a session or for registers.

use std::ops::Range;

use types::limits::KEY_LEN_MAX;
use types::{Access, Clock, Command, Once, Reply};

use crate::errors::{self, ErrorReply};
use crate::interpreter::Interpreter;
use crate::operation::Operation;
use crate::scripting;
use crate::session_verb::SessionVerb;
use crate::space::{Halt, Space};
use crate::spec::CommandSpec;
use crate::transactions::Line;

/// Arguments of `ONCE` before the command inside it.
pub const ONCE_ARGUMENTS: usize = 3;

/// The executor of a command, and the function that parses its arguments.
#[derive(Clone, Copy, Debug)]
pub enum Execution {
    /// The session.
    Session(SessionVerb),
    /// A function of the arguments and the table.
    Table(fn(&Arguments<'_>) -> Result<Reply, ErrorReply>),
    /// The register of its one key.
    Key(Planner),
    /// The registers of its keys, each alone: linearizable per key, not atomic together.
    PerKey(Planner, Combine),
    /// The states of all its keys at one time.
    Keys(Runner),
    /// The engine of scripts, on the states of all keys that the script touches.
    Script,
    /// That of the command inside it.
    Around(fn(&Arguments<'_>) -> Result<Plan, ErrorReply>),
    /// None: it only holds subcommands.
    Container,
}

/// Parses the arguments of a command on keys. For [`Execution::PerKey`] the result fits every key.
pub type Planner = fn(&Arguments<'_>) -> Result<Command, ErrorReply>;

/// Runs a command on the states of its keys.
pub type Runner = fn(&Arguments<'_>, &mut Space) -> Result<Reply, Halt>;

/// The input of a planner or a runner.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    pub spec: &'static CommandSpec,
    /// All arguments, the command's name included; their number fits the arity.
    pub all: &'a [&'a [u8]],
    pub clock: Clock,
}

/// The task of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Execute it.
    Session(SessionVerb),
    /// Send this reply.
    Reply(Reply),
    /// Send `command` to the register of argument `key`; its reply is the answer.
    Key { command: Command, key: usize },
    /// Send `command` to the registers of the arguments `keys`, and combine the replies in the
    /// order of the keys.
    PerKey { command: Command, keys: Range<usize>, combine: Combine },
    /// Run the line on the states of the arguments `keys` at one time. They name at least two keys,
    /// or the line asks for others while it runs. A script may name none.
    Keys { keys: Vec<usize>, access: Access },
    /// Run the command that the arguments from `inner` on are, at most once: a command on several
    /// keys, or `EXEC`.
    Once { once: Once, inner: usize },
}

/// How the replies of one command's keys become one reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combine {
    /// Add integers.
    Sum,
    /// List them.
    Array,
}

impl Arguments<'_> {
    /// The command that runs `operation` with the row's access.
    pub(crate) fn command<'o>(&self, operation: &impl Operation<'o>) -> Command {
        // Each row with a planner names its access: a test checks the table.
        Command::new(self.spec.access.unwrap_or(Access::Update), operation.body())
    }
}

pub(crate) fn plan(
    spec: &'static CommandSpec,
    args: &[&[u8]],
    clock: Clock,
) -> Result<Plan, ErrorReply> {
    spec.check_arity(args.len())?;
    let arguments = Arguments { spec, all: args, clock };
    match spec.execution {
        Execution::Session(verb) => Ok(Plan::Session(verb)),
        Execution::Table(reply) => reply(&arguments).map(Plan::Reply),
        Execution::Key(planner) => {
            let key = spec.keys.map_or(1, |keys| keys.first);
            check_keys(args, key..key + 1)?;
            Ok(Plan::Key { command: planner(&arguments)?, key })
        }
        Execution::PerKey(planner, combine) => {
            let keys = spec.keys.map_or(1, |keys| keys.first)..args.len();
            check_keys(args, keys.clone())?;
            let command = planner(&arguments)?;
            if keys.len() == 1 && combine == Combine::Sum {
                return Ok(Plan::Key { command, key: keys.start });
            }
            Ok(Plan::PerKey { command, keys, combine })
        }
        Execution::Keys(run) => plan_keys(&arguments, run),
        Execution::Script => plan_script(&arguments),
        Execution::Around(plan) => plan(&arguments),
        Execution::Container => {
            let subcommand = args.get(1).copied().unwrap_or_default();
            Err(errors::unknown_subcommand(args.first().copied().unwrap_or_default(), subcommand))
        }
    }
}

/// One key is enough for a register of its own; a command without any fails.
fn plan_keys(arguments: &Arguments<'_>, run: Runner) -> Result<Plan, ErrorReply> {
    let args = arguments.all;
    let keys = arguments.spec.key_indexes(args);
    if let Some(key) = keys.iter().map(|&key| args[key]).find(|key| key.len() > KEY_LEN_MAX) {
        return Err(errors::key_too_large(key.len()));
    }
    let Some(&first) = keys.first() else {
        let interpreter = Interpreter::default();
        let mut space = Space::new(&interpreter, arguments.clock);
        return match run(arguments, &mut space) {
            Ok(reply) => Ok(Plan::Reply(reply)),
            Err(Halt::Error(error)) => Err(error),
            Err(Halt::Unloaded(_) | Halt::TooLong) => Err(errors::SYNTAX),
        };
    };
    let is_alone = keys.iter().all(|&key| args[key] == args[first]);
    if is_alone && !arguments.spec.reads_hidden_keys(args) {
        return Ok(Plan::Key { command: arguments.command(&Line::of(args)), key: first });
    }
    let access = arguments.spec.access.unwrap_or(Access::Update);
    Ok(Plan::Keys { keys, access })
}

/// A script on one key is one command of its register, for as long as it touches no other.
fn plan_script(arguments: &Arguments<'_>) -> Result<Plan, ErrorReply> {
    let args = arguments.all;
    if scripting::is_by_digest(arguments.spec.name) && args[1].len() != scripting::DIGEST_LEN {
        return Err(errors::NO_SCRIPT);
    }
    let keys = 3..3 + scripting::count_of_keys(args)?;
    check_keys(args, keys.clone())?;
    if args[1].len() > types::limits::RECORD_LEN_MAX {
        return Err(errors::STRING_TOO_LONG);
    }
    let first = keys.start;
    if !keys.is_empty() && args[keys.clone()].iter().all(|key| *key == args[first]) {
        return Ok(Plan::Key { command: arguments.command(&Line::of(args)), key: first });
    }
    let access = arguments.spec.access.unwrap_or(Access::Update);
    Ok(Plan::Keys { keys: keys.collect(), access })
}

fn check_keys(args: &[&[u8]], keys: Range<usize>) -> Result<(), ErrorReply> {
    let keys = args.get(keys).unwrap_or_default();
    match keys.iter().find(|key| key.len() > KEY_LEN_MAX) {
        Some(key) => Err(errors::key_too_large(key.len())),
        None => Ok(()),
    }
}

impl Combine {
    /// One reply out of the replies of all keys, in the order of the keys. The first error replaces
    /// all others.
    #[must_use]
    pub fn replies(self, replies: Vec<Reply>) -> Reply {
        if let Some(error) = replies.iter().find(|reply| reply.is_error()) {
            return error.clone();
        }
        match self {
            Combine::Sum => Reply::Integer(sum(&replies)),
            Combine::Array => Reply::Array(replies),
        }
    }
}

fn sum(replies: &[Reply]) -> i64 {
    let integer = |reply: &Reply| match reply {
        Reply::Integer(value) => Some(*value),
        _ => None,
    };
    replies.iter().filter_map(integer).fold(0, i64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_keys_combine() {
        let replies = vec![Reply::Integer(1), Reply::Integer(2)];
        assert_eq!(Combine::Sum.replies(replies.clone()), Reply::Integer(3));
        assert_eq!(Combine::Array.replies(replies.clone()), Reply::Array(replies));
        assert_eq!(Combine::Array.replies(Vec::new()), Reply::Array(Vec::new()));
    }

    #[test]
    fn first_error_replaces_other_replies() {
        let error = Reply::error("WRONGTYPE x");
        let replies = vec![Reply::Integer(1), error.clone()];
        assert_eq!(Combine::Sum.replies(replies), error);
    }
}
