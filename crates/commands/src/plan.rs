//! From arguments to what must be done: by the session itself, or by a register.

use std::ops::Range;

use bytes::Bytes;
use types::limits::KEY_LEN_MAX;
use types::{Access, Clock, Command, Reply};

use crate::errors::{self, ErrorReply};
use crate::spec::CommandSpec;

/// Who executes a command, and how it becomes one.
#[derive(Clone, Copy, Debug)]
pub enum Execution {
    /// The session.
    Session(SessionVerb),
    /// The register of its one key.
    Key(Planner),
    /// The registers of its keys, each on its own: linearizable per key, not atomic together.
    PerKey(Planner, Combine),
    /// Nobody: it only holds subcommands.
    Container,
}

/// Parses the arguments of a command on keys. For [`Execution::PerKey`] the result fits every key.
pub type Planner = fn(&Arguments<'_>) -> Result<Command, ErrorReply>;

/// What a planner reads.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    pub spec: &'static CommandSpec,
    /// All arguments, the command's name included; their number fits the arity.
    pub all: &'a [&'a [u8]],
    pub clock: Clock,
}

/// What a session must do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Execute it.
    Session(SessionVerb),
    /// Send `command` to the register of argument `key`; its reply is the answer.
    Key { command: Command, key: usize },
    /// Send `command` to the register of each of the arguments `keys`, and combine the replies in their
    /// order.
    PerKey { command: Command, keys: Range<usize>, combine: Combine },
}

/// How the replies of one command's keys become one reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combine {
    /// Add integers.
    Sum,
    /// List them.
    Array,
}

/// What a session executes itself. Subcommands are verbs of their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SessionVerb {
    Ping,
    Echo,
    Quit,
    Reset,
    Hello,
    Auth,
    Select,
    ClientId,
    ClientGetName,
    ClientSetName,
    ClientSetInfo,
    ClientInfo,
    ClientList,
    ClientKill,
    ClientReply,
    ClientNoEvict,
    ClientNoTouch,
    ClientPause,
    ClientUnpause,
    ClientUnblock,
    ClientTrackingInfo,
    ClientGetRedir,
    ClientConsistency,
    ClientHelp,
    Command,
    CommandCount,
    CommandDocs,
    CommandGetKeys,
    CommandGetKeysAndFlags,
    CommandHelp,
    CommandInfo,
    CommandList,
    Info,
    ConfigGet,
    ConfigSet,
    ConfigResetStat,
    ConfigRewrite,
    ConfigHelp,
    MemoryDoctor,
    MemoryHelp,
    MemoryMallocStats,
    MemoryPurge,
    MemoryStats,
    ObjectHelp,
    DbSize,
    Time,
    Wait,
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    Monitor,
    SlowlogGet,
    SlowlogHelp,
    SlowlogLen,
    SlowlogReset,
    LatencyDoctor,
    LatencyGraph,
    LatencyHelp,
    LatencyHistogram,
    LatencyHistory,
    LatencyLatest,
    LatencyReset,
    FlushAll,
    FlushDb,
    Scan,
    Keys,
    KeyExplain,
    RandomKey,
    ReadOnly,
    ReadWrite,
    Lolwut,
}

impl Arguments<'_> {
    /// The command with the row's access.
    pub(crate) fn command(&self, body: impl Into<Bytes>) -> Command {
        // A planner belongs to a row that names its access: a test goes through the table.
        Command::new(self.spec.access.unwrap_or(Access::Update), body.into())
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
        Execution::Key(planner) => {
            let key = spec.keys.map_or(1, |keys| keys.first);
            check_keys(args, key..key + 1)?;
            Ok(Plan::Key { command: planner(&arguments)?, key })
        }
        Execution::PerKey(planner, combine) => {
            let keys = spec.keys.map_or(1..args.len(), |keys| keys.indexes(args.len()));
            check_keys(args, keys.clone())?;
            let command = planner(&arguments)?;
            if keys.len() == 1 && combine == Combine::Sum {
                return Ok(Plan::Key { command, key: keys.start });
            }
            Ok(Plan::PerKey { command, keys, combine })
        }
        Execution::Container => {
            let subcommand = args.get(1).copied().unwrap_or_default();
            Err(errors::unknown_subcommand(args.first().copied().unwrap_or_default(), subcommand))
        }
    }
}

fn check_keys(args: &[&[u8]], keys: Range<usize>) -> Result<(), ErrorReply> {
    let keys = args.get(keys).unwrap_or_default();
    match keys.iter().find(|key| key.len() > KEY_LEN_MAX) {
        Some(key) => Err(errors::key_too_large(key.len())),
        None => Ok(()),
    }
}

impl Combine {
    /// One reply out of those of all keys, in the order of the keys. The first error is the whole
    /// answer.
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
    fn replies_of_keys_become_one() {
        let replies = vec![Reply::Integer(1), Reply::Integer(2)];
        assert_eq!(Combine::Sum.replies(replies.clone()), Reply::Integer(3));
        assert_eq!(Combine::Array.replies(replies.clone()), Reply::Array(replies));
        assert_eq!(Combine::Array.replies(Vec::new()), Reply::Array(Vec::new()));
    }

    #[test]
    fn one_error_is_the_whole_answer() {
        let error = Reply::error("WRONGTYPE x");
        let replies = vec![Reply::Integer(1), error.clone()];
        assert_eq!(Combine::Sum.replies(replies), error);
    }
}
