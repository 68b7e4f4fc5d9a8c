//! Ring batches through io_uring (Linux 5.6 and later): submitted without waiting, by threads that
//! do not block elsewhere.
//!
//! At most one is under way. The file is not registered: a ring that has it keeps it, and its lock,
//! for 20 to 30 ms after the process was killed, and the next process waits for that lock.

#![allow(unsafe_code)]

use std::io::Error;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use io_uring::squeue::Flags;
use io_uring::{IoUring, Probe, opcode, types};
use rustix::io::Errno;

use crate::disk::aligned::{AlignedBuffer, is_aligned};
use crate::disk::direct::DirectFile;
use crate::disk::io::{Done, Write};

/// A ring batch is one write, or two where it wraps.
const PARTS_MAX: usize = 2;

/// Bytes that the system may still read, until the process ends.
static LEFT: Mutex<Vec<Write>> = Mutex::new(Vec::new());

pub(super) struct Uring {
    ring: IoUring,
    stripe: Option<Stripe>,
    /// The system takes no writes any more, and does not report the end of those that it has.
    is_broken: bool,
    /// How writes are submitted; tests have the system put them aside, as it does where a write
    /// would have to wait.
    flags: Flags,
}

/// The ring batch under way.
struct Stripe {
    id: u64,
    /// Kept as they are until the system has done with them.
    parts: Vec<Write>,
    /// Parts that were handed over and have not completed.
    pending: usize,
    failure: Option<String>,
}

impl Uring {
    /// `None` if the system has no io_uring, or does not allow it.
    pub(super) fn new() -> Option<Uring> {
        let ring = ring().ok()?;
        // Older systems have rings, but not these writes.
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).ok()?;
        let is_supported = probe.is_supported(opcode::Write::CODE);
        let flags = Flags::empty();
        is_supported.then_some(Uring { ring, stripe: None, is_broken: false, flags })
    }

    /// Becomes readable when something has completed.
    pub(super) fn fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    /// True while a ring batch is under way.
    pub(super) fn has_stripe(&self) -> bool {
        self.stripe.is_some()
    }

    /// Begins to write a ring batch. Where the system does not take it, that is how it ends: see
    /// [`Uring::is_broken`].
    ///
    /// # Panics
    /// If one is under way, or this one has more parts than a ring batch.
    pub(super) fn submit(&mut self, file: &DirectFile, id: u64, mut parts: Vec<Write>) {
        assert!(self.stripe.is_none(), "one batch is under way at a time");
        assert!(parts.len() <= PARTS_MAX, "a batch is written in at most two parts");
        for part in parts.iter_mut().filter(|part| !is_aligned(&part.bytes)) {
            let mut copy = AlignedBuffer::default();
            copy.extend_from_slice(&part.bytes);
            part.bytes = copy.into_bytes();
        }
        let Stripe { parts, pending, .. } =
            self.stripe.insert(Stripe { id, parts, pending: 0, failure: None });
        for (index, Write { offset, bytes, .. }) in parts.iter().enumerate() {
            let fd = types::Fd(file.fd());
            let entry = opcode::Write::new(fd, bytes.as_ptr(), bytes.len() as u32).offset(*offset);
            let entry = entry.build().flags(self.flags).user_data(index as u64);
            // SAFETY: the parts live in `self` until the system has completed this write: `submit`
            // refuses to run while a batch is under way, `reap` gives the parts away when all are
            // completed, and dropping waits for that. If the system does not tell, `break_off`
            // keeps them for good. `Bytes` do not change.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("the queue is empty between batches and has room for all parts");
            *pending += 1;
        }
        self.enter(0);
    }

    /// True from when the system has taken no more: the ring batch of that time has failed, and may
    /// still be written.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Hands over the entries that are left, and waits for `count` completions, or until it is
    /// interrupted.
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

    /// Ends the ring batch under way. The system may read it for as long as it likes.
    fn break_off(&mut self, error: &Error) {
        self.is_broken = true;
        let parts = self.stripe.iter().flat_map(|stripe| stripe.parts.iter().cloned());
        LEFT.lock().unwrap_or_else(PoisonError::into_inner).extend(parts);
        if let Some(stripe) = &mut self.stripe {
            stripe.pending = 0;
            stripe.failure = Some(format!("the system takes no writes any more: {error}"));
        }
    }

    /// The ring batch that has completed, if one has, and its parts.
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
                    // It did not fail: a second write hides no failure.
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

    /// Waits for the ring batch under way; false when there is none.
    pub(super) fn wait(&mut self) -> bool {
        let pending = self.stripe.as_ref().map_or(0, |stripe| stripe.pending);
        while !self.is_broken && self.ring.completion().len() < pending {
            self.enter(pending);
        }
        pending > 0
    }

    /// From now on the system takes no writes.
    #[cfg(test)]
    pub(super) fn break_down(&self) {
        let null = std::fs::File::open("/dev/null").expect("it is there");
        // SAFETY: the descriptor is this ring's, which closes its replacement; entries that were
        // handed over have completed or keep their memory.
        let replaced = unsafe { libc::dup2(null.as_raw_fd(), self.fd()) };
        assert_eq!(replaced, self.fd());
    }
}

/// Where the system can do that (Linux 5.19), a completion does not interrupt the thread that
/// submitted while it runs: that is soon in the system anyway.
fn ring() -> std::io::Result<IoUring> {
    let entries = PARTS_MAX as u32;
    IoUring::builder().setup_coop_taskrun().build(entries).or_else(|_| IoUring::new(entries))
}

/// The descriptor of the ring that `owner` keeps open: it shares a store that keeps its ring.
pub(super) fn borrow<T>(fd: RawFd, _owner: &T) -> BorrowedFd<'_> {
    // SAFETY: the owner shares the store. A store that was given a ring keeps it, and so its
    // descriptor, until the last of its owners is gone.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

impl Drop for Uring {
    fn drop(&mut self) {
        self.wait();
    }
}

/// An error that does not concern the device. The system cancels deferred writes when the thread
/// ends that submitted them.
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
        // Elsewhere helpers write the batches.
        if let (Some(file), Some(mut uring)) = (DirectFile::open(&path), Uring::new()) {
            uring.flags = Flags::ASYNC;
            for round in 0..100_u8 {
                // One that is copied, and one that goes from where it is, but for the part that is
                // not aligned there.
                let len = if round % 2 == 0 { 7 } else { 85 } * SECTOR;
                let content = |at: usize| (0..len).map(move |i| ((at + i) / 100) as u8 ^ round);
                let mut stripe = AlignedBuffer::default();
                let parts = content(0).chain(content(len)).collect::<Vec<u8>>();
                stripe.extend_from_slice(&parts);
                let mut end = stripe.into_bytes();
                let start = end.split_off(len);
                let write = |at, bytes| Write { file: File::Ring, offset: at as u64, bytes };
                // The memory is not shared.
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
            // A ring that is dropped waits for its writes.
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
