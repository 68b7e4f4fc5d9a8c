//! The slow log: the last `slowlog-max-len` requests that took `slowlog-log-slower-than` or longer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use base::Nanos;
use base::decimal::parse_i64;
use bytes::Bytes;
use commands::SessionVerb;
use types::Reply;

/// Entries that can be kept: `slowlog-max-len` goes no further.
pub(crate) const LEN_MAX: usize = 1_000_000;
/// Entries that `SLOWLOG GET` shows unless it is told.
const SHOWN: i64 = 10;

pub(crate) struct SlowLog {
    /// Microseconds; a negative number turns the log off.
    slower_than: AtomicI64,
    len_max: AtomicUsize,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    /// The newest first.
    kept: VecDeque<Arc<Entry>>,
    next_id: i64,
}

/// A request that was slow.
pub(crate) struct Entry {
    pub unix_secs: u64,
    pub time: Nanos,
    pub words: Vec<Bytes>,
    /// Address and port of the client.
    pub client: String,
    /// As the client called itself.
    pub name: String,
}

impl Default for SlowLog {
    fn default() -> SlowLog {
        SlowLog {
            slower_than: AtomicI64::new(10_000),
            len_max: AtomicUsize::new(128),
            entries: Mutex::default(),
        }
    }
}

impl SlowLog {
    /// The shortest time that is logged, if any is.
    pub(crate) fn threshold(&self) -> Option<Nanos> {
        let micros = u64::try_from(self.slower_than.load(Relaxed)).ok()?;
        (self.len_max.load(Relaxed) > 0).then_some(Nanos(micros.saturating_mul(1_000)))
    }

    pub(crate) fn slower_than(&self) -> i64 {
        self.slower_than.load(Relaxed)
    }

    pub(crate) fn len_max(&self) -> usize {
        self.len_max.load(Relaxed)
    }

    pub(crate) fn set_slower_than(&self, micros: i64) {
        self.slower_than.store(micros, Relaxed);
    }

    pub(crate) fn set_len_max(&self, len: usize) {
        self.len_max.store(len.min(LEN_MAX), Relaxed);
    }

    pub(crate) fn push(&self, entry: Entry) {
        let len_max = self.len_max();
        if let Ok(mut entries) = self.entries.lock() {
            entries.next_id += 1;
            entries.kept.push_front(Arc::new(entry));
            entries.kept.truncate(len_max);
        }
    }

    fn len(&self) -> usize {
        self.entries.lock().map_or(0, |entries| entries.kept.len())
    }

    fn reset(&self) {
        if let Ok(mut entries) = self.entries.lock() {
            entries.kept.clear();
        }
    }

    /// The newest entries with their numbers.
    fn newest(&self, count: usize) -> Vec<(i64, Arc<Entry>)> {
        let Ok(entries) = self.entries.lock() else { return Vec::new() };
        let ids = (0..entries.next_id).rev();
        ids.zip(entries.kept.iter().take(count).cloned()).collect()
    }

    /// The reply to a subcommand of `SLOWLOG`, or the text of an error.
    pub(crate) fn reply(&self, verb: SessionVerb, args: &[&[u8]]) -> Result<Reply, String> {
        Ok(match verb {
            SessionVerb::SlowlogLen => Reply::Integer(self.len() as i64),
            SessionVerb::SlowlogReset => {
                self.reset();
                Reply::OK
            }
            _ => {
                let entries = self.newest(wanted(args)?);
                Reply::array(entries.iter().map(|(id, entry)| shown(*id, entry)))
            }
        })
    }
}

/// How many entries `SLOWLOG GET [count]` wants.
fn wanted(args: &[&[u8]]) -> Result<usize, String> {
    let count = match args {
        [_, _] => SHOWN,
        [_, _, count] => parse_i64(count)
            .filter(|count| *count >= -1)
            .ok_or_else(|| "ERR count should be greater than or equal to -1".to_string())?,
        _ => {
            let subcommand = String::from_utf8_lossy(args[1]);
            return Err(format!(
                "ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try SLOWLOG HELP."
            ));
        }
    };
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

fn shown(id: i64, entry: &Entry) -> Reply {
    Reply::array([
        Reply::Integer(id),
        Reply::Integer(entry.unix_secs as i64),
        Reply::Integer(entry.time.as_micros() as i64),
        Reply::array(entry.words.iter().cloned().map(Reply::Bulk)),
        Reply::copy(entry.client.as_bytes()),
        Reply::copy(entry.name.as_bytes()),
    ])
}
