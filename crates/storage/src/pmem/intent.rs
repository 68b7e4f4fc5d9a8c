//! Intents: the versions that a worker is about to overwrite, made persistent first.
//!
//! A page per worker. The *turn* names the versions that are being written; once they are persistent its mark
//! says so. After a crash, a version that is damaged counts as unfinished, and the older one stands in for it,
//! only where an intact turn without its mark names it; a damaged intent excuses none. The *split* says how
//! a leaf of the directory is being divided and is simply done again, for all it does is idempotent.
//!
//! ```text
//! 0..8      mark: the last turn that finished
//! 64..128   split: checksum, 1, database << 8 | shard, old leaf, new leaf, depth of the old one before
//! 128..     turn: checksum, turn << 16 | number of versions, then per version granule << 1 | index
//! ```

use base::checksum::checksum;
use types::{Database, Shard};

use super::layout::{GRANULE, INTENT_SLOTS_MAX, PAGE, ShardId};
use super::memory::Memory;
use super::shared::Shared;
use super::word::NONE;

const SPLIT: u64 = 64;
const TURN: u64 = 128;
const TURN_HEADER_LEN: usize = 16;
const SPLIT_LEN: usize = 48;
const TURN_MASK: u64 = NONE;

const _: () = assert!(TURN as usize + TURN_HEADER_LEN + 8 * INTENT_SLOTS_MAX <= PAGE as usize);

/// A version of the slot at an offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    pub slot: u64,
    pub index: usize,
}

/// A leaf being divided: the half of `old` whose next hash bit is 1 goes to `new`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    pub shard: ShardId,
    pub old: u64,
    pub new: u64,
    pub depth: u32,
}

/// The intent of a worker's last turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastTurn {
    pub turn: u64,
    /// Versions that may have been interrupted.
    pub unfinished: Vec<Target>,
}

impl<M: Memory> Shared<M> {
    /// Writes a turn's intent; to be fenced before any of the targets is touched.
    pub fn write_turn(&self, worker: u32, turn: u64, targets: &[Target], buffer: &mut Vec<u8>) {
        assert!(targets.len() <= INTENT_SLOTS_MAX, "{} targets in one turn", targets.len());
        let at = self.geometry.intent_at(worker) + TURN;
        buffer.clear();
        buffer.extend_from_slice(&[0; 8]);
        let header = (turn & TURN_MASK) << 16 | targets.len() as u64;
        buffer.extend_from_slice(&header.to_le_bytes());
        for target in targets {
            let word = ((target.slot / GRANULE) << 1) | target.index as u64;
            buffer.extend_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(self.seed(at), &buffer[8..]);
        buffer[..8].copy_from_slice(&sum.to_le_bytes());
        self.memory.write(at, buffer);
        self.memory.write_back(at, buffer.len() as u64);
    }

    /// Says that everything the turn names is persistent; to be fenced before anyone is told.
    pub fn finish_turn(&self, worker: u32, turn: u64) {
        self.put_word(self.geometry.intent_at(worker), turn & TURN_MASK);
    }

    /// The intent of the worker's last turn, and its number.
    pub fn last_turn(&self, worker: u32) -> LastTurn {
        let mark = self.word(self.geometry.intent_at(worker));
        let Some((turn, targets)) = self.read_turn(worker) else {
            return LastTurn { turn: mark.unwrap_or(0), unfinished: Vec::new() };
        };
        // A damaged mark may have said that the turn was finished: then no damage is excused.
        let is_unfinished = mark == Some(turn.wrapping_sub(1) & TURN_MASK);
        LastTurn { turn, unfinished: if is_unfinished { targets } else { Vec::new() } }
    }

    fn read_turn(&self, worker: u32) -> Option<(u64, Vec<Target>)> {
        let at = self.geometry.intent_at(worker) + TURN;
        let header = self.memory.load(at + 8);
        let (turn, count) = (header >> 16, (header & 0xffff) as usize);
        if count > INTENT_SLOTS_MAX {
            return None;
        }
        let mut bytes = vec![0; TURN_HEADER_LEN + 8 * count];
        self.memory.read(at, &mut bytes);
        if bytes[..8] != checksum(self.seed(at), &bytes[8..]).to_le_bytes() {
            return None;
        }
        let target = |index: usize| {
            let word = self.memory.load(at + (TURN_HEADER_LEN + 8 * index) as u64);
            Target { slot: (word >> 1) * GRANULE, index: (word & 1) as usize }
        };
        Some((turn, (0..count).map(target).collect()))
    }

    /// Writes how a leaf is about to be divided; to be fenced before it is.
    pub fn write_split(&self, worker: u32, split: &Split) {
        let at = self.geometry.intent_at(worker) + SPLIT;
        let ShardId { database, shard } = split.shard;
        let shard = u64::from(database.0) << 8 | u64::from(shard.0);
        let fields = [1, shard, split.old, split.new, u64::from(split.depth)];
        let mut bytes = [0; SPLIT_LEN];
        for (bytes, field) in bytes[8..].chunks_exact_mut(8).zip(fields) {
            bytes.copy_from_slice(&field.to_le_bytes());
        }
        let sum = checksum(self.seed(at), &bytes[8..]);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        self.memory.write(at, &bytes);
        self.memory.write_back(at, SPLIT_LEN as u64);
    }

    /// The last division that the worker began; whether it was finished is not known.
    pub fn last_split(&self, worker: u32) -> Option<Split> {
        let at = self.geometry.intent_at(worker) + SPLIT;
        let mut bytes = [0; SPLIT_LEN];
        self.memory.read(at, &mut bytes);
        if bytes[..8] != checksum(self.seed(at), &bytes[8..]).to_le_bytes() {
            return None;
        }
        let field = |index: u64| self.memory.load(at + 8 * index);
        let database = Database((field(2) >> 8) as u8);
        let shard = ShardId { database, shard: Shard(field(2) as u8) };
        Some(Split { shard, old: field(3), new: field(4), depth: field(5) as u32 })
    }
}
