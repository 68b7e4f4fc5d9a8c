//! The version of a value: it orders all writes of one key.

use types::wire::put_varint;
use types::{Epoch, Malformed, Reader, Wire};

/// Only the head of an epoch chooses versions of that epoch. So no two values share one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    pub epoch: Epoch,
    pub number: u64,
}

impl Version {
    /// Below every chosen version, for a register that was never written.
    pub const NONE: Version = Version { epoch: Epoch(0), number: 0 };

    /// The version of the next value by the head of an epoch.
    #[must_use]
    pub fn next(self, epoch: Epoch) -> Version {
        Version { epoch, number: self.number + 1 }
    }
}

/// Far more writes than a key can have: the next one never overflows.
const NUMBER_MAX: u64 = 1 << 56;

impl Wire for Version {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.epoch.0));
        put_varint(out, self.number);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Version, Malformed> {
        let epoch = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let number = reader.varint()?;
        if number >= NUMBER_MAX {
            return Err(Malformed);
        }
        Ok(Version { epoch: Epoch(epoch), number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_epoch_beats_higher_number() {
        let old = Version { epoch: Epoch(1), number: 9 };
        let new = Version::NONE.next(Epoch(2));
        assert!(Version::NONE < old && old < new && new < new.next(Epoch(2)));
    }
}
