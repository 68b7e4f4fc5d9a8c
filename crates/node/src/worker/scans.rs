//! Scans of a shard: stored records, replaced by newer ones in memory.
//!
//! Storage answers a scan with the records up to some position. A resident register wins over its
//! record: it may have been written, removed or lost since. While a scan is in flight no register
//! of its shard is evicted. So each change since storage answered is still resident when the answer
//! arrives.

use bytes::Bytes;
use protocols::{CachedRegister, Scan, ScannedRegister};
use types::{Key, Wire};

/// Bytes of keys and records at which a step of a scan ends. Each step goes into one message.
const MERGED_LEN_MAX: usize = 4 << 20;

/// A scan that storage has not answered yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanInFlight {
    /// Unique among all engines of the worker.
    pub(crate) id: u64,
    pub(crate) engine: usize,
    /// As it was asked for.
    pub(crate) scan: Scan,
    pub(crate) purpose: ScanPurpose,
}

/// The service that asked for a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScanPurpose {
    Protocol,
    /// See [`super::census`].
    Census,
}

/// Merges two sources, both in key order, both starting at `from_hash` and complete up to `until`
/// (`None`: the end of the shard).
///
/// The result never reaches beyond that, never splits a hash, and holds about `limit` registers, or
/// some [`MERGED_LEN_MAX`] bytes of them. `copy` copies a record and says about how long it is. The
/// position returned is where to go on.
pub(crate) fn merge<R: Wire>(
    scan: Scan,
    stored: Vec<(Key, Bytes)>,
    until: Option<u64>,
    resident: Vec<(&Key, CachedRegister<'_, R>)>,
    copy: impl Fn(&R) -> (R, usize),
) -> (Vec<(Key, ScannedRegister<R>)>, Option<u64>) {
    let in_range =
        |key: &Key| key.hash() >= scan.from_hash && until.is_none_or(|until| key.hash() < until);
    let limit = scan.limit.max(1);
    let mut stored = stored.into_iter().filter(|(key, _)| in_range(key)).peekable();
    let mut resident = resident.into_iter().filter(|(key, _)| in_range(key)).peekable();
    let mut merged: Vec<(Key, ScannedRegister<R>)> = Vec::new();
    let mut merged_len = 0;
    loop {
        let takes_resident = match (stored.peek(), resident.peek()) {
            (None, None) => return (merged, until),
            (Some(_), None) => false,
            (None, Some(_)) => true,
            (Some((stored, _)), Some((resident, _))) => *resident <= stored,
        };
        let next = if takes_resident {
            let (key, register) = resident.next().expect("it was just seen");
            if stored.peek().is_some_and(|(stored, _)| stored == key) {
                stored.next();
            }
            from_memory(key, &register, &copy)
        } else {
            stored.next().map(from_storage)
        };
        let Some((key, register, len)) = next else { continue };
        let is_full = merged.len() >= limit || merged_len >= MERGED_LEN_MAX;
        if is_full && merged.last().is_some_and(|(last, _)| last.hash() < key.hash()) {
            return (merged, Some(key.hash()));
        }
        merged_len += key.bytes().len() + len;
        merged.push((key, register));
    }
}

/// The copy of a resident register, and about how many bytes it has.
fn from_memory<R>(
    key: &Key,
    register: &CachedRegister<'_, R>,
    copy: impl Fn(&R) -> (R, usize),
) -> Option<(Key, ScannedRegister<R>, usize)> {
    let (scanned, len) = match register {
        CachedRegister::Present(record) => {
            let (record, len) = copy(record);
            (ScannedRegister::Present(record), len)
        }
        CachedRegister::Lost => (ScannedRegister::Lost, 0),
        CachedRegister::Absent => return None,
    };
    Some((key.clone(), scanned, len))
}

fn from_storage<R: Wire>((key, bytes): (Key, Bytes)) -> (Key, ScannedRegister<R>, usize) {
    let scanned = R::from_bytes(&bytes).map_or(ScannedRegister::Lost, ScannedRegister::Present);
    (key, scanned, bytes.len())
}
