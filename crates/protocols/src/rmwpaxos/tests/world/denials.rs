//! No member denies another's register, unless a medium has gone back. [spec 9.7]

use super::{Envelope, World};
use crate::effects::Send;
use crate::rmwpaxos::Message;

impl World {
    /// True if the message asks for a register and names the live round that its sender holds now.
    pub(super) fn is_held_as_said(&self, envelope: &Envelope) -> bool {
        let (Message::Read { key, have, .. } | Message::Prepare { key, have, .. }) =
            &envelope.message
        else {
            return false;
        };
        let Some(register) = self.nodes[self.index(envelope.from.node)].register(key) else {
            return false;
        };
        let is_alive = register.state.as_ref().is_some_and(|state| !state.is_tombstone());
        is_alive && register.accepted == *have
    }

    pub(super) fn find_false_denial(&mut self, index: usize, sends: &[Send<Message>]) {
        let denies = |send: &Send<Message>| match &send.message {
            Message::State { report, .. } | Message::Promise { report, .. } => report.denies,
            _ => false,
        };
        if self.holds_what_it_says && !self.takes_back && sends.iter().any(denies) {
            self.fault
                .get_or_insert(format!("{index} denies a register that another rightly holds"));
        }
    }
}
