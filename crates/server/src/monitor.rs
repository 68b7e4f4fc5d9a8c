//! `MONITOR`: a client sees the commands of all clients of this node.
//!
//! A request costs one load while no client monitors. Otherwise its line goes into a bounded queue
//! per monitor. A monitor that reads too slowly finds its queue full and is disconnected.

use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, RwLock};

use base::Nanos;
use bytes::Bytes;

/// Lines that may wait for a monitor.
const LINES_MAX: usize = 16 << 10;
/// Bytes of lines that may wait for a monitor.
const LINES_LEN_MAX: usize = 32 << 20;
/// How often a monitor looks for lines.
pub(crate) const LOOK_EVERY: Nanos = Nanos::from_millis(10);

/// The monitors of a node.
#[derive(Default)]
pub(crate) struct Monitors {
    count: AtomicUsize,
    queues: RwLock<Vec<Arc<Queue>>>,
}

struct Queue {
    lines: SyncSender<Bytes>,
    len: AtomicUsize,
    is_overrun: AtomicBool,
}

/// A monitor's own end.
pub(crate) struct Monitor {
    monitors: Arc<Monitors>,
    queue: Arc<Queue>,
    lines: Receiver<Bytes>,
}

impl Monitors {
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    pub(crate) fn join(self: &Arc<Monitors>) -> Monitor {
        let (sender, lines) = sync_channel(LINES_MAX);
        let queue = Arc::new(Queue {
            lines: sender,
            len: AtomicUsize::new(0),
            is_overrun: AtomicBool::new(false),
        });
        if let Ok(mut queues) = self.queues.write() {
            queues.push(Arc::clone(&queue));
            self.count.store(queues.len(), Relaxed);
        }
        Monitor { monitors: Arc::clone(self), queue, lines }
    }

    /// Shows a command to all monitors.
    pub(crate) fn show(&self, line: &Bytes) {
        let Ok(queues) = self.queues.read() else { return };
        queues.iter().for_each(|queue| queue.put(line));
    }
}

impl Queue {
    fn put(&self, line: &Bytes) {
        let len = self.len.fetch_add(line.len(), Relaxed) + line.len();
        if len > LINES_LEN_MAX || self.lines.try_send(line.clone()).is_err() {
            self.len.fetch_sub(line.len(), Relaxed);
            self.is_overrun.store(true, Relaxed);
        }
    }
}

impl Monitor {
    /// The next line.
    pub(crate) fn next(&self) -> Option<Bytes> {
        let line = self.lines.try_recv().ok()?;
        self.queue.len.fetch_sub(line.len(), Relaxed);
        Some(line)
    }

    /// True once a line was lost because this client reads too slowly.
    pub(crate) fn is_overrun(&self) -> bool {
        self.queue.is_overrun.load(Relaxed)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        if let Ok(mut queues) = self.monitors.queues.write() {
            queues.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
            self.monitors.count.store(queues.len(), Relaxed);
        }
    }
}

/// The line that shows a command of a client, or of a script.
pub(crate) fn line(unix_micros: u64, database: u8, from: &dyn Display, args: &[&[u8]]) -> Bytes {
    let (secs, micros) = (unix_micros / 1_000_000, unix_micros % 1_000_000);
    let mut line = format!("+{secs}.{micros:06} [{database} {from}]");
    for arg in args {
        line.push_str(" \"");
        arg.iter().for_each(|&byte| put_byte(&mut line, byte));
        line.push('"');
    }
    line.push_str("\r\n");
    line.into()
}

fn put_byte(line: &mut String, byte: u8) {
    match byte {
        b'\\' | b'"' => line.extend(['\\', char::from(byte)]),
        b'\n' => line.push_str("\\n"),
        b'\r' => line.push_str("\\r"),
        b'\t' => line.push_str("\\t"),
        7 => line.push_str("\\a"),
        8 => line.push_str("\\b"),
        b' '..=b'~' => line.push(char::from(byte)),
        _ => {
            let _ = write!(line, "\\x{byte:02x}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn lines_quote_arguments_as_in_redis() {
        let client = SocketAddr::from(([127, 0, 0, 1], 40_098));
        let shown = line(
            1_795_916_264_000_112,
            3,
            &client,
            &[b"SET", b"", b"x y\x00\xff\n\r\t\x07\x08\\\"q\""],
        );
        let expected = concat!(
            "+1795916264.000112 [3 127.0.0.1:40098] \"SET\" \"\" ",
            r#""x y\x00\xff\n\r\t\a\b\\\"q\"""#,
            "\r\n"
        );
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_slow_monitor_is_overrun_and_others_go_on() {
        let monitors = Arc::new(Monitors::default());
        let (slow, fast) = (monitors.join(), monitors.join());
        let line = Bytes::from_static(b"+line\r\n");
        for _ in 0..=LINES_MAX {
            monitors.show(&line);
            assert_eq!(fast.next(), Some(line.clone()));
        }
        assert!(slow.is_overrun() && !fast.is_overrun());
        drop(slow);
        assert!(!monitors.is_empty());
        drop(fast);
        assert!(monitors.is_empty());
    }

    #[test]
    fn long_lines_overrun_a_monitor_sooner() {
        let monitors = Arc::new(Monitors::default());
        let monitor = monitors.join();
        let line = Bytes::from(vec![b'x'; LINES_LEN_MAX / 4]);
        (0..4).for_each(|_| monitors.show(&line));
        assert!(!monitor.is_overrun());
        assert!(monitor.next().is_some());
        (0..2).for_each(|_| monitors.show(&line));
        assert!(monitor.is_overrun());
    }
}
