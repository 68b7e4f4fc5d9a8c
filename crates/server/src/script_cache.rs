//! The sources of scripts that this node knows: those that clients sent with `EVAL`, and those of
//! the system database that were asked for.
//!
//! The system database has a generation of scripts, which `SCRIPT FLUSH` raises. A source counts
//! with the generation at which it was learned. This node asks for the generation again after
//! [`FRESH`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use base::Nanos;
use bytes::Bytes;

/// For so long a node may run a script that another node has flushed.
pub(crate) const FRESH: Nanos = Nanos::from_millis(1_000);

/// As many as redis-server keeps of those from `EVAL`.
const SCRIPTS_MAX: usize = 500;
const SCRIPTS_LEN_MAX: usize = 32 << 20;

#[derive(Default)]
pub(crate) struct ScriptCache {
    scripts: RwLock<Scripts>,
    /// The moment at which the question for the generation began.
    asked: AtomicU64,
    uses: AtomicU64,
    evicted: AtomicU64,
}

#[derive(Default)]
struct Scripts {
    by_digest: HashMap<Vec<u8>, Script>,
    len: usize,
    generation: u64,
}

struct Script {
    source: Bytes,
    used: Arc<AtomicU64>,
}

impl ScriptCache {
    /// The source with a digest in lower case.
    pub(crate) fn get(&self, digest: &[u8]) -> Option<Bytes> {
        let scripts = self.scripts.read().unwrap_or_else(PoisonError::into_inner);
        let script = scripts.by_digest.get(digest)?;
        script.used.store(self.uses.fetch_add(1, Relaxed), Relaxed);
        Some(script.source.clone())
    }

    /// Keeps a source. The one that was used longest ago gives way.
    pub(crate) fn put(&self, digest: &[u8], source: &[u8]) {
        self.put_of(None, digest, source);
    }

    /// Keeps a source, unless its generation is over.
    pub(crate) fn put_of(&self, generation: Option<u64>, digest: &[u8], source: &[u8]) {
        if self.get(digest).is_some() || source.len() > SCRIPTS_LEN_MAX {
            return;
        }
        let mut scripts = self.scripts.write().unwrap_or_else(PoisonError::into_inner);
        if generation.is_some_and(|generation| generation < scripts.generation) {
            return;
        }
        let used = Arc::new(AtomicU64::new(self.uses.fetch_add(1, Relaxed)));
        let script = Script { source: Bytes::copy_from_slice(source), used };
        scripts.len += source.len();
        if let Some(old) = scripts.by_digest.insert(digest.to_vec(), script) {
            scripts.len -= old.source.len();
        }
        while scripts.by_digest.len() > SCRIPTS_MAX || scripts.len > SCRIPTS_LEN_MAX {
            let oldest = scripts.by_digest.iter().min_by_key(|(_, it)| it.used.load(Relaxed));
            let Some(digest) = oldest.map(|(digest, _)| digest.clone()) else { break };
            if let Some(old) = scripts.by_digest.remove(&digest) {
                scripts.len -= old.source.len();
                self.evicted.fetch_add(1, Relaxed);
            }
        }
    }

    /// The generation was asked for not long ago.
    pub(crate) fn is_fresh(&self, now: Nanos) -> bool {
        let asked = Nanos(self.asked.load(Relaxed));
        asked.0 > 0 && now < asked + FRESH
    }

    /// The generation was read after `asked`. A new one makes this node forget all sources.
    pub(crate) fn learn(&self, generation: u64, asked: Nanos) {
        let known = self.scripts.read().unwrap_or_else(PoisonError::into_inner).generation;
        if known < generation {
            let mut scripts = self.scripts.write().unwrap_or_else(PoisonError::into_inner);
            if scripts.generation < generation {
                *scripts = Scripts { generation, ..Scripts::default() };
            }
        }
        self.asked.fetch_max(asked.0, Relaxed);
    }

    /// The number of sources, and their bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        let scripts = self.scripts.read().unwrap_or_else(PoisonError::into_inner);
        (scripts.by_digest.len(), scripts.len)
    }

    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_source_gives_way() {
        let cache = ScriptCache::default();
        for number in 0..SCRIPTS_MAX {
            cache.put(format!("{number}").as_bytes(), b"source");
        }
        assert!(cache.get(b"0").is_some());
        cache.put(b"new", b"source");
        assert!(cache.get(b"0").is_some() && cache.get(b"1").is_none());
        assert_eq!((cache.size(), cache.evicted()), ((SCRIPTS_MAX, 6 * SCRIPTS_MAX), 1));
    }

    #[test]
    fn higher_generation_forgets_all() {
        let cache = ScriptCache::default();
        assert!(!cache.is_fresh(Nanos(5)));
        cache.put(b"a", b"source");
        cache.learn(0, Nanos(10));
        assert!(cache.get(b"a").is_some());
        assert!(cache.is_fresh(Nanos(20)) && !cache.is_fresh(Nanos(10) + FRESH));
        cache.learn(3, Nanos(20));
        assert!(cache.get(b"a").is_none());
        cache.learn(2, Nanos(30));
        cache.put_of(Some(2), b"a", b"source");
        assert!(cache.get(b"a").is_none(), "it was flushed");
        cache.put_of(Some(3), b"a", b"source");
        assert!(cache.get(b"a").is_some());
    }
}
