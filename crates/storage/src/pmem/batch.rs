//! The open batch: the changes of a turn so far, the last one of each place.

use std::collections::BTreeMap;
use std::ops::Range;

use hashbrown::{Equivalent, HashMap};
use types::key::ByHash;
use types::{Database, Key};

use super::layout::ShardId;
use crate::store::Place;

/// A place whose record a batch replaces or removes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Changed {
    Cell(ShardId, Key),
    Meta(ShardId),
}

#[derive(Debug)]
struct Change {
    place: Changed,
    // Where its record lies in the arena; none where it is removed.
    record: Option<Range<usize>>,
}

/// Looks a cell up without owning its key; hashes as the pair does.
#[derive(Hash)]
struct CellRef<'a>(Database, &'a Key);

impl Equivalent<(Database, Key)> for CellRef<'_> {
    fn equivalent(&self, (database, key): &(Database, Key)) -> bool {
        self.0 == *database && self.1 == key
    }
}

/// Changes, in the order in which their places were first touched.
#[derive(Debug, Default)]
pub struct Batch {
    arena: Vec<u8>,
    changes: Vec<Change>,
    cells: HashMap<(Database, Key), usize, ByHash>,
    metas: BTreeMap<ShardId, usize>,
    /// Shards to be marked forgotten, or known.
    pub forgets: BTreeMap<ShardId, bool>,
}

impl Changed {
    #[must_use]
    pub fn shard(&self) -> ShardId {
        match self {
            Changed::Cell(shard, _) | Changed::Meta(shard) => *shard,
        }
    }

    /// The bytes that its versions carry as the key.
    #[must_use]
    pub fn key_bytes(&self) -> &[u8] {
        match self {
            Changed::Cell(_, key) => key.bytes(),
            Changed::Meta(_) => &[],
        }
    }
}

impl Batch {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.forgets.is_empty()
    }

    /// Sets the record of a place; none removes it.
    pub fn set(&mut self, place: &Place, record: Option<&[u8]>) {
        let record = record.map(|record| {
            let start = self.arena.len();
            self.arena.extend_from_slice(record);
            start..self.arena.len()
        });
        if let Some(index) = self.index_of(place) {
            self.changes[index].record = record;
            return;
        }
        let index = self.changes.len();
        let place = match place {
            Place::Cell(database, key) => {
                self.cells.insert((*database, key.clone()), index);
                Changed::Cell(ShardId::of(*database, key), key.clone())
            }
            Place::Meta(database, shard) => {
                let shard = ShardId { database: *database, shard: *shard };
                self.metas.insert(shard, index);
                Changed::Meta(shard)
            }
        };
        self.changes.push(Change { place, record });
    }

    /// The change of a place in the batch: `Some(None)` if it is removed.
    #[must_use]
    pub fn find(&self, place: &Place) -> Option<Option<&[u8]>> {
        self.index_of(place).map(|index| self.record(index))
    }

    fn index_of(&self, place: &Place) -> Option<usize> {
        if self.changes.is_empty() {
            return None;
        }
        match place {
            Place::Cell(database, key) => self.cells.get(&CellRef(*database, key)).copied(),
            Place::Meta(database, shard) => {
                self.metas.get(&ShardId { database: *database, shard: *shard }).copied()
            }
        }
    }

    #[must_use]
    pub fn place(&self, index: usize) -> &Changed {
        &self.changes[index].place
    }

    #[must_use]
    pub fn record(&self, index: usize) -> Option<&[u8]> {
        self.changes[index].record.clone().map(|range| &self.arena[range])
    }

    /// Appends the changes that write: metas first.
    pub fn writes(&self, indices: &mut Vec<usize>) {
        let metas = self.metas.values().copied();
        indices.extend(metas.filter(|&index| self.changes[index].record.is_some()));
        let is_cell = |index: &usize| matches!(self.place(*index), Changed::Cell(..));
        let writes = |index: &usize| is_cell(index) && self.changes[*index].record.is_some();
        indices.extend((0..self.changes.len()).filter(writes));
    }

    /// The changes that remove.
    pub fn removals(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.changes.len()).filter(|&index| self.changes[index].record.is_none())
    }

    /// The cells that are changed, with their records.
    pub fn cells(&self) -> impl Iterator<Item = (ShardId, &Key, Option<&[u8]>)> {
        self.changes.iter().enumerate().filter_map(|(index, change)| match &change.place {
            Changed::Cell(shard, key) => Some((*shard, key, self.record(index))),
            Changed::Meta(_) => None,
        })
    }

    /// Empties the batch and keeps its room.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.changes.clear();
        self.cells.clear();
        self.metas.clear();
        self.forgets.clear();
    }
}
