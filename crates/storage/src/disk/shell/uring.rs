//! Stripes through io_uring (Linux 5.6 and later): submitted without waiting, by threads that do not block elsewhere.
//!
//! At most one stripe is under way, so there is one buffer, and it is the system's until the stripe has completed. It is
//! registered, where the system's limit of locked memory allows that: the system then need not find its pages for each
//! write. The file is not: a ring that has registered it keeps it, and its lock, for 20 to 30 ms after the process was
//! killed, and the next one waits for that lock.

#![allow(unsafe_code)]

use std::io::Error;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use io_uring::squeue::Flags;
use io_uring::{IoUring, Probe, opcode, types};
use rustix::io::Errno;

use super::Pump;
use crate::disk::direct::{ALIGNMENT, AlignedBuffer, DirectFile};
use crate::disk::io::{Done, Write};

/// A stripe is one write, or two where it wraps.
const PARTS_MAX: usize = 2;

pub(super) struct Uring {
    ring: IoUring,
    /// Never grows: the system knows where it is.
    buffer: AlignedBuffer,
    buffer_len: usize,
    is_registered: bool,
    parts: [Part; PARTS_MAX],
    stripe: Option<Stripe>,
    /// How writes are submitted; tests have the system put them aside, as it does where a write would have to wait.
    flags: Flags,
}

/// A run of the buffer, and where it goes.
#[derive(Clone, Copy, Default)]
struct Part {
    start: usize,
    len: usize,
    offset: u64,
}

/// The stripe under way.
struct Stripe {
    id: u64,
    /// Parts that the system has.
    pending: usize,
    failure: Option<String>,
}

impl Uring {
    /// For stripes of at most so many bytes. `None` where the system has no such thing, or does not allow it.
    pub(super) fn new(stripe_len_max: usize) -> Option<Uring> {
        let ring = ring().ok()?;
        // Older systems have rings, but not these writes.
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).ok()?;
        if !probe.is_supported(opcode::Write::CODE) {
            return None;
        }
        let buffer_len = stripe_len_max + (PARTS_MAX - 1) * ALIGNMENT;
        let mut buffer = AlignedBuffer::default();
        let room = buffer.room(buffer_len);
        let whole = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        // SAFETY: the buffer lives as long as the ring, is not moved or grown, and is written by nobody while a write
        // from it is under way, see `submit`.
        let registered = unsafe { ring.submitter().register_buffers(&[whole]) };
        Some(Uring {
            ring,
            buffer,
            buffer_len,
            is_registered: registered.is_ok(),
            parts: Default::default(),
            stripe: None,
            flags: Flags::empty(),
        })
    }

    /// Becomes readable when something has completed.
    pub(super) fn fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    /// True while a stripe is under way.
    pub(super) fn has_stripe(&self) -> bool {
        self.stripe.is_some()
    }

    /// Begins to write a stripe.
    ///
    /// # Panics
    /// If one is under way, or this one has more parts than a stripe.
    pub(super) fn submit(&mut self, file: &DirectFile, id: u64, writes: &[Write]) {
        assert!(self.stripe.is_none(), "one stripe is under way at a time");
        assert!(writes.len() <= PARTS_MAX, "a stripe is written in at most two parts");
        let room = self.buffer.room(self.buffer_len);
        let mut start = 0;
        for (index, write) in writes.iter().enumerate() {
            let len = write.bytes.len();
            let part = Part { start, len, offset: write.offset };
            let bytes = &mut room[start..start + len];
            bytes.copy_from_slice(&write.bytes);
            let (file, bytes, len) = (types::Fd(file.fd()), bytes.as_ptr(), len as u32);
            let entry = match self.is_registered {
                true => opcode::WriteFixed::new(file, bytes, len, 0).offset(part.offset).build(),
                false => opcode::Write::new(file, bytes, len).offset(part.offset).build(),
            };
            let entry = entry.flags(self.flags).user_data(index as u64);
            // SAFETY: the buffer lives in `self` and is neither moved, grown nor written before the system has completed
            // this write: `submit` refuses to run while a stripe is under way, and dropping waits for it.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("the queue is empty between stripes and has room for all parts");
            self.parts[index] = part;
            start = (start + part.len).next_multiple_of(ALIGNMENT);
        }
        let pending = writes.len();
        self.stripe = Some(Stripe { id, pending, failure: None });
        self.enter(0);
    }

    /// Hands over what has not been handed over, and waits for `count` completions.
    fn enter(&mut self, count: usize) {
        loop {
            match self.ring.submit_and_wait(count) {
                Ok(_) if self.ring.submission().is_empty() => return,
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => panic!("the system does not take writes any more: {error}"),
            }
        }
    }

    /// The stripe that has completed, if one has.
    pub(super) fn reap(&mut self, file: &DirectFile) -> Option<Done> {
        let stripe = self.stripe.as_mut()?;
        while let Some(completion) = self.ring.completion().next() {
            let part = self.parts[completion.user_data() as usize];
            let mut write_again = || {
                let bytes = &self.buffer.room(self.buffer_len)[part.start..part.start + part.len];
                file.write_aligned(bytes, part.offset)
            };
            stripe.pending -= 1;
            let result = match completion.result() {
                count if count < 0 => {
                    let error = Error::from_raw_os_error(-count);
                    // It did not fail: writing once more makes nobody believe a write that did.
                    if is_passing(&error) { write_again() } else { Err(error) }
                }
                count if count as usize == part.len => Ok(()),
                _ => write_again(),
            };
            if let Err(error) = result {
                stripe.failure.get_or_insert(format!("cannot write the file `ring`: {error}"));
            }
        }
        if stripe.pending > 0 {
            return None;
        }
        let Stripe { id, failure, .. } = self.stripe.take()?;
        Some(Done { id, result: failure.map_or(Ok(bytes::Bytes::new()), Err) })
    }

    /// Waits for the stripe under way; false when there is none.
    pub(super) fn wait(&mut self) -> bool {
        let pending = self.stripe.as_ref().map_or(0, |stripe| stripe.pending);
        if pending > 0 {
            self.enter(pending);
        }
        pending > 0
    }
}

/// Where the system can do that (Linux 5.19), a completion does not interrupt the thread that submitted while it runs: that
/// is soon in the system anyway.
fn ring() -> std::io::Result<IoUring> {
    let entries = PARTS_MAX as u32;
    IoUring::builder().setup_coop_taskrun().build(entries).or_else(|_| IoUring::new(entries))
}

/// The descriptor of the ring that a pump's store has.
pub(super) fn borrow(fd: RawFd, _pump: &Pump) -> BorrowedFd<'_> {
    // SAFETY: the pump shares the store, and a store that was given a ring keeps it, and so its descriptor, until the
    // last of those who share it is gone.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

impl Drop for Uring {
    fn drop(&mut self) {
        self.wait();
    }
}

/// Says nothing about the device. The system cancels what it had put aside when the thread ends that submitted it.
fn is_passing(error: &Error) -> bool {
    use std::io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), Interrupted | WouldBlock)
        || error.raw_os_error() == Some(Errno::CANCELED.raw_os_error())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::disk::io::File;
    use crate::disk::stripe::SECTOR;

    #[test]
    fn a_stripe_outlives_the_thread_that_submitted_it() {
        let path = std::env::temp_dir().join(format!("palimpsest-uring-{}", std::process::id()));
        std::fs::write(&path, vec![0; 64 * SECTOR]).expect("the temporary directory is writable");
        // Elsewhere there is nothing to show: helpers write the stripes.
        if let (Some(file), Some(mut uring)) = (DirectFile::open(&path), Uring::new(16 * SECTOR)) {
            uring.flags = Flags::ASYNC;
            for round in 0..100_u8 {
                uring.is_registered &= round < 50;
                let write = |at: usize| Write {
                    file: File::Ring,
                    offset: (at * SECTOR) as u64,
                    bytes: Bytes::from(vec![round; 7 * SECTOR]),
                };
                let writes = [write(56), write(0)];
                std::thread::scope(|scope| {
                    scope.spawn(|| uring.submit(&file, u64::from(round), &writes));
                });
                uring.wait();
                let done = uring.reap(&file).expect("it has been waited for");
                assert_eq!((done.id, done.result), (u64::from(round), Ok(Bytes::new())));
                let there = std::fs::read(&path).expect("it can be read");
                assert!(
                    [0, 56].iter().all(|at| there[at * SECTOR..][..7 * SECTOR] == *writes[0].bytes)
                );
            }
        }
        std::fs::remove_file(&path).expect("it is there");
    }
}
