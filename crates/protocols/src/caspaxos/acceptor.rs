//! Messages: those to this replica's acceptor are answered here, the others find their phase.

use types::{Key, NodeId, Shard, Ticket};

use super::machine::{Cx, Machine, is_lost};
use super::message::{Body, Message};
use super::paging::held;
use super::register::{Register, Report};
use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::register_cache::CachedRegister;
use crate::toolkit::countdown::Started;
use crate::toolkit::stamp::Stamp;

/// Registers recovered one by one at a time. Others wait until they are asked for again.
const RECOVERIES_MAX: usize = 4_096;

impl Machine {
    pub(super) fn on_message(&mut self, cx: &mut Cx<'_>, from: Peer, message: Message) {
        let (id, key, body) = match message {
            Message::Paging(message) => return self.pager.on_message(cx, from, message),
            Message::About { id, key, body } => (id, key, body),
        };
        let is_own = from.node == cx.replicas.me();
        match body {
            Body::Read | Body::Prepare { .. } | Body::Accept { .. } => {
                self.on_question(cx, from.node, id, &key, body);
            }
            Body::State(report) => {
                if !self.explainer.on_explained(cx, from, id, || held(&report)) {
                    self.with_phase(cx, &key, id, |it, cx, active| {
                        it.on_report(cx, active, from, report);
                    });
                }
            }
            Body::Accepted => {
                self.with_phase(cx, &key, id, |it, cx, active| it.on_accepted(cx, active, from));
            }
            Body::Refused { promised } => {
                self.with_phase(cx, &key, id, |it, cx, active| {
                    it.on_refused(cx, active, from, promised);
                });
            }
            Body::Recover { found } if is_own => self.on_recover(cx, id, &key, found),
            Body::Expire if is_own => self.on_expire(cx, &key),
            Body::Recover { .. } | Body::Expire => {}
        }
    }

    /// A question to the acceptor.
    fn on_question(&mut self, cx: &mut Cx<'_>, to: NodeId, id: u64, key: &Key, body: Body) {
        if !cx.replicas.set.has_me() {
            return;
        }
        if is_lost(cx, key) {
            return self.recover(cx, key);
        }
        let (ballot, is_yes) = match &body {
            Body::Prepare { ballot } => (*ballot, change(cx, key, |it, _| it.prepare(*ballot))),
            Body::Accept { ballot, next, state } => {
                let step =
                    |it: &mut Register, cx: &Cx<'_>| it.accept((*ballot, *next), state, cx.uptime);
                (*ballot, change(cx, key, step))
            }
            _ => (Stamp::NONE, true),
        };
        if self.granted.get(key).is_some_and(|it| it.ballot < ballot) {
            // Another proposer took over.
            self.granted.remove(key);
        }
        let report = report(cx, key);
        let promised = report.promised;
        let answer = match body {
            _ if !is_yes => Body::Refused { promised },
            Body::Accept { .. } => Body::Accepted,
            _ => Body::State(report),
        };
        let is_vote = ballot != Stamp::NONE && is_yes;
        let after = match is_vote {
            true if mutation::is(Mutation::ReplyBeforeStored) => Ticket::DURABLE,
            false if mutation::is(Mutation::ExposeUnflushed) => Ticket::DURABLE,
            _ => cx.cache.ticket(key),
        };
        cx.fx.send(to, Message::About { id, key: key.clone(), body: answer }, after);
    }

    /// Recovers one register on demand: a majority of *others* decides its content, since the own
    /// acceptor is silent.
    pub(super) fn recover(&mut self, cx: &mut Cx<'_>, key: &Key) {
        if self.recovering.contains(key) || self.recovering.len() >= RECOVERIES_MAX {
            return;
        }
        self.recovering.insert(key.clone());
        let step = self.next_step();
        self.with(cx, key, |_, _, active| active.recover = Some(step));
    }

    /// Recoveries in this shard start anew, since its registers are forgotten again.
    pub(super) fn on_forgotten(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        let keys: Vec<Key> =
            self.recovering.iter().filter(|key| key.shard() == shard).cloned().collect();
        for key in keys {
            let step = self.next_step();
            self.with(cx, &key, |_, _, active| active.recover = Some(step));
        }
        self.pager.on_forgotten(cx, shard);
    }

    fn on_recover(&mut self, cx: &mut Cx<'_>, walk: u64, key: &Key, found: Option<Report>) {
        if !self.pager.has_walk(walk) {
            return;
        }
        match found {
            _ if !is_lost(cx, key) => {}
            Some(found) => adopt(cx, key, found),
            None => return self.recover(cx, key),
        }
        self.pager.on_recovered_key(cx, key);
    }
}

/// Changes the register, and stores it if the acceptor took part.
fn change(cx: &mut Cx<'_>, key: &Key, step: impl FnOnce(&mut Register, &Cx<'_>) -> bool) -> bool {
    let mut register = match cx.cache.get(key) {
        CachedRegister::Present(register) => register.clone(),
        CachedRegister::Absent | CachedRegister::Lost => Register::default(),
    };
    let is_yes = step(&mut register, cx);
    if is_yes {
        cx.cache.put(key, register);
        cx.cache.persist(key);
    }
    is_yes
}

/// The register of this replica.
fn report(cx: &Cx<'_>, key: &Key) -> Report {
    match cx.cache.get(key) {
        CachedRegister::Present(register) => register.report(cx.uptime, cx.unix),
        CachedRegister::Absent | CachedRegister::Lost => Report::default(),
    }
}

/// Takes the recovered content of a forgotten register.
pub(super) fn adopt(cx: &mut Cx<'_>, key: &Key, found: Report) {
    if !is_lost(cx, key) && !matches!(cx.cache.get(key), CachedRegister::Lost) {
        return;
    }
    if found == Report::default() && !cx.cache.is_forgotten(key.shard()) {
        cx.cache.remove(key);
        return;
    }
    // In a forgotten shard an empty register marks a key that was never written.
    let Report { promised, ballot, state, .. } = found;
    let started = Started::anew(state.as_ref().and_then(|it| it.ttl()), cx.uptime);
    let promised = promised.max(ballot);
    cx.cache.put(key, Register { promised, ballot, state, started });
    cx.cache.persist(key);
}
