//! One place of the index: its newest entry and, until that is durable, the older ones.

use std::sync::Arc;

use bytes::Bytes;

use crate::disk::entry::{Entry, HEAD_LEN};

/// An entry of a place; the newest one has the older ones behind it.
#[derive(Clone, Debug)]
pub(in crate::disk) struct Slot {
    /// Entries that came in together; all were checked.
    pub(super) shared: Arc<Bytes>,
    /// Where in them its own head is; a ring is shorter than 4 GiB.
    pub(super) at: u32,
    pub(super) tie: u32,
    /// The ring batch that carries it.
    pub(in crate::disk) stripe: u64,
    /// The entry that it replaces, of an earlier batch, until its own is durable.
    pub(super) older: Option<Box<Slot>>,
}

impl Slot {
    /// # Panics
    /// If no entry stands there.
    pub(super) fn new(shared: &Arc<Bytes>, at: usize, stripe: u64) -> Slot {
        let at = u32::try_from(at).expect("what comes in together is shorter than a ring");
        Slot { shared: Arc::clone(shared), at, tie: 0, stripe, older: None }
    }

    pub(in crate::disk) fn entry(&self) -> Entry<'_> {
        // It was checked before it entered the index.
        Entry::known(&self.shared[self.at as usize..])
    }

    /// Key and record, as the entry has them.
    pub(in crate::disk) fn body(&self) -> Bytes {
        let start = self.at as usize + HEAD_LEN;
        self.shared.slice(start..start + self.entry().body.len())
    }

    /// The entry and those behind it, newest first.
    pub(in crate::disk) fn versions(&self) -> impl Iterator<Item = &Slot> {
        std::iter::successors(Some(self), |slot| slot.older.as_deref())
    }

    /// The newest entry that is durable when the ring batches up to this one are.
    pub(in crate::disk) fn durable(&self, stripe: u64) -> Option<&Slot> {
        self.versions().find(|slot| slot.stripe <= stripe)
    }
}
