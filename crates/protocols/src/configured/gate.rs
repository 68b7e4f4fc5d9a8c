//! The gate between epochs: which messages of members count now.

use base::sometimes;
use types::Epoch;

use super::{Configured, Cx, Envelope, Installed, Member, MemberEvent};
use crate::mutation::{self, Mutation};
use crate::protocol::{Message as _, Peer};
use crate::request::PutAside;

/// Messages of an epoch that this node has not installed yet; more are dropped, as if lost.
const HELD_MAX: usize = 1 << 12;
const HELD_WRITES_MAX: usize = 64;

impl<P: Member> Configured<P> {
    pub(super) fn on_member(
        &mut self,
        cx: &mut Cx<'_, P>,
        from: Peer,
        epoch: Epoch,
        message: P::Message,
    ) {
        let installed = self.installed.as_ref();
        let present = installed.map(|installed| installed.configuration.epoch);
        if present.is_none_or(|present| present < epoch) {
            sometimes!("a message comes before its epoch");
            // Writes are long, and come again.
            let most = match message.is_write() {
                _ if mutation::is(Mutation::DropsEarly) => 0,
                true => HELD_WRITES_MAX,
                false => HELD_MAX,
            };
            if self.gate.held.len() < most {
                self.gate.held.push_back((from, epoch, message));
            }
            return;
        }
        let counts = present == Some(epoch) || mutation::is(Mutation::OldEpochCounts);
        if counts && installed.is_some_and(|installed| names(installed, from)) {
            let from = from.node;
            self.inside(cx, |member, cx| member.on(cx, MemberEvent::Message { from, message }));
        }
    }

    /// An epoch begins: its messages come now. Those of epochs below never count again.
    pub(super) fn release_held(&mut self, cx: &mut Cx<'_, P>) {
        let Some(installed) = &self.installed else { return };
        let present = installed.configuration.epoch;
        for (from, epoch, message) in std::mem::take(&mut self.gate.held) {
            if epoch > present {
                self.gate.held.push_back((from, epoch, message));
            } else if epoch == present {
                let message = Envelope::Member { epoch, message };
                cx.fx.again(PutAside::Message { from, message });
            }
        }
    }
}

/// True if the sender is the process that the configuration names as a member.
fn names(installed: &Installed, from: Peer) -> bool {
    installed.configuration.member(from.node).is_some_and(|member| {
        member.incarnation == from.incarnation || mutation::is(Mutation::AnyProcessCounts)
    })
}
