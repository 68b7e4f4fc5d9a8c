//! Configured groups: replicas that agree on their own sequence of configurations.
//!
//! A database of a protocol that needs a configuration is one group. The membership service decides
//! its configurations; protocols obey the installed one.

use std::collections::BTreeSet;
use std::fmt;

use base::Nanos;
use bytes::Bytes;

use crate::id::{Epoch, Incarnation, NodeId};
use crate::limits::MEMBERS_MAX;
use crate::wire::{put_blob, put_varint};
use crate::{Malformed, Reader, Wire};

/// The content of one node's stores of one group. Drawn at random when they begin empty, so that
/// equal ids mean that the content is the same or newer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ImageId(pub u64);

/// A member as one configuration after another names it: another one after every restart and every
/// return. Never used again in the group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Serial(pub u32);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// Has everything that was committed: serves clients, counts for everything.
    Full,
    /// Still copies. It stores and acknowledges from its first epoch on, and serves no client.
    Shadow,
}

/// A replica of a group in one configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupMember {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub image: ImageId,
    pub serial: Serial,
    pub role: Role,
}

/// One configuration of a group. Its epoch names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configuration {
    pub epoch: Epoch,
    /// In the order that gives members their places: a chain's head comes first.
    pub members: Vec<GroupMember>,
    /// How long a granted lease of this epoch lasts.
    pub lease: Nanos,
    /// The protocol's digest of the members' summaries before the epoch began.
    pub extra: Bytes,
}

impl Configuration {
    #[must_use]
    pub fn place(&self, node: NodeId) -> Option<usize> {
        self.members.iter().position(|member| member.node == node)
    }

    #[must_use]
    pub fn member(&self, node: NodeId) -> Option<&GroupMember> {
        self.members.iter().find(|member| member.node == node)
    }

    /// True if a member has this serial: its process is the one that the serial was given to.
    #[must_use]
    pub fn has_serial(&self, serial: Serial) -> bool {
        self.members.iter().any(|member| member.serial == serial)
    }

    /// The members that serve, in their order.
    pub fn full(&self) -> impl DoubleEndedIterator<Item = &GroupMember> + Clone {
        self.members.iter().filter(|member| member.role == Role::Full)
    }
}

impl fmt::Debug for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.0)
    }
}

impl Wire for GroupMember {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.node.0));
        put_varint(out, u64::from(self.incarnation.0));
        out.extend(self.image.0.to_le_bytes());
        put_varint(out, u64::from(self.serial.0));
        out.push(match self.role {
            Role::Full => 0,
            Role::Shadow => 1,
        });
    }

    fn decode(reader: &mut Reader<'_>) -> Result<GroupMember, Malformed> {
        let node = NodeId(u16::try_from(reader.varint()?).map_err(|_| Malformed)?);
        let incarnation = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let incarnation = Incarnation(incarnation);
        let image = ImageId(reader.u64()?);
        let serial = Serial(u32::try_from(reader.varint()?).map_err(|_| Malformed)?);
        let role = match reader.u8()? {
            0 => Role::Full,
            1 => Role::Shadow,
            _ => return Err(Malformed),
        };
        Ok(GroupMember { node, incarnation, image, serial, role })
    }
}

/// Bytes of [`Configuration::extra`], at most.
pub const EXTRA_MAX: usize = 64 << 10;

impl Wire for Configuration {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.epoch.0));
        put_varint(out, self.members.len() as u64);
        self.members.iter().for_each(|member| member.encode(out));
        put_varint(out, self.lease.0);
        put_blob(out, &self.extra);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Configuration, Malformed> {
        let epoch = Epoch(u32::try_from(reader.varint()?).map_err(|_| Malformed)?);
        let count = reader.varint()?;
        if count > MEMBERS_MAX as u64 {
            return Err(Malformed);
        }
        let members: Result<Vec<GroupMember>, Malformed> =
            (0..count).map(|_| GroupMember::decode(reader)).collect();
        let members = members?;
        let nodes: BTreeSet<NodeId> = members.iter().map(|member| member.node).collect();
        if nodes.len() != members.len() {
            return Err(Malformed);
        }
        let lease = Nanos(reader.varint()?);
        let extra = Bytes::copy_from_slice(reader.blob(EXTRA_MAX)?);
        Ok(Configuration { epoch, members, lease, extra })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(nodes: &[u16]) -> Configuration {
        let member = |(place, &node): (usize, &u16)| GroupMember {
            node: NodeId(node),
            incarnation: Incarnation(300),
            image: ImageId(u64::MAX - u64::from(node)),
            serial: Serial(200 + place as u32),
            role: if place == 0 { Role::Full } else { Role::Shadow },
        };
        Configuration {
            epoch: Epoch(1_000),
            members: nodes.iter().enumerate().map(member).collect(),
            lease: Nanos::from_millis(400),
            extra: Bytes::from_static(b"trim"),
        }
    }

    #[test]
    fn configurations_come_back_from_their_bytes() {
        let configuration = configuration(&[3, 1, 2]);
        let bytes = configuration.to_bytes();
        for len in 0..bytes.len() {
            assert_eq!(Configuration::from_bytes(&bytes[..len]), Err(Malformed));
        }
        assert_eq!(Configuration::from_bytes(&bytes), Ok(configuration));
    }

    #[test]
    fn a_node_is_a_member_once() {
        let bytes = configuration(&[3, 1, 3]).to_bytes();
        assert_eq!(Configuration::from_bytes(&bytes), Err(Malformed));
    }

    #[test]
    fn places_follow_the_order_of_the_members() {
        let configuration = configuration(&[3, 1, 2]);
        assert_eq!(
            (configuration.place(NodeId(1)), configuration.place(NodeId(9))),
            (Some(1), None)
        );
        assert!(configuration.has_serial(Serial(202)) && !configuration.has_serial(Serial(203)));
        assert_eq!(configuration.full().map(|member| member.node).collect::<Vec<_>>(), [NodeId(3)]);
    }
}
