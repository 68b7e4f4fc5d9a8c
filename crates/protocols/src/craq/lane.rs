//! The work in progress on one key at this member.

use std::collections::VecDeque;

use base::Nanos;
use bytes::Bytes;
use types::{Epoch, NodeId, Reply, Serial};

use super::version::Version;
use crate::protocol::Request;
use crate::toolkit::back_off::Resend;
use crate::toolkit::content::Content;
use crate::toolkit::lanes;

/// Exists while a request or a write of the key is in progress here.
#[derive(Debug)]
pub(super) struct Lane {
    /// At the head: the version that is on its way down the chain.
    pub pend: Option<Pend>,
    /// At the head: commands of other members.
    pub steered: VecDeque<Steered>,
    /// Own requests. Sorted by deadline, since all requests may take equally long.
    pub waiting: VecDeque<Waiting>,
    /// The first waiting request is with the head.
    pub is_steering: bool,
    /// The first waiting reads are with the last full member.
    pub asking: Option<Asking>,
    /// At the last full member: reads of other members, until the key is clean.
    pub askers: Vec<(NodeId, u64, Version)>,
    /// When to send anew.
    pub act_at: Nanos,
    pub resend: Resend,
}

/// A version without the acknowledgement of the chain.
#[derive(Debug)]
pub(super) struct Pend {
    pub version: Version,
    pub since: Nanos,
    /// The next member holds it: a member behind is slow.
    pub has_next: bool,
    /// The commands that it includes, and their replies.
    pub origins: Vec<(Origin, Reply)>,
}

#[derive(Debug)]
pub(super) enum Origin {
    Own(Waiting),
    Steered(From),
}

/// A command of another member.
#[derive(Debug)]
pub(super) struct Steered {
    pub from: From,
    pub is_again: bool,
    pub command: Bytes,
}

/// The name of a steered command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct From {
    pub node: NodeId,
    pub serial: Serial,
    pub worker: u64,
    pub seq: u64,
}

/// A request.
#[derive(Debug)]
pub(super) struct Waiting {
    pub request: Request,
    pub deadline: Nanos,
    /// Its number, once a head may have run it.
    pub seq: Option<u64>,
    /// The epoch in which it got the number.
    pub numbered_in: Epoch,
}

/// A question to the last full member.
#[derive(Debug)]
pub(super) struct Asking {
    pub id: u64,
    pub version: Version,
    pub content: Content<Version>,
    /// The requests that waited when it was sent. Later ones need a later answer.
    pub count: usize,
}

impl Lane {
    pub fn new() -> Lane {
        Lane {
            pend: None,
            steered: VecDeque::new(),
            waiting: VecDeque::new(),
            is_steering: false,
            asking: None,
            askers: Vec::new(),
            act_at: Nanos::MAX,
            resend: Resend::default(),
        }
    }

    /// Waits for an answer to messages that were just sent.
    pub fn wait(&mut self, now: Nanos) {
        self.resend = Resend::default();
        self.act_at = self.resend.next(now);
    }

    /// Looks again some time, unless it is going to.
    pub fn look_again(&mut self, now: Nanos) {
        if self.act_at <= now || self.act_at == Nanos::MAX {
            self.wait(now);
        }
    }
}

impl lanes::Lane for Lane {
    fn is_idle(&self) -> bool {
        self.pend.is_none()
            && self.steered.is_empty()
            && self.waiting.is_empty()
            && self.askers.is_empty()
    }

    fn next_at(&self) -> Nanos {
        let origins = self.pend.iter().flat_map(|pend| &pend.origins);
        let own = origins.filter_map(|(origin, _)| match origin {
            Origin::Own(waiting) => Some(waiting.deadline),
            Origin::Steered(_) => None,
        });
        let first = self.waiting.front().map(|waiting| waiting.deadline);
        own.chain(first).fold(self.act_at, Nanos::min)
    }
}
