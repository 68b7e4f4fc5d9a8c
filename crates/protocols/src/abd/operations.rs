//! The operations in progress.

use std::collections::BTreeMap;

use super::operation::{Kind, Operation};

/// By number. Those of clients and those of ends are counted.
#[derive(Debug, Default)]
pub(super) struct Operations {
    by_id: BTreeMap<u64, Operation>,
    clients: usize,
    ends: usize,
}

impl Operations {
    pub fn insert(&mut self, id: u64, op: Operation) {
        self.clients += usize::from(op.kind.is_of_client());
        self.ends += usize::from(matches!(op.kind, Kind::End));
        self.by_id.insert(id, op);
    }

    pub fn remove(&mut self, id: u64) -> Option<Operation> {
        let op = self.by_id.remove(&id)?;
        self.clients -= usize::from(op.kind.is_of_client());
        self.ends -= usize::from(matches!(op.kind, Kind::End));
        Some(op)
    }

    pub fn get(&self, id: u64) -> Option<&Operation> {
        self.by_id.get(&id)
    }

    /// Its kind stays.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut Operation> {
        self.by_id.get_mut(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &Operation)> {
        self.by_id.iter().map(|(&id, op)| (id, op))
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The number of those that clients wait for.
    pub fn clients(&self) -> usize {
        self.clients
    }

    /// The number of those that end values.
    pub fn ends(&self) -> usize {
        self.ends
    }
}
