//! The four files of a store in a directory, read and written where they are: `pread`, `pwrite`,
//! `fdatasync`. Ring batches and the double-write buffer's images go past the page cache
//! ([`direct`](super::direct)) where the file system lets them.

use std::fs::{File as OsFile, OpenOptions};
use std::io::{ErrorKind, IoSliceMut, Result as IoResult};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::fs::{Advice, FallocateFlags};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

use super::direct::{BareFile, DirectFile};
use super::io::{Done, File, Files, Io, Medium, Write};
use crate::Lack;
use crate::data_dir::is_there;
use crate::disk::place::PAGE;

/// Bytes of a file whose cache is dropped at once: a millisecond or two where all of it is there.
const DROPPED_LEN: u64 = 8 << 20;
/// A page cache keeps and drops pieces as a whole; they are hardly anywhere longer.
const PIECE_LEN_MAX: u64 = 2 << 20;

/// Types of file systems (`statfs(2)`) that reserve room when a write is made: ext2 to ext4, XFS,
/// tmpfs, and overlays, which are over one of these.
const SAYING_AT_ONCE: [u32; 4] = [0xef53, 0x5846_5342, 0x0102_1994, 0x794c_7630];

/// The files that grow with the store.
const GROWING: [File; 2] = [File::Slots, File::Extents];

/// The role of a thread that flushes. The system tells each opening of a file once of bytes that it
/// could not write. So two threads that flush the same file have one opening each: else one could
/// take the other's failure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flusher {
    Homes,
    Commits,
}

/// An open store directory. The thread that calls [`FileMedium::execute`] carries requests out at
/// once.
#[derive(Debug)]
pub struct FileMedium {
    files: [OsFile; 4],          // by `File as usize`
    extents_of_commits: OsFile,  // once more, see `Flusher`
    stripes: Option<DirectFile>, // the ring once more
    images: Option<DirectFile>,  // the double-write buffer once more
    bare: [Option<BareFile>; 4], // past the page cache, for looking
    /// The page cache holds only this process's bytes of the file. Until then reads go past the
    /// cache.
    is_cache_ours: [AtomicBool; 4],
    /// Taken for good by a write that covers more than it was asked to.
    writing: RwLock<()>,
    done: Vec<Done>,
    /// A write that finds no room says so itself. Elsewhere (NFS) that may be said of one before.
    says_at_once: bool,
    /// The file system has no room for the files that grow.
    #[cfg(test)]
    pub(super) lacks_room: AtomicBool,
    /// A write to those files panics.
    #[cfg(test)]
    pub(super) panics: AtomicBool,
}

impl FileMedium {
    /// True where a directory has any of the files.
    ///
    /// # Errors
    /// When that cannot be known.
    pub(super) fn is_there(dir: &Path) -> Result<bool, String> {
        for path in File::ALL.map(|file| dir.join(file.name())) {
            if is_there(&path).map_err(|error| format!("{}: {error}", path.display()))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Opens the files of a directory, making those that do not exist.
    ///
    /// # Errors
    /// The system's reason.
    pub fn create(dir: &Path) -> Result<FileMedium, String> {
        let medium = FileMedium::with(dir, OpenOptions::new().read(true).write(true).create(true))?;
        // New names must survive too.
        let synced = OsFile::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(medium)
    }

    /// Opens the files of a directory.
    ///
    /// # Errors
    /// The system's reason; all four must be there.
    pub fn open(dir: &Path) -> Result<FileMedium, String> {
        let mut medium = FileMedium::with(dir, OpenOptions::new().read(true).write(true))?;
        let path = dir.join(File::Ring.name());
        medium.stripes = DirectFile::open(&path);
        if let Some(stripes) = &medium.stripes {
            stripes.own().map_err(|error| format!("{}: {error}", path.display()))?;
        }
        medium.images = DirectFile::open_to_flush(&dir.join(File::Spare.name()));
        medium.open_bare(dir);
        for file in File::ALL {
            let has_time = medium.bare[file as usize].is_some() && GROWING.contains(&file);
            medium.is_cache_ours[file as usize] = AtomicBool::new(!has_time);
            if !has_time {
                medium.drop_cache(file, 0, None);
            }
        }
        Ok(medium)
    }

    /// The ring as ring batches are written to it, where they can go past the page cache.
    pub(super) fn stripes(&self) -> Option<&DirectFile> {
        self.stripes.as_ref()
    }

    /// Forgets the cached pages of the ring, which a start has read. A direct write over them would
    /// block.
    pub(super) fn drop_ring(&self) {
        self.drop_cache(File::Ring, 0, None);
    }

    /// Makes the system forget pages that it takes for clean. After a failed flush its cache may
    /// hold, as clean, bytes that the device never got.
    fn drop_cache(&self, file: File, offset: u64, len: Option<NonZeroU64>) {
        // Advice: where the system has none to take, the cache stays.
        let _ = rustix::fs::fadvise(&self.files[file as usize], offset, len, Advice::DontNeed);
    }

    /// Drops whole pieces, as no others can be dropped.
    fn drop_around(&self, file: File, offset: u64, len: usize) {
        let start = offset / PIECE_LEN_MAX * PIECE_LEN_MAX;
        let end = (offset + len as u64).next_multiple_of(PIECE_LEN_MAX);
        self.drop_cache(file, start, NonZeroU64::new(end - start));
    }

    /// Drops the page cache that the process before has left of the growing files. Long caches take
    /// long, up to half a second for 2 GB, so it pauses half of the time: `rest` waits and says
    /// whether to go on.
    pub(super) fn drop_rest(&self, rest: impl Fn(Duration) -> bool) {
        for file in GROWING.into_iter().filter(|&file| !self.is_cache_ours(file)) {
            let Ok(about) = self.files[file as usize].metadata() else { return };
            for offset in (0..about.len()).step_by(DROPPED_LEN as usize) {
                let started = Instant::now();
                self.drop_cache(file, offset, NonZeroU64::new(DROPPED_LEN));
                if !rest(started.elapsed()) {
                    return;
                }
            }
            self.is_cache_ours[file as usize].store(true, SeqCst);
        }
    }

    fn is_cache_ours(&self, file: File) -> bool {
        self.is_cache_ours[file as usize].load(SeqCst)
    }

    /// Opens the files of a directory for looking only.
    ///
    /// # Errors
    /// The system's reason; all four must be there.
    pub fn open_read_only(dir: &Path) -> Result<FileMedium, String> {
        let mut medium = FileMedium::with(dir, OpenOptions::new().read(true))?;
        medium.open_bare(dir);
        Ok(medium)
    }

    fn open_bare(&mut self, dir: &Path) {
        self.bare = File::ALL.map(|file| BareFile::open(&dir.join(file.name())));
    }

    fn with(dir: &Path, options: &OpenOptions) -> Result<FileMedium, String> {
        let open = |file: File| {
            let path = dir.join(file.name());
            options.open(&path).map_err(|error| match error.kind() {
                ErrorKind::NotFound => format!(
                    "{} is missing: put it back, or reset the node, so that it recovers from the others",
                    path.display()
                ),
                _ => format!("{}: {error}", path.display()),
            })
        };
        let files =
            [open(File::Ring)?, open(File::Slots)?, open(File::Extents)?, open(File::Spare)?];
        let extents_of_commits = open(File::Extents)?;
        let system = rustix::fs::fstatfs(&files[File::Slots as usize]);
        let says_at_once = system.is_ok_and(|it| SAYING_AT_ONCE.contains(&(it.f_type as u32)));
        Ok(FileMedium {
            files,
            extents_of_commits,
            stripes: None,
            images: None,
            bare: [const { None }; 4],
            is_cache_ours: [const { AtomicBool::new(true) }; 4],
            writing: RwLock::new(()),
            done: Vec::new(),
            says_at_once,
            #[cfg(test)]
            lacks_room: AtomicBool::new(false),
            #[cfg(test)]
            panics: AtomicBool::new(false),
        })
    }

    /// Carries out a request and waits for it.
    #[must_use]
    pub fn execute(&self, io: &Io) -> Done {
        self.execute_with_room(io, Flusher::Homes, |_| false)
    }

    /// The same, but repeats a write that finds no room for as long as `wait` returns true. The
    /// device has not rejected such a write: no byte of it was flushed yet.
    pub(super) fn execute_with_room(
        &self,
        io: &Io,
        by: Flusher,
        wait: impl Fn(Lack) -> bool,
    ) -> Done {
        let id = io.id();
        let result = match io {
            Io::Read { file, offset, len, .. } if self.is_cache_ours(*file) => {
                self.read(*file, *offset, *len)
            }
            Io::Read { file, offset, len, .. } => self.read_bare(*file, *offset, *len),
            Io::Verify { file, offset, len, .. } => self.read_bare(*file, *offset, *len),
            Io::Store { writes, flush, .. } => {
                self.store(writes, *flush, by, wait).map(|()| Bytes::new())
            }
            Io::Discard { file, runs, .. } => {
                self.discard(*file, runs);
                Ok(Bytes::new())
            }
            Io::Cut { file, len, .. } => self.cut(*file, *len).map(|()| Bytes::new()),
        };
        Done { id, result }
    }

    /// A file that is written past the page cache leaves no byte there to make durable. Creating
    /// and opening a store flush all files. From then on such a file gets only ring batches, blanks
    /// and images.
    fn store(
        &self,
        writes: &[Write],
        flush: Files,
        by: Flusher,
        wait: impl Fn(Lack) -> bool,
    ) -> Result<(), String> {
        for (direct, file) in [(&self.stripes, File::Ring), (&self.images, File::Spare)] {
            if let Some(direct) = direct.as_ref().filter(|it| it.takes(file, writes))
                && flush == Files::of(file)
            {
                let mut writes = writes.iter();
                let written = writes.try_for_each(|it| direct.write(&it.bytes, it.offset));
                written.map_err(explain(file, "write"))?;
                return direct.flush().map_err(explain(file, "flush"));
            }
        }
        writes.iter().try_for_each(|write| self.write_with_room(write, &wait))?;
        flush.iter().try_for_each(|file| self.flush(file, by))
    }

    /// Carries out a read if that needs no waiting for the device.
    pub(super) fn execute_cached(&self, io: &Io) -> Option<Done> {
        let Io::Read { id, file, offset, len } = io else { return None };
        if !self.is_cache_ours(*file) {
            return None;
        }
        let mut bytes = vec![0; *len];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let file = &self.files[*file as usize];
        let read = rustix::io::preadv2(file, &mut parts, *offset, ReadWriteFlags::NOWAIT);
        (read == Ok(*len)).then(|| Done { id: *id, result: Ok(Bytes::from(bytes)) })
    }

    /// A page cache reads whole pages and gives no reason for a failure. Then the bytes that were
    /// asked for are read past it.
    fn read(&self, file: File, offset: u64, len: usize) -> Result<Bytes, String> {
        self.read_cached(file, offset, len).or_else(|reason| {
            let bare = self.bare[file as usize].as_ref();
            bare.and_then(|it| it.salvage(offset, len)).ok_or(reason)
        })
    }

    fn read_cached(&self, file: File, offset: u64, len: usize) -> Result<Bytes, String> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = offset + bytes.len() as u64;
            match rustix::io::pread(&self.files[file as usize], spare_capacity(&mut bytes), at) {
                Ok(0) => break, // past the end: zeros
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(explain(file, "read")(error.into())),
            }
        }
        bytes.resize(len, 0);
        Ok(Bytes::from(bytes))
    }

    /// Reads the device's bytes. If the system has no way past its cache, it drops its copy of them
    /// first, and the copy of this read afterwards.
    fn read_bare(&self, file: File, offset: u64, len: usize) -> Result<Bytes, String> {
        if let Some(bytes) = self.bare[file as usize].as_ref().and_then(|it| it.read(offset, len)) {
            return Ok(bytes);
        }
        self.drop_around(file, offset, len);
        let bytes = self.read(file, offset, len);
        self.drop_around(file, offset, len);
        bytes
    }

    fn write_with_room(&self, write: &Write, wait: impl Fn(Lack) -> bool) -> Result<(), String> {
        loop {
            let Err(error) = self.write(write) else { return Ok(()) };
            let lack = self.lack(write.file, error.kind());
            let reason = explain(write.file, "write")(error);
            if !lack.is_some_and(&wait) {
                return Err(reason);
            }
        }
    }

    /// The room that a failed write lacked, where it is safe to repeat the write.
    fn lack(&self, file: File, error: ErrorKind) -> Option<Lack> {
        if !GROWING.contains(&file) {
            return None;
        }
        match error {
            // Every file system checks the length before it takes a byte.
            ErrorKind::FileTooLarge => Some(Lack::FileSizeLimit),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                (self.says_at_once || cfg!(test)).then_some(Lack::DiskFull)
            }
            _ => None,
        }
    }

    fn write(&self, write: &Write) -> IoResult<()> {
        #[cfg(test)]
        if GROWING.contains(&write.file) && self.lacks_room.load(SeqCst) {
            return Err(ErrorKind::StorageFull.into());
        }
        #[cfg(test)]
        assert!(!GROWING.contains(&write.file) || !self.panics.load(SeqCst), "it is to panic");
        if !self.is_cache_ours(write.file) {
            // A page that is written in part takes the rest from the cache.
            self.drop_around(write.file, write.offset, write.bytes.len());
        }
        let file = &self.files[write.file as usize];
        let written = {
            let _others_too = self.writing.read().unwrap_or_else(PoisonError::into_inner);
            file.write_all_at(&write.bytes, write.offset)
        };
        written.or_else(|error| match Errno::from_io_error(&error) {
            Some(Errno::IO) => self.write_around(write).unwrap_or(Err(error)),
            _ => Err(error),
        })
    }

    /// For a page that is written in part the system reads the rest, which the device may have
    /// lost. Then all of the page is written, with the sectors that are left. `None` if they are
    /// not known.
    fn write_around(&self, write: &Write) -> Option<IoResult<()>> {
        let _alone = self.writing.write().unwrap_or_else(PoisonError::into_inner);
        let start = write.offset / PAGE as u64 * PAGE as u64;
        let end = (write.offset + write.bytes.len() as u64).next_multiple_of(PAGE as u64);
        let bare = self.bare[write.file as usize].as_ref()?;
        let mut bytes = bare.salvage(start, (end - start) as usize)?.to_vec();
        let skipped = (write.offset - start) as usize;
        bytes[skipped..skipped + write.bytes.len()].copy_from_slice(&write.bytes);
        Some(self.files[write.file as usize].write_all_at(&bytes, start))
    }

    /// Bytes that the growing files take of the file system; none where it does not tell.
    pub(super) fn taken(&self) -> u64 {
        let blocks = |file: File| self.files[file as usize].metadata().map_or(0, |it| it.blocks());
        GROWING.map(blocks).iter().sum::<u64>() * 512
    }

    /// Bytes that the file system has left for this process, and that it has in all; `None` where
    /// it does not tell.
    pub(super) fn room(&self) -> Option<(u64, u64)> {
        let told = rustix::fs::fstatvfs(&self.files[File::Extents as usize]).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
        Some((bytes(told.f_bavail), bytes(told.f_blocks)))
    }

    /// Gives blocks back to the file system, where it takes them.
    fn discard(&self, file: File, runs: &[(u64, u64)]) {
        for &(offset, len) in runs {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let file = &self.files[file as usize];
            if retry_on_intr(|| rustix::fs::fallocate(file, flags, offset, len)).is_err() {
                return; // then they stay, until something is written there
            }
        }
    }

    fn cut(&self, file: File, len: u64) -> Result<(), String> {
        let opened = &self.files[file as usize];
        let found = opened.metadata().map_err(explain(file, "look at"))?.len();
        if found <= len {
            return Ok(()); // a cut of an earlier process was flushed when this one opened the file
        }
        opened.set_len(len).map_err(explain(file, "shorten"))?;
        self.flush(file, Flusher::Homes)
    }

    fn flush(&self, file: File, by: Flusher) -> Result<(), String> {
        let opened = match (file, by) {
            (File::Extents, Flusher::Commits) => &self.extents_of_commits,
            _ => &self.files[file as usize],
        };
        opened.sync_data().map_err(explain(file, "flush"))
    }
}

fn explain(file: File, what: &str) -> impl Fn(std::io::Error) -> String {
    move |error| format!("cannot {what} the file `{}`: {error}", file.name())
}

impl Medium for FileMedium {
    fn submit(&mut self, io: Io) {
        let done = self.execute(&io);
        self.done.push(done);
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.done);
    }

    fn wait(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(medium: &FileMedium, offset: u64, bytes: &'static [u8]) {
        let write = Write { file: File::Slots, offset, bytes: Bytes::from_static(bytes) };
        let store = Io::Store { id: 1, writes: vec![write], flush: Files::default() };
        assert_eq!(medium.execute(&store).result, Ok(Bytes::new()));
    }

    fn read(offset: u64, len: usize) -> Io {
        Io::Read { id: 2, file: File::Slots, offset, len }
    }

    #[test]
    fn what_was_written_in_one_piece_is_dropped_around_a_part_of_it() {
        let dir = std::env::temp_dir().join(format!("palimpsest-piece-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let medium = FileMedium::create(&dir).expect("files");
        write(&medium, 0, &[7; 4 << 20]);
        medium.flush(File::Slots, Flusher::Homes).expect("it is flushed");
        let (offset, len) = (1 << 20, 4096);
        let is_cached = || medium.execute_cached(&read(offset, len)).is_some();
        medium.drop_around(File::Slots, offset, len);
        let was_left = is_cached();
        medium.drop_cache(File::Slots, 0, None);
        assert!(!was_left || is_cached(), "only where nothing is ever dropped");
        std::fs::remove_dir_all(&dir).expect("only these files are in it");
    }

    #[test]
    fn what_another_process_left_in_the_cache_is_read_past_it_until_it_is_dropped() {
        let dir = std::env::temp_dir().join(format!("palimpsest-cache-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let before = FileMedium::create(&dir).expect("files");
        write(&before, 0, &[7; 40_000]);
        let medium = FileMedium::open(&dir).expect("the same files");
        let has_way = medium.bare[File::Slots as usize].is_some();
        assert_eq!(medium.is_cache_ours(File::Slots), !has_way);
        assert!(!has_way || medium.execute_cached(&read(0, 4096)).is_none(), "it may be wrong");
        write(&medium, 5_000, &[8; 1_000]);
        let expected = [[7; 1_000], [8; 1_000], [7; 1_000]].concat();
        assert_eq!(medium.execute(&read(4_000, 3_000)).result, Ok(expected.clone().into()));
        medium.drop_rest(|_| false);
        assert_eq!(medium.is_cache_ours(File::Slots), !has_way, "it was told to stop");
        medium.drop_rest(|_| true);
        assert!(medium.is_cache_ours(File::Slots) && medium.is_cache_ours(File::Extents));
        assert_eq!(medium.execute(&read(4_000, 3_000)).result, Ok(expected.into()));
        assert!(medium.execute_cached(&read(4_096, 4_096)).is_some(), "it has just been read");
        std::fs::remove_dir_all(&dir).expect("only these files are in it");
    }

    #[test]
    fn what_is_written_with_all_that_stands_around_it_changes_nothing_else() {
        let dir = std::env::temp_dir().join(format!("palimpsest-around-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        drop(FileMedium::create(&dir).expect("files"));
        let medium = FileMedium::open(&dir).expect("the same files");
        write(&medium, 0, &[7; 9_000]);
        let bytes = Bytes::from_static(&[8; 3_000]);
        let around = |offset| {
            medium.write_around(&Write { file: File::Slots, offset, bytes: bytes.clone() })
        };
        if let Some(written) = around(3_000) {
            written.expect("there is room");
            around(8_500).expect("as before").expect("there is room");
            let expected = [&[7; 3_000][..], &[8; 3_000], &[7; 2_500], &[8; 3_000], &[0; 500]];
            assert_eq!(medium.execute(&read(0, 12_000)).result, Ok(expected.concat().into()));
        }
        std::fs::remove_dir_all(&dir).expect("only these files are in it");
    }
}
