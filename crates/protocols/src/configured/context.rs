//! The context of a member's step.

use std::ops::{Deref, DerefMut};

use types::{Configuration, GroupMember, NodeId, Outcome, Reply, Tag, Ticket};

use super::{Configured, Envelope, Member};
use crate::mutation::{self, Mutation};
use crate::protocol::Context;
use crate::replicas::ReplicaSet;

/// A step's context with the epoch that it runs in.
pub struct Inside<'c, 'a, P: Member> {
    pub(super) scope: &'c mut Context<'a, Configured<P>>,
    pub configuration: &'c Configuration,
    /// The members, shadows included, for counting acknowledgements.
    pub set: &'c ReplicaSet,
}

impl<'a, P: Member> Deref for Inside<'_, 'a, P> {
    type Target = Context<'a, Configured<P>>;

    fn deref(&self) -> &Context<'a, Configured<P>> {
        self.scope
    }
}

impl<'a, P: Member> DerefMut for Inside<'_, 'a, P> {
    fn deref_mut(&mut self) -> &mut Context<'a, Configured<P>> {
        self.scope
    }
}

impl<P: Member> Inside<'_, '_, P> {
    /// This node as a member.
    ///
    /// # Panics
    /// Never: only members have steps.
    #[must_use]
    pub fn me(&self) -> &GroupMember {
        self.configuration.member(self.scope.replicas.me()).expect("only members have steps")
    }

    /// Sends a message of this epoch once `after` is durable.
    pub fn send(&mut self, to: NodeId, message: P::Message, after: Ticket) {
        let epoch = self.configuration.epoch;
        self.scope.fx.send(to, Envelope::Member { epoch, message }, after);
    }

    /// Sends a message of this epoch at once.
    pub fn send_now(&mut self, to: NodeId, message: P::Message) {
        self.send(to, message, Ticket::DURABLE);
    }

    /// The other members, shadows included.
    pub fn others(&self) -> impl Iterator<Item = NodeId> + use<P> {
        let others: Vec<NodeId> = self.set.others().collect();
        others.into_iter()
    }

    /// Answers a request by the state that was just read here. False if no lease covers it: then
    /// it is not answered.
    #[must_use]
    pub fn reply_read(&mut self, tag: Tag, reply: Reply) -> bool {
        let is_covered = self.is_covered();
        if is_covered {
            self.scope.fx.reply(tag, Outcome::Reply(reply));
        }
        is_covered
    }

    /// True if a lease covers the state that was just read here.
    #[must_use]
    pub fn is_covered(&self) -> bool {
        self.scope.lease.holds(self.configuration.epoch) || mutation::is(Mutation::ReadWithoutLease)
    }
}
