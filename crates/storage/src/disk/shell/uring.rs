//! Stripes through io_uring (Linux 5.6 and later): submitted without waiting, by threads that do not block elsewhere.
//!
//! At most one stripe is under way. A short one is copied to a buffer that is the system's until the stripe has completed,
//! and is registered, where the system's limit of locked memory allows that: the system then need not find its pages for
//! each write. For a long one that costs less than a copy. The file is not registered: a ring that has it keeps it, and its
//! lock, for 20 to 30 ms after the process was killed, and the next one waits for that lock.

#![allow(unsafe_code)]

use std::io::Error;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use io_uring::squeue::Flags;
use io_uring::{IoUring, Probe, opcode, types};
use rustix::io::Errno;

use super::Pump;
use crate::disk::aligned::{ALIGNMENT, AlignedBuffer, is_aligned};
use crate::disk::direct::DirectFile;
use crate::disk::io::{Done, Write};

/// A stripe is one write, or two where it wraps.
const PARTS_MAX: usize = 2;

/// Bytes of a part, at most, that is rather copied than written from where it is.
const COPIED_MAX: usize = 32 << 10;

/// What the system may still read, until the process ends.
static LEFT: Mutex<Vec<(AlignedBuffer, Vec<Write>)>> = Mutex::new(Vec::new());

pub(super) struct Uring {
    ring: IoUring,
    /// Never grows: the system knows where it is.
    buffer: AlignedBuffer,
    is_registered: bool,
    stripe: Option<Stripe>,
    /// The system takes nothing any more, and does not say what becomes of what it has.
    is_broken: bool,
    /// How writes are submitted; tests have the system put them aside, as it does where a write would have to wait.
    flags: Flags,
}

/// The stripe under way.
struct Stripe {
    id: u64,
    /// Kept as they are until the system has done with them.
    parts: Vec<Write>,
    /// Parts that were handed over and have not completed.
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
            is_registered: registered.is_ok(),
            stripe: None,
            is_broken: false,
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

    /// Begins to write a stripe. Where the system does not take it, that is how the stripe ends: see [`Uring::is_broken`].
    ///
    /// # Panics
    /// If one is under way, or this one has more parts than a stripe.
    pub(super) fn submit(&mut self, file: &DirectFile, id: u64, parts: Vec<Write>) {
        assert!(self.stripe.is_none(), "one stripe is under way at a time");
        assert!(parts.len() <= PARTS_MAX, "a stripe is written in at most two parts");
        let Stripe { parts, pending, .. } =
            self.stripe.insert(Stripe { id, parts, pending: 0, failure: None });
        let mut start = 0;
        for (index, part) in parts.iter().enumerate() {
            let (fd, len) = (types::Fd(file.fd()), part.bytes.len());
            let entry = if len > COPIED_MAX && is_aligned(&part.bytes) {
                opcode::Write::new(fd, part.bytes.as_ptr(), len as u32).offset(part.offset).build()
            } else {
                let copy = &mut self.buffer[start..start + len];
                copy.copy_from_slice(&part.bytes);
                start = (start + len).next_multiple_of(ALIGNMENT);
                let (copy, len) = (copy.as_ptr(), len as u32);
                match self.is_registered {
                    true => opcode::WriteFixed::new(fd, copy, len, 0).offset(part.offset).build(),
                    false => opcode::Write::new(fd, copy, len).offset(part.offset).build(),
                }
            };
            let entry = entry.flags(self.flags).user_data(index as u64);
            // SAFETY: the buffer and the parts live in `self`, and are neither moved, grown nor written before the system
            // has completed this write: `submit` refuses to run while a stripe is under way, `reap` gives the parts away
            // when all are completed, and dropping waits for that; where the system does not tell, `break_off` keeps them for
            // good. What is in `Bytes` nobody changes.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("the queue is empty between stripes and has room for all parts");
            *pending += 1;
        }
        self.enter(0);
    }

    /// True from when the system has taken no more: the stripe of that time has failed, and may still be written.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Hands over what has not been handed over, and waits for `count` completions, or until it is interrupted.
    fn enter(&mut self, count: usize) {
        while !self.is_broken {
            match self.ring.submit_and_wait(count) {
                Ok(_) if self.ring.submission().is_empty() => return,
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => self.break_off(&error),
            }
        }
    }

    /// Ends the stripe under way. The system may read it for as long as it likes.
    fn break_off(&mut self, error: &Error) {
        self.is_broken = true;
        let buffer = std::mem::take(&mut self.buffer);
        let parts = self.stripe.as_ref().map_or_else(Vec::new, |stripe| stripe.parts.clone());
        LEFT.lock().unwrap_or_else(PoisonError::into_inner).push((buffer, parts));
        if let Some(stripe) = &mut self.stripe {
            stripe.pending = 0;
            stripe.failure = Some(format!("the system takes no writes any more: {error}"));
        }
    }

    /// The stripe that has completed, if one has, and its parts.
    pub(super) fn reap(&mut self, file: &DirectFile) -> Option<(Done, Vec<Write>)> {
        let stripe = self.stripe.as_mut()?;
        while !self.is_broken
            && let Some(completion) = self.ring.completion().next()
        {
            let part = &stripe.parts[completion.user_data() as usize];
            let write_again = || file.write(&part.bytes, part.offset);
            stripe.pending -= 1;
            let result = match completion.result() {
                count if count < 0 => {
                    let error = Error::from_raw_os_error(-count);
                    // It did not fail: writing once more makes nobody believe a write that did.
                    if is_passing(&error) { write_again() } else { Err(error) }
                }
                count if count as usize == part.bytes.len() => Ok(()),
                _ => write_again(),
            };
            if let Err(error) = result {
                stripe.failure.get_or_insert(format!("cannot write the file `ring`: {error}"));
            }
        }
        if stripe.pending > 0 {
            return None;
        }
        let Stripe { id, parts, failure, .. } = self.stripe.take()?;
        Some((Done { id, result: failure.map_or(Ok(bytes::Bytes::new()), Err) }, parts))
    }

    /// Waits for the stripe under way; false when there is none.
    pub(super) fn wait(&mut self) -> bool {
        let pending = self.stripe.as_ref().map_or(0, |stripe| stripe.pending);
        while !self.is_broken && self.ring.completion().len() < pending {
            self.enter(pending);
        }
        pending > 0
    }

    /// From now on the system takes nothing.
    #[cfg(test)]
    pub(super) fn break_down(&self) {
        let null = std::fs::File::open("/dev/null").expect("it is there");
        // SAFETY: the descriptor is this ring's, which closes what it stands for; what was handed over has completed or
        // keeps its memory.
        let replaced = unsafe { libc::dup2(null.as_raw_fd(), self.fd()) };
        assert_eq!(replaced, self.fd());
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
        const END: usize = 256;
        let path = std::env::temp_dir().join(format!("palimpsest-uring-{}", std::process::id()));
        std::fs::write(&path, vec![0; END * SECTOR]).expect("the temporary directory is writable");
        // Elsewhere there is nothing to show: helpers write the stripes.
        if let (Some(file), Some(mut uring)) = (DirectFile::open(&path), Uring::new(END * SECTOR)) {
            uring.flags = Flags::ASYNC;
            for round in 0..100_u8 {
                uring.is_registered &= round < 50;
                // One that is copied, and one that goes from where it is, but for the part that is not aligned there.
                let len = if round % 2 == 0 { 7 } else { 85 } * SECTOR;
                let content = |at: usize| (0..len).map(move |i| ((at + i) / 100) as u8 ^ round);
                let mut stripe = AlignedBuffer::default();
                let parts = content(0).chain(content(len)).collect::<Vec<u8>>();
                stripe.extend_from_slice(&parts);
                let mut end = stripe.into_bytes();
                let start = end.split_off(len);
                let write = |at, bytes| Write { file: File::Ring, offset: at as u64, bytes };
                // Nobody else keeps them.
                let writes = vec![write(END * SECTOR - len, end), write(0, start)];
                std::thread::scope(|scope| {
                    scope.spawn(|| uring.submit(&file, u64::from(round), writes));
                });
                assert!(uring.wait());
                let (done, written) = uring.reap(&file).expect("it has been waited for");
                assert!(!uring.wait());
                assert_eq!((done.id, done.result), (u64::from(round), Ok(Bytes::new())));
                assert_eq!([&written[0].bytes[..], &written[1].bytes].concat(), parts);
                let there = std::fs::read(&path).expect("it can be read");
                assert!(
                    there[END * SECTOR - len..] == parts[..len] && there[..len] == parts[len..]
                );
            }
            // A ring that is dropped waits for what it has.
            let parts = [0, 128].map(|at| Write {
                file: File::Ring,
                offset: (at * SECTOR) as u64,
                bytes: Bytes::from(vec![101; 128 * SECTOR]),
            });
            uring.submit(&file, 100, parts.into());
            drop(uring);
            assert!(std::fs::read(&path).expect("it can be read") == [101; END * SECTOR]);
        }
        std::fs::remove_file(&path).expect("it is there");
    }
}
