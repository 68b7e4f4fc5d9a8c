//! Shard fields in memory.

use types::key::SHARDS;
use types::{Shard, Ticket};

/// The shard fields of one database and worker.
#[derive(Debug)]
pub struct Metas<M> {
    shards: Vec<Option<M>>,
    tickets: Vec<Ticket>,
    dirty: Vec<Shard>,
    open_ticket: Ticket,
}

impl<M: Default> Default for Metas<M> {
    fn default() -> Metas<M> {
        Metas {
            shards: (0..SHARDS).map(|_| None).collect(),
            tickets: vec![Ticket::DURABLE; SHARDS],
            dirty: Vec::new(),
            open_ticket: Ticket::DURABLE,
        }
    }
}

impl<M: Default> Metas<M> {
    /// # Panics
    /// If the shard is not resident.
    #[must_use]
    pub fn get(&self, shard: Shard) -> &M {
        self.shards[shard.0 as usize].as_ref().expect("the shard of an event is resident")
    }

    /// # Panics
    /// If the shard is not resident.
    pub fn get_mut(&mut self, shard: Shard) -> &mut M {
        self.shards[shard.0 as usize].as_mut().expect("the shard of an event is resident")
    }

    /// Marks the fields as changed.
    pub fn persist(&mut self, shard: Shard) -> Ticket {
        self.tickets[shard.0 as usize] = self.open_ticket;
        if !self.dirty.contains(&shard) {
            self.dirty.push(shard);
        }
        self.open_ticket
    }

    /// The ticket of the last change.
    #[must_use]
    pub fn ticket(&self, shard: Shard) -> Ticket {
        self.tickets[shard.0 as usize]
    }

    #[must_use]
    pub fn is_resident(&self, shard: Shard) -> bool {
        self.shards[shard.0 as usize].is_some()
    }

    pub fn fill(&mut self, shard: Shard, meta: M) {
        self.shards[shard.0 as usize].get_or_insert(meta);
    }

    pub fn set_open_ticket(&mut self, ticket: Ticket) {
        self.open_ticket = ticket;
    }

    #[must_use]
    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    pub fn take_dirty(&mut self) -> Vec<Shard> {
        std::mem::take(&mut self.dirty)
    }
}
