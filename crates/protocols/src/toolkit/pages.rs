//! Pages of a shard that this replica reads for itself and others.

use std::collections::BTreeMap;

use types::wire::put_varint;
use types::{Key, Malformed, NodeId, Reader, Ticket, Wire};

use super::walk::Page;
use crate::protocol::{Scanned, ScannedRegister};

/// Registers of one page; a page of more is malformed.
pub const PAGE_ENTRIES_MAX: usize = 4096;
/// A page is cut where its values exceed this.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Registers of a page that recovers a shard.
pub const RECOVERY_PAGE: u32 = 256;
/// Registers of a page that lists keys, at most.
pub const LISTING_PAGE_MAX: u32 = 1_024;
/// Shards recovered at a time.
pub const SHARDS_AT_ONCE: usize = 16;
/// Pages read at a time. Others wait until they are asked for again.
const SERVED_MAX: usize = 1_024;

/// A request for a page, while storage is scanned for it.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub to: NodeId,
    pub walk: u64,
    pub from_hash: u64,
    pub want_values: bool,
}

/// Requests by the number of their scan.
#[derive(Debug, Default)]
pub struct Serving {
    scans: BTreeMap<u64, Asked>,
}

impl Serving {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.scans.is_empty()
    }

    /// False if there are too many.
    pub fn begin(&mut self, id: u64, asked: Asked) -> bool {
        if self.scans.len() >= SERVED_MAX {
            return false;
        }
        self.scans.insert(id, asked);
        true
    }

    pub fn end(&mut self, id: u64) -> Option<Asked> {
        self.scans.remove(&id)
    }
}

/// A page and the ticket that its content waits for.
#[derive(Debug)]
pub struct CutPage<E> {
    pub entries: Vec<(Key, E)>,
    pub next_hash: Option<u64>,
    pub after: Ticket,
}

/// Cuts a page from scanned registers.
///
/// # Errors
/// The first register that is forgotten: a page must not skip it.
pub fn cut<R, E>(
    scanned: Scanned<R>,
    len_of: impl Fn(&R) -> usize,
    ticket: impl Fn(&Key) -> Ticket,
    entry: impl Fn(&Key, &R) -> E,
) -> Result<CutPage<E>, Key> {
    let next_hash = scanned.next_hash;
    let entries = Vec::with_capacity(scanned.records.len());
    let mut page = CutPage { entries, next_hash, after: Ticket::DURABLE };
    let mut len = 0;
    for (key, found) in scanned.records {
        let ScannedRegister::Present(register) = found else { return Err(key) };
        len += key.bytes().len() + len_of(&register);
        let is_same_hash = page.entries.last().is_some_and(|(last, _)| last.hash() == key.hash());
        let is_full = len > PAGE_BYTES_MAX || page.entries.len() + 64 > PAGE_ENTRIES_MAX;
        if is_full && !page.entries.is_empty() && !is_same_hash {
            page.next_hash = Some(key.hash());
            break;
        }
        page.after = page.after.max(ticket(&key));
        let entry = entry(&key, &register);
        page.entries.push((key, entry));
    }
    Ok(page)
}

/// Appends a page.
pub fn put_page<E: Wire>(out: &mut Vec<u8>, entries: &[(Key, E)], next_hash: Option<u64>) {
    put_varint(out, entries.len() as u64);
    for (key, entry) in entries {
        key.encode(out);
        entry.encode(out);
    }
    match next_hash {
        None => out.push(0),
        Some(hash) => {
            out.push(1);
            out.extend_from_slice(&hash.to_le_bytes());
        }
    }
}

/// Reads the bytes of [`put_page`].
///
/// # Errors
/// [`Malformed`] when they are none.
pub fn take_page<E: Wire>(reader: &mut Reader<'_>) -> Result<Page<E>, Malformed> {
    let count = reader.varint()?;
    if count > PAGE_ENTRIES_MAX as u64 {
        return Err(Malformed);
    }
    let mut entries = Vec::new();
    for _ in 0..count {
        entries.push((Key::decode(reader)?, E::decode(reader)?));
    }
    let next_hash = match reader.u8()? {
        0 => None,
        1 => Some(reader.u64()?),
        _ => return Err(Malformed),
    };
    Ok((entries, next_hash))
}
