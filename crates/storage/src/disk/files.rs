//! The four files of a store in a directory, read and written where they are: `pread`, `pwrite`, `fdatasync`. Stripes
//! and the spare's images go past the page cache ([`direct`](super::direct)) where the file system lets them.

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

use super::ahead::Ahead;
use super::arena::Arena;
use super::direct::{BareFile, DirectFile};
use super::io::{Done, File, Files, Io, Medium, Write};
use super::write_out::write_out;
use crate::Lack;
use crate::data_dir::is_there;
use crate::disk::place::PAGE;

/// Reads of at least so many bytes get memory on large pages.
const LARGE_LEN_MIN: usize = 2 << 20;
/// Reads of the ring of at least so many bytes are a run of them: a start reads it from one end to the other.
const RUN_LEN_MIN: usize = 128 << 10;
/// Bytes of a file whose cache is dropped at once: a millisecond or two where all of it is there.
const DROPPED_LEN: u64 = 8 << 20;
/// What a page cache keeps in one piece, and drops in one piece or not at all, is hardly anywhere longer.
const PIECE_LEN_MAX: u64 = 2 << 20;

/// Writes of a file after which the device begins with them, while the next ones are copied to the page cache.
const BEGUN_AFTER: usize = 32;

/// Types of file systems (`statfs(2)`) that reserve what a write needs when it is made: ext2 to ext4, XFS, tmpfs, and
/// overlays, which are over one of these.
const SAYING_AT_ONCE: [u32; 4] = [0xef53, 0x5846_5342, 0x0102_1994, 0x794c_7630];

/// The files that grow with what is stored.
const GROWING: [File; 2] = [File::Slots, File::Extents];

/// Who flushes. The system tells each opening of a file once of what it could not write, so two threads that flush the same
/// file have one each: or one would take the other's failure, which would then believe that all is well.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flusher {
    Homes,
    Commits,
}

/// An open store directory. Requests are carried out by whoever calls [`FileMedium::execute`], and at once.
#[derive(Debug)]
pub struct FileMedium {
    files: [OsFile; 4],          // by `File as usize`
    extents_of_commits: OsFile,  // once more, see `Flusher`
    stripes: Option<DirectFile>, // the ring once more
    images: Option<DirectFile>,  // the spare once more
    bare: [Option<BareFile>; 4], // past the page cache, for looking
    /// The page cache holds nothing of the file but what this process has put there. Until then it is read past the cache.
    is_cache_ours: [AtomicBool; 4],
    /// Taken for good by who writes more than it was asked to.
    writing: RwLock<()>,
    done: Vec<Done>,
    /// A write that finds no room says so itself. Elsewhere (NFS) that may be said of one before.
    says_at_once: bool,
    /// The file system has no room for the files that grow.
    #[cfg(test)]
    pub(super) lacks_room: AtomicBool,
    /// Whoever writes to those files panics.
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
    /// What the system says.
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
    /// What the system says; all four must be there.
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

    /// The same files for a start, which reads the ring from one end to the other.
    pub(super) fn reading(&self) -> Reading<'_> {
        Reading { medium: self, ahead: None, done: Vec::new() }
    }

    /// The ring as stripes are written to it, where they can go past the page cache.
    pub(super) fn stripes(&self) -> Option<&DirectFile> {
        self.stripes.as_ref()
    }

    /// Makes the system forget what it takes for clean. After a flush that failed its cache may hold, as clean, what
    /// the device never got; a node that starts again must find what is there.
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

    /// Drops what the process before has left in the cache of the files that grow with the store, half of the time: it
    /// takes as long as there is much of it, up to half a second for 2 GB. `rest` waits that long, and says whether to go on.
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
    /// What the system says; all four must be there.
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

    /// The same, but repeats a write that finds no room for as long as `wait` returns true.
    /// Such a write has not failed as one that the device rejects: nothing of it was flushed yet.
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

    /// Where a file is written past the page cache, nothing of it is left there for a write to make durable: what creates
    /// a store and what starts it flush all files, and from then on it writes only stripes, blanks and images.
    fn store(
        &self,
        writes: &[Write],
        flush: Files,
        by: Flusher,
        wait: impl Fn(Lack) -> bool,
    ) -> Result<(), String> {
        let past = |direct: &DirectFile, file: File| {
            let is_its = flush == Files::of(file) || flush == Files::default();
            let fits = is_its && direct.takes(file, writes);
            fits.then(|| {
                writes.iter().try_for_each(|write| {
                    direct.write(&write.bytes, write.offset).map_err(explain(file, "write"))
                })
            })
        };
        if let Some(written) = self.stripes.as_ref().and_then(|it| past(it, File::Ring)) {
            return written;
        }
        if let Some(images) = &self.images
            && let Some(written) = past(images, File::Spare)
        {
            written?;
            if flush == Files::default() {
                return Ok(());
            }
            return images.flush().map_err(explain(File::Spare, "flush"));
        }
        for same in writes.chunk_by(|one, next| one.file == next.file) {
            for some in same.chunks(BEGUN_AFTER) {
                some.iter().try_for_each(|write| self.write_with_room(write, &wait))?;
                let file = some[0].file;
                let is_alone = some.len() == writes.len();
                if !is_alone && flush.contains(file) {
                    self.begin(file, some)?;
                }
            }
        }
        flush.iter().try_for_each(|file| self.flush(file, by))
    }

    /// Makes the device write these, all of one file, while others are copied.
    fn begin(&self, file: File, writes: &[Write]) -> Result<(), String> {
        let starts = writes.iter().map(|write| write.offset);
        let ends = writes.iter().map(|write| write.offset + write.bytes.len() as u64);
        let Some((start, end)) = starts.min().zip(ends.max()) else { return Ok(()) };
        write_out(&self.files[file as usize], start..end).map_err(explain(file, "flush"))
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

    /// A page cache reads whole pages, and says no more than that it could not: then what was asked for comes past it.
    fn read(&self, file: File, offset: u64, len: usize) -> Result<Bytes, String> {
        self.read_cached(file, offset, len).or_else(|reason| {
            let bare = self.bare[file as usize].as_ref();
            bare.and_then(|it| it.salvage(offset, len)).ok_or(reason)
        })
    }

    fn read_cached(&self, file: File, offset: u64, len: usize) -> Result<Bytes, String> {
        if len >= LARGE_LEN_MIN {
            let mut arena = Arena::new(len)?;
            self.read_into(arena.room(len), file, offset)?;
            return Ok(arena.into_bytes());
        }
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

    /// Reads what the device holds. Where the system has no way past its cache, it is asked to drop what it holds of it
    /// first, and what it has read for this afterwards.
    fn read_bare(&self, file: File, offset: u64, len: usize) -> Result<Bytes, String> {
        if let Some(bytes) = self.bare[file as usize].as_ref().and_then(|it| it.read(offset, len)) {
            return Ok(bytes);
        }
        self.drop_around(file, offset, len);
        let bytes = self.read(file, offset, len);
        self.drop_around(file, offset, len);
        bytes
    }

    /// Fills memory that holds zeros.
    fn read_into(&self, bytes: &mut [u8], file: File, offset: u64) -> Result<(), String> {
        let mut filled = 0;
        while filled < bytes.len() {
            let at = offset + filled as u64;
            match self.files[file as usize].read_at(&mut bytes[filled..], at) {
                Ok(0) => break, // past the end: zeros
                Ok(more) => filled += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(explain(file, "read")(error)),
            }
        }
        Ok(())
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

    /// Of a page that is written in part the system reads the rest, which the device may have lost. Then all of the page is
    /// written, with what is left of it. `None` where that is not known.
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

    /// Bytes that the file system has left for this process, and that it has in all; `None` where it does not tell.
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
            return Ok(()); // what an earlier process cut off was flushed when this one opened the file
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

/// The files while a store is found in them: what comes next of the ring is read before it is asked for.
pub(super) struct Reading<'m> {
    medium: &'m FileMedium,
    ahead: Option<Ahead>,
    done: Vec<Done>,
}

impl Reading<'_> {
    /// A long read of the ring that goes on where the one before ended, or else begins a run of them.
    fn read_ahead(&mut self, io: &Io) -> Option<Done> {
        let Io::Read { id, file: File::Ring, offset, len } = *io else { return None };
        let read = self.ahead.as_mut().and_then(|ahead| ahead.take(offset, len));
        let read = read.or_else(|| {
            let stripes = self.medium.stripes().filter(|_| len >= RUN_LEN_MIN)?;
            self.ahead = Ahead::start(stripes.to_read().ok()?, offset, len);
            self.ahead.as_mut()?.take(offset, len)
        })?;
        Some(Done { id, result: Ok(read) })
    }
}

impl Medium for Reading<'_> {
    fn submit(&mut self, io: Io) {
        let done = self.read_ahead(&io).unwrap_or_else(|| {
            self.ahead = None;
            self.medium.execute(&io)
        });
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
    fn what_the_device_begins_with_early_is_all_there() {
        let dir = std::env::temp_dir().join(format!("palimpsest-begun-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let mut medium = FileMedium::create(&dir).expect("files");
        medium.open_bare(&dir);
        let page = |number: u64| Bytes::from(vec![number as u8 + 1; PAGE]);
        let places = || GROWING.into_iter().flat_map(|file| (0..100_u64).map(move |it| (file, it)));
        // Every other page, from the last to the first.
        let offset = |number: u64| 2 * (99 - number) * PAGE as u64;
        let write = |(file, number)| Write { file, offset: offset(number), bytes: page(number) };
        let flush = Files::of(File::Slots).with(File::Extents);
        let store = Io::Store { id: 1, writes: places().map(write).collect(), flush };
        assert_eq!(medium.execute(&store).result, Ok(Bytes::new()));
        for (file, number) in places() {
            let look = Io::Verify { id: 2, file, offset: offset(number), len: PAGE };
            assert_eq!(medium.execute(&look).result, Ok(page(number)), "{file:?} {number}");
        }
        std::fs::remove_dir_all(&dir).expect("only these files are in it");
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
