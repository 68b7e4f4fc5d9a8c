//! Messages between the services of two nodes, and their bytes.
//!
//! They travel on control links. A link may lose, repeat and reorder them.

use base::Nanos;
use bytes::Bytes;
use types::group::EXTRA_MAX;
use types::limits::{DATABASES, MEMBERS_MAX};
use types::wire::{Malformed, Reader, Wire, put_blob, put_varint};
use types::{Database, Epoch, ImageId, Incarnation, NodeId};

use crate::local::{Content, epoch};

/// Bytes of a register's value: two configurations with their digests.
pub(crate) const VALUE_LEN_MAX: usize = 2 * EXTRA_MAX + (8 << 10);
/// Names in a list of nodes: all servers.
const NODES_MAX: usize = 64;

/// A message of a node's service to that of another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    Heartbeat(Heartbeat),
    Grants(Grants),
    /// Seal the epochs below that of `value`, which the register holds or held.
    Wedge {
        group: Database,
        value: Bytes,
        /// Processes that have sealed for exactly this epoch.
        shown: Vec<Process>,
    },
    Wedged(Wedged),
    /// The register holds or held this active value.
    Install {
        group: Database,
        value: Bytes,
    },
    /// Of a later version.
    Unknown,
}

/// One start of a node, with the image that it had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub image: ImageId,
}

/// A node's report of its image of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImageReport {
    pub promised: Epoch,
    pub image: ImageId,
    pub content: Content,
    /// The epoch in which this process, a shadow, completed its copy. 0 if it has not.
    pub copied: Epoch,
    pub joined: Epoch,
}

/// Sent to every server at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// The sender's clock before sending.
    pub sent: Nanos,
    /// Nodes that the sender has heard lately.
    pub hears: Vec<NodeId>,
    pub groups: Vec<GroupBeat>,
}

/// The part of a heartbeat about one group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupBeat {
    pub group: Database,
    /// The epoch for which the sender asks for a lease. 0 for none.
    pub lease: Epoch,
    pub report: ImageReport,
    /// Members whose acknowledgements the sender misses.
    pub stalled: Vec<NodeId>,
}

/// The answer to a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grants {
    /// The process that asked.
    pub to: Incarnation,
    /// As in the heartbeat.
    pub sent: Nanos,
    pub granted: Vec<(Database, Epoch)>,
    /// Groups whose lease was refused, and the epochs promised here.
    pub refused: Vec<(Database, Epoch)>,
}

/// The answer to [`Message::Wedge`]: the epochs below are sealed here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wedged {
    pub group: Database,
    pub epoch: Epoch,
    pub report: ImageReport,
    pub summary: Bytes,
    /// No lease of an earlier epoch holds by a grant of this node.
    pub may_activate: bool,
}

const HEARTBEAT: u8 = 1;
const GRANTS: u8 = 2;
const WEDGE: u8 = 3;
const WEDGED: u8 = 4;
const INSTALL: u8 = 5;

impl Wire for Message {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Message::Heartbeat(heartbeat) => {
                out.push(HEARTBEAT);
                heartbeat.encode(out);
            }
            Message::Grants(grants) => {
                out.push(GRANTS);
                grants.encode(out);
            }
            Message::Wedge { group, value, shown } => {
                out.extend([WEDGE, group.0]);
                put_blob(out, value);
                put_list(out, shown);
            }
            Message::Wedged(wedged) => {
                out.push(WEDGED);
                wedged.encode(out);
            }
            Message::Install { group, value } => {
                out.extend([INSTALL, group.0]);
                put_blob(out, value);
            }
            Message::Unknown => out.push(0),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Message, Malformed> {
        Ok(match reader.u8()? {
            HEARTBEAT => Message::Heartbeat(Heartbeat::decode(reader)?),
            GRANTS => Message::Grants(Grants::decode(reader)?),
            WEDGE => {
                let (group, value) = (group(reader)?, blob(reader, VALUE_LEN_MAX)?);
                Message::Wedge { group, value, shown: list(reader, NODES_MAX)? }
            }
            WEDGED => Message::Wedged(Wedged::decode(reader)?),
            INSTALL => {
                Message::Install { group: group(reader)?, value: blob(reader, VALUE_LEN_MAX)? }
            }
            _ => {
                reader.take(reader.rest().len())?;
                Message::Unknown
            }
        })
    }
}

impl Wire for Process {
    fn encode(&self, out: &mut Vec<u8>) {
        Node(self.node).encode(out);
        put_varint(out, u64::from(self.incarnation.0));
        out.extend(self.image.0.to_le_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Process, Malformed> {
        let (node, incarnation) = (Node::decode(reader)?.0, incarnation(reader)?);
        Ok(Process { node, incarnation, image: ImageId(reader.u64()?) })
    }
}

impl Wire for ImageReport {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.promised.0));
        out.extend(self.image.0.to_le_bytes());
        self.content.encode(out);
        put_varint(out, u64::from(self.copied.0));
        put_varint(out, u64::from(self.joined.0));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<ImageReport, Malformed> {
        let promised = epoch(reader)?;
        let image = ImageId(reader.u64()?);
        let content = Content::decode(reader)?;
        let (copied, joined) = (epoch(reader)?, epoch(reader)?);
        Ok(ImageReport { promised, image, content, copied, joined })
    }
}

impl Wire for Heartbeat {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.sent.0);
        put_nodes(out, &self.hears);
        put_list(out, &self.groups);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Heartbeat, Malformed> {
        let sent = Nanos(reader.varint()?);
        let hears = nodes(reader, NODES_MAX)?;
        Ok(Heartbeat { sent, hears, groups: list(reader, DATABASES)? })
    }
}

impl Wire for GroupBeat {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.group.0);
        put_varint(out, u64::from(self.lease.0));
        self.report.encode(out);
        put_nodes(out, &self.stalled);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<GroupBeat, Malformed> {
        let (group, lease) = (group(reader)?, epoch(reader)?);
        let report = ImageReport::decode(reader)?;
        Ok(GroupBeat { group, lease, report, stalled: nodes(reader, MEMBERS_MAX)? })
    }
}

impl Wire for Grants {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.to.0));
        put_varint(out, self.sent.0);
        for list in [&self.granted, &self.refused] {
            put_varint(out, list.len() as u64);
            for (group, epoch) in list {
                out.push(group.0);
                put_varint(out, u64::from(epoch.0));
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Grants, Malformed> {
        let to = incarnation(reader)?;
        let sent = Nanos(reader.varint()?);
        let (granted, refused) = (epochs(reader)?, epochs(reader)?);
        Ok(Grants { to, sent, granted, refused })
    }
}

impl Wire for Wedged {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.group.0);
        put_varint(out, u64::from(self.epoch.0));
        self.report.encode(out);
        put_blob(out, &self.summary);
        out.push(u8::from(self.may_activate));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Wedged, Malformed> {
        let (group, epoch) = (group(reader)?, epoch(reader)?);
        let report = ImageReport::decode(reader)?;
        let summary = blob(reader, EXTRA_MAX)?;
        let may_activate = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed),
        };
        Ok(Wedged { group, epoch, report, summary, may_activate })
    }
}

/// A node's id, as an element of a list.
struct Node(NodeId);

impl Wire for Node {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.0.0));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Node, Malformed> {
        u16::try_from(reader.varint()?).map(|id| Node(NodeId(id))).map_err(|_| Malformed)
    }
}

fn group(reader: &mut Reader<'_>) -> Result<Database, Malformed> {
    let group = Database(reader.u8()?);
    if group.is_of_users() { Ok(group) } else { Err(Malformed) }
}

fn incarnation(reader: &mut Reader<'_>) -> Result<Incarnation, Malformed> {
    u32::try_from(reader.varint()?).map(Incarnation).map_err(|_| Malformed)
}

fn blob(reader: &mut Reader<'_>, max: usize) -> Result<Bytes, Malformed> {
    reader.blob(max).map(Bytes::copy_from_slice)
}

fn count(reader: &mut Reader<'_>, max: usize) -> Result<usize, Malformed> {
    let count = usize::try_from(reader.varint()?).map_err(|_| Malformed)?;
    if count <= max { Ok(count) } else { Err(Malformed) }
}

fn put_list<T: Wire>(out: &mut Vec<u8>, list: &[T]) {
    put_varint(out, list.len() as u64);
    list.iter().for_each(|it| it.encode(out));
}

fn list<T: Wire>(reader: &mut Reader<'_>, max: usize) -> Result<Vec<T>, Malformed> {
    (0..count(reader, max)?).map(|_| T::decode(reader)).collect()
}

fn put_nodes(out: &mut Vec<u8>, nodes: &[NodeId]) {
    put_varint(out, nodes.len() as u64);
    nodes.iter().for_each(|&node| Node(node).encode(out));
}

fn nodes(reader: &mut Reader<'_>, max: usize) -> Result<Vec<NodeId>, Malformed> {
    (0..count(reader, max)?).map(|_| Node::decode(reader).map(|node| node.0)).collect()
}

fn epochs(reader: &mut Reader<'_>) -> Result<Vec<(Database, Epoch)>, Malformed> {
    (0..count(reader, DATABASES)?).map(|_| Ok((group(reader)?, epoch(reader)?))).collect()
}

#[cfg(test)]
mod tests {
    use base::Prng;

    use super::*;

    fn samples() -> Vec<Message> {
        let report = ImageReport {
            promised: Epoch(300),
            image: ImageId(u64::MAX),
            content: Content::Partial,
            copied: Epoch(299),
            joined: Epoch(0),
        };
        let beat = |group| GroupBeat {
            group: Database(group),
            lease: Epoch(7),
            report,
            stalled: vec![NodeId(900), NodeId(2)],
        };
        let shown =
            Process { node: NodeId(4), incarnation: Incarnation(70_000), image: ImageId(3) };
        vec![
            Message::Heartbeat(Heartbeat {
                sent: Nanos(1 << 50),
                hears: vec![NodeId(1), NodeId(2)],
                groups: vec![beat(0), beat(15)],
            }),
            Message::Grants(Grants {
                to: Incarnation(5),
                sent: Nanos(12),
                granted: vec![(Database(3), Epoch(9))],
                refused: vec![(Database(4), Epoch::MAX)],
            }),
            Message::Wedge {
                group: Database(1),
                value: Bytes::from_static(b"value"),
                shown: vec![shown],
            },
            Message::Wedged(Wedged {
                group: Database(1),
                epoch: Epoch(8),
                report,
                summary: Bytes::from_static(b"trim"),
                may_activate: true,
            }),
            Message::Install { group: Database(2), value: Bytes::from_static(b"active") },
        ]
    }

    #[test]
    fn messages_come_back_from_their_bytes() {
        for message in samples() {
            let bytes = message.to_bytes();
            for len in 0..bytes.len() {
                assert_eq!(Message::from_bytes(&bytes[..len]), Err(Malformed));
            }
            assert_eq!(Message::from_bytes(&bytes), Ok(message));
        }
        assert_eq!(Message::from_bytes(&[200, 1, 2]), Ok(Message::Unknown));
    }

    #[test]
    fn damaged_bytes_never_panic() {
        let mut random = Prng::new(1);
        for message in samples() {
            for _ in 0..2_000 {
                let mut bytes = message.to_bytes();
                for _ in 0..random.between(1, 4) {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] = random.next_u64() as u8;
                }
                drop(Message::from_bytes(&bytes));
            }
        }
    }
}
