//! Commands as protocols see them: opaque bytes and a pure function that runs them.

use base::Millis;
use bytes::Bytes;

use crate::{Hold, Malformed, Reader, Reply, Settle, Then, Under, Wire};

/// How a command may touch the state of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Never changes it.
    Read,
    /// The same, and in one order with the writes, even where the protocol's reads are weaker.
    OrderedRead,
    /// The same as `Read`, and any value that the node holds will do, committed or not.
    UncommittedRead,
    /// Changes it, or finds a condition unmet and leaves it.
    Update,
    /// Replaces any state, and its reply does not depend on the old one (plain `SET`).
    Write,
    /// Removes any state, and replies whether there was one (`DEL`). A protocol of plain writes
    /// replies for a state that it read before it removed the key.
    Delete,
}

impl Access {
    #[must_use]
    pub fn is_read(self) -> bool {
        matches!(self, Access::Read | Access::OrderedRead | Access::UncommittedRead)
    }
}

impl Wire for Access {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Access::Read => 0,
            Access::Update => 1,
            Access::Write => 2,
            Access::Delete => 3,
            Access::OrderedRead => 4,
            Access::UncommittedRead => 5,
        });
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Access, Malformed> {
        Ok(match reader.u8()? {
            0 => Access::Read,
            1 => Access::Update,
            2 => Access::Write,
            3 => Access::Delete,
            4 => Access::OrderedRead,
            5 => Access::UncommittedRead,
            _ => return Err(Malformed),
        })
    }
}

/// One command on one key, ready to run anywhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    pub access: Access,
    /// Verb and arguments, as the command table encodes them.
    pub body: Bytes,
    /// Set where the command is safe to repeat; it then writes even where it would not.
    pub once: Option<Box<Once>>,
    /// Set where the command is about a transaction's hold on its key.
    pub hold: Option<Box<Hold>>,
}

/// Makes a command safe to repeat: within the window, commands of one key with the same session and
/// number run at most once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Once {
    /// The client's own name for itself, 1 to
    /// [`ONCE_SESSION_LEN_MAX`](crate::limits::ONCE_SESSION_LEN_MAX) bytes, never used by another
    /// client.
    pub session: Bytes,
    /// Grows with every command of the session on the key.
    pub seq: u64,
    /// For how long the command is remembered, counted like a time to live.
    pub window: Millis,
}

impl Command {
    /// A command that is not safe to repeat.
    #[must_use]
    pub fn new(access: Access, body: Bytes) -> Command {
        Command { access, body, once: None, hold: None }
    }

    /// The same, behind the end of a hold.
    #[must_use]
    pub fn after(self, settle: Settle) -> Command {
        let hold = self.hold.map_or_else(Hold::default, |hold| *hold);
        let hold = Some(Box::new(Hold { settle: Some(settle), ..hold }));
        Command { access: Access::Update, hold, ..self }
    }

    /// A command without a body.
    #[must_use]
    pub fn holding(access: Access, then: Then) -> Command {
        let hold = Hold { then, ..Hold::default() };
        Command { hold: Some(Box::new(hold)), ..Command::new(access, Bytes::new()) }
    }

    /// It acts under a lock, or finds it: it does not wait for its end.
    #[must_use]
    pub fn is_about_locks(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| !hold.waits())
    }

    /// Only this node proposes it.
    #[must_use]
    pub fn stays(&self) -> bool {
        self.once.is_some() || self.hold.is_some()
    }

    /// The same, and it is proposed only under these ballots. It stays at its node.
    #[must_use]
    pub fn only(self, under: Under) -> Command {
        let hold = self.hold.map_or_else(Hold::default, |hold| *hold);
        Command { hold: Some(Box::new(Hold { under, ..hold })), ..self }
    }

    /// The ballots under which it may be proposed.
    #[must_use]
    pub fn under_ballots(&self) -> Under {
        self.hold.as_ref().map_or(Under::Any, |hold| hold.under)
    }

    /// The same, safe to repeat.
    #[must_use]
    pub fn under(self, once: Once) -> Command {
        Command { access: Access::Update, once: Some(Box::new(once)), ..self }
    }
}

/// The state that a command finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View<'a> {
    /// The encoded value; `None` when there is no key.
    pub value: Option<&'a [u8]>,
    pub ttl: TimeToLive,
    /// The end of its time to live, in Unix time by the clock of the node that set it. Present iff
    /// there is one.
    pub ends: Option<Millis>,
}

impl<'a> View<'a> {
    /// A value whose time to live was set just now.
    #[must_use]
    pub fn fresh(value: Option<&'a [u8]>, ttl: TimeToLive, unix: Millis) -> View<'a> {
        View { value, ttl, ends: ttl.ends(unix) }
    }
}

impl TimeToLive {
    /// Its end in Unix time, where it is set at `unix`.
    #[must_use]
    pub fn ends(self, unix: Millis) -> Option<Millis> {
        match self {
            TimeToLive::Never => None,
            TimeToLive::After(span) => Some(Millis(unix.0.saturating_add(span.0))),
            TimeToLive::At { unix } => Some(unix),
        }
    }
}

/// Time to live of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimeToLive {
    /// It does not expire.
    #[default]
    Never,
    /// A span; in a [`View`] the estimated rest of it.
    After(Millis),
    /// A deadline in Unix time, by the wall clocks of a quorum.
    At { unix: Millis },
}

/// Time and randomness of one evaluation, fixed by the node that runs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    pub unix: Millis,
    pub seed: u64,
}

/// The effect of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    pub change: Change,
    pub reply: Reply,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The state stays as it is.
    None,
    /// The key holds this value from now on.
    Put { value: Bytes, expiry: ExpiryChange },
    /// The value stays, its time to live changes.
    Expire(ExpiryChange),
    /// The key is gone.
    Delete,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpiryChange {
    Keep,
    Set(TimeToLive),
}

/// The semantics of all commands: pure, so that it may run at any proposer, any number of times.
pub trait Update: Send + Sync {
    /// Runs `body` (see [`Command::body`]) on the state that it finds. A body that this node does
    /// not understand leaves the state and replies with an error: it can only come from a newer
    /// peer.
    fn apply(&self, view: View<'_>, body: &[u8], clock: Clock) -> Applied;
}

impl Applied {
    #[must_use]
    pub fn unchanged(reply: Reply) -> Applied {
        Applied { change: Change::None, reply }
    }
}
