//! Storage of registers in pieces of a fixed size, so that growth moves no register. An empty piece
//! frees its memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use types::{Key, Ticket};

use super::Weight;

/// Slots of one piece.
const PIECE: usize = 1024;

/// The place of a slot; `Index::NONE` of none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Index(u32);

impl Index {
    pub(super) const NONE: Index = Index(u32::MAX);
}

/// The first cache line holds the fields that a search reads. Most events then touch two lines.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Slot<R> {
    pub(super) key: Key,
    /// The ticket of the last change. Dependent effects wait for it.
    pub(super) ticket: Ticket,
    pub(super) pins: u16,
    /// Forgotten: the missing record does not mean an absent register.
    pub(super) lost: bool,
    pub(super) dirty: bool,
    /// Memory is ahead of storage, and may stay so until eviction.
    pub(super) ahead: bool,
    /// Used since the last eviction step.
    pub(super) used: bool,
    /// Queued for dropping when absent and idle.
    pub(super) noted: bool,
    /// Length of the record when it was last encoded.
    bytes: u32,
    /// The worker's last count of this register.
    pub(super) weight: Weight,
    pub(super) record: Option<R>,
}

impl<R> Slot<R> {
    pub(super) fn new(key: Key, record: Option<R>, lost: bool) -> Slot<R> {
        Slot {
            key,
            ticket: Ticket::DURABLE,
            pins: 0,
            lost,
            dirty: false,
            ahead: false,
            used: true,
            noted: false,
            bytes: 0,
            weight: Weight::NONE,
            record,
        }
    }
}

#[derive(Debug)]
pub(super) struct Slots<R> {
    pieces: Vec<Vec<Slot<R>>>,
    /// Per piece.
    rooms: Vec<Room>,
    /// Pieces that may have room, each at most once. The first is filled first, so that the last
    /// ones become empty.
    open: BinaryHeap<Reverse<u32>>,
    len: usize,
    bytes: usize,
}

/// The free slots below the end of a piece.
#[derive(Debug, Default)]
struct Room {
    /// Below the length of the piece.
    free: Vec<u16>,
    is_open: bool,
}

impl<R> Slots<R> {
    pub(super) fn new() -> Slots<R> {
        Slots { pieces: Vec::new(), rooms: Vec::new(), open: BinaryHeap::new(), len: 0, bytes: 0 }
    }

    /// Registers in memory.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of their records as last encoded, and of keys that do not fit a slot.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Records the encoded length of the record.
    pub(super) fn weigh(&mut self, index: Index, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let before = std::mem::replace(&mut self.at_mut(index).bytes, bytes);
        self.bytes = self.bytes - before as usize + bytes as usize;
    }

    /// Registers that fit the allocated memory.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.pieces.iter().map(Vec::capacity).sum()
    }

    pub(super) fn get(&self, Index(at): Index) -> Option<&Slot<R>> {
        self.pieces.get(at as usize / PIECE)?.get(at as usize % PIECE)
    }

    pub(super) fn get_mut(&mut self, Index(at): Index) -> Option<&mut Slot<R>> {
        self.pieces.get_mut(at as usize / PIECE)?.get_mut(at as usize % PIECE)
    }

    pub(super) fn at(&self, index: Index) -> &Slot<R> {
        self.get(index).expect("an index names a slot")
    }

    pub(super) fn at_mut(&mut self, Index(at): Index) -> &mut Slot<R> {
        &mut self.pieces[at as usize / PIECE][at as usize % PIECE]
    }

    pub(super) fn add(&mut self, slot: Slot<R>) -> Index {
        let at = self.open_piece();
        self.bytes += slot.key.shared_len();
        let (piece, room) = (&mut self.pieces[at], &mut self.rooms[at]);
        let place = if let Some(place) = room.free.pop() {
            piece[usize::from(place)] = slot;
            usize::from(place)
        } else {
            piece.reserve_exact(if piece.is_empty() { PIECE } else { 0 });
            piece.push(slot);
            piece.len() - 1
        };
        self.len += 1;
        let index = at * PIECE + place;
        assert!(index < Index::NONE.0 as usize, "a worker holds fewer than four billion registers");
        Index(index as u32)
    }

    /// A piece with room.
    fn open_piece(&mut self) -> usize {
        while let Some(&Reverse(first)) = self.open.peek() {
            let at = first as usize;
            if self.pieces[at].len() < PIECE || !self.rooms[at].free.is_empty() {
                return at;
            }
            self.rooms[at].is_open = false;
            self.open.pop();
        }
        self.pieces.push(Vec::new());
        self.rooms.push(Room { free: Vec::new(), is_open: true });
        self.open.push(Reverse(self.pieces.len() as u32 - 1));
        self.pieces.len() - 1
    }

    /// Frees the slot. No index of it may remain in use.
    pub(super) fn remove(&mut self, index: Index) {
        self.weigh(index, 0);
        let slot = self.at_mut(index);
        (slot.record, slot.noted) = (None, false);
        let key_len = slot.key.shared_len();
        if key_len > 0 {
            slot.key = Key::new(b"");
        }
        (self.len, self.bytes) = (self.len - 1, self.bytes - key_len);
        let at = index.0 as usize / PIECE;
        let (piece, room) = (&mut self.pieces[at], &mut self.rooms[at]);
        room.free.push((index.0 as usize % PIECE) as u16);
        if room.free.len() == piece.len() {
            (*piece, room.free) = (Vec::new(), Vec::new());
        }
        if !room.is_open {
            room.is_open = true;
            self.open.push(Reverse(at as u32));
        }
    }
}
