//! The value of a group's register.

use bytes::Bytes;
use types::wire::{Malformed, Reader, Wire, put_varint};
use types::{Configuration, Epoch, GroupMember, ImageId, NodeId};

/// The first byte of a value; a later version has another one.
const VERSION: u8 = 1;

/// How far a configuration has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// Nodes stop the configuration before it. No member serves.
    Wedging,
    /// Members may install it.
    Active,
}

/// An operator's decision about a group whose full members are all gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decree {
    /// The group starts again without content.
    Empty,
    /// This image counts as complete.
    Image { node: NodeId, image: ImageId },
}

/// The content of a group's register. It changes by compare-and-swap of the whole value only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupValue {
    pub configuration: Configuration,
    pub phase: Phase,
    /// The last configuration that was active before this one.
    pub previous: Option<Configuration>,
    /// Stands until a configuration becomes active under it.
    pub decree: Option<Decree>,
    /// The next serial to be given to a member.
    pub next_serial: u32,
    /// The node that wrote this configuration's first value.
    pub proposer: NodeId,
}

impl GroupValue {
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.configuration.epoch
    }

    /// Where the value stands in the sequence of the register's values.
    #[must_use]
    pub fn order(&self) -> (Epoch, Phase) {
        (self.configuration.epoch, self.phase)
    }

    #[must_use]
    pub fn is_active(&self) -> bool {
        self.phase == Phase::Active
    }

    /// The configuration that was active last: this one, or the one before.
    #[must_use]
    pub fn last_active(&self) -> Option<&Configuration> {
        if self.is_active() { Some(&self.configuration) } else { self.previous.as_ref() }
    }

    #[must_use]
    pub fn members(&self) -> &[GroupMember] {
        &self.configuration.members
    }

    /// # Errors
    /// [`Malformed`] when the bytes are no value of this version.
    pub fn read(bytes: &Bytes) -> Result<GroupValue, Malformed> {
        GroupValue::from_bytes(bytes)
    }
}

impl Wire for Decree {
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Decree::Empty => out.push(1),
            Decree::Image { node, image } => {
                out.push(2);
                put_varint(out, u64::from(node.0));
                out.extend(image.0.to_le_bytes());
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Decree, Malformed> {
        match reader.u8()? {
            1 => Ok(Decree::Empty),
            2 => {
                let node = NodeId(u16::try_from(reader.varint()?).map_err(|_| Malformed)?);
                Ok(Decree::Image { node, image: ImageId(reader.u64()?) })
            }
            _ => Err(Malformed),
        }
    }
}

impl Wire for GroupValue {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        self.configuration.encode(out);
        out.push(match self.phase {
            Phase::Wedging => 0,
            Phase::Active => 1,
        });
        put_option(out, self.previous.as_ref());
        put_option(out, self.decree.as_ref());
        put_varint(out, u64::from(self.next_serial));
        put_varint(out, u64::from(self.proposer.0));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<GroupValue, Malformed> {
        if reader.u8()? != VERSION {
            return Err(Malformed);
        }
        let configuration = Configuration::decode(reader)?;
        let phase = match reader.u8()? {
            0 => Phase::Wedging,
            1 => Phase::Active,
            _ => return Err(Malformed),
        };
        let previous = option::<Configuration>(reader)?;
        let decree = option::<Decree>(reader)?;
        let next_serial = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let proposer = NodeId(u16::try_from(reader.varint()?).map_err(|_| Malformed)?);
        let value = GroupValue { configuration, phase, previous, decree, next_serial, proposer };
        let is_later = |one: &Configuration| one.epoch < value.epoch();
        let in_order = value.previous.as_ref().is_none_or(is_later);
        if in_order && value.epoch() > Epoch(0) { Ok(value) } else { Err(Malformed) }
    }
}

fn put_option<T: Wire>(out: &mut Vec<u8>, option: Option<&T>) {
    out.push(u8::from(option.is_some()));
    if let Some(it) = option {
        it.encode(out);
    }
}

fn option<T: Wire>(reader: &mut Reader<'_>) -> Result<Option<T>, Malformed> {
    match reader.u8()? {
        0 => Ok(None),
        1 => T::decode(reader).map(Some),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use base::Nanos;
    use types::{Incarnation, Role, Serial};

    use super::*;

    fn configuration(epoch: u32) -> Configuration {
        let member = GroupMember {
            node: NodeId(3),
            incarnation: Incarnation(9),
            image: ImageId(77),
            serial: Serial(5),
            role: Role::Full,
        };
        let lease = Nanos::from_millis(400);
        Configuration { epoch: Epoch(epoch), members: vec![member], lease, extra: Bytes::new() }
    }

    #[test]
    fn values_come_back_from_their_bytes() {
        let decree = Some(Decree::Image { node: NodeId(2), image: ImageId(1) });
        let value = GroupValue {
            configuration: configuration(7),
            phase: Phase::Wedging,
            previous: Some(configuration(5)),
            decree,
            next_serial: 6,
            proposer: NodeId(1),
        };
        let bytes = value.to_bytes();
        for len in 0..bytes.len() {
            assert_eq!(GroupValue::from_bytes(&bytes[..len]), Err(Malformed));
        }
        assert_eq!(GroupValue::from_bytes(&bytes), Ok(value.clone()));
        let later = GroupValue { previous: Some(configuration(7)), ..value };
        assert_eq!(GroupValue::from_bytes(&later.to_bytes()), Err(Malformed));
    }
}
