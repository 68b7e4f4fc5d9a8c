//! A register's share of its database's figures.

/// A key and its bytes, or none. Four bytes, since every resident register has one.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Weight(u32);

const EXPIRES: u32 = 1 << 31;

impl Weight {
    /// A register that holds no key: it was deleted, or only promised.
    pub const NONE: Weight = Weight(0);

    /// A key. `bytes` are those of the key and of its value; beyond 2 GiB they are cut.
    #[must_use]
    pub fn of_key(bytes: usize, expires: bool) -> Weight {
        let bytes = bytes.min(EXPIRES as usize - 2) as u32;
        Weight((bytes + 1) | if expires { EXPIRES } else { 0 })
    }

    #[must_use]
    pub fn is_key(self) -> bool {
        self != Weight::NONE
    }

    /// The key has a time to live.
    #[must_use]
    pub fn expires(self) -> bool {
        self.0 & EXPIRES != 0
    }

    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::from((self.0 & !EXPIRES).saturating_sub(1))
    }
}

impl std::fmt::Debug for Weight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.bytes(), if self.is_key() { "" } else { " and no key" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_round_trip() {
        assert!(!Weight::NONE.is_key() && !Weight::NONE.expires() && Weight::NONE.bytes() == 0);
        for bytes in [0, 1, 1 << 20, (1 << 31) - 2] {
            for expires in [false, true] {
                let weight = Weight::of_key(bytes, expires);
                let found = (weight.is_key(), weight.bytes(), weight.expires());
                assert_eq!(found, (true, bytes as u64, expires));
            }
        }
        assert_eq!(Weight::of_key(usize::MAX, true).bytes(), (1 << 31) - 2);
    }
}
