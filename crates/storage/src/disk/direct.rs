//! A file written past the page cache: `O_DIRECT`, open(2).
//!
//! Where one write is to be durable at once, `O_DSYNC` makes it one call instead of a copy and a flush; on an ordinary
//! disk that saves a fifth of a commit's CPU time and a quarter of its time. Many writes share one flush.

use std::fs::{File as OsFile, OpenOptions};
use std::io::{ErrorKind, Result as IoResult};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use super::aligned::{ALIGNMENT, AlignedBuffer, is_aligned};
use super::io::{File, Write};
use super::stripe::SECTOR;

/// Bytes that are handed over together: a commit meanwhile does not wait for more.
const PART_LEN_MAX: usize = 256 << 10;

/// Shorter reads, and those with more around them, are copied: the memory that was read into is
/// much more than they take.
const COPIED_LEN_MAX: usize = 4 * ALIGNMENT;

/// How long a write of an ended process may take; a device that is silent for longer is of no use.
const OWN_MAX: Duration = Duration::from_secs(30);
/// How often to look whether it has ended.
const OWN_EVERY: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct DirectFile {
    file: OsFile,
    /// A write is durable when it has returned.
    is_synced: bool,
    buffer: Mutex<AlignedBuffer>,
}

impl DirectFile {
    /// A file of which each write is durable when it has returned. `None` where the file system or the device cannot
    /// write single sectors this way.
    pub(crate) fn open(path: &Path) -> Option<DirectFile> {
        DirectFile::with(path, OFlags::DIRECT | OFlags::DSYNC)
    }

    /// A file whose writes are durable when they have been flushed.
    pub(super) fn open_to_flush(path: &Path) -> Option<DirectFile> {
        DirectFile::with(path, OFlags::DIRECT)
    }

    fn with(path: &Path, flags: OFlags) -> Option<DirectFile> {
        let is_synced = flags.contains(OFlags::DSYNC);
        let flags = flags.bits().cast_signed();
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).ok()?;
        let mut buffer = AlignedBuffer::default();
        // The rule of alignment is the same for reading, and reading changes no byte.
        let takes_sectors = match file.read_at(buffer.room(SECTOR), SECTOR as u64) {
            Ok(len) => len == SECTOR,
            // The device was asked for it, and has not got it.
            Err(error) => is_lost(&error) || Errno::from_io_error(&error) == Some(Errno::IO),
        };
        takes_sectors.then(|| DirectFile { file, is_synced, buffer: Mutex::new(buffer) })
    }

    /// Waits until no other process can write to the file. A ring batch that was handed to the
    /// system may outlive its process, and would land on later bytes. It holds the open file, and
    /// with it this lock, until it has landed.
    ///
    /// # Errors
    /// The system's reason, also when the write of another process does not end.
    pub(crate) fn own(&self) -> IoResult<()> {
        let end = Instant::now() + OWN_MAX;
        loop {
            match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(OWN_EVERY),
                locked => return locked.map_err(Into::into),
            }
        }
    }

    /// No write is under way, and none will be.
    pub(super) fn disown(&self) {
        // Fails for no file that was locked.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }

    /// True for whole sectors of this file in the place of sectors. False for no writes at all: a
    /// flush alone is for the content of a cache.
    pub(super) fn takes(&self, file: File, writes: &[Write]) -> bool {
        let is_one = |write: &Write| {
            write.file == file
                && write.bytes.len().is_multiple_of(SECTOR)
                && write.offset.is_multiple_of(SECTOR as u64)
        };
        !writes.is_empty() && writes.iter().all(is_one)
    }

    /// Writes. After an error the content is unknown.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> IoResult<()> {
        for (part, at) in bytes.chunks(PART_LEN_MAX).zip((offset..).step_by(PART_LEN_MAX)) {
            if is_aligned(part) {
                self.file.write_all_at(part, at)?;
                continue;
            }
            let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
            let room = buffer.room(part.len());
            room.copy_from_slice(part);
            self.file.write_all_at(room, at)?;
        }
        Ok(())
    }

    /// Makes writes durable, unless they are.
    pub(super) fn flush(&self) -> IoResult<()> {
        if self.is_synced { Ok(()) } else { self.file.sync_data() }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// A file read past the page cache, which it leaves as it was.
#[derive(Debug)]
pub(super) struct BareFile(OsFile);

impl BareFile {
    /// `None` where the file system has no such way.
    pub(super) fn open(path: &Path) -> Option<BareFile> {
        let flags = OFlags::DIRECT.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        Some(BareFile(file))
    }

    /// Bytes from `offset` on; zeros stand for those past the end. `None` if that did not work.
    pub(super) fn read(&self, offset: u64, len: usize) -> Option<Bytes> {
        self.read_units(ALIGNMENT, offset, len).ok()
    }

    /// The same for bytes that could not be read: the device is asked for no others, and then for
    /// each sector by itself. Sectors that it has lost are damaged, and come as bytes that do not
    /// verify. `None` if it may still have them.
    pub(super) fn salvage(&self, offset: u64, len: usize) -> Option<Bytes> {
        salvage(offset, len, |offset, len| self.read_units(SECTOR, offset, len)).ok()
    }

    fn read_units(&self, unit: usize, offset: u64, len: usize) -> IoResult<Bytes> {
        let skipped = (offset % unit as u64) as usize;
        let whole = (skipped + len).next_multiple_of(unit);
        let mut buffer = AlignedBuffer::default();
        let room = buffer.room(whole);
        let mut filled = 0;
        while filled < whole {
            match self.0.read_at(&mut room[filled..], offset - skipped as u64 + filled as u64) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if !filled.is_multiple_of(unit) {
                // No aligned byte comes after the end of the file; else the read was cut short.
                let end = offset - skipped as u64 + filled as u64;
                if end < self.0.metadata()?.len() {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                break;
            }
        }
        room[filled..].fill(0);
        if whole == len && len >= COPIED_LEN_MAX {
            return Ok(buffer.into_bytes());
        }
        Ok(Bytes::copy_from_slice(&room[skipped..skipped + len]))
    }
}

/// See [`BareFile::salvage`]; `read` takes an offset and a length.
fn salvage(
    offset: u64,
    len: usize,
    mut read: impl FnMut(u64, usize) -> IoResult<Bytes>,
) -> IoResult<Bytes> {
    if let Ok(bytes) = read(offset, len) {
        return Ok(bytes);
    }
    let end = offset + len as u64;
    let mut bytes = Vec::with_capacity(len);
    let mut at = offset;
    while at < end {
        let next = end.min((at + 1).next_multiple_of(SECTOR as u64));
        match read(at, (next - at) as usize) {
            Ok(sector) => bytes.extend_from_slice(&sector),
            Err(error) if is_lost(&error) => bytes.resize((next - offset) as usize, 0xff),
            Err(error) => return Err(error),
        }
        at = next;
    }
    Ok(bytes.into())
}

/// The device says that the sector is gone: an unrecovered error of the medium, or of its
/// integrity. All others may pass, as those of a way to the device do.
fn is_lost(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NODATA | Errno::ILSEQ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_that_the_device_has_lost_is_damaged_and_others_are_not() {
        let content: Vec<u8> = (0..6 * SECTOR).map(|at| (at / 100) as u8).collect();
        // The bytes beside the place do not matter: they are not asked for.
        let read = |bad: Option<(usize, Errno)>, range: std::ops::Range<usize>| {
            let read = |offset: u64, len: usize| match bad {
                Some((sector, error))
                    if (offset as usize / SECTOR..(offset as usize + len).div_ceil(SECTOR))
                        .contains(&sector) =>
                {
                    Err(error.into())
                }
                _ => Ok(Bytes::copy_from_slice(&content[offset as usize..][..len])),
            };
            salvage(range.start as u64, range.len(), read)
        };
        for range in [0..6 * SECTOR, 512..1024, 700..2000, 1100..1200] {
            assert_eq!(read(None, range.clone()).expect("no error"), content[range.clone()]);
            for sector in 0..6 {
                let mut wanted = content.clone();
                wanted[sector * SECTOR..(sector + 1) * SECTOR].fill(0xff);
                for lost in [Errno::NODATA, Errno::ILSEQ] {
                    let found = read(Some((sector, lost)), range.clone());
                    assert_eq!(found.expect("it is lost"), wanted[range.clone()]);
                }
                let is_needed =
                    (range.start / SECTOR..range.end.div_ceil(SECTOR)).contains(&sector);
                assert_eq!(read(Some((sector, Errno::IO)), range.clone()).is_err(), is_needed);
            }
        }
    }

    #[test]
    fn parts_of_a_file_are_read_past_the_cache_wherever_they_begin_and_end() {
        let path = std::env::temp_dir().join(format!("palimpsest-bare-{}", std::process::id()));
        let mut content: Vec<u8> = (0..10_300_u32).map(|at| (at / 7) as u8).collect();
        std::fs::write(&path, &content).expect("the temporary directory is writable");
        let file = BareFile::open(&path).filter(|file| file.read(0, 1).is_some());
        content.resize(20_000, 0);
        for (offset, len) in [(0, 10_300), (512, 512), (700, 4000), (8192, 4096), (10_000, 5000)] {
            let Some(file) = &file else { break }; // not past the cache here
            let wanted = &content[offset as usize..][..len];
            assert_eq!(file.read(offset, len).expect("it is there"), wanted);
            if let Some(salvaged) = file.salvage(offset, len) {
                assert_eq!(salvaged, wanted); // else the device's sectors are longer
            }
        }
        std::fs::remove_file(&path).expect("it is there");
    }

    #[test]
    fn a_file_is_owned_once_the_writes_of_its_former_owner_have_ended() {
        let path = std::env::temp_dir().join(format!("palimpsest-own-{}", std::process::id()));
        std::fs::write(&path, [0; 3 * SECTOR]).expect("the temporary directory is writable");
        let opened = DirectFile::open(&path).zip(DirectFile::open(&path));
        let Some((former, next)) = opened else {
            return std::fs::remove_file(&path).expect("it is there"); // not past the cache here
        };
        former.own().expect("nobody else has it");
        // As a write under way does, this holds the open file beyond the life of its owner.
        let under_way = former.file.try_clone().expect("a descriptor is left");
        drop(former);
        let (sender, owned) = std::sync::mpsc::channel();
        let waits = std::thread::spawn(move || sender.send(next.own().is_ok()));
        assert!(owned.try_recv().is_err());
        drop(under_way);
        assert_eq!(owned.recv(), Ok(true));
        waits.join().expect("it ends").expect("it was heard");
        std::fs::remove_file(&path).expect("it is there");
    }
}
