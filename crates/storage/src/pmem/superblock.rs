//! The first two pages: geometry and owner of the file, twice.
//!
//! ```text
//! 0..8    checksum, bound to the copy     8..16   magic
//! 16..20  format      20..24  workers     24..28  databases     28..32  zero
//! 32..40  bytes of a segment              40..48  binding of the directory that it belongs to
//! ```

use base::checksum::checksum;
use types::{Malformed, Reader};

use super::layout::{Geometry, PAGE};
use super::memory::Memory;

const MAGIC: &[u8; 8] = b"PALIPMEM";
/// The only format that this version reads and writes.
pub const FORMAT: u32 = 2;
const LEN: usize = 48;

/// The geometry and owner of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Superblock {
    pub geometry: Geometry,
    pub binding: u64,
}

/// A copy as it was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copy {
    Whole(Superblock),
    OtherFormat(u32),
    Damaged,
}

impl Superblock {
    /// Writes copy 0 or 1 and starts writing it back.
    pub fn write(&self, memory: &impl Memory, copy: u64) {
        let at = copy * PAGE;
        let mut bytes = vec![0; 8];
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&self.geometry.workers.to_le_bytes());
        bytes.extend_from_slice(&self.geometry.databases.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.geometry.segment_len.to_le_bytes());
        bytes.extend_from_slice(&self.binding.to_le_bytes());
        assert_eq!(bytes.len(), LEN, "every field has its place");
        let sum = checksum(at, &bytes[8..]);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        memory.write(at, &bytes);
        memory.write_back(at, LEN as u64);
    }

    /// Reads copy 0 or 1.
    pub fn read(memory: &impl Memory, copy: u64) -> Copy {
        let at = copy * PAGE;
        if memory.len() < 2 * PAGE {
            return Copy::Damaged;
        }
        let mut bytes = [0; LEN];
        memory.read(at, &mut bytes);
        let is_whole = bytes[..8] == checksum(at, &bytes[8..]).to_le_bytes();
        if !is_whole || bytes[8..16] != *MAGIC {
            return Copy::Damaged;
        }
        decode(&mut Reader::new(&bytes[16..])).unwrap_or(Copy::Damaged)
    }
}

fn decode(reader: &mut Reader<'_>) -> Result<Copy, Malformed> {
    let format = reader.u32()?;
    if format != FORMAT {
        return Ok(Copy::OtherFormat(format));
    }
    let (workers, databases, _zero) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let geometry = Geometry { workers, databases, segment_len: reader.u64()? };
    let superblock = Superblock { geometry, binding: reader.u64()? };
    Ok(if geometry.is_sensible() { Copy::Whole(superblock) } else { Copy::Damaged })
}
