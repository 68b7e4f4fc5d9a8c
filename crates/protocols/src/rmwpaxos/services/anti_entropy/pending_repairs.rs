//! Pending repairs: chosen proposals of an owner that not all members have acknowledged [spec 9.3,
//! 9.7]. Members that may have missed the accept get it again. The others get a hint that their
//! round is chosen.
//!
//! Without them readers would see replicas disagree. So no repair is kept if all members
//! acknowledge or the key is written again first. Memory is bounded and lossy: anti-entropy finds a
//! repair that was evicted ([`crate::rmwpaxos::services::anti_entropy::ranges`]).

use std::fmt;

use base::Nanos;
use types::{Key, NodeId, Round};

use crate::effects::TimerId;
use crate::peers::Member;
use crate::replicas::{Places, Replicas, place};
use crate::rmwpaxos::context::{Cx, held};
use crate::rmwpaxos::core::instance::Core;
use crate::rmwpaxos::message::{Due, Message};

pub(crate) const REMIND: TimerId = TimerId(5);

/// A power of two. The hash of its key gives a repair its slot; a later one replaces it.
const SLOTS: usize = 2048;
/// Longer than the acknowledgement of a slightly slower member takes.
const REMIND_AFTER: Nanos = Nanos::from_millis(100);
/// A member that was away is reminded this long after its connection stands.
const REMIND_BACK_AFTER: Nanos = Nanos::from_millis(5);
/// Reminders of one repair. A member that answers none of them is left to anti-entropy.
const REMINDERS_MAX: u32 = 5;
/// Repairs sent at a time, and bytes of their states.
const REMINDED_MAX: usize = 256;
const REMINDED_LEN_MAX: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct PendingRepairs {
    /// Empty until the first repair.
    slots: Vec<Option<Pending>>,
    len: usize,
    /// When the timer fires next.
    armed: Option<Nanos>,
    /// Bytes of states since the timer fired.
    sent_len: usize,
    hints: u64,
}

/// The repairs in slot order.
impl fmt::Debug for PendingRepairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.slots.iter().flatten()).finish()?;
        write!(f, "{:?}", self.armed)
    }
}

#[derive(Debug)]
struct Pending {
    key: Key,
    /// Chosen, as the last proposal of its ballot.
    round: Round,
    /// Members that have not acknowledged it.
    missing: Places,
    due: Nanos,
    reminders: u32,
}

impl PendingRepairs {
    /// True if no steady member has a pending repair.
    pub(crate) fn is_quiet(&self) -> bool {
        self.armed.is_none()
    }

    /// Number of `Chosen` hints sent.
    pub(crate) fn hints(&self) -> u64 {
        self.hints
    }

    fn slot(&self, key: &Key) -> usize {
        key.hash() as usize & (self.slots.len() - 1)
    }

    fn put(&mut self, it: Pending) {
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, || None);
        }
        let slot = self.slot(&it.key);
        self.len += usize::from(self.slots[slot].is_none());
        self.slots[slot] = Some(it);
    }

    fn find(&mut self, key: &Key) -> Option<&mut Pending> {
        if self.len == 0 {
            return None;
        }
        let slot = self.slot(key);
        self.slots[slot].as_mut().filter(|it| it.key == *key)
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
        let Some(it) = self.find(key) else { return };
        if round.ballot() == it.round.ballot() && round >= it.round {
            it.missing &= !(1 << member);
            if it.missing == 0 {
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

/// Other members that are up and not slow. Repairs are not urgent, and would delay other messages
/// on a slow link.
pub(crate) fn others_in_reach(replicas: Replicas<'_>) -> Places {
    replicas.other_places(Member::is_in_reach)
}

/// Other members that receive messages without delay.
fn others_steady(replicas: Replicas<'_>) -> Places {
    replicas.other_places(Member::is_steady)
}

impl PendingRepairs {
    /// Keeps a repair for the last proposal of an owner without further proposals. The `missing`
    /// replicas have not acknowledged it.
    pub(crate) fn on_missed(
        &mut self,
        cx: &mut Cx<'_>,
        (key, round): (Key, Round),
        missing: Places,
    ) {
        let due = cx.now + REMIND_AFTER;
        self.put(Pending { key, round, missing, due, reminders: 0 });
        if missing & others_steady(cx.replicas) != 0 {
            self.arm(cx, due);
        }
    }

    /// A member is back, or steady again: its repairs are due soon.
    pub(crate) fn on_returned(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if self.len == 0 {
            return;
        }
        let due = cx.now + REMIND_BACK_AFTER;
        let mut any = false;
        let place_in = |it: &Pending| cx.replicas_of(it.key.shard()).index(node).map_or(0, place);
        let all = self.slots.iter_mut().flatten();
        for it in all.filter(|it| it.missing & place_in(it) != 0) {
            (it.due, it.reminders, any) = (due, 0, true);
        }
        if any {
            self.arm(cx, due);
        }
    }

    pub(crate) fn on_timer(&mut self, cx: &mut Cx<'_>) {
        // An earlier timer may have replaced this one. Only the newest arms another.
        if self.armed.is_some_and(|armed| armed > cx.now) {
            return;
        }
        self.armed = None;
        self.sent_len = 0;
        let (me, replicas_of) = (cx.replicas.me(), cx.by_shard());
        let steady = |it: &Pending| others_steady(replicas_of(it.key.shard()));
        let mut reminded = 0;
        let mut next = None;
        for slot in &mut self.slots {
            let is_wanted = |it: &&mut Pending| it.missing & steady(it) != 0;
            let Some(it) = slot.as_mut().filter(is_wanted) else { continue };
            if it.due <= cx.now && reminded < REMINDED_MAX {
                if it.reminders >= REMINDERS_MAX {
                    *slot = None;
                    self.len -= 1;
                    continue;
                }
                reminded += 1;
                it.due = cx.now + Nanos(REMIND_AFTER.0 << it.reminders);
                let touch = Message::Touch { key: it.key.clone(), due: Due::Remind };
                cx.fx.send_now(me, touch);
            }
            let at = it.due.max(cx.now + REMIND_BACK_AFTER);
            next = Some(next.map_or(at, |next: Nanos| next.min(at)));
        }
        if let Some(at) = next {
            self.arm(cx, at);
        }
    }

    /// The register is resident: sends the repair if its round is still the last.
    pub(crate) fn on_due(&mut self, core: &mut Core, cx: &mut Cx<'_>, key: &Key) {
        if self.sent_len >= REMINDED_LEN_MAX {
            return;
        }
        let is_written = core.has_writes(key);
        let Some(it) = self.find(key) else { return };
        let held = held(cx, key).filter(|register| register.accepted == it.round);
        let state = held.and_then(|register| register.state.clone()).filter(|_| !is_written);
        let Some(state) = state else { return self.forget(key) };
        let (round, chosen_k) = (it.round, it.round.k());
        let (missing, is_first) = (it.missing, it.reminders == 0);
        it.reminders += 1;
        for (index, member) in cx.replicas.members().enumerate() {
            let key = key.clone();
            if !member.is_steady() || member.node == core.me() {
                continue;
            }
            if missing & 1 << index != 0 {
                base::sometimes!("an owner repairs a member that missed its proposal");
                core.count_repair();
                self.sent_len += state.bytes().len();
                let state = state.clone();
                cx.fx.send_now(member.node, Message::Accept { key, round, chosen_k, state });
            } else if is_first {
                self.hints += 1;
                cx.fx.send_now(member.node, Message::Chosen { key, round });
            }
        }
    }
}
