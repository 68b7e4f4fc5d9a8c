//! Error replies by their first word, for `INFO errorstats`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use types::Reply;

/// Words that clients meet often. They are counted without a lock.
const KNOWN: [&str; 12] = [
    "ERR",
    "CLUSTERDOWN",
    "UNKNOWN",
    "LOADING",
    "OOM",
    "NOAUTH",
    "WRONGPASS",
    "WRONGTYPE",
    "TRYAGAIN",
    "ALREADYDONE",
    "NOPROTO",
    "EXECABORT",
];
/// Other words that are counted, as in Redis.
const OTHERS_MAX: usize = 128;
/// Bytes of such a word.
const WORD_LEN_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Errors {
    known: [AtomicU64; KNOWN.len()],
    others: Mutex<BTreeMap<String, u64>>,
    /// Counts at the last reset.
    before: Mutex<BTreeMap<String, u64>>,
}

impl Errors {
    /// Counts a reply that is an error.
    pub(crate) fn note(&self, reply: &Reply) {
        if let Reply::Error(text) = reply {
            self.add(text);
        }
    }

    #[cold]
    fn add(&self, text: &[u8]) {
        let word = text.split(|byte| matches!(byte, b' ' | b'\r' | b'\n')).next();
        let word = word.unwrap_or_default();
        if let Some(at) = KNOWN.iter().position(|known| known.as_bytes() == word) {
            self.known[at].fetch_add(1, Relaxed);
            return;
        }
        let word = String::from_utf8_lossy(&word[..word.len().min(WORD_LEN_MAX)]).into_owned();
        if let Ok(mut others) = self.others.lock()
            && (others.len() < OTHERS_MAX || others.contains_key(&word))
        {
            *others.entry(word).or_default() += 1;
        }
    }

    pub(crate) fn since_start(&self) -> Vec<(String, u64)> {
        self.totals().into_iter().collect()
    }

    pub(crate) fn since_reset(&self) -> Vec<(String, u64)> {
        let before = self.before.lock().map(|before| before.clone()).unwrap_or_default();
        let left = |(word, count): (String, u64)| {
            let count = count.saturating_sub(before.get(&word).copied().unwrap_or(0));
            (count > 0).then_some((word, count))
        };
        self.totals().into_iter().filter_map(left).collect()
    }

    pub(crate) fn reset(&self) {
        let totals = self.totals();
        if let Ok(mut before) = self.before.lock() {
            *before = totals;
        }
    }

    fn totals(&self) -> BTreeMap<String, u64> {
        let mut totals = self.others.lock().map(|others| others.clone()).unwrap_or_default();
        let known = KNOWN.iter().zip(&self.known);
        let known = known.map(|(word, count)| ((*word).to_string(), count.load(Relaxed)));
        totals.extend(known.filter(|(_, count)| *count > 0));
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_count_by_first_word_since_a_reset() {
        let errors = Errors::default();
        for text in ["ERR syntax error", "ERR other", "ODD"] {
            errors.note(&Reply::error(text));
        }
        assert_eq!(errors.since_reset(), [("ERR".into(), 2), ("ODD".into(), 1)]);
        errors.reset();
        errors.note(&Reply::error("ODD thing"));
        assert_eq!(errors.since_reset(), [("ODD".into(), 1)]);
        assert_eq!(errors.since_start(), [("ERR".into(), 2), ("ODD".into(), 2)]);
    }
}
