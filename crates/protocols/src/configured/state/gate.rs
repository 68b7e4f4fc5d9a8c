//! Messages that came before their epoch.

use std::collections::VecDeque;

use types::Epoch;

use crate::protocol::Peer;

/// Messages that came before their epoch.
#[derive(Debug)]
pub(crate) struct Gate<M> {
    pub(crate) held: VecDeque<(Peer, Epoch, M)>,
}

impl<M> Default for Gate<M> {
    fn default() -> Gate<M> {
        Gate { held: VecDeque::new() }
    }
}

impl<M> Gate<M> {
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }
}
