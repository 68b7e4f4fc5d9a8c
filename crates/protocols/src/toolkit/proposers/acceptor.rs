//! The answers of this replica, and its register.

use types::{Key, NodeId, Ticket};

use super::machine::{Cx, Machine, Rules};
use crate::mutation::{self, Mutation};
use crate::protocol::Scope;
use crate::register_cache::CachedRegister;
use crate::toolkit::message::{About, Message};
use crate::toolkit::report::Report;
use crate::uptime::Uptime;

impl<R: Rules> Machine<R> {
    /// Answers a question to this replica, if it is one and has its register. `vote` takes part,
    /// and returns the answer, and whether it is a promise or a vote.
    pub fn answer(
        &mut self,
        cx: &mut Cx<'_, R>,
        to: NodeId,
        (id, key): (u64, &Key),
        vote: impl FnOnce(&mut Machine<R>, &mut Cx<'_, R>) -> (About<R::Report>, bool),
    ) {
        if !cx.replicas.set.has_me() {
            return;
        }
        if is_lost(cx, key) {
            return self.recover(cx, key);
        }
        let (body, is_vote) = vote(self, cx);
        let after = match is_vote {
            true if mutation::is(Mutation::ReplyBeforeStored) => Ticket::DURABLE,
            false if mutation::is(Mutation::ExposeUnflushed) => Ticket::DURABLE,
            _ => cx.cache.ticket(key),
        };
        cx.fx.send(to, Message::About { id, key: key.clone(), body }, after);
    }

    pub(super) fn on_read_asked(&mut self, cx: &mut Cx<'_, R>, to: NodeId, id: u64, key: &Key) {
        self.answer(cx, to, (id, key), |_, cx| (About::State(report(cx, key)), false));
    }
}

/// The register of this replica.
pub fn report<E: Report, S>(cx: &Scope<'_, E::Record, S, Message<E>>, key: &Key) -> E {
    match cx.cache.get(key) {
        CachedRegister::Present(record) => E::of(record, cx.uptime, cx.unix),
        CachedRegister::Absent | CachedRegister::Lost => E::default(),
    }
}

/// Changes the register, and stores it if the acceptor took part.
///
/// # Errors
/// The reason for which it did not.
pub fn change<T: Clone + Default, S, M, E>(
    cx: &mut Scope<'_, T, S, M>,
    key: &Key,
    step: impl FnOnce(&mut T, &dyn Uptime) -> Result<(), E>,
) -> Result<(), E> {
    let mut record = match cx.cache.get(key) {
        CachedRegister::Present(record) => record.clone(),
        CachedRegister::Absent | CachedRegister::Lost => T::default(),
    };
    step(&mut record, cx.uptime)?;
    cx.cache.put(key, record);
    cx.cache.persist(key);
    Ok(())
}

/// True for a forgotten register. A node that is no replica has forgotten no register.
pub fn is_lost<T, S, M>(cx: &Scope<'_, T, S, M>, key: &Key) -> bool {
    cx.replicas.set.has_me()
        && matches!(cx.cache.get(key), CachedRegister::Lost)
        && !mutation::is(Mutation::NoRecovery)
}
