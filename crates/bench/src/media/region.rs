//! The memory that patterns write to: one mapped file, shared by all in turn.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use storage::pmem::mapped::Mapped;
use storage::pmem::memory::{Memory, store_headed};

const PAGE: u64 = 4096;

/// A handle to the memory. Without flushes it is ordinary memory: write-backs and fences are
/// no-ops.
#[derive(Clone, Debug)]
pub(super) struct Region<const FLUSHES: bool>(Arc<Mapped>);

/// Creates the file, resident in memory and mapped.
pub(super) fn create(path: &Path, len: u64) -> io::Result<Arc<Mapped>> {
    let len = len.next_multiple_of(PAGE);
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len)?;
    let mapped = Mapped::new(file)?;
    (0..len).step_by(PAGE as usize).for_each(|page| mapped.store(page, 0));
    Ok(Arc::new(mapped))
}

impl<const FLUSHES: bool> Region<FLUSHES> {
    pub(super) fn new(mapped: &Arc<Mapped>) -> Self {
        Region(Arc::clone(mapped))
    }
}

impl<const FLUSHES: bool> Memory for Region<FLUSHES> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        self.0.grow(len)
    }

    #[inline(always)]
    fn load(&self, at: u64) -> u64 {
        self.0.load(at)
    }

    #[inline(always)]
    fn store(&self, at: u64, word: u64) {
        self.0.store(at, word);
    }

    #[inline(always)]
    fn read(&self, at: u64, into: &mut [u8]) {
        self.0.read(at, into);
    }

    #[inline(always)]
    fn write(&self, at: u64, bytes: &[u8]) {
        self.0.write(at, bytes);
    }

    #[inline(always)]
    fn write_back(&self, at: u64, len: u64) {
        if FLUSHES {
            self.0.write_back(at, len);
        }
    }

    #[inline(always)]
    fn put(&self, at: u64, bytes: &[u8]) {
        if FLUSHES {
            self.0.put(at, bytes);
        } else {
            self.0.write(at, bytes);
        }
    }

    #[inline(always)]
    fn put_headed(&self, at: u64, head: [u64; 2], body: &[u8]) {
        if FLUSHES {
            self.0.put_headed(at, head, body);
        } else {
            store_headed(&*self.0, at, head, body);
        }
    }

    #[inline(always)]
    fn expect_put(&self, at: u64, len: u64) {
        if FLUSHES {
            self.0.expect_put(at, len);
        }
    }

    #[inline(always)]
    fn fence(&self) {
        if FLUSHES {
            self.0.fence();
        }
    }

    fn settle(&self) -> io::Result<()> {
        self.0.settle()
    }
}
