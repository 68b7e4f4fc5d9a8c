//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`: transactions are refused so far, and a refused one runs
//! nothing.
//!
//! `MULTI` opens a transaction, so that a client's whole pipeline is recognised as one. Every
//! command in it is refused, and `EXEC` then answers `EXECABORT`. A transaction without commands is
//! run: it has no effect. `WATCH` is refused, so that no client relies on it.

use commands::{CommandSpec, Execution, SessionVerb};
use node::session::SessionContext;
use types::Reply;

use crate::session::Session;

/// The reply to every command of a transaction, and to `WATCH`.
const NOT_SUPPORTED: &str = "ERR transactions are not supported yet";

/// Where a connection is between `MULTI` and `EXEC`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Transaction {
    #[default]
    None,
    Open,
    /// A command was refused in it: `EXEC` aborts.
    Failed,
}

impl Transaction {
    /// A command was refused.
    pub(crate) fn fail(&mut self) {
        if *self == Transaction::Open {
            *self = Transaction::Failed;
        }
    }

    /// True for a command that an open transaction would hold until `EXEC`.
    pub(crate) fn holds(self, spec: &CommandSpec) -> bool {
        self != Transaction::None && !acts_at_once(spec)
    }
}

/// Commands that a transaction does not hold, as in redis-server.
fn acts_at_once(spec: &CommandSpec) -> bool {
    use SessionVerb::{Discard, Exec, Multi, Quit, Reset, Watch};
    matches!(spec.execution, Execution::Session(Multi | Exec | Discard | Watch | Quit | Reset))
}

/// The reply to a command within a transaction.
pub(crate) fn refusal() -> Reply {
    Reply::error(NOT_SUPPORTED)
}

impl Session {
    pub(crate) fn multi(&mut self, cx: &mut SessionContext<'_>) {
        if self.transaction != Transaction::None {
            return self.say_error(cx, "ERR MULTI calls can not be nested");
        }
        self.transaction = Transaction::Open;
        self.say_ok(cx);
    }

    pub(crate) fn exec(&mut self, cx: &mut SessionContext<'_>) {
        match std::mem::take(&mut self.transaction) {
            Transaction::None => self.say_error(cx, "ERR EXEC without MULTI"),
            Transaction::Open => self.say(cx, Reply::Array(Vec::new())),
            Transaction::Failed => {
                self.say_error(cx, "EXECABORT Transaction discarded because of previous errors.")
            }
        }
    }

    pub(crate) fn discard(&mut self, cx: &mut SessionContext<'_>) {
        match std::mem::take(&mut self.transaction) {
            Transaction::None => self.say_error(cx, "ERR DISCARD without MULTI"),
            Transaction::Open | Transaction::Failed => self.say_ok(cx),
        }
    }

    pub(crate) fn watch(&mut self, cx: &mut SessionContext<'_>) {
        match self.transaction {
            Transaction::None => self.say_error(cx, NOT_SUPPORTED),
            _ => self.say_error(cx, "ERR WATCH inside MULTI is not allowed"),
        }
    }
}
