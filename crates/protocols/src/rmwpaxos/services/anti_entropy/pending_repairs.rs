//! What an owner owes for a proposal that is chosen though not everybody has acknowledged it [spec 9.3, 9.7]: the
//! accept, once more, to those who may have missed it, and to the others a hint that what they hold is chosen.
//!
//! Only then do readers see replicas disagree: where all have acknowledged, or the key is written again first, nothing
//! is kept and nothing sent. Memory is bounded and lossy: what is pushed out of it is found by comparing ranges
//! ([`crate::rmwpaxos::services::anti_entropy::ranges`]).

use std::fmt;

use base::Nanos;
use types::{Key, Round};

use crate::effects::TimerId;
use crate::peers::Member;
use crate::replicas::{Places, Replicas, place};
use crate::rmwpaxos::Cx;
use crate::rmwpaxos::RmwPaxos;
use crate::rmwpaxos::core::operation::Active;
use crate::rmwpaxos::core::replies;
use crate::rmwpaxos::message::{Due, Message};

pub(crate) const REMIND: TimerId = TimerId(5);

/// A power of two: a debt lies where its key's hash says, and a later one there takes its place.
const SLOTS: usize = 2048;
/// Long enough for an acknowledgement that is only slower than the others'.
const REMIND_AFTER: Nanos = Nanos::from_millis(100);
/// A member that was away is reminded so soon after its connection stands.
const REMIND_BACK_AFTER: Nanos = Nanos::from_millis(5);
/// Reminders of one debt; who does not answer them is left to the comparison of ranges.
const REMINDERS_MAX: u32 = 5;
/// Debts that are reminded of at a time, and bytes of states.
const REMINDED_MAX: usize = 256;
const REMINDED_LEN_MAX: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct Owed {
    /// Empty until something is owed for the first time.
    slots: Vec<Option<Debt>>,
    len: usize,
    /// When the timer fires next.
    armed: Option<Nanos>,
    /// Bytes of states sent since it fired.
    sent_len: usize,
}

/// What is owed, in the order of its places.
impl fmt::Debug for Owed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.slots.iter().flatten()).finish()?;
        write!(f, "{:?}", self.armed)
    }
}

#[derive(Debug)]
struct Debt {
    key: Key,
    /// Chosen, and the last proposal of its ballot.
    round: Round,
    /// Who has not acknowledged it.
    missing: Places,
    due: Nanos,
    reminders: u32,
}

impl Owed {
    /// Nobody who could be reminded waits for it.
    pub(crate) fn is_quiet(&self) -> bool {
        self.armed.is_none()
    }

    fn slot(&self, key: &Key) -> usize {
        key.hash() as usize & (self.slots.len() - 1)
    }

    fn put(&mut self, debt: Debt) {
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, || None);
        }
        let slot = self.slot(&debt.key);
        self.len += usize::from(self.slots[slot].is_none());
        self.slots[slot] = Some(debt);
    }

    fn find(&mut self, key: &Key) -> Option<&mut Debt> {
        if self.len == 0 {
            return None;
        }
        let slot = self.slot(key);
        self.slots[slot].as_mut().filter(|debt| debt.key == *key)
    }

    fn forget(&mut self, key: &Key) {
        if self.find(key).is_some() {
            let slot = self.slot(key);
            self.slots[slot] = None;
            self.len -= 1;
        }
    }

    /// A member has acknowledged `round`.
    pub(crate) fn on_accepted(&mut self, member: usize, key: &Key, round: Round) {
        let Some(debt) = self.find(key) else { return };
        if round.ballot() == debt.round.ballot() && round >= debt.round {
            debt.missing &= !(1 << member);
            if debt.missing == 0 {
                self.forget(key);
            }
        }
    }

    fn arm(&mut self, cx: &mut Cx<'_>, at: Nanos) {
        if self.armed.is_none_or(|armed| at < armed) {
            self.armed = Some(at);
            cx.fx.timer(REMIND, at);
        }
    }
}

/// Members that are up and may be asked, this node left out: what is not urgent would wait in front of a slow one's link.
pub(crate) fn others_in_reach(replicas: Replicas<'_>) -> Places {
    replicas.other_places(Member::is_in_reach)
}

/// Those of them who soon hear what they are told.
fn others_steady(replicas: Replicas<'_>) -> Places {
    replicas.other_places(Member::is_steady)
}

/// Who has not acknowledged the last proposal; nobody, if it is not by these acknowledgements that it is chosen.
fn missing(cx: &Cx<'_>, active: &Active) -> Places {
    let set = cx.replicas.set;
    let acked = active.acks.at_least(cx.replicas, active.k);
    if set.is_quorum_of(acked) { set.all_places() & !acked } else { 0 }
}

impl RmwPaxos {
    /// The owner has nothing more to propose.
    pub(crate) fn owe(&mut self, cx: &mut Cx<'_>, active: &Active) {
        if active.k == 0 || active.chosen_k != active.k {
            return;
        }
        let missing = missing(cx, active);
        if missing == 0 || !cx.replicas.set.has_me() {
            return;
        }
        let due = cx.now + REMIND_AFTER;
        let round = active.ballot.round(active.k);
        self.owed.put(Debt { key: active.key.clone(), round, missing, due, reminders: 0 });
        if missing & others_steady(cx.replicas) != 0 {
            self.owed.arm(cx, due);
        }
    }

    /// A member is back, or steady again: what it may have missed is sent soon.
    pub(crate) fn owe_returned(&mut self, cx: &mut Cx<'_>, node: types::NodeId) {
        if self.owed.len == 0 {
            return;
        }
        let due = cx.now + REMIND_BACK_AFTER;
        let mut any = false;
        let place_in = |debt: &Debt| cx.replicas_of(debt.key.shard()).index(node).map_or(0, place);
        let debts = self.owed.slots.iter_mut().flatten();
        for debt in debts.filter(|debt| debt.missing & place_in(debt) != 0) {
            (debt.due, debt.reminders, any) = (due, 0, true);
        }
        if any {
            self.owed.arm(cx, due);
        }
    }

    pub(crate) fn on_remind_timer(&mut self, cx: &mut Cx<'_>) {
        // An earlier timer may have replaced this one: only the newest arms another.
        if self.owed.armed.is_some_and(|armed| armed > cx.now) {
            return;
        }
        self.owed.armed = None;
        self.owed.sent_len = 0;
        let replicas_of = cx.by_shard();
        let steady = |debt: &Debt| others_steady(replicas_of(debt.key.shard()));
        let mut reminded = 0;
        let mut next = None;
        for slot in &mut self.owed.slots {
            let is_wanted = |debt: &&mut Debt| debt.missing & steady(debt) != 0;
            let Some(debt) = slot.as_mut().filter(is_wanted) else { continue };
            if debt.due <= cx.now && reminded < REMINDED_MAX {
                if debt.reminders >= REMINDERS_MAX {
                    *slot = None;
                    self.owed.len -= 1;
                    continue;
                }
                reminded += 1;
                debt.due = cx.now + Nanos(REMIND_AFTER.0 << debt.reminders);
                let touch = Message::Touch { key: debt.key.clone(), due: Due::Remind };
                cx.fx.send_now(self.env.me, touch);
            }
            let at = debt.due.max(cx.now + REMIND_BACK_AFTER);
            next = Some(next.map_or(at, |next: Nanos| next.min(at)));
        }
        if let Some(at) = next {
            self.owed.arm(cx, at);
        }
    }

    /// The register is resident: sends what is owed, if that is still the last word.
    pub(crate) fn on_remind_due(&mut self, cx: &mut Cx<'_>, key: &Key) {
        if self.owed.sent_len >= REMINDED_LEN_MAX {
            return;
        }
        let is_written = self.actives.get(key).is_some_and(Active::has_writes);
        let Some(debt) = self.owed.find(key) else { return };
        let held = replies::held(cx, key).filter(|register| register.accepted == debt.round);
        let state = held.and_then(|register| register.state.clone()).filter(|_| !is_written);
        let Some(state) = state else { return self.owed.forget(key) };
        let (round, chosen_k) = (debt.round, debt.round.k());
        let (missing, is_first) = (debt.missing, debt.reminders == 0);
        debt.reminders += 1;
        for (index, member) in cx.replicas.members().enumerate() {
            let key = key.clone();
            if !member.is_steady() || member.node == self.env.me {
                continue;
            }
            if missing & 1 << index != 0 {
                base::sometimes!("an owner repairs a member that missed its proposal");
                self.counters.repairs += 1;
                self.owed.sent_len += state.bytes().len();
                let state = state.clone();
                cx.fx.send_now(member.node, Message::Accept { key, round, chosen_k, state });
            } else if is_first {
                self.counters.hints += 1;
                cx.fx.send_now(member.node, Message::Chosen { key, round });
            }
        }
    }
}
