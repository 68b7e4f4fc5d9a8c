//! Commands run for the sequencer of a leader, on the state behind all entries before them.

use base::Nanos;
use bytes::Bytes;
use types::{Access, Command, Key, Reply, Ticket};

use super::super::context::{Cx, tell_own, tell_register};
use super::super::epoch::Epoch;
use super::super::message::{ToRegister, ToSequencer};
use super::super::register::Register;
use super::super::txn::{Effect, Entry, OF_NO_CLIENT, Txn};
use super::state::Ask;
use super::{Applier, content_of};
use crate::mutation::{self, Mutation};
use crate::protocol::{Scanned, ScannedRegister};
use crate::toolkit::content::{self, Content};

/// When an end that did not come is looked for again.
const LOOK_AGAIN: Nanos = Nanos::from_secs(1);

impl Applier {
    pub(super) fn on_execute(&mut self, cx: &mut Cx<'_>, ask: Ask) {
        if ask.at.epoch < self.view.epoch {
            return;
        }
        if self.executing.waiting.is_empty() && self.may_execute(ask.at.epoch) {
            return self.execute(cx, ask);
        }
        cx.cache.pin(&ask.key);
        self.executing.waiting.push(ask);
    }

    /// This node leads the epoch, and has applied all entries from before.
    fn may_execute(&self, epoch: Epoch) -> bool {
        let leads = self.view.epoch == epoch && self.view.leader == Some(self.env.me);
        let has_history = self.progress.visible >= self.view.upto;
        leads && self.is_serving() && (has_history || mutation::is(Mutation::ZabRunsAhead))
    }

    pub(super) fn run_executions(&mut self, cx: &mut Cx<'_>) {
        if !self.may_execute(self.view.epoch) {
            return;
        }
        for ask in std::mem::take(&mut self.executing.waiting) {
            let key = ask.key.clone();
            if ask.at.epoch == self.view.epoch {
                self.execute(cx, ask);
            }
            cx.cache.unpin(&key);
        }
    }

    fn execute(&mut self, cx: &mut Cx<'_>, ask: Ask) {
        let Ask { at, stream, number, key, command } = ask;
        let ahead = self.executing.ahead.get(&key).map(|(_, content)| content.clone());
        let Some(before) = ahead.or_else(|| content_of(cx, &key).map(|(_, content)| content))
        else {
            return self.lose(cx);
        };
        let is_over = before.is_over(cx.uptime, cx.unix);
        let (effect, reply) = match number {
            OF_NO_CLIENT if is_over => (Effect(Some(Content::DELETED)), Reply::Null),
            OF_NO_CLIENT => (Effect(None), Reply::Null),
            _ => match before.run(cx, at, &command.body) {
                content::Effect::Changed { content, reply } => (Effect(Some(content)), reply),
                content::Effect::Unchanged { reply } => (Effect(None), reply),
            },
        };
        let mut txn = Txn { stream, number, key, effect, reply };
        let len = Entry { epoch: at.epoch, txn: Some(txn.clone()) }.size();
        if len as u64 > self.view.len_max {
            let max = self.view.len_max;
            let text =
                format!("ERR an entry of {len} bytes is too long for the log: at most {max}");
            (txn.effect, txn.reply) = (Effect(None), Reply::error(text));
        }
        if let Effect(Some(content)) = &txn.effect {
            self.executing.ahead.insert(txn.key.clone(), (at.index, content.clone()));
        }
        let executed = ToSequencer::Executed { epoch: at.epoch, index: at.index, txn };
        tell_own(cx, executed, Ticket::DURABLE);
    }

    /// Looks at keys whose time to live seems to be over.
    pub fn on_ends(&mut self, cx: &mut Cx<'_>) {
        for key in self.ends.take(cx.now) {
            tell_register(cx, key, ToRegister::End {});
        }
        self.ends.arm(cx.fx);
    }

    /// Registers from before this start, and those that were too many to watch.
    pub(super) fn on_swept(&mut self, cx: &mut Cx<'_>, scanned: Scanned<Register>) {
        for (key, found) in scanned.records {
            let ScannedRegister::Present(register) = found else { continue };
            if register.content.is_empty() && self.copying.is_none() {
                // A start came before the copy's tombstones were removed.
                tell_register(cx, key, ToRegister::Drop { id: 0 });
            } else {
                self.ends.watch(cx, &key, &register.content);
            }
        }
    }

    /// The leader deletes a key whose time is over here. The others hear of it.
    pub(super) fn on_end(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some((_, content)) = content_of(cx, &key) else { return };
        let is_leader = self.view.leader == Some(self.env.me);
        if !self.ends.is_over(cx, &key, &content) {
            return;
        }
        // Until the entry comes: this node may lead by then.
        self.ends.look(&key, cx.now + LOOK_AGAIN);
        if is_leader && !self.executing.ahead.contains_key(&key) {
            let (epoch, stream, number) = (self.view.epoch, self.stream, OF_NO_CLIENT);
            let command = Command::new(Access::Delete, Bytes::new());
            let end = ToSequencer::Write { epoch, stream, number, key, command };
            tell_own(cx, end, Ticket::DURABLE);
        }
    }
}
