//! Reads a file from one end to the other before it is asked for, past the page cache and on a thread of its own.
//!
//! So the device is busy while what has come is looked at, and the memory that is read into is used again: the first
//! touch of memory, in buffers and in the page cache, costs more CPU time than all else that a start does with a ring.
//! Whoever asks for something else than what comes next has to read that without it.

use std::fs::File as OsFile;
use std::io::Result as IoResult;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};

use bytes::Bytes;

use super::aligned::AlignedBuffer;

/// Chunks that wait to be asked for, beside the one that is being read.
const WAITING_MAX: usize = 2;

/// A file that is being read, in chunks of one length; behind its end it begins again.
pub(super) struct Ahead {
    chunks: Receiver<Chunk>,
    /// Offset of the next chunk.
    next: u64,
}

/// Part of the file; its memory goes back to the thread that reads.
struct Chunk {
    buffer: AlignedBuffer,
    len: usize,
    /// Offset of the one behind it.
    next: u64,
    home: Sender<AlignedBuffer>,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // Nobody takes it where the reading has ended.
        let _ = self.home.send(std::mem::take(&mut self.buffer));
    }
}

impl Ahead {
    /// Begins to read a file that is opened past the page cache. `None` where it ends before `offset`, or where the
    /// system gives no thread.
    pub(super) fn start(file: OsFile, offset: u64, len: usize) -> Option<Ahead> {
        let end = file.metadata().ok()?.len();
        if offset >= end {
            return None;
        }
        let (sender, chunks) = mpsc::sync_channel(WAITING_MAX);
        let read = move || {
            // Who asks for what cannot be read reads it again, and is told why.
            let _ = read_on(&file, offset, len, end, &sender);
        };
        std::thread::Builder::new().name("read ahead".into()).spawn(read).ok()?;
        Some(Ahead { chunks, next: offset })
    }

    /// The next chunk, if that is what is asked for.
    pub(super) fn take(&mut self, offset: u64, len: usize) -> Option<Bytes> {
        if offset != self.next {
            return None;
        }
        let chunk = self.chunks.recv().ok().filter(|chunk| chunk.len == len)?;
        self.next = chunk.next;
        Some(Bytes::from_owner(chunk))
    }
}

/// Reads until nobody takes the chunks.
fn read_on(
    file: &OsFile,
    mut offset: u64,
    len: usize,
    end: u64,
    chunks: &SyncSender<Chunk>,
) -> IoResult<()> {
    let (home, used) = mpsc::channel::<AlignedBuffer>();
    loop {
        let mut buffer = used.try_recv().unwrap_or_default();
        let len = end.saturating_sub(offset).min(len as u64) as usize;
        file.read_exact_at(buffer.room(len), offset)?;
        offset += len as u64;
        if offset >= end {
            offset = 0;
        }
        if chunks.send(Chunk { buffer, len, next: offset, home: home.clone() }).is_err() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_come_in_order_and_begin_again_behind_the_end() {
        let path = std::env::temp_dir().join(format!("palimpsest-ahead-{}", std::process::id()));
        let content: Vec<u8> = (0..10_000_u32).map(|i| i as u8 ^ (i >> 8) as u8).collect();
        std::fs::write(&path, &content).expect("the temporary directory is writable");
        let open = || OsFile::open(&path).expect("it was just written");
        let mut ahead = Ahead::start(open(), 4096, 4096).expect("it is long enough");
        let mut held = Vec::new(); // what is not let go does not keep the rest from coming
        for (offset, len) in [(4096, 4096), (8192, 1808), (0, 4096), (4096, 4096), (8192, 1808)] {
            let chunk = ahead.take(offset, len).expect("it is the next one");
            assert_eq!(chunk, content[offset as usize..][..len]);
            held.push(chunk);
        }
        assert!(ahead.take(4096, 4096).is_none(), "that is not the next one");
        assert!(ahead.take(0, 100).is_none(), "nor that");
        assert!(Ahead::start(open(), 10_000, 4096).is_none());
        std::fs::remove_file(&path).expect("it is there");
    }
}
