//! The context of a step, and the own acceptor's register.

use types::{Key, Ticket};

use crate::mutation::{self, Mutation};
use crate::protocol::Scope;
use crate::register_cache::CachedRegister;
use crate::rmwpaxos::message::Message;
use crate::rmwpaxos::record::register::{Register, ShardMeta};

pub(crate) type Cx<'a> = Scope<'a, Register, ShardMeta, Message>;

/// The ticket that a reply about this register waits for: its last change and its shard's.
pub(crate) fn gate(cx: &Cx<'_>, key: &Key) -> Ticket {
    if mutation::is(Mutation::ExposeUnflushed) {
        return Ticket::DURABLE;
    }
    cx.cache.ticket(key).max(cx.metas.ticket(key.shard()))
}

/// The own acceptor's register of `key`, unless it is forgotten.
pub(crate) fn held<'a>(cx: &'a Cx<'_>, key: &Key) -> Option<&'a Register> {
    debug_assert!(
        std::ptr::eq(cx.replicas.set, cx.sets.of(key.shard())),
        "the event is about the shard of {key:?}"
    );
    match cx.cache.get(key) {
        CachedRegister::Present(register) => Some(register),
        CachedRegister::Absent | CachedRegister::Lost => None,
    }
}

/// True for a silent register: it, or the fields of its shard, are forgotten. A node that is no
/// replica has forgotten no register.
pub(crate) fn is_lost(cx: &Cx<'_>, key: &Key) -> bool {
    let is_lost =
        matches!(cx.cache.get(key), CachedRegister::Lost) || cx.metas.get(key.shard()).void;
    is_lost && cx.replicas_of(key.shard()).set.has_me() && !mutation::is(Mutation::NoRecovery)
}

/// Reads the clock and draws a seed for one command.
pub(crate) fn clock(cx: &mut Cx<'_>) -> types::Clock {
    types::Clock { unix: cx.unix, seed: cx.rng.next_u64() }
}
