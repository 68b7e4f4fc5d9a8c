//! A file mapped as [`Memory`].
//!
//! Address space for the largest file is reserved once; the file is mapped into its front and further pieces
//! behind, so that growing never moves what a worker reads. MAP_SYNC is asked for first: where the file system
//! grants it (DAX), a written-back line is persistent without any system call. Elsewhere the mapping is an
//! ordinary shared one: it survives the process but not the machine, and [`Mapped::is_emulated`] says so.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::memory::{Memory, word_of};
use super::persist::{CacheFlush, LINE};

/// Bytes of address space reserved per file, and so the largest file: 1 TiB.
pub const LEN_MAX: u64 = 1 << 40;

/// A huge page.
const HUGE: usize = 2 << 20;

/// A mapped file.
#[derive(Debug)]
pub struct Mapped {
    file: File,
    /// The address space, of [`LEN_MAX`] bytes and [`HUGE`] more.
    reserved: NonNull<u8>,
    /// In it, where the file begins.
    base: NonNull<u8>,
    // Mapped so far; everything below is readable, and writable unless `is_read_only`.
    len: AtomicU64,
    is_read_only: bool,
    is_dax: bool,
    flush: CacheFlush,
}

// SAFETY: the mapping is shared memory that lives as long as `Mapped`; every access goes through atomics.
unsafe impl Send for Mapped {}
// SAFETY: as above; concurrent access to one word is an atomic access.
unsafe impl Sync for Mapped {}

/// True where `file`, of at least `len` bytes, can be mapped with MAP_SYNC.
///
/// # Errors
/// Any other than that this file system cannot.
pub fn is_dax(file: &File, len: usize) -> io::Result<bool> {
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice, which nothing refers to when it is unmapped.
    unsafe {
        match rustix::mm::mmap(ptr::null_mut(), len, prot, flags, file, 0) {
            Ok(mapping) => {
                rustix::mm::munmap(mapping, len)?;
                Ok(true)
            }
            Err(Errno::OPNOTSUPP | Errno::INVAL) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Mapped {
    /// Maps all whole pages of 4096 bytes that the file has, one at least.
    ///
    /// # Errors
    /// Those of mapping it.
    pub fn new(file: File) -> io::Result<Mapped> {
        Mapped::with(file, false)
    }

    /// As `new`, for looking only: storing panics.
    ///
    /// # Errors
    /// Those of mapping it.
    pub fn read_only(file: File) -> io::Result<Mapped> {
        Mapped::with(file, true)
    }

    fn with(file: File, is_read_only: bool) -> io::Result<Mapped> {
        let file_len = file.metadata()?.len();
        // Growing may have stopped within a page, of which nothing was used.
        let whole_len = file_len - file_len % 4096;
        if whole_len == 0 || whole_len > LEN_MAX {
            let what = format!("a length of {file_len} bytes cannot be mapped");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let flush = CacheFlush::detect();
        // Without an instruction that writes lines back, DAX would be promised and not kept.
        let is_dax = flush != CacheFlush::Missing && !is_read_only && is_dax(&file, 4096)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: reserves fresh address space that nothing can access.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                LEN_MAX as usize + HUGE,
                ProtFlags::empty(),
                flags,
            )?
        };
        let reserved = NonNull::new(base.cast::<u8>());
        let reserved = reserved.expect("mmap never returns null without MAP_FIXED");
        // A huge page of the file can be one of the address space only where both begin alike.
        let skipped = reserved.align_offset(HUGE);
        // SAFETY: less than the `HUGE` bytes that were reserved beyond `LEN_MAX`.
        let base = unsafe { reserved.add(skipped) };
        let len = AtomicU64::new(0);
        let mapped = Mapped { file, reserved, base, len, is_read_only, is_dax, flush };
        mapped.map(0, whole_len)?;
        Ok(mapped)
    }

    /// True where the file is not DAX: promises hold against a crash of the process only.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        !self.is_dax
    }

    fn map(&self, from: u64, to: u64) -> io::Result<()> {
        assert!(from < to && to <= LEN_MAX, "{from}..{to} is outside the reserved space");
        let kind = match self.is_dax {
            true => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            false => MapFlags::SHARED,
        };
        let prot = match self.is_read_only {
            true => ProtFlags::READ,
            false => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: the range lies in the space reserved by `new`, which is ours alone; nobody reads beyond `len`,
        // so that nothing that is in use is replaced.
        unsafe {
            let at = self.base.as_ptr().add(from as usize).cast::<c_void>();
            let len = (to - from) as usize;
            rustix::mm::mmap(at, len, prot, kind | MapFlags::FIXED, self.file.as_fd(), from)?;
            // DAX needs no advice, and a file system without such pages gives none.
            let _ = rustix::mm::madvise(at, len, Advice::LinuxHugepage);
        }
        self.len.store(to, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn words(&self, at: u64, len: u64) -> &[AtomicU64] {
        let end = at.checked_add(len).expect("offsets are far below 2^64");
        assert!(at.is_multiple_of(8), "{at} is not the offset of a word");
        assert!(end <= self.len.load(Ordering::Acquire), "{at}..{end} is not mapped");
        // SAFETY: inside the mapping, which lives as long as `self`; page-aligned base plus a multiple of 8;
        // shared with other threads through atomics only.
        unsafe {
            let first = self.base.as_ptr().add(at as usize).cast::<AtomicU64>();
            std::slice::from_raw_parts(first, (len / 8) as usize)
        }
    }
}

/// Allocates the blocks and does not only make the file longer: a store into a hole of a full file system
/// would kill the process.
pub(super) fn allocate(file: &File, from: u64, to: u64) -> io::Result<()> {
    if allocate_at_once(file, from, to)? {
        return Ok(());
    }
    let zeros = vec![0; 1 << 20];
    for at in (from..to).step_by(zeros.len()) {
        let len = (to - at).min(zeros.len() as u64) as usize;
        file.write_all_at(&zeros[..len], at)?;
    }
    Ok(())
}

/// Allocates the blocks that a copy of the file was made without, for the same reason.
pub(super) fn fill_holes(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if metadata.blocks() * 512 >= metadata.len() {
        return Ok(());
    }
    allocate_at_once(file, 0, metadata.len()).map(drop)
}

/// False where the file system cannot do that.
fn allocate_at_once(file: &File, from: u64, to: u64) -> io::Result<bool> {
    let allocate = || rustix::fs::fallocate(file, FallocateFlags::empty(), from, to - from);
    match retry_on_intr(allocate) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Copies what can be copied in large pieces, a multiple of 16 bytes, and says how much that was.
#[inline]
fn copy(words: &[AtomicU64], bytes: &[u8]) -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let len = bytes.len() & !15;
        if len > 0 {
            // SAFETY: `words` are as many bytes, mapped writable and aligned to 8; the contract of `Memory` says that
            // one worker stores to a word at a time.
            unsafe { super::persist::copy(words.as_ptr().cast_mut().cast(), bytes.as_ptr(), len) };
        }
        len
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let _ = (words, bytes);
        0
    }
}

#[inline]
fn store_words(words: &[AtomicU64], bytes: &[u8]) {
    let chunks = bytes.chunks_exact(8);
    let rest = chunks.remainder();
    let mut words = words.iter();
    for (chunk, word) in chunks.zip(&mut words) {
        let bytes = chunk.try_into().expect("chunks of eight bytes");
        word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }
    if let Some(word) = words.next() {
        word.store(word_of(rest), Ordering::Relaxed);
    }
}

impl Mapped {
    /// Stores whole lines past the cache; false, and nothing is done, where they are not whole or that cannot be done.
    #[inline]
    fn stream(&self, at: u64, bytes: &[u8]) -> bool {
        let len = bytes.len() as u64;
        if len == 0 || !len.is_multiple_of(LINE) || !at.is_multiple_of(LINE) {
            return false;
        }
        assert!(!self.is_read_only, "a file that is only looked at is never written");
        let words = self.words(at, len);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: as for `copy`; these are whole lines, and callers of `put` fence.
        unsafe {
            super::persist::stream(words.as_ptr().cast_mut().cast(), bytes.as_ptr(), bytes.len());
            true
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        {
            let _ = words;
            false
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let len = LEN_MAX as usize + HUGE;
        // SAFETY: the reservation and all that was mapped into it, which nothing refers to any more.
        let unmapped = unsafe { rustix::mm::munmap(self.reserved.as_ptr().cast(), len) };
        assert!(unmapped.is_ok(), "a reserved range can be unmapped");
    }
}

impl Memory for Mapped {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        let before = self.len();
        if len <= before {
            return Ok(());
        }
        if len > LEN_MAX {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the file is at its 1 TiB"));
        }
        allocate(&self.file, before, len)?;
        self.file.sync_all()?;
        self.map(before, len)
    }

    #[inline]
    fn load(&self, at: u64) -> u64 {
        self.words(at, 8)[0].load(Ordering::Relaxed)
    }

    #[inline]
    fn store(&self, at: u64, word: u64) {
        assert!(!self.is_read_only, "a file that is only looked at is never written");
        self.words(at, 8)[0].store(word, Ordering::Relaxed);
    }

    #[inline]
    fn read(&self, at: u64, into: &mut [u8]) {
        let words = self.words(at, (into.len() as u64).next_multiple_of(8));
        for (chunk, word) in into.chunks_mut(8).zip(words) {
            let bytes = word.load(Ordering::Relaxed).to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }

    #[inline]
    fn write(&self, at: u64, bytes: &[u8]) {
        assert!(!self.is_read_only, "a file that is only looked at is never written");
        let words = self.words(at, (bytes.len() as u64).next_multiple_of(8));
        let copied = copy(words, bytes);
        store_words(&words[copied / 8..], &bytes[copied..]);
    }

    #[inline]
    fn put(&self, at: u64, bytes: &[u8]) {
        if !self.stream(at, bytes) {
            self.write(at, bytes);
            self.write_back(at, bytes.len() as u64);
        }
    }

    #[inline]
    fn write_back(&self, at: u64, len: u64) {
        let words = self.words(at, len.next_multiple_of(8));
        // SAFETY: `words` is mapped, and `flush` was detected when the file was opened.
        unsafe { self.flush.write_back(words.as_ptr().cast(), len as usize) };
    }

    #[inline]
    fn fence(&self) {
        self.flush.fence();
    }

    /// The system knows which pages of a DAX file were written to, and writes their lines back. [Linux:
    /// dax_writeback_mapping_range] On another file nothing outlives the machine for sure anyway.
    fn settle(&self) -> io::Result<()> {
        if self.is_dax && !self.is_read_only { self.file.sync_data() } else { Ok(()) }
    }
}
