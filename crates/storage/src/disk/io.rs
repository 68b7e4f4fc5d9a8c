//! Requests of the engine to a device, as data, and the device as a trait so small that a test can
//! write its own.
//!
//! The engine never waits: it emits an [`Io`] and is told by a [`Done`] with the same id. Writes of
//! one [`Io::Store`] may reach the medium in any order and in any part, sector by sector. Once its
//! `Done` says `Ok`, all earlier writes to the flushed files survive a loss of power.

use bytes::Bytes;

/// The files of a store, all in one directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum File {
    /// The ring: the commit point.
    Ring = 0,
    /// Superblocks and primary bucket pages.
    Slots = 1,
    /// Overflow pages, large records and their allocation maps.
    Extents = 2,
    /// Images of the pages that are about to be overwritten in place.
    Spare = 3,
}

impl File {
    pub const ALL: [File; 4] = [File::Ring, File::Slots, File::Extents, File::Spare];

    /// The file's name in the data directory.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            File::Ring => "ring",
            File::Slots => "slots",
            File::Extents => "extents",
            File::Spare => "spare",
        }
    }
}

/// A set of files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Files(u8);

impl Files {
    /// All four.
    pub const ALL: Files =
        Files::of(File::Ring).with(File::Slots).with(File::Extents).with(File::Spare);

    #[must_use]
    pub const fn of(file: File) -> Files {
        Files(1 << file as u8)
    }

    #[must_use]
    pub const fn with(self, file: File) -> Files {
        Files(self.0 | 1 << file as u8)
    }

    #[must_use]
    pub const fn contains(self, file: File) -> bool {
        self.0 & (1 << file as u8) != 0
    }

    /// The members, in the order of [`File::ALL`].
    pub fn iter(self) -> impl Iterator<Item = File> {
        File::ALL.into_iter().filter(move |&file| self.contains(file))
    }
}

/// Bytes for a place of a file; a write past the end extends the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    pub file: File,
    pub offset: u64,
    pub bytes: Bytes,
}

/// One request to the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Io {
    /// Reads `len` bytes; those past the end of the file are zeros.
    Read { id: u64, file: File, offset: u64, len: usize },
    /// As `Read`, but past every cache, if that is possible.
    Verify { id: u64, file: File, offset: u64, len: usize },
    /// Makes all writes, in any order, then flushes the files of `flush`, then is done.
    Store { id: u64, writes: Vec<Write>, flush: Files },
    /// The bytes of these runs, offset and length, are no longer needed. Until they are written
    /// again they read as before or as zeros. Runs of whole pages.
    Discard { id: u64, file: File, runs: Vec<(u64, u64)> },
    /// Ends a file here if it is longer, and then flushes it: bytes behind read as zeros for good.
    Cut { id: u64, file: File, len: u64 },
}

impl Io {
    #[must_use]
    pub fn id(&self) -> u64 {
        match self {
            Io::Read { id, .. }
            | Io::Verify { id, .. }
            | Io::Store { id, .. }
            | Io::Discard { id, .. }
            | Io::Cut { id, .. } => *id,
        }
    }
}

/// The end of a request: the bytes of a read, none for a store, or why it failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    pub id: u64,
    pub result: Result<Bytes, String>,
}

/// A device with the four files of a store.
pub trait Medium: Send {
    /// Takes a request. Every request is answered by exactly one [`Done`], in any order.
    fn submit(&mut self, io: Io);

    /// Appends the completions that are there.
    fn poll(&mut self, done: &mut Vec<Done>);

    /// Appends at least one completion while any request is under way. Used while a store opens.
    fn wait(&mut self, done: &mut Vec<Done>);
}

/// One request at a time, waited for: how a store is created and opened.
pub(super) struct Blocking<'m> {
    medium: &'m mut dyn Medium,
    next_id: u64,
}

impl<'m> Blocking<'m> {
    pub(super) fn new(medium: &'m mut dyn Medium) -> Blocking<'m> {
        Blocking { medium, next_id: 0 }
    }

    pub(super) fn read(&mut self, file: File, offset: u64, len: usize) -> Result<Bytes, String> {
        let id = self.take_id();
        self.run(Io::Read { id, file, offset, len })
    }

    pub(super) fn store(&mut self, writes: Vec<Write>, flush: Files) -> Result<(), String> {
        let id = self.take_id();
        self.run(Io::Store { id, writes, flush }).map(drop)
    }

    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn run(&mut self, io: Io) -> Result<Bytes, String> {
        let id = io.id();
        self.medium.submit(io);
        let mut done = Vec::new();
        self.medium.wait(&mut done);
        match done.pop() {
            Some(Done { id: answered, result }) if answered == id => result,
            _ => Err("the medium did not answer the one request under way".to_owned()),
        }
    }
}
