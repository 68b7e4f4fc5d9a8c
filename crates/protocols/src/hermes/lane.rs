//! The requests in progress on one key at this node: one write, then a queue in order of arrival.

use std::collections::VecDeque;
use types::{Key, Reply};

use base::Nanos;

use super::register::Register;
use crate::protocol::Request;
use crate::replicas::Places;
use crate::toolkit::lanes;

/// Exists while a write or a request does.
#[derive(Debug)]
pub(super) struct Lane {
    pub pend: Option<Pend>,
    /// Sorted by deadline, since all requests may take equally long.
    pub waiting: VecDeque<Waiting>,
    /// When to resend the write, or to look at the invalid key.
    pub act_at: Nanos,
    /// Until then another member may go first.
    pub yields_until: Nanos,
}

/// A write without the acknowledgements of all members.
#[derive(Debug)]
pub(super) struct Pend {
    pub register: Register,
    /// The number of its ask in this epoch.
    pub number: u64,
    pub resend_after: Nanos,
    pub resends: u32,
    /// Another member wants to change the key, and has lost against this write.
    pub has_rival: bool,
    pub since: Nanos,
    /// The request; `None` for a replayed write of another node, or after the request's deadline.
    pub origin: Option<Origin>,
}

/// The acknowledgements of a write in this epoch.
#[derive(Debug)]
pub(super) struct Asked {
    pub key: Key,
    pub acks: Places,
}

#[derive(Debug)]
pub(super) struct Origin {
    pub waiting: Waiting,
    pub reply: Reply,
}

/// A request.
#[derive(Debug)]
pub(super) struct Waiting {
    pub request: Request,
    pub deadline: Nanos,
    /// It was tried and superseded. Until the key is valid again it may have had an effect.
    pub is_tried: bool,
}

impl Lane {
    pub fn new(act_at: Nanos) -> Lane {
        Lane { pend: None, waiting: VecDeque::new(), act_at, yields_until: Nanos::ZERO }
    }
}

impl lanes::Lane for Lane {
    fn is_idle(&self) -> bool {
        self.pend.is_none() && self.waiting.is_empty()
    }

    fn next_at(&self) -> Nanos {
        let origin = self.pend.as_ref().and_then(|pend| pend.origin.as_ref());
        let deadlines = [
            origin.map(|origin| origin.waiting.deadline),
            self.waiting.front().map(|waiting| waiting.deadline),
        ];
        deadlines.into_iter().flatten().fold(self.act_at, Nanos::min)
    }
}
