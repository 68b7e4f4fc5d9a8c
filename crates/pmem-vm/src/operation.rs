//! Operations as a function of client and number, so that host and guest need not exchange them.
//!
//! Clients own their keys. Operation `n` is on key `n % KEYS`.
//! A value names the operation that wrote it, and each of its bytes follows from that.

use base::Prng;

/// Clients that write at the same time, two per node.
pub const CLIENTS: usize = 6;
/// Keys of one client.
pub const KEYS: u64 = 200;
/// Each boot's clients begin at a multiple of this, so that no number is used twice.
pub const PER_BOOT: u64 = 1 << 20;

/// Lengths of values, which visit several classes of slots: a register moves when its length does.
const LENGTHS: [u64; 6] = [0, 20, 100, 300, 1_200, 5_000];
const DELETIONS_PPM: u32 = 100_000;

/// A change of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyChange {
    Set(Vec<u8>),
    Delete,
}

/// The key that an operation changes.
#[must_use]
pub fn key(client: usize, key: u64) -> String {
    format!("client-{client}-key-{key}")
}

/// The change that an operation makes.
#[must_use]
pub fn change(client: usize, number: u64) -> KeyChange {
    let mut prng = Prng::new(number << 8 | client as u64);
    if prng.chance_ppm(DELETIONS_PPM) {
        return KeyChange::Delete;
    }
    let mut value = format!("{client}:{number}:").into_bytes();
    let len = *prng.pick(&LENGTHS) + prng.below(20);
    value.extend((0..len).map(|_| prng.next_u64() as u8));
    KeyChange::Set(value)
}

/// The operation that wrote this value of a client's key; `None` for a value that no operation
/// writes.
#[must_use]
pub fn writer(client: usize, key: u64, value: &[u8]) -> Option<u64> {
    let mut parts = value.splitn(3, |&byte| byte == b':');
    parts.next()?;
    let number: u64 = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    let is_whole = change(client, number) == KeyChange::Set(value.to_vec());
    (is_whole && number % KEYS == key).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_names_exactly_its_operation() {
        let mut deletions = 0;
        for number in 0..2_000 {
            let KeyChange::Set(mut value) = change(3, number) else {
                deletions += 1;
                continue;
            };
            let own = number % KEYS;
            assert_eq!(writer(3, own, &value), Some(number));
            assert_eq!(writer(4, own, &value), None, "another client's");
            assert_eq!(writer(3, (own + 1) % KEYS, &value), None, "another key's");
            let last = value.len() - 1;
            value[last] ^= 1;
            assert_eq!(writer(3, own, &value), None, "a byte differs");
            value.truncate(last);
            assert_eq!(writer(3, own, &value), None, "cut short");
        }
        assert!((100..400).contains(&deletions), "{deletions} of 2000 delete");
    }
}
