//! A stream that is written by a thread of its own, from a bounded queue.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use node::events::LINES_DROPPED;
use rustix::event::{PollFd, PollFlags, poll};

/// Lines that wait to be written.
const QUEUE_MAX: usize = 1024;
/// Bytes of a line; a longer one is cut.
const LINE_LEN_MAX: usize = 8 << 10;
/// Between two lines that report dropped lines.
const REPORT_EVERY: Duration = Duration::from_secs(1);
const FLUSH_POLL: Duration = Duration::from_millis(2);

pub(super) struct Outlet {
    /// `None` if the thread could not be started.
    sender: Option<SyncSender<Vec<u8>>>,
    queued: AtomicU64,
    done: Arc<AtomicU64>,
}

impl Outlet {
    pub(super) fn new(name: &str, stream: BorrowedFd<'_>) -> Outlet {
        let done = Arc::new(AtomicU64::new(0));
        let sender = stream.try_clone_to_owned().ok().and_then(|owned| {
            let (sender, receiver) = sync_channel(QUEUE_MAX);
            let writer = Writer { file: File::from(owned), is_torn: false, done: done.clone() };
            let thread = std::thread::Builder::new().name(name.into()).stack_size(256 << 10);
            thread.spawn(move || writer.run(&receiver)).ok().map(|_| sender)
        });
        Outlet { sender, queued: AtomicU64::new(0), done }
    }

    /// Queues a line, or drops it.
    pub(super) fn send(&self, mut line: Vec<u8>) {
        if line.len() > LINE_LEN_MAX {
            line.truncate(LINE_LEN_MAX - 1);
            line.push(b'\n');
        }
        match self.sender.as_ref().map(|sender| sender.try_send(line)) {
            Some(Ok(())) => {
                self.queued.fetch_add(1, Ordering::SeqCst);
            }
            _ => {
                LINES_DROPPED.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Waits until all that was queued before is written or dropped, for `most` at most.
    pub(super) fn flush(&self, most: Duration) {
        let end = Instant::now() + most;
        let queued = self.queued.load(Ordering::SeqCst);
        while self.done.load(Ordering::SeqCst) < queued && Instant::now() < end {
            std::thread::sleep(FLUSH_POLL);
        }
    }
}

struct Writer {
    file: File,
    /// The last line was written in part.
    is_torn: bool,
    done: Arc<AtomicU64>,
}

impl Writer {
    fn run(mut self, lines: &Receiver<Vec<u8>>) {
        let mut reported = 0;
        let mut reported_at: Option<Instant> = None;
        for line in lines {
            if self.write(&line).is_err() {
                LINES_DROPPED.fetch_add(1, Ordering::Relaxed);
                self.done.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            self.done.fetch_add(1, Ordering::SeqCst);
            let dropped = LINES_DROPPED.load(Ordering::Relaxed);
            let is_due = reported_at.is_none_or(|at| at.elapsed() >= REPORT_EVERY);
            if dropped > reported && is_due {
                tracing::warn!(target: "log", lines = dropped - reported, "output was dropped");
                (reported, reported_at) = (dropped, Some(Instant::now()));
            }
        }
    }

    /// Waits until the stream can be written: the queue drops lines meanwhile.
    fn write(&mut self, line: &[u8]) -> std::io::Result<()> {
        if self.is_torn {
            self.write_all(b"\n")?;
        }
        self.write_all(line)
    }

    fn write_all(&mut self, mut rest: &[u8]) -> std::io::Result<()> {
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.is_torn = rest[count - 1] != b'\n';
                    rest = &rest[count..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Another process that has the stream may have made it non-blocking.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::OUT)], None)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn pipe() -> (File, OwnedFd) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        (File::from(OwnedFd::from(reader)), writer.into())
    }

    #[test]
    fn queued_lines_are_written_in_order() {
        let (mut reader, writer) = pipe();
        let outlet = Outlet::new("test", writer.as_fd());
        drop(writer);
        (0..100).for_each(|number| outlet.send(format!("{number}\n").into_bytes()));
        outlet.flush(LIMIT);
        drop(outlet);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        let expected: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_pipe_without_a_reader_drops_and_never_blocks() {
        let (reader, writer) = pipe();
        drop(reader);
        let outlet = Outlet::new("test", writer.as_fd());
        let before = LINES_DROPPED.load(Ordering::Relaxed);
        outlet.send(b"lost\n".to_vec());
        outlet.flush(LIMIT);
        assert!(LINES_DROPPED.load(Ordering::Relaxed) > before);
    }

    #[test]
    fn a_full_pipe_drops_beyond_the_queue() {
        let (mut reader, writer) = pipe();
        let outlet = Outlet::new("test", writer.as_fd());
        drop(writer);
        let before = LINES_DROPPED.load(Ordering::Relaxed);
        let line = [b"x".repeat(1023), vec![b'\n']].concat();
        (0..2 * QUEUE_MAX).for_each(|_| outlet.send(line.clone()));
        assert!(LINES_DROPPED.load(Ordering::Relaxed) > before);
        outlet.flush(Duration::from_millis(10));
        drop(outlet);
        let mut text = Vec::new();
        reader.read_to_end(&mut text).expect("bytes");
        assert!(text.len() >= QUEUE_MAX * 1024 && text.len() % 1024 == 0, "{}", text.len());
    }
}
