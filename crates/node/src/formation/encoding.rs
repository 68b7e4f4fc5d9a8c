//! The bytes of a status.

use std::collections::BTreeMap;

use transport::ClusterId;
use types::features::Features;
use types::limits::MEMBERS_MAX;
use types::positions::SECRET_LEN;
use types::wire::{Malformed, Reader, Wire, put_blob};
use types::{AmnesiaCount, Database, Incarnation, NodeId};

use super::{Cluster, Counters, Standing, Status};
use crate::config::MemberAddress;
use crate::settings::{Databases, Limits};

const ADDRESS_LEN_MAX: usize = 512;

/// Stands in a status where there is none.
const NO_CLUSTER: Cluster = Cluster { id: ClusterId([0; 16]), secret: [0; SECRET_LEN] };

impl Wire for Cluster {
    fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        out.extend_from_slice(&self.secret);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Cluster, Malformed> {
        let id = ClusterId::decode(reader)?;
        let secret = *reader.take(SECRET_LEN)?.first_chunk().ok_or(Malformed)?;
        Ok(Cluster { id, secret })
    }
}

impl Wire for Status {
    fn encode(&self, out: &mut Vec<u8>) {
        let (code, cluster) = match self.standing {
            Standing::Empty => (0, None),
            Standing::Proposed(cluster) => (1, Some(cluster)),
            Standing::Uncertain => (2, None),
            Standing::Rejoining(cluster) => (3, Some(cluster)),
            Standing::Formed(cluster) => (4, Some(cluster)),
        };
        out.push(code);
        cluster.unwrap_or(NO_CLUSTER).encode(out);
        self.features.encode(out);
        out.push(self.members.len() as u8);
        for member in &self.members {
            out.extend_from_slice(&member.node.0.to_le_bytes());
            put_blob(out, member.client.as_bytes());
            put_blob(out, member.peer.as_bytes());
        }
        out.push(self.known.len() as u8);
        for (node, counters) in &self.known {
            out.extend_from_slice(&node.0.to_le_bytes());
            out.extend_from_slice(&counters.incarnation.0.to_le_bytes());
            out.extend_from_slice(&counters.amnesia.0.to_le_bytes());
        }
        out.push(u8::from(self.is_recovering));
        self.databases.encode(out);
        out.push(self.limits.len() as u8);
        for (node, limits) in &self.limits {
            out.extend_from_slice(&node.0.to_le_bytes());
            limits.encode(out);
        }
        out.push(self.generations.len() as u8);
        for (database, generation) in &self.generations {
            out.push(database.0);
            out.extend_from_slice(&generation.to_le_bytes());
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Status, Malformed> {
        let (code, cluster) = (reader.u8()?, Cluster::decode(reader)?);
        let standing = match code {
            0 => Standing::Empty,
            1 => Standing::Proposed(cluster),
            2 => Standing::Uncertain,
            3 => Standing::Rejoining(cluster),
            4 => Standing::Formed(cluster),
            _ => return Err(Malformed),
        };
        let features = Features::decode(reader)?;
        if matches!(standing, Standing::Formed(_)) && features.running.is_none() {
            return Err(Malformed);
        }
        let members = decode_list(reader, |reader| {
            let node = NodeId(reader.u16()?);
            Ok(MemberAddress { node, client: decode_text(reader)?, peer: decode_text(reader)? })
        })?;
        let known = decode_list(reader, |reader| {
            let node = NodeId(reader.u16()?);
            let (incarnation, amnesia) = (Incarnation(reader.u32()?), AmnesiaCount(reader.u32()?));
            if incarnation > Incarnation::MAX || amnesia > AmnesiaCount::MAX {
                return Err(Malformed);
            }
            Ok((node, Counters { incarnation, amnesia }))
        })?;
        let is_recovering = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed),
        };
        let databases = Databases::decode(reader)?;
        let limits =
            decode_list(reader, |reader| Ok((NodeId(reader.u16()?), Limits::decode(reader)?)))?;
        let generations = decode_generations(reader)?;
        let (known, limits) = (known.into_iter().collect(), limits.into_iter().collect());
        Ok(Status {
            standing,
            features,
            members,
            known,
            is_recovering,
            databases,
            limits,
            generations,
        })
    }
}

fn decode_generations(reader: &mut Reader<'_>) -> Result<BTreeMap<Database, u64>, Malformed> {
    let mut generations = BTreeMap::new();
    for _ in 0..reader.u8()? {
        let (database, generation) = (Database(reader.u8()?), reader.u64()?);
        if !database.is_of_users() || generation == 0 {
            return Err(Malformed);
        }
        generations.insert(database, generation);
    }
    Ok(generations)
}

fn decode_list<T>(
    reader: &mut Reader<'_>,
    mut one: impl FnMut(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = usize::from(reader.u8()?);
    if count > MEMBERS_MAX {
        return Err(Malformed);
    }
    (0..count).map(|_| one(reader)).collect()
}

fn decode_text(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let bytes = reader.blob(ADDRESS_LEN_MAX)?;
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Malformed)
}
