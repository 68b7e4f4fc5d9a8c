//! Where keys lie in the hash space of a cluster.

use std::fmt;
use std::sync::Arc;

use crate::{Database, Key, Shard};

/// Bytes of a cluster's secret.
pub const SECRET_LEN: usize = 192;

/// The positions of keys under one secret: XXH3 with the secret in the place of its constants.
///
/// Clients that do not know the secret cannot choose keys of one shard, or of one page of a medium.
/// Members of a cluster share it, so positions travel between them with their keys.
#[derive(Clone, PartialEq, Eq)]
pub struct Positions {
    /// None: XXH3 as it is.
    secret: Option<Arc<[u8; SECRET_LEN]>>,
}

/// Positions that anyone can compute, as [`Key::new`] does.
pub static PUBLIC: Positions = Positions { secret: None };

impl Positions {
    #[must_use]
    pub fn new(secret: &[u8; SECRET_LEN]) -> Positions {
        Positions { secret: Some(Arc::new(*secret)) }
    }

    #[must_use]
    pub fn of(&self, bytes: &[u8]) -> u64 {
        match &self.secret {
            Some(secret) => base::checksum::keyed_hash(&**secret, bytes),
            None => base::checksum::hash(bytes),
        }
    }

    #[must_use]
    pub fn key(&self, bytes: &[u8]) -> Key {
        Key::at(self.of(bytes), bytes)
    }

    /// The position of a key of this database. Keys of hidden keyspaces need no secret, because no
    /// client chooses them: see [`hidden_key`].
    #[must_use]
    pub fn of_database(&self, database: Database, bytes: &[u8]) -> u64 {
        if database.is_hidden() { of_hidden(bytes) } else { self.of(bytes) }
    }
}

/// The key with these bytes in a hidden keyspace. The first byte is its shard.
#[must_use]
pub fn hidden_key(bytes: &[u8]) -> Key {
    Key::at(of_hidden(bytes), bytes)
}

fn of_hidden(bytes: &[u8]) -> u64 {
    let shard = Shard(bytes.first().copied().unwrap_or_default());
    shard.first_hash() | base::checksum::hash(bytes) >> 8
}

/// A secret is shown nowhere.
impl fmt::Debug for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Positions")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(seed: u64) -> Positions {
        let mut prng = base::Prng::new(seed);
        let mut secret = [0; SECRET_LEN];
        secret.chunks_mut(8).for_each(|word| word.copy_from_slice(&prng.next_u64().to_le_bytes()));
        Positions::new(&secret)
    }

    #[test]
    fn positions_depend_on_the_secret_at_every_length() {
        let (one, two) = (positions(1), positions(2));
        for len in (0..=256).chain([1_000, 65_536]) {
            let bytes = vec![7; len];
            let all = [one.of(&bytes), two.of(&bytes), PUBLIC.of(&bytes)];
            assert!(all[0] != all[1] && all[0] != all[2] && all[1] != all[2], "{len} bytes");
            assert_eq!(positions(1).key(&bytes), one.key(&bytes));
        }
    }

    /// XXH3 multiplies the first word, less this constant, with the second one.
    #[test]
    fn chosen_keys_of_one_public_hash_are_spread() {
        const FIRST_CONSTANT: u64 = 0xbe4b_a423_396c_feb8;
        let chosen = |number: u64| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&FIRST_CONSTANT.to_le_bytes());
            bytes[8..16].copy_from_slice(&number.to_le_bytes());
            bytes
        };
        let shards = |positions: &Positions| {
            let mut keys = [0; 256];
            for number in 0..10_000 {
                keys[usize::from(positions.key(&chosen(number)).shard().0)] += 1;
            }
            keys
        };
        assert_eq!(shards(&PUBLIC).iter().filter(|&&keys| keys > 0).count(), 1);
        assert!(shards(&positions(1)).iter().all(|&keys| keys < 100));
    }

    #[test]
    fn keys_of_hidden_keyspaces_need_no_secret() {
        let database = Database(3);
        for (bytes, shard) in [(&b"\x07record"[..], 7), (b"\xff", 255), (b"", 0)] {
            let key = hidden_key(bytes);
            assert_eq!(key.shard(), Shard(shard));
            for positions in [&positions(1), &PUBLIC] {
                assert_eq!(positions.of_database(database.hidden(), bytes), key.hash());
                assert_eq!(positions.of_database(database, bytes), positions.of(bytes));
            }
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(format!("{:?}", positions(1)), "Positions");
    }
}
