//! Keys that a node looks at by messages to itself. Each may wait until its register is loaded.

use std::collections::BTreeMap;

use base::Nanos;
use types::Key;

/// Keys looked at at a time.
const LOOKS_MAX: usize = 256;
/// The time after which others take up the room of these. A loss of memory drops messages.
const LOST_AFTER: Nanos = Nanos::from_secs(10);
/// How long other keys wait while there is no room.
pub const PAUSE: Nanos = Nanos::from_millis(20);

#[derive(Debug, Default)]
pub struct Looks {
    since: BTreeMap<Key, Nanos>,
}

impl Looks {
    /// The number of keys that may be looked at now, beside these.
    #[must_use]
    pub fn room(&mut self, now: Nanos) -> usize {
        if self.since.len() >= LOOKS_MAX {
            self.since.retain(|_, since| now < *since + LOST_AFTER);
        }
        LOOKS_MAX.saturating_sub(self.since.len())
    }

    pub fn begin(&mut self, key: Key, now: Nanos) {
        self.since.insert(key, now);
    }

    pub fn end(&mut self, key: &Key) {
        self.since.remove(key);
    }

    /// No message of before arrives.
    pub fn clear(&mut self) {
        self.since.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_looks_make_room() {
        let mut looks = Looks::default();
        let key = |n: usize| Key::at(n as u64, b"key");
        (0..LOOKS_MAX).for_each(|n| looks.begin(key(n), Nanos(n as u64)));
        assert_eq!(looks.room(LOST_AFTER - Nanos(1)), 0);
        looks.end(&key(7));
        assert_eq!(looks.room(LOST_AFTER - Nanos(1)), 1);
        looks.begin(key(7), LOST_AFTER);
        assert_eq!(looks.room(LOST_AFTER + Nanos(8)), 8);
    }
}
