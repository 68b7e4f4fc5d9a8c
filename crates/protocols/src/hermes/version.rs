//! The version of a value: it orders all writes of one key.

use types::wire::put_varint;
use types::{Epoch, Malformed, Reader, Serial, Wire};

/// An epoch, and a count of rounds since it began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Era {
    pub epoch: Epoch,
    pub round: u32,
}

impl Era {
    #[must_use]
    pub const fn first(epoch: Epoch) -> Era {
        Era { epoch, round: 0 }
    }

    /// The next one of its epoch. The last one has none.
    #[must_use]
    pub fn next(self) -> Era {
        Era { round: self.round.saturating_add(1), ..self }
    }
}

impl Wire for Era {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.epoch.0));
        put_varint(out, u64::from(self.round));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Era, Malformed> {
        let mut number = || u32::try_from(reader.varint()?).map_err(|_| Malformed);
        Ok(Era { epoch: Epoch(number()?), round: number()? })
    }
}

/// Orders the values of one register; their word: timestamp. [HERMES 3.1]
///
/// A plain write starts a new number, and a read-modify-write adds to its base's steps. So a plain
/// write beats every read-modify-write from the same value, and of those at most one succeeds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Version {
    /// Of the life of the key, which begins with a write to the deleted key.
    pub era: Era,
    /// Counts plain writes.
    pub number: u64,
    /// The member that chose the number.
    pub writer: Serial,
    /// Counts read-modify-writes since that write.
    pub step: u64,
    /// The member that took the last step.
    pub stepper: Serial,
}

impl Version {
    /// Below every chosen version, for a register that was never written.
    pub const NONE: Version = Version::before(Era { epoch: Epoch(0), round: 0 });

    /// Below every version of a life that begins in this era, above those of earlier lives.
    #[must_use]
    pub const fn before(era: Era) -> Version {
        Version { era, number: 0, writer: Serial(0), step: 0, stepper: Serial(0) }
    }

    /// The version of a change by `member` to the value of this version.
    #[must_use]
    pub fn next(self, member: Serial, is_rmw: bool) -> Version {
        if is_rmw {
            Version { step: self.step + 1, stepper: member, ..self }
        } else {
            let number = self.number + 1;
            Version { number, writer: member, step: 0, stepper: Serial(0), ..self }
        }
    }

    #[must_use]
    pub fn is_rmw(self) -> bool {
        self.step > 0
    }

    /// The member that coordinated the change.
    #[must_use]
    pub fn coordinator(self) -> Serial {
        if self.is_rmw() { self.stepper } else { self.writer }
    }
}

impl Wire for Version {
    fn encode(&self, out: &mut Vec<u8>) {
        self.era.encode(out);
        put_varint(out, self.number);
        put_varint(out, u64::from(self.writer.0));
        put_varint(out, self.step);
        put_varint(out, u64::from(self.stepper.0));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Version, Malformed> {
        let (era, number) = (Era::decode(reader)?, count(reader)?);
        let writer = serial(reader)?;
        let step = count(reader)?;
        Ok(Version { era, number, writer, step, stepper: serial(reader)? })
    }
}

/// Far more writes than a key can have: the next one never overflows.
const COUNT_MAX: u64 = 1 << 56;

fn count(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    reader.varint().and_then(|it| if it < COUNT_MAX { Ok(it) } else { Err(Malformed) })
}

fn serial(reader: &mut Reader<'_>) -> Result<Serial, Malformed> {
    u32::try_from(reader.varint()?).map(Serial).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_beats_every_rmw_from_its_value() {
        let start = Version::before(Era { epoch: Epoch(2), round: 3 });
        let base = Version { number: 4, writer: Serial(2), step: 3, stepper: Serial(9), ..start };
        assert!(base.next(Serial(9), true) < base.next(Serial(1), false));
        assert!(base.next(Serial(1), true) < base.next(Serial(2), true));
        assert!(base < base.next(Serial(1), true));
    }

    #[test]
    fn rmw_of_a_lower_write_never_beats_a_higher_write() {
        let low = Version::NONE.next(Serial(1), false);
        let high = Version::NONE.next(Serial(2), false);
        assert!(low.next(Serial(9), true).next(Serial(9), true) < high);
    }
}
