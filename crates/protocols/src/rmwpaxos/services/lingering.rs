//! Leftovers of transactions that no client meets: a lock on a key that is not used, and a record
//! that no node forgets. [transactions T14]
//!
//! A replica notes a register that lingers when it accepts its state, or when a walk finds it. If
//! it still lingers a second later, the first replica that is up tells its worker.

use std::collections::BTreeMap;

use base::Nanos;
use bytes::Bytes;
use types::{Key, Lock};

use crate::effects::TimerId;
use crate::peers::Member;
use crate::replicas::Replicas;
use crate::rmwpaxos::context::{Cx, held};
use crate::rmwpaxos::message::{Due, Message};

pub(crate) const LINGER: TimerId = TimerId(8);

/// A transaction ends sooner, unless its coordinator is slow or gone.
const AFTER: Nanos = Nanos::from_secs(1);
/// Between two tellings of one register.
const AGAIN_AFTER: Nanos = Nanos::from_secs(5);
/// A register that still lingers then is left to the next walk. No quorum may know its lock: then
/// no look changes it.
const GIVE_UP_AFTER: Nanos = Nanos::from_secs(60);
/// The same for records: by then a coordinator that stays silent is shut out.
const RECORD_GIVE_UP_AFTER: Nanos = Nanos::from_secs(300);
/// Registers noted at a time. Walks find the others later.
const NOTED_MAX: usize = 65_536;
/// Registers told per timer.
const TOLD_MAX: usize = 256;

/// Since when a register lingers, and when it is looked at next.
#[derive(Clone, Copy, Debug)]
struct Noted {
    since: Nanos,
    at: Nanos,
}

/// Registers that linger.
#[derive(Default, Debug)]
pub(crate) struct Lingering {
    noted: BTreeMap<Key, Noted>,
    armed: Option<Nanos>,
    /// All registers are records.
    transient: bool,
}

impl Lingering {
    pub(crate) fn new(transient: bool) -> Lingering {
        Lingering { transient, ..Lingering::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.noted.is_empty()
    }

    pub(crate) fn note(&mut self, cx: &mut Cx<'_>, key: &Key) {
        if self.noted.len() < NOTED_MAX && !self.noted.contains_key(key) {
            self.noted.insert(key.clone(), Noted { since: cx.now, at: cx.now + AFTER });
            self.arm(cx);
        }
    }

    /// Its transaction has ended here.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.noted.remove(key);
    }

    fn arm(&mut self, cx: &mut Cx<'_>) {
        if self.armed.is_none() && !self.noted.is_empty() {
            self.armed = Some(cx.now + AFTER);
            cx.fx.timer(LINGER, cx.now + AFTER);
        }
    }

    pub(crate) fn on_timer(&mut self, cx: &mut Cx<'_>) {
        self.armed = None;
        let me = cx.replicas.me();
        let patience = if self.transient { RECORD_GIVE_UP_AFTER } else { GIVE_UP_AFTER };
        self.noted.retain(|_, noted| cx.now < noted.since + patience);
        let due = self.noted.iter().filter(|(_, noted)| noted.at <= cx.now).take(TOLD_MAX);
        let due: Vec<(Key, Nanos)> = due.map(|(key, noted)| (key.clone(), noted.since)).collect();
        for (key, since) in due {
            let is_mine = is_first(cx.replicas_of(key.shard()), &key);
            let pause = if is_mine { AGAIN_AFTER } else { AFTER };
            self.noted.insert(key.clone(), Noted { since, at: cx.now + pause });
            if is_mine {
                cx.fx.send_now(me, Message::Touch { key, due: Due::Linger });
            }
        }
        self.arm(cx);
    }

    /// The register is resident.
    pub(crate) fn on_due(&mut self, cx: &mut Cx<'_>, key: Key, transient: bool) {
        let state = held(cx, &key).and_then(|register| register.state.as_ref());
        let Some(state) = state.filter(|state| state.lingers(transient)) else {
            return self.forget(&key);
        };
        match state.lock() {
            None => {
                let since = self.noted.get(&key).map_or(cx.now, |noted| noted.since);
                cx.fx.records.push((key, since));
            }
            Some(lock) => {
                let record = Bytes::copy_from_slice(lock.record);
                let (version, generation) = (lock.version, lock.generation);
                let lock = Lock { txid: lock.txid, record, version, generation };
                cx.fx.locked(key, lock);
            }
        }
    }
}

/// True if this node is the first replica in the key's own order that is up.
fn is_first(replicas: Replicas<'_>, key: &Key) -> bool {
    let members: Vec<&Member> = replicas.members().collect();
    let start = key.hash() as usize % members.len().max(1);
    let mut order = members[start..].iter().chain(&members[..start]);
    let me = replicas.me();
    order.find(|member| member.up || member.node == me).is_some_and(|it| it.node == me)
}
