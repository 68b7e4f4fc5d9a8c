//! Patterns over a file on a disk: append to allocated space, or write in place, with grouped
//! flushes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::OFlags;

use super::draws::{Draws, KeyDistribution};
use super::pattern::{Name, Pattern};
use crate::{Error, Result};

/// Writes that share a flush.
pub(super) const GROUPS: [u64; 4] = [1, 8, 64, 512];
/// Appends wrap after so many bytes.
const APPENDED_LEN: u64 = 64 << 20;
const BLOCK_LEN_MAX: usize = 4096;
const CHUNK: usize = 1 << 20;

/// A file that was written in full once, so that no write has to allocate.
pub(super) struct DiskFile {
    // Bypasses the page cache where possible.
    file: File,
    // Uses the page cache.
    cached: File,
    /// Unit of places and lengths.
    pub block_len: usize,
    pub is_direct: bool,
    pub len: u64,
}

impl DiskFile {
    /// Creates the file, with a place for every key and room for appends.
    pub(super) fn create(path: &Path, keys: u32, value_len_max: usize) -> Result<DiskFile> {
        let place_len = value_len_max.next_multiple_of(BLOCK_LEN_MAX) as u64;
        let len = u64::from(keys) * place_len + APPENDED_LEN;
        DiskFile::with_len(path, len).map_err(Error::io(path.display().to_string()))
    }

    fn with_len(path: &Path, len: u64) -> io::Result<DiskFile> {
        let new = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let zeros = vec![0; CHUNK];
        for at in (0..len).step_by(CHUNK) {
            let part = (len - at).min(CHUNK as u64) as usize;
            new.write_all_at(&zeros[..part], at)?;
        }
        new.sync_all()?;
        let flags = OFlags::DIRECT.bits().cast_signed();
        let direct = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        if let Ok(file) = direct {
            let mut block = Aligned::new(BLOCK_LEN_MAX);
            for block_len in [512, BLOCK_LEN_MAX] {
                if file.write_all_at(&block.bytes()[..block_len], 0).is_ok() {
                    return Ok(DiskFile { file, cached: new, block_len, is_direct: true, len });
                }
            }
        }
        Ok(DiskFile { file: new.try_clone()?, cached: new, block_len: 512, is_direct: false, len })
    }
}

/// Bytes at an address that O_DIRECT accepts.
struct Aligned {
    bytes: Vec<u8>,
    skip: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let bytes = vec![0; len + BLOCK_LEN_MAX];
        let skip = bytes.as_ptr().align_offset(BLOCK_LEN_MAX);
        Aligned { bytes, skip, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.skip..self.skip + self.len]
    }
}

/// Groups of values, appended or written to their places.
pub(super) struct OnDisk {
    disk: Rc<DiskFile>,
    draws: Rc<Draws>,
    is_append: bool,
    group: u64,
    buffer: Aligned,
    end: u64,
    done: u64,
}

impl OnDisk {
    pub(super) fn new(
        disk: &Rc<DiskFile>,
        draws: &Rc<Draws>,
        is_append: bool,
        group: u64,
    ) -> OnDisk {
        let len = draws.value_len.next_multiple_of(disk.block_len);
        let values = if is_append { group as usize * draws.value_len } else { len };
        let buffer = Aligned::new(values.next_multiple_of(disk.block_len));
        let end = disk.len - APPENDED_LEN;
        let (disk, draws) = (Rc::clone(disk), Rc::clone(draws));
        OnDisk { disk, draws, is_append, group, buffer, end, done: 0 }
    }

    fn place(&self, n: u64) -> u64 {
        let place_len = self.draws.value_len.next_multiple_of(self.disk.block_len) as u64;
        u64::from(self.draws.key(KeyDistribution::Uniform, n)) * place_len
    }

    fn append(&mut self) -> io::Result<()> {
        let value_len = self.draws.value_len;
        let bytes = self.buffer.bytes();
        for (index, place) in
            bytes.chunks_exact_mut(value_len).take(self.group as usize).enumerate()
        {
            place.copy_from_slice(self.draws.value(self.done + index as u64));
        }
        if self.end + bytes.len() as u64 > self.disk.len {
            self.end = self.disk.len - APPENDED_LEN;
        }
        self.disk.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Writes a group through the page cache, which sends it to the disk together at the flush.
    ///
    /// Direct writes would each wait for the one before.
    fn in_place(&mut self) -> io::Result<()> {
        let value_len = self.draws.value_len;
        let disk = Rc::clone(&self.disk);
        let file = if self.group == 1 { &disk.file } else { &disk.cached };
        for n in self.done..self.done + self.group {
            let at = self.place(n);
            self.buffer.bytes()[..value_len].copy_from_slice(self.draws.value(n));
            file.write_all_at(self.buffer.bytes(), at)?;
        }
        Ok(())
    }
}

impl Pattern for OnDisk {
    fn name(&self) -> Name {
        match self.is_append {
            true => Name { pattern: "append", how: "one write" },
            false => Name { pattern: "multi", how: "a write each" },
        }
    }

    fn unit(&self) -> u64 {
        self.group
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, units: u64) -> Result<()> {
        for _ in 0..units {
            let written = if self.is_append { self.append() } else { self.in_place() };
            written
                .and_then(|()| self.disk.file.sync_data())
                .map_err(Error::io("a write to the disk"))?;
            self.done += self.group;
        }
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        let n = self.done - 1;
        let value_len = self.draws.value_len;
        let (at, skip) = match self.is_append {
            true => {
                let len = self.buffer.len as u64;
                (self.end - len, (self.group as usize - 1) * value_len)
            }
            false => (self.place(n), 0),
        };
        let mut found = Aligned::new(self.buffer.len);
        self.disk.file.read_exact_at(found.bytes(), at).map_err(Error::io("a read of the disk"))?;
        match found.bytes()[skip..skip + value_len] == *self.draws.value(n) {
            true => Ok(()),
            false => Err(Error::Protocol("the disk does not hold the written values".to_string())),
        }
    }
}
