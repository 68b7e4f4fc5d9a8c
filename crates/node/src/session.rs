//! The interface between a node and the protocol of its clients.
//!
//! A [`SessionFactory`] makes a [`Session`] per client connection. Sessions are free of sockets,
//! threads and clocks: bytes go in, bytes and requests come out. The shell owns the socket and
//! routes each request to the worker of its shard. It returns the outcome to the session, on the
//! session's own thread. Outcomes arrive in any order; the session orders its replies.
//!
//! One thread calls a session, never concurrently. A session must not block, and must not panic on
//! input of a client: a panic on a worker stops the node.

use std::net::SocketAddr;
use std::sync::Arc;

use base::{Millis, Nanos};
use transactions::{Mode, Transaction};
pub use types::Shortage;
use types::{Command, Database, Key, Outcome, Positions, SessionId};

use crate::settings::Agreed;
use crate::status::{CommandFacts, Facts};

/// Requests of one session that may be under way; beyond it the session must stop taking input.
pub const OUTSTANDING_MAX: usize = 1024;

/// Bytes of replies that may wait for a client before its session must stop taking input.
pub const OUT_LEN_MAX: usize = 1 << 20;

/// Bytes of input that a session may leave untaken because a request is incomplete. A client beyond
/// it is disconnected: sessions refuse longer requests themselves, with a better word.
pub const INPUT_LEN_MAX: usize = 64 << 20;

/// Bytes of a write that count as much as a short write does, where storage or peers cannot keep
/// up.
const WRITE_LEN: usize = 4096;

/// Makes sessions. One per node, shared by all workers. Sessions of the same worker never run at
/// the same time.
pub trait SessionFactory: Send + Sync {
    /// Opens the session of a new client.
    fn accept(&self, client: &Client) -> Box<dyn Session>;

    /// These limits count from now on. Called before the node serves anything, and whenever they
    /// change.
    fn agree(&self, _limits: &Agreed) {}

    /// The answer to a client that is refused because the node has too many.
    fn too_many(&self) -> &'static [u8];

    /// Statistics of all sessions' commands, if it has any.
    fn commands(&self) -> Option<Arc<dyn CommandFacts>> {
        None
    }
}

/// A connected client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Unique while the process lives.
    pub id: SessionId,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    /// The worker whose thread runs the session.
    pub worker: usize,
    pub port: ClientPort,
}

/// A port that clients connect to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ClientPort {
    /// For commands on keys.
    #[default]
    Keys,
    /// For clients that look for a node as they look for a master at Redis Sentinel.
    Sentinel,
}

/// One client's conversation.
pub trait Session: Send {
    /// Takes whole requests off the front of `input` and returns how many bytes it took.
    ///
    /// The shell shows the rest again when more input arrives. It also shows it again once
    /// [`SessionContext::has_room`] turns true, [`Session::is_full`] turns false, or a held write
    /// may begin. So a session takes all it can while there is room, and returns early when there
    /// is none.
    fn on_bytes(&mut self, input: &[u8], cx: &mut SessionContext<'_>) -> usize;

    /// A request that this session made has ended. Each token comes back exactly once.
    fn on_outcome(&mut self, token: Token, outcome: Outcome, cx: &mut SessionContext<'_>);

    /// The session has just begun, or a moment asked for by [`SessionContext::wake_at`] has passed.
    fn on_timer(&mut self, _cx: &mut SessionContext<'_>) {}

    /// True while it takes no more input for a reason of its own, such as replies that wait for an
    /// earlier one.
    fn is_full(&self) -> bool {
        false
    }

    /// True once the session has sent its last reply. The shell writes `out` and closes the
    /// connection.
    fn wants_close(&self) -> bool;

    /// Called after the shell wrote output, as far as the client accepts it.
    fn note_socket(&mut self, _socket: &Socket) {}

    /// True once the connection must end at once, with replies that are not written yet.
    fn is_gone(&self) -> bool {
        false
    }
}

/// A connection as the shell sees it. Buffers are described by their length and their capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Socket {
    pub descriptor: i32,
    /// Bytes that the session has not taken.
    pub input: (usize, usize),
    /// Bytes that the client has not taken.
    pub output: (usize, usize),
}

/// The session's own name for a request: any number it likes, it comes back with the outcome.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Token(pub u64);

/// A request on its way to the worker that owns its shard.
#[derive(Clone, Debug)]
pub struct Ask {
    pub token: Token,
    pub what: Wanted,
}

/// The kinds of request that a session may make.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// Run one command on one key.
    Run { database: Database, key: Key, command: Command },
    /// List about `limit` keys from `from_hash` to the end of its shard (`Outcome::Listed`).
    List { database: Database, from_hash: u64, limit: usize },
    /// Run a transaction.
    Transact(Transaction),
    /// Ask every replica for its record of a key (`Outcome::Explained`).
    Explain { database: Database, key: Key },
}

impl Wanted {
    /// The weight of a write: one, plus one for each [`WRITE_LEN`] bytes. A read weighs zero.
    pub(crate) fn write_weight(&self) -> usize {
        match self {
            Wanted::Run { command, .. } if !command.access.is_read() => {
                1 + command.body.len() / WRITE_LEN
            }
            Wanted::Transact(transaction) if transaction.mode == Mode::Update => {
                1 + transaction.keys.len()
            }
            Wanted::Transact(_)
            | Wanted::Run { .. }
            | Wanted::List { .. }
            | Wanted::Explain { .. } => 0,
        }
    }
}

/// The input and output of one session step.
pub struct SessionContext<'a> {
    /// Bytes for the client; appended to, written once at the end of the turn.
    pub out: &'a mut Vec<u8>,
    /// Monotonic time of this turn.
    pub now: Nanos,
    /// The same clock, read just before this step or the batch of steps that it belongs to.
    pub moment: Nanos,
    /// Wall clock of this turn.
    pub unix: Millis,
    /// Facts about the node for `INFO`, `CONFIG GET` and the like.
    pub node: &'a dyn Facts,
    asks: &'a mut Vec<Ask>,
    /// None while the node belongs to no cluster: it serves no keys then.
    positions: Option<&'a Positions>,
    outstanding: usize,
    /// The total weight of writes that may still begin.
    writes_left: usize,
    shortage: Shortage,
    is_write_held: bool,
    wake_at: Option<Nanos>,
}

impl<'a> SessionContext<'a> {
    /// `outstanding` requests of this session are under way besides those in `asks`, to which new
    /// ones are appended.
    #[must_use]
    pub fn new(
        out: &'a mut Vec<u8>,
        asks: &'a mut Vec<Ask>,
        outstanding: usize,
        (now, unix): (Nanos, Millis),
        node: &'a dyn Facts,
    ) -> SessionContext<'a> {
        SessionContext {
            out,
            now,
            moment: now,
            unix,
            node,
            asks,
            positions: None,
            outstanding,
            writes_left: usize::MAX,
            shortage: Shortage::None,
            is_write_held: false,
            wake_at: None,
        }
    }

    /// The same, of a node that belongs to a cluster with keys at these positions.
    #[must_use]
    pub fn with_positions(self, positions: Option<&'a Positions>) -> SessionContext<'a> {
        SessionContext { positions, ..self }
    }

    /// Where keys lie; none while the node belongs to no cluster.
    #[must_use]
    pub fn positions(&self) -> Option<&'a Positions> {
        self.positions
    }

    /// The same, with a clock reading that is younger than the turn.
    #[must_use]
    pub fn with_moment(self, moment: Nanos) -> SessionContext<'a> {
        SessionContext { moment, ..self }
    }

    /// The same, and after so many short writes, or fewer long ones,
    /// [`SessionContext::takes_writes`] is false.
    #[must_use]
    pub fn with_writes_left(self, writes_left: usize) -> SessionContext<'a> {
        SessionContext { writes_left, ..self }
    }

    /// The same, for a node that is short of room.
    #[must_use]
    pub fn with_shortage(self, shortage: Shortage) -> SessionContext<'a> {
        SessionContext { shortage, ..self }
    }

    /// Runs `command` on `key`; [`Session::on_outcome`] brings the end of it.
    pub fn run(&mut self, token: Token, database: Database, key: Key, command: Command) {
        let what = Wanted::Run { database, key, command };
        self.writes_left = self.writes_left.saturating_sub(what.write_weight());
        self.asks.push(Ask { token, what });
    }

    /// Runs a transaction; [`Session::on_outcome`] brings the end of it.
    pub fn transact(&mut self, token: Token, transaction: Transaction) {
        let what = Wanted::Transact(transaction);
        self.writes_left = self.writes_left.saturating_sub(what.write_weight());
        self.asks.push(Ask { token, what });
    }

    /// Lists keys of the shard that `from_hash` lies in, from there on.
    pub fn list(&mut self, token: Token, database: Database, from_hash: u64, limit: usize) {
        self.asks.push(Ask { token, what: Wanted::List { database, from_hash, limit } });
    }

    /// Asks every replica for its record of `key`.
    pub fn explain(&mut self, token: Token, database: Database, key: Key) {
        self.asks.push(Ask { token, what: Wanted::Explain { database, key } });
    }

    /// Requests of this session under way, those made in this step included.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding + self.asks.len()
    }

    /// False when the session must stop taking input for now: too many requests under way, or too
    /// many bytes that the client has not read.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.outstanding() < OUTSTANDING_MAX && self.out.len() < OUT_LEN_MAX
    }

    /// False while the node's storage or its peers cannot keep up: then a request that writes must
    /// not begin.
    #[must_use]
    pub fn takes_writes(&self) -> bool {
        self.writes_left > 0
    }

    /// The writes to refuse, because they would only wait for room.
    #[must_use]
    pub fn shortage(&self) -> Shortage {
        self.shortage
    }

    /// Reports that the next request is a write that must not begin yet. The shell shows it again
    /// later.
    pub fn hold_write(&mut self) {
        self.is_write_held = true;
    }

    /// The shell's side of [`SessionContext::hold_write`].
    #[must_use]
    pub fn is_write_held(&self) -> bool {
        self.is_write_held
    }

    /// Asks for [`Session::on_timer`] at `at` or a little later. Timers are not cancelled; the
    /// earliest asked for in one step counts.
    pub fn wake_at(&mut self, at: Nanos) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// The timer that this step asked for: the shell's side.
    #[must_use]
    pub fn wanted_wake(&self) -> Option<Nanos> {
        self.wake_at
    }
}
