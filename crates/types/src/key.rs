//! Keys: shared bytes with their stable hash.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

/// One of the 256 parts of a database's hash space: the top byte of a key's hash.
///
/// Floors, promise ceilings and recovery progress are kept per shard, and a shard belongs to one
/// worker (`shard % workers`), so no byte on disk depends on the number of workers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Shard(pub u8);

/// Shards of a database.
pub const SHARDS: usize = 256;

/// Longest key that needs no memory of its own.
const INLINE_LEN_MAX: usize = 22;

/// A key with its position: cheap to clone, hashed once.
///
/// Most keys are short. They live where they are used: finding a register then follows no pointer
/// to its key.
#[derive(Clone)]
pub struct Key {
    hash: u64,
    repr: Repr,
}

#[derive(Clone)]
enum Repr {
    /// Zeros behind the first `len` bytes.
    Inline {
        len: u8,
        bytes: [u8; INLINE_LEN_MAX],
    },
    Shared(Arc<[u8]>),
}

impl Key {
    /// A key at its public position: for tests, simulation and measurements. Nodes ask
    /// [`crate::Positions`].
    #[must_use]
    pub fn new(bytes: &[u8]) -> Key {
        Key::at(base::checksum::hash(bytes), bytes)
    }

    /// A key whose position is known already: it was stored or sent with it.
    #[must_use]
    pub fn at(position: u64, bytes: &[u8]) -> Key {
        let repr = if bytes.len() <= INLINE_LEN_MAX {
            let mut inline = [0; INLINE_LEN_MAX];
            inline[..bytes.len()].copy_from_slice(bytes);
            Repr::Inline { len: bytes.len() as u8, bytes: inline }
        } else {
            Repr::Shared(Arc::from(bytes))
        };
        Key { hash: position, repr }
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.repr {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Shared(bytes) => bytes,
        }
    }

    /// Bytes of memory that it takes outside of itself, with its clones.
    #[must_use]
    pub fn shared_len(&self) -> usize {
        match &self.repr {
            Repr::Inline { .. } => 0,
            Repr::Shared(bytes) => bytes.len(),
        }
    }

    /// The key's position in the hash space of its cluster. Its top byte is the shard.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    #[must_use]
    pub fn shard(&self) -> Shard {
        Shard((self.hash >> 56) as u8)
    }
}

impl Shard {
    /// The first position of this shard in the hash space.
    #[must_use]
    pub fn first_hash(self) -> u64 {
        u64::from(self.0) << 56
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.hash == other.hash
            && match (&self.repr, &other.repr) {
                // Arrays of one length compare without a call.
                (Repr::Inline { len, bytes }, Repr::Inline { len: other_len, bytes: other }) => {
                    len == other_len && bytes == other
                }
                (Repr::Shared(bytes), Repr::Shared(other)) => bytes == other,
                _ => false,
            }
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Hash order first: listings walk the hash space.
impl Ord for Key {
    fn cmp(&self, other: &Key) -> std::cmp::Ordering {
        self.hash.cmp(&other.hash).then_with(|| self.bytes().cmp(other.bytes()))
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.bytes()))
    }
}

/// Hasher for maps whose keys are already hashed: takes the number as it is.
#[derive(Clone, Copy, Default, Debug)]
pub struct Prehashed(u64);

impl Hasher for Prehashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, n: u64) {
        // The shard is the top byte and the same for many keys of a worker; the table looks at top
        // bits too.
        self.0 = n.rotate_left(29).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// Builds [`Prehashed`]: `HashMap<Key, V, ByHash>`.
#[derive(Clone, Copy, Default, Debug)]
pub struct ByHash;

impl BuildHasher for ByHash {
    type Hasher = Prehashed;
    fn build_hasher(&self) -> Prehashed {
        Prehashed::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_keep_their_bytes() {
        assert_eq!(size_of::<Key>(), 32);
        for len in 0..2 * INLINE_LEN_MAX {
            let bytes: Vec<u8> = (0..len as u8).collect();
            let key = Key::new(&bytes);
            assert_eq!(key.bytes(), bytes);
            assert_eq!(key, Key::new(&bytes));
            let longer = [&bytes[..], &[0]].concat();
            assert_ne!(key, Key::new(&longer), "zeros behind a key do not count");
        }
    }
}
