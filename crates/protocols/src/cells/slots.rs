//! Where registers lie in memory: pieces of a fixed size, so that growing moves nothing.

use types::{Key, Ticket};

/// Slots of one piece.
const PIECE: usize = 1024;

/// The place of a slot; `Index::NONE` of none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Index(u32);

impl Index {
    pub(super) const NONE: Index = Index(u32::MAX);
}

/// Begins with a cache line: most events then touch two of them.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Slot<R> {
    pub(super) key: Key,
    pub(super) record: Option<R>,
    /// Forgotten: there is no record, and that says nothing.
    pub(super) lost: bool,
    pub(super) dirty: bool,
    /// Memory holds something that storage does not, and need not yet.
    pub(super) ahead: bool,
    /// Touched since the last look of the evicting hand.
    pub(super) used: bool,
    pub(super) pins: u16,
    /// The ticket of the last change: what rests on this register waits for it.
    pub(super) ticket: Ticket,
}

impl<R> Slot<R> {
    pub(super) fn new(key: Key, record: Option<R>, lost: bool) -> Slot<R> {
        Slot {
            key,
            record,
            lost,
            dirty: false,
            ahead: false,
            used: true,
            pins: 0,
            ticket: Ticket::DURABLE,
        }
    }
}

#[derive(Debug)]
pub(super) struct Slots<R> {
    pieces: Vec<Vec<Slot<R>>>,
    free: Vec<Index>,
}

impl<R> Slots<R> {
    pub(super) fn new() -> Slots<R> {
        Slots { pieces: Vec::new(), free: Vec::new() }
    }

    /// Registers in memory.
    pub(super) fn len(&self) -> usize {
        let used: usize =
            self.pieces.last().map_or(0, |last| (self.pieces.len() - 1) * PIECE + last.len());
        used - self.free.len()
    }

    pub(super) fn get(&self, Index(at): Index) -> Option<&Slot<R>> {
        self.pieces.get(at as usize / PIECE)?.get(at as usize % PIECE)
    }

    pub(super) fn at(&self, index: Index) -> &Slot<R> {
        self.get(index).expect("an index names a slot")
    }

    pub(super) fn at_mut(&mut self, Index(at): Index) -> &mut Slot<R> {
        &mut self.pieces[at as usize / PIECE][at as usize % PIECE]
    }

    pub(super) fn add(&mut self, slot: Slot<R>) -> Index {
        if let Some(index) = self.free.pop() {
            *self.at_mut(index) = slot;
            return index;
        }
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        let pieces = self.pieces.len();
        let piece = self.pieces.last_mut().expect("one was just pushed");
        piece.push(slot);
        let at = (pieces - 1) * PIECE + piece.len() - 1;
        assert!(at < Index::NONE.0 as usize, "a worker holds fewer than four billion registers");
        Index(at as u32)
    }

    /// Frees the place; nothing may name it any more.
    pub(super) fn remove(&mut self, index: Index) {
        self.at_mut(index).record = None;
        self.free.push(index);
    }
}
