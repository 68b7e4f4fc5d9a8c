//! Who a node is: the few facts that must survive every restart, and their bytes.
//!
//! Two copies of 4 KiB each carry a sequence and a checksum bound to their place, and are written
//! in turn, so that a torn write never loses both. This module is the codec and the rule of which
//! copy counts; it opens no file (see `data_dir`) and decides nothing about clusters.
//!
//! Every write raises a counter by at most one, or is written to both copies before anything is
//! said. Hence a copy that has outlived a damaged one is behind by at most one, and
//! [`Identity::after_damage`] is above whatever the damaged copy may have said.

use std::fmt;

use base::Millis;
use types::features::Running;
use types::limits::{DATABASES, MEMBERS_MAX};
use types::positions::SECRET_LEN;
use types::wire::put_blob;
use types::{AmnesiaCount, Incarnation, Malformed, NodeId, Reader, Wire as _};

/// Bytes of one copy.
pub const COPY_LEN: usize = 4096;

/// The only format that this version reads and writes.
pub const FORMAT: u32 = 9;

const MAGIC: [u8; 8] = *b"PALIMPST";
const CHECKSUM_LEN: usize = 8;
const ADDRESS_LEN_MAX: usize = 512;
const CLOCKS_MAX: usize = 32;
const PROTOCOL_LEN_MAX: usize = 64;
const CLOCK_LEN: usize = 16;
/// Bytes of a group's record.
pub const GROUP_LEN_MAX: usize = 24;
/// Encoded limits of one member, beside the byte that says whether there are any.
const LIMITS_LEN: usize = 16;
// How far a lost copy may be ahead, and one to be above it.
const DAMAGE_STEP: u32 = 2;

/// Where a node keeps its registers by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    Volatile,
    Pmem,
    Disk,
}

/// A cluster, as its first members drew it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cluster {
    pub id: u128,
    /// Decides the positions of keys; shown nowhere.
    pub secret: [u8; SECRET_LEN],
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({:032x})", self.id)
    }
}

/// How a node stands to a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It has belonged to none since it was created or reset: it may take part in forming one.
    Unformed,
    /// It belongs to the cluster named beside.
    Formed,
    /// A damaged copy may have said that it belongs to one: it never counts as new and recovers
    /// first.
    Uncertain,
    /// A reset began and has not finished: nothing here may be used.
    Wiping,
}

/// A member of the cluster, with its addresses as `HOST:PORT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    pub node: NodeId,
    pub listen: String,
    pub peer_listen: String,
    /// The highest counters of it that this node has noted: what it said before them is void.
    pub incarnation: Incarnation,
    pub amnesia: AmnesiaCount,
    /// The limits that it announced last; none before the first announcement.
    pub limits: Option<Limits>,
}

/// Limits that a node announces to the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of one key's value.
    pub max_value_size: u64,
    pub once_window: Millis,
}

/// Settings of one database. They never change once a cluster has formed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatabaseSetting {
    pub index: u8,
    pub protocol: String,
    pub durability: Durability,
    /// Members of its configured group; zero: all nodes.
    pub replicas: u8,
    /// How often the cluster has given up all that the database held.
    pub generation: u64,
    /// The protocol wants a log beside the registers. No protocol does yet.
    pub has_log_area: bool,
}

/// The durable record of a configured group. Its bytes belong to the membership service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupRecord {
    /// The group's database.
    pub index: u8,
    pub bytes: Vec<u8>,
}

/// A clock on which times to live are counted: how long it has run, over all starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SavedClock {
    pub shown: Millis,
    /// The countdowns on it are over when it shows this. Zero: it was never used.
    pub until: Millis,
}

/// What a node durably knows of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    pub node: NodeId,
    pub standing: Standing,
    /// Drawn by the first members together; none until then.
    pub cluster: Option<Cluster>,
    /// The feature levels of the cluster. A member always has them, and they never fall.
    pub running: Option<Running>,
    /// At most `MEMBERS_MAX`, in the order of the configuration.
    pub members: Vec<Member>,
    pub durability: Durability,
    /// This start of the process. No two starts that said anything share one.
    pub incarnation: Incarnation,
    pub amnesia: AmnesiaCount,
    /// The clocks on which times to live are counted.
    pub clocks: Vec<SavedClock>,
    /// The last start that stopped in order: it saved the clocks when nothing could count on them
    /// any more.
    pub stopped: Incarnation,
    /// Sorted by index; empty until the first start has saved them.
    pub databases: Vec<DatabaseSetting>,
    /// The node's promises to the groups of configured databases. Sorted by index.
    pub groups: Vec<GroupRecord>,
    /// Drawn when the directory is created or reset. Media bind their checksums to it, so that a
    /// file of another node, or from before a reset, does not verify.
    pub binding: u64,
}

/// One copy as it was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    Valid {
        sequence: u64,
        identity: Box<Identity>,
    },
    /// Whole, but of a format that this version does not know.
    OtherFormat(u32),
    Damaged,
}

impl Durability {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Durability::Volatile => "volatile",
            Durability::Pmem => "pmem",
            Durability::Disk => "disk",
        }
    }
}

impl Identity {
    /// A node that has never run.
    #[must_use]
    pub fn new(node: NodeId, durability: Durability, binding: u64) -> Identity {
        Identity {
            node,
            standing: Standing::Unformed,
            cluster: None,
            running: None,
            members: Vec::new(),
            durability,
            incarnation: Incarnation(0),
            amnesia: AmnesiaCount(0),
            clocks: Vec::new(),
            stopped: Incarnation(0),
            databases: Vec::new(),
            groups: Vec::new(),
            binding,
        }
    }

    /// What may be said after the other copy was found damaged: above anything that one can have
    /// said. `None` when a counter is exhausted.
    #[must_use]
    pub fn after_damage(mut self) -> Option<Identity> {
        self.incarnation = raised(self.incarnation.0, DAMAGE_STEP).map(Incarnation)?;
        self.amnesia = raised(self.amnesia.0, DAMAGE_STEP).map(AmnesiaCount)?;
        if self.standing == Standing::Unformed {
            self.standing = Standing::Uncertain;
        }
        Some(self)
    }

    /// The identity of the next start. `None` when the incarnations are exhausted.
    #[must_use]
    pub fn next_incarnation(mut self) -> Option<Identity> {
        self.incarnation = raised(self.incarnation.0, 1).map(Incarnation)?;
        Some(self)
    }

    /// The identity after acceptor state was lost. `None` when the counter is exhausted.
    #[must_use]
    pub fn next_amnesia(mut self) -> Option<Identity> {
        self.amnesia = raised(self.amnesia.0, 1).map(AmnesiaCount)?;
        Some(self)
    }

    /// The bytes of copy `place` (0 or 1); `None` when the members' addresses do not fit.
    #[must_use]
    pub fn encode(&self, sequence: u64, place: usize) -> Option<[u8; COPY_LEN]> {
        assert!(self.members.len() <= MEMBERS_MAX, "{} members", self.members.len());
        let mut body = Vec::with_capacity(COPY_LEN);
        body.extend_from_slice(&MAGIC);
        body.extend_from_slice(&FORMAT.to_le_bytes());
        body.extend_from_slice(&self.node.0.to_le_bytes());
        body.push(self.durability as u8);
        body.push(self.standing as u8);
        body.extend_from_slice(&sequence.to_le_bytes());
        body.push(u8::from(self.cluster.is_some()));
        let cluster = self.cluster.unwrap_or(Cluster { id: 0, secret: [0; SECRET_LEN] });
        body.extend_from_slice(&cluster.id.to_le_bytes());
        body.extend_from_slice(&cluster.secret);
        self.running.encode(&mut body);
        body.extend_from_slice(&self.incarnation.0.to_le_bytes());
        body.extend_from_slice(&self.amnesia.0.to_le_bytes());
        body.extend_from_slice(&self.binding.to_le_bytes());
        assert!(self.clocks.len() <= CLOCKS_MAX, "{} clocks", self.clocks.len());
        body.extend_from_slice(&self.stopped.0.to_le_bytes());
        body.push(self.clocks.len() as u8);
        for clock in &self.clocks {
            body.extend_from_slice(&clock.shown.0.to_le_bytes());
            body.extend_from_slice(&clock.until.0.to_le_bytes());
        }
        let later_clocks = (CLOCKS_MAX - self.clocks.len()) * CLOCK_LEN;
        let silent = self.members.iter().filter(|member| member.limits.is_none()).count();
        let later_limits = silent * LIMITS_LEN;
        body.push(self.members.len() as u8);
        for member in &self.members {
            body.extend_from_slice(&member.node.0.to_le_bytes());
            put_blob(&mut body, member.listen.as_bytes());
            put_blob(&mut body, member.peer_listen.as_bytes());
            body.extend_from_slice(&member.incarnation.0.to_le_bytes());
            body.extend_from_slice(&member.amnesia.0.to_le_bytes());
            put_limits(&mut body, member.limits);
        }
        assert!(self.databases.len() <= DATABASES, "{} databases", self.databases.len());
        body.push(self.databases.len() as u8);
        for database in &self.databases {
            body.extend_from_slice(&[database.index, database.durability as u8, database.replicas]);
            put_blob(&mut body, database.protocol.as_bytes());
            body.extend_from_slice(&database.generation.to_le_bytes());
            body.push(u8::from(database.has_log_area));
        }
        assert!(self.groups.len() <= DATABASES, "{} groups", self.groups.len());
        body.push(self.groups.len() as u8);
        for group in &self.groups {
            assert!(group.bytes.len() <= GROUP_LEN_MAX, "{} bytes", group.bytes.len());
            body.push(group.index);
            put_blob(&mut body, &group.bytes);
        }
        let open = self.databases.len().saturating_sub(self.groups.len());
        let later_groups = open * (GROUP_LEN_MAX + 2);
        let later = later_clocks + later_limits + later_groups;
        // Clocks, limits and groups are added while the node runs: they must always fit.
        if body.len() + later > COPY_LEN - CHECKSUM_LEN {
            return None;
        }
        seal(&body, place)
    }
}

fn put_limits(body: &mut Vec<u8>, limits: Option<Limits>) {
    body.push(u8::from(limits.is_some()));
    if let Some(limits) = limits {
        for number in [limits.max_value_size, limits.once_window.0] {
            body.extend_from_slice(&number.to_le_bytes());
        }
    }
}

fn raised(counter: u32, step: u32) -> Option<u32> {
    let max = Incarnation::MAX.0;
    const { assert!(Incarnation::MAX.0 == AmnesiaCount::MAX.0) };
    counter.checked_add(step).filter(|&next| next <= max)
}

fn seal(body: &[u8], place: usize) -> Option<[u8; COPY_LEN]> {
    let mut copy = [0; COPY_LEN];
    copy[CHECKSUM_LEN..].get_mut(..body.len())?.copy_from_slice(body);
    let checksum = base::checksum::checksum(place as u64, &copy[CHECKSUM_LEN..]);
    copy[..CHECKSUM_LEN].copy_from_slice(&checksum.to_le_bytes());
    Some(copy)
}

/// Reads the bytes found at copy `place`; a short copy is a damaged one.
#[must_use]
pub fn decode(copy: &[u8], place: usize) -> Found {
    let Some((checksum, body)) = copy.split_first_chunk::<CHECKSUM_LEN>() else {
        return Found::Damaged;
    };
    let whole = copy.len() == COPY_LEN
        && u64::from_le_bytes(*checksum) == base::checksum::checksum(place as u64, body);
    if !whole || !body.starts_with(&MAGIC) {
        return Found::Damaged;
    }
    let mut reader = Reader::new(&body[MAGIC.len()..]);
    match reader.u32() {
        Ok(FORMAT) => {}
        Ok(other) => return Found::OtherFormat(other),
        Err(Malformed) => return Found::Damaged,
    }
    match decode_fields(&mut reader) {
        Ok((sequence, identity)) => Found::Valid { sequence, identity: Box::new(identity) },
        Err(Malformed) => Found::Damaged,
    }
}

fn decode_fields(reader: &mut Reader<'_>) -> Result<(u64, Identity), Malformed> {
    let node = NodeId(reader.u16()?);
    let durability = decode_durability(reader)?;
    let standing = match reader.u8()? {
        0 => Standing::Unformed,
        1 => Standing::Formed,
        2 => Standing::Uncertain,
        3 => Standing::Wiping,
        _ => return Err(Malformed),
    };
    let sequence = reader.u64()?;
    let has_cluster = reader.u8()? == 1;
    let id = u128::from(reader.u64()?) | u128::from(reader.u64()?) << 64;
    let secret = *reader.take(SECRET_LEN)?.first_chunk().ok_or(Malformed)?;
    let running = Option::<Running>::decode(reader)?;
    let identity = Identity {
        node,
        standing,
        cluster: has_cluster.then_some(Cluster { id, secret }),
        running,
        durability,
        incarnation: Incarnation(reader.u32()?),
        amnesia: AmnesiaCount(reader.u32()?),
        binding: reader.u64()?,
        stopped: Incarnation(reader.u32()?),
        clocks: decode_clocks(reader)?,
        members: decode_members(reader)?,
        databases: decode_databases(reader)?,
        groups: decode_groups(reader)?,
    };
    let is_member = identity.standing == Standing::Formed;
    let is_consistent = !is_member || identity.running.is_some();
    if identity.incarnation > Incarnation::MAX
        || identity.amnesia > AmnesiaCount::MAX
        || !is_consistent
    {
        return Err(Malformed);
    }
    Ok((sequence, identity))
}

fn decode_clocks(reader: &mut Reader<'_>) -> Result<Vec<SavedClock>, Malformed> {
    let count = usize::from(reader.u8()?);
    if count > CLOCKS_MAX {
        return Err(Malformed);
    }
    let clock = |reader: &mut Reader<'_>| {
        Ok(SavedClock { shown: Millis(reader.u64()?), until: Millis(reader.u64()?) })
    };
    (0..count).map(|_| clock(reader)).collect()
}

fn decode_members(reader: &mut Reader<'_>) -> Result<Vec<Member>, Malformed> {
    let count = usize::from(reader.u8()?);
    if count > MEMBERS_MAX {
        return Err(Malformed);
    }
    let address = |reader: &mut Reader<'_>| {
        let bytes = reader.blob(ADDRESS_LEN_MAX)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Malformed)
    };
    let member = |reader: &mut Reader<'_>| {
        let node = NodeId(reader.u16()?);
        Ok(Member {
            node,
            listen: address(reader)?,
            peer_listen: address(reader)?,
            incarnation: Incarnation(reader.u32()?),
            amnesia: AmnesiaCount(reader.u32()?),
            limits: decode_limits(reader)?,
        })
    };
    (0..count).map(|_| member(reader)).collect()
}

fn decode_durability(reader: &mut Reader<'_>) -> Result<Durability, Malformed> {
    match reader.u8()? {
        0 => Ok(Durability::Volatile),
        1 => Ok(Durability::Pmem),
        2 => Ok(Durability::Disk),
        _ => Err(Malformed),
    }
}

fn decode_limits(reader: &mut Reader<'_>) -> Result<Option<Limits>, Malformed> {
    match reader.u8()? {
        0 => Ok(None),
        1 => Ok(Some(Limits { max_value_size: reader.u64()?, once_window: Millis(reader.u64()?) })),
        _ => Err(Malformed),
    }
}

fn decode_groups(reader: &mut Reader<'_>) -> Result<Vec<GroupRecord>, Malformed> {
    let count = usize::from(reader.u8()?);
    if count > DATABASES {
        return Err(Malformed);
    }
    let one = |reader: &mut Reader<'_>| {
        let index = reader.u8()?;
        Ok(GroupRecord { index, bytes: reader.blob(GROUP_LEN_MAX)?.to_vec() })
    };
    (0..count).map(|_| one(reader)).collect()
}

fn decode_databases(reader: &mut Reader<'_>) -> Result<Vec<DatabaseSetting>, Malformed> {
    let count = usize::from(reader.u8()?);
    if count > DATABASES {
        return Err(Malformed);
    }
    let one = |reader: &mut Reader<'_>| {
        let (index, durability) = (reader.u8()?, decode_durability(reader)?);
        let replicas = reader.u8()?;
        let protocol = reader.blob(PROTOCOL_LEN_MAX)?;
        let protocol = std::str::from_utf8(protocol).map_err(|_| Malformed)?.to_owned();
        let generation = reader.u64()?;
        let has_log_area = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed),
        };
        Ok(DatabaseSetting { index, protocol, durability, replicas, generation, has_log_area })
    };
    (0..count).map(|_| one(reader)).collect()
}

#[cfg(test)]
mod tests {
    use types::features::FeatureLevel;

    use super::*;

    fn identity() -> Identity {
        let member = |node: u16| Member {
            node: NodeId(node),
            listen: format!("10.0.0.{node}:6379"),
            peer_listen: format!("10.0.0.{node}:16379"),
            incarnation: Incarnation(3),
            amnesia: AmnesiaCount(u32::from(node)),
            limits: (node != 3)
                .then_some(Limits { max_value_size: 1 << 20, once_window: Millis(600_000) }),
        };
        let database = |index| DatabaseSetting {
            index,
            protocol: "rmwpaxos".to_string(),
            durability: Durability::Disk,
            replicas: [0, 3, 5, 7][usize::from(index) % 4],
            generation: u64::from(index),
            has_log_area: index == 1,
        };
        Identity {
            standing: Standing::Formed,
            cluster: Some(Cluster {
                id: 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210,
                secret: [0x5a; SECRET_LEN],
            }),
            running: Some(Running { level: FeatureLevel(3), pledged: FeatureLevel(4) }),
            members: vec![member(1), member(2), member(3)],
            incarnation: Incarnation(41),
            amnesia: AmnesiaCount(7),
            clocks: vec![SavedClock { shown: Millis(123_456), until: Millis(123_999) }],
            stopped: Incarnation(40),
            databases: (0..16).map(database).collect(),
            groups: vec![
                GroupRecord { index: 1, bytes: vec![1, 2, 3] },
                GroupRecord { index: 15, bytes: vec![9; GROUP_LEN_MAX] },
            ],
            ..Identity::new(NodeId(2), Durability::Pmem, 0x5eed)
        }
    }

    #[test]
    fn bytes_come_back_at_their_place_only() {
        let copy = identity().encode(12, 1).expect("it fits");
        let found = Found::Valid { sequence: 12, identity: Box::new(identity()) };
        assert_eq!(decode(&copy, 1), found);
        assert_eq!(decode(&copy, 0), Found::Damaged);
        assert_eq!(decode(&copy[..COPY_LEN - 1], 1), Found::Damaged);
        assert_eq!(decode(&[0; COPY_LEN], 0), Found::Damaged);
    }

    #[test]
    fn bytes_never_change() {
        let copy = identity().encode(12, 1).expect("it fits");
        let hash = base::checksum::hash(&copy);
        const GOLDEN: u64 = 0x1a32_08f7_5542_df1a;
        assert_eq!(copy[8..16], *b"PALIMPST");
        assert_eq!(copy[16..32], [9, 0, 0, 0, 2, 0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(hash, GOLDEN, "the format changed: {hash:#x}");
    }

    #[test]
    fn another_format_is_told_from_damage() {
        let mut copy = identity().encode(12, 0).expect("it fits");
        copy[16] = 10;
        assert_eq!(decode(&copy, 0), Found::Damaged);
        let sealed = seal(&copy[CHECKSUM_LEN..], 0).expect("it fits");
        assert_eq!(decode(&sealed, 0), Found::OtherFormat(10));
    }

    #[test]
    fn addresses_that_do_not_fit_are_refused() {
        let mut large = identity();
        large.members[0].listen = "x".repeat(COPY_LEN);
        assert_eq!(large.encode(1, 0), None);
    }

    /// Clocks and limits are added at run time, and must not stop a node with long addresses.
    #[test]
    fn clocks_and_limits_fit_wherever_addresses_do() {
        let mut large = Identity { clocks: Vec::new(), ..identity() };
        let limits = large.members[0].limits;
        large.members.iter_mut().for_each(|member| member.limits = None);
        let fits = |it: &Identity| it.encode(1, 0).is_some();
        while fits(&large) {
            large.members[0].listen.push('x');
        }
        large.members[0].listen.pop();
        let clock = SavedClock { shown: Millis(u64::MAX), until: Millis(u64::MAX) };
        for count in 0..=CLOCKS_MAX {
            let with_clocks = Identity { clocks: vec![clock; count], ..large.clone() };
            assert!(fits(&with_clocks), "{count} clocks");
        }
        for at in 0..large.members.len() {
            large.members[at].limits = limits;
            assert!(fits(&large), "limits of {} members", at + 1);
        }
    }

    /// Clocks are saved often: a torn save must not look like a lost identity.
    #[test]
    fn saves_of_clocks_differ_within_one_sector() {
        const SECTOR_LEN: usize = 512;
        let saved = |shown: u64| {
            let clock = SavedClock { shown: Millis(shown), until: Millis(!shown) };
            Identity { clocks: vec![clock; 14], stopped: Incarnation(9), ..identity() }
        };
        let (before, after) = (saved(5).encode(12, 0), saved(!5).encode(14, 0));
        let (before, after) = (before.expect("it fits"), after.expect("it fits"));
        assert_ne!(before[..SECTOR_LEN], after[..SECTOR_LEN]);
        assert_eq!(before[SECTOR_LEN..], after[SECTOR_LEN..]);
    }

    #[test]
    fn counters_stop_at_24_bits() {
        let mut last = identity();
        last.incarnation = Incarnation(Incarnation::MAX.0 - 1);
        last = last.next_incarnation().expect("one is left");
        assert_eq!(last.incarnation, Incarnation::MAX);
        assert_eq!(last.clone().next_incarnation(), None);
        assert_eq!(last.after_damage(), None);
    }
}
