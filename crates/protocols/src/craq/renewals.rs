//! Versions of earlier epochs that the head sends again without a request.
//!
//! After a restart of all members, no register is known to be clean. So there may be one for each
//! key. A few at a time leave room for requests.

use std::collections::BTreeMap;

use types::Key;

/// Versions on their way at a time.
const KEYS_MAX: usize = 64;
/// Bytes of their values; the last one may be longer.
const LEN_MAX: usize = 4 << 20;

/// Keys whose versions are on their way, with the bytes of each value.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    lens: BTreeMap<Key, usize>,
    len: usize,
}

impl Renewals {
    pub fn is_full(&self) -> bool {
        self.lens.len() >= KEYS_MAX || self.len >= LEN_MAX
    }

    pub fn begin(&mut self, key: &Key, len: usize) {
        self.end(key);
        self.lens.insert(key.clone(), len);
        self.len += len;
    }

    pub fn end(&mut self, key: &Key) {
        self.len -= self.lens.remove(key).unwrap_or(0);
    }

    pub fn clear(&mut self) {
        *self = Renewals::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key::new(&number.to_le_bytes())
    }

    #[test]
    fn keys_and_bytes_are_bounded() {
        let mut renewals = Renewals::default();
        (0..KEYS_MAX - 1).for_each(|number| renewals.begin(&key(number), 10));
        assert!(!renewals.is_full());
        renewals.begin(&key(KEYS_MAX), 0);
        assert!(renewals.is_full());
        renewals.end(&key(KEYS_MAX));
        renewals.end(&key(KEYS_MAX));
        assert!(!renewals.is_full());
        renewals.begin(&key(0), LEN_MAX);
        assert!(renewals.is_full());
        renewals.begin(&key(0), 0);
        assert!(!renewals.is_full(), "a key counts once");
    }
}
