//! A file mapped as [`Memory`].
//!
//! Address space for the largest file is reserved once. The file is mapped into its front and
//! further pieces behind, so that growing never moves bytes that a worker reads. MAP_SYNC is asked
//! for first: if the file system grants it (DAX), a written-back line is persistent without any
//! system call. Elsewhere the mapping is an ordinary shared one: it survives the process but not
//! the machine, and [`Mapped::is_emulated`] says so.
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
use super::persist::{self, CacheFlush, LINE};

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
    // Bytes up to which a head and its body go through the cache.
    cached_len_max: u64,
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
    // SAFETY: a fresh mapping at an address of the kernel's choice, without a reference when it is
    // unmapped.
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
        // Growing may have stopped within a page, whose bytes were not used.
        let whole_len = file_len - file_len % 4096;
        if whole_len == 0 || whole_len > LEN_MAX {
            let what = format!("a length of {file_len} bytes cannot be mapped");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let flush = CacheFlush::detect();
        // Without an instruction that writes lines back, DAX would be promised and not kept.
        let is_dax = flush != CacheFlush::Missing && !is_read_only && is_dax(&file, 4096)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: reserves fresh address space that no code can access.
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
        let cached_len_max = flush.cached_len_max();
        let mapped =
            Mapped { file, reserved, base, len, is_read_only, is_dax, flush, cached_len_max };
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
        // SAFETY: the range lies in the space reserved by `new`, which is ours alone. No thread
        // reads beyond `len`, so no byte in use is replaced.
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

    /// Stores a head and a body through the cache and starts writing them back. A function of its
    /// own, so that its registers are not spilt while a checksum is computed.
    #[inline(never)]
    fn put_cached(&self, at: u64, head: [u64; 2], body: &[u8]) {
        let len = size_of_val(&head) + body.len();
        let lines = self.writable(at, (len as u64).next_multiple_of(LINE));
        let (head_words, body_words) = lines.split_at(head.len());
        head_words.iter().zip(head).for_each(|(at, word)| at.store(word, Ordering::Relaxed));
        let rest = copy_pieces(body_words, body);
        if !rest.is_empty() {
            return self.put_rest(lines, len, rest);
        }
        // SAFETY: these words are mapped, and `flush` was detected when the file was opened.
        unsafe { self.flush.write_back(lines.as_ptr().cast(), len) };
    }

    /// The end of `put_cached`, which jumps here and so keeps no register over a call.
    #[inline(never)]
    fn put_rest(&self, lines: &[AtomicU64], len: usize, rest: &[u8]) {
        copy_rest(&lines[(len - rest.len()) / 8..], rest);
        // SAFETY: as in `put_cached`.
        unsafe { self.flush.write_back(lines.as_ptr().cast(), len) };
    }

    /// Words that are about to be stored.
    #[inline(always)]
    fn writable(&self, at: u64, len: u64) -> &[AtomicU64] {
        if self.is_read_only {
            read_only();
        }
        self.words(at, len)
    }

    #[inline(always)]
    fn words(&self, at: u64, len: u64) -> &[AtomicU64] {
        let mapped = self.len.load(Ordering::Acquire);
        if !at.is_multiple_of(8) || at.checked_add(len).is_none_or(|end| end > mapped) {
            not_mapped(at, len, mapped);
        }
        // SAFETY: inside the mapping, which lives as long as `self`; page-aligned base plus a multiple of 8;
        // shared with other threads through atomics only.
        unsafe {
            let first = self.base.as_ptr().add(at as usize).cast::<AtomicU64>();
            std::slice::from_raw_parts(first, (len / 8) as usize)
        }
    }
}

#[cold]
fn read_only() -> ! {
    panic!("a file that is only looked at is never written");
}

/// A function of its own, so that not every store prepares its message.
#[cold]
fn not_mapped(at: u64, len: u64, mapped: u64) -> ! {
    panic!(
        "{len} bytes at {at}: no word begins there, or they go beyond the {mapped} that are mapped"
    );
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

/// Bytes that are copied at a time.
const PIECE: usize = 16;

/// Stores bytes; the last word is filled up with zeros.
#[inline(always)]
fn copy(words: &[AtomicU64], bytes: &[u8]) {
    let rest = copy_pieces(words, bytes);
    if !rest.is_empty() {
        copy_rest(&words[(bytes.len() - rest.len()) / 8..], rest);
    }
}

/// Stores whole pieces; the bytes that are left make none.
#[inline(always)]
fn copy_pieces<'a>(words: &[AtomicU64], bytes: &'a [u8]) -> &'a [u8] {
    let (pieces, rest) = bytes.split_at(bytes.len() - bytes.len() % PIECE);
    assert!(pieces.len() <= size_of_val(words), "what is stored has room");
    if !pieces.is_empty() {
        let to = words.as_ptr().cast_mut().cast();
        // SAFETY: so many words, mapped writable; the contract of `Memory` says that one worker stores to a word at a
        // time.
        unsafe { persist::copy(to, pieces.as_ptr(), pieces.len()) };
    }
    rest
}

/// A function of its own, so that its registers are not spilt if there is no rest.
#[inline(never)]
fn copy_rest(words: &[AtomicU64], bytes: &[u8]) {
    assert!(bytes.len() <= size_of_val(words), "what is stored has room");
    let words = words.iter().zip(bytes.chunks(8));
    words.for_each(|(at, chunk)| at.store(word_of(chunk), Ordering::Relaxed));
}

/// Stores words, bytes behind them, and zeros up to the end of the lines, all past the cache: as if written back.
#[inline(never)]
fn stream<const HEAD: usize>(lines: &[AtomicU64], head: [u64; HEAD], body: &[u8]) {
    const { assert!((8 * HEAD).is_multiple_of(PIECE), "pieces are aligned") };
    let (first, len) = (lines.as_ptr().addr(), size_of_val(lines));
    assert!((first | len).is_multiple_of(LINE as usize), "what is stored is whole lines");
    let (pieces, rest) = body.split_at(body.len() - body.len() % PIECE);
    let (head_words, lines) = lines.split_at(HEAD);
    let (piece_words, rest_words) = lines.split_at(pieces.len() / 8);
    // SAFETY: a mapped word, and as for `copy`; callers of `put` fence.
    let store = |at: &AtomicU64, word| unsafe { persist::stream_word(at.as_ptr(), word) };
    head_words.iter().zip(head).for_each(|(at, word)| store(at, word));
    if !pieces.is_empty() {
        let to = piece_words.as_ptr().cast_mut().cast();
        // SAFETY: as for `copy`, and pieces begin at a line or whole pieces behind it; callers of `put` fence.
        unsafe { persist::stream(to, pieces.as_ptr(), pieces.len()) };
    }
    assert!(rest.len() <= size_of_val(rest_words), "what is stored has room");
    let rest = rest.chunks(8).map(word_of).chain(std::iter::repeat(0));
    rest_words.iter().zip(rest).for_each(|(at, word)| store(at, word));
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let len = LEN_MAX as usize + HUGE;
        // SAFETY: the reservation and all that was mapped into it, without a reference left.
        let unmapped = unsafe { rustix::mm::munmap(self.reserved.as_ptr().cast(), len) };
        assert!(unmapped.is_ok(), "a reserved range can be unmapped");
    }
}

/// The code for few lines spills as few registers as can be: spilt ones wait for the fence before
/// like any store. Once the processor has no room for more of them, it cannot begin with the next
/// write. A busy thread on the same core leaves half of the room.
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

    #[inline(always)]
    fn store(&self, at: u64, word: u64) {
        self.writable(at, 8)[0].store(word, Ordering::Relaxed);
    }

    #[inline]
    fn read(&self, at: u64, into: &mut [u8]) {
        let words = self.words(at, (into.len() as u64).next_multiple_of(8));
        for (chunk, word) in into.chunks_mut(8).zip(words) {
            let bytes = word.load(Ordering::Relaxed).to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }

    #[inline(always)]
    fn write(&self, at: u64, bytes: &[u8]) {
        copy(self.writable(at, (bytes.len() as u64).next_multiple_of(8)), bytes);
    }

    #[inline(always)]
    fn put(&self, at: u64, bytes: &[u8]) {
        let len = bytes.len() as u64;
        if (at | len).is_multiple_of(LINE) {
            stream(self.writable(at, len), [], bytes);
        } else {
            self.write(at, bytes);
            self.write_back(at, len);
        }
    }

    #[inline(always)]
    fn expect_put(&self, at: u64, len: u64) {
        if len <= self.cached_len_max {
            let first = self.base.as_ptr().wrapping_add(at as usize);
            let lines = (0..len as usize).step_by(LINE as usize);
            lines.for_each(|line| persist::expect_store(first.wrapping_add(line)));
        }
    }

    #[inline(always)]
    fn put_headed(&self, at: u64, head: [u64; 2], body: &[u8]) {
        assert!(at.is_multiple_of(LINE), "a head is where a line begins");
        let len = size_of_val(&head) + body.len();
        if len as u64 <= self.cached_len_max {
            self.put_cached(at, head, body);
        } else {
            stream(self.writable(at, (len as u64).next_multiple_of(LINE)), head, body);
        }
    }

    #[inline(always)]
    fn write_back(&self, at: u64, len: u64) {
        let words = self.words(at, len.next_multiple_of(8));
        // SAFETY: `words` is mapped, and `flush` was detected when the file was opened.
        unsafe { self.flush.write_back(words.as_ptr().cast(), len as usize) };
    }

    #[inline(always)]
    fn fence(&self) {
        self.flush.fence();
    }

    /// The system knows which pages of a DAX file were written to, and writes their lines back.
    /// [Linux: dax_writeback_mapping_range] No other file surely outlives the machine anyway.
    fn settle(&self) -> io::Result<()> {
        if self.is_dax && !self.is_read_only { self.file.sync_data() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: u64 = 0x5a5a_5a5a_5a5a_5a5a;

    #[repr(align(64))]
    struct Lines([AtomicU64; 64]);

    fn lines() -> Lines {
        Lines(std::array::from_fn(|_| AtomicU64::new(OLD)))
    }

    fn bytes_of(lines: &Lines) -> Vec<u8> {
        lines.0.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect()
    }

    fn body(len: usize) -> Vec<u8> {
        (0..len).map(|at| at as u8 ^ 0x80).collect()
    }

    /// Miri takes seconds for each of them.
    fn lengths() -> impl Iterator<Item = usize> {
        (0..=200).step_by(if cfg!(miri) { 11 } else { 1 })
    }

    #[test]
    fn copies_fill_up_the_last_word() {
        for len in lengths() {
            let (lines, body) = (lines(), body(len));
            copy(&lines.0[3..], &body);
            let end = 24 + len.next_multiple_of(8);
            let expected =
                [&[0x5a; 24], &body[..], &vec![0; end - 24 - len], &vec![0x5a; 512 - end]];
            assert_eq!(bytes_of(&lines), expected.concat(), "{len} bytes");
        }
    }

    #[test]
    fn what_goes_past_the_cache_fills_up_the_last_line() {
        for len in lengths() {
            let (lines, body) = (lines(), body(len));
            let end = (16 + len).next_multiple_of(64);
            stream(&lines.0[8..8 + end / 8], [1, u64::MAX], &body);
            let head = [1_u64.to_le_bytes(), u64::MAX.to_le_bytes()].concat();
            let rest = vec![0x5a; 512 - 64 - end];
            let expected = [&[0x5a; 64], &head[..], &body, &vec![0; end - 16 - len], &rest];
            assert_eq!(bytes_of(&lines), expected.concat(), "{len} bytes");
        }
    }

    #[test]
    #[should_panic(expected = "whole lines")]
    fn nothing_goes_past_the_cache_but_whole_lines() {
        stream(&lines().0[1..9], [], &body(64));
    }

    /// Through the cache and past it, a version is there and its neighbours are as they were.
    #[test]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
    fn what_is_put_is_there_on_either_way() {
        let path = std::env::temp_dir().join(format!("palimpsest-put-{}", std::process::id()));
        let options = File::options().read(true).write(true).create(true).truncate(true).clone();
        let file = options.open(&path).expect("a scratch file can be made");
        std::fs::remove_file(&path).expect("it is there");
        allocate(&file, 0, 4096).expect("there is room");
        let mut memory = Mapped::new(file).expect("it can be mapped");
        for cached_len_max in [0, u64::MAX] {
            memory.cached_len_max = cached_len_max;
            for len in 0..=400 {
                (0..4096).step_by(8).for_each(|at| memory.store(at, OLD));
                let body = body(len);
                memory.expect_put(64, 16 + len as u64);
                memory.put_headed(64, [3, 4], &body);
                memory.fence();
                let mut found = vec![0; len];
                memory.read(80, &mut found);
                assert_eq!((memory.load(64), memory.load(72), found), (3, 4, body), "{len} bytes");
                let behind = 64 + (16 + len as u64).next_multiple_of(LINE);
                let beside = (0..64).chain(behind..4096).step_by(8);
                assert!(beside.map(|at| memory.load(at)).all(|word| word == OLD), "{len} bytes");
            }
        }
    }
}
