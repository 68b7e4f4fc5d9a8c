//! Settings that the nodes of a cluster share.
//!
//! Protocol, durability and replicas of a database are part of the promises between its nodes.
//! Nodes that differ in them refuse each other ([`Databases`]). Limits may differ while an operator
//! restarts nodes one by one. Each node announces its own ([`Limits`]), and the smallest applies
//! everywhere ([`Agreed`]).

use std::collections::BTreeMap;

use base::Millis;
use types::limits::{DATABASES, ONCE_WINDOW_DEFAULT, VALUE_LEN_DEFAULT};
use types::wire::{Malformed, Reader, Wire, put_blob};
use types::{Database, NodeId};

use crate::config::{DatabaseConfig, Durability};

const PROTOCOL_LEN_MAX: usize = 64;

/// `once-window` is at least this many times the longest request timeout: a client may repeat a
/// command for that long.
pub const ONCE_WINDOW_TIMEOUTS_MIN: u64 = 4;

/// Protocol, durability and replicas of one database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatabaseSetting {
    pub database: Database,
    pub protocol: String,
    pub durability: Durability,
    /// Members of its configured group; `None`: all nodes.
    pub replicas: Option<u8>,
}

/// Protocol, durability and replicas of every database of a node, sorted by index.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Databases(Vec<DatabaseSetting>);

impl Databases {
    #[must_use]
    pub fn new(mut settings: Vec<DatabaseSetting>) -> Databases {
        settings.sort_by_key(|one| one.database);
        Databases(settings)
    }

    #[must_use]
    pub fn of(configs: &[DatabaseConfig]) -> Databases {
        let one = |config: &DatabaseConfig| DatabaseSetting {
            database: config.database,
            protocol: config.protocol.to_owned(),
            durability: config.durability,
            replicas: config.replicas,
        };
        Databases::new(configs.iter().map(one).collect())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn as_slice(&self) -> &[DatabaseSetting] {
        &self.0
    }

    /// Tells settings apart in a handshake.
    #[must_use]
    pub fn hash(&self) -> u64 {
        base::checksum::hash(&self.to_bytes())
    }

    /// The first database in which `there` differs: its index, the setting and both values.
    /// `here_name` and `there_name` say where each value applies.
    #[must_use]
    pub fn difference(
        &self,
        here_name: &str,
        there: &Databases,
        there_name: &str,
    ) -> Option<String> {
        let indexes: std::collections::BTreeSet<Database> =
            self.0.iter().chain(&there.0).map(|one| one.database).collect();
        let find =
            |of: &Databases, database| of.0.iter().find(|one| one.database == database).cloned();
        let differing: Vec<Database> = indexes
            .into_iter()
            .filter(|&database| find(self, database) != find(there, database))
            .collect();
        let &first = differing.first()?;
        let text = match (find(self, first), find(there, first)) {
            (Some(here), Some(there)) if here.protocol != there.protocol => {
                format!("protocol {} {there_name}, {} {here_name}", there.protocol, here.protocol)
            }
            (Some(here), Some(there)) if here.durability != there.durability => format!(
                "durability {} {there_name}, {} {here_name}",
                there.durability, here.durability
            ),
            (Some(here), Some(there)) => format!(
                "replicas {} {there_name}, {} {here_name}",
                show_replicas(there.replicas),
                show_replicas(here.replicas)
            ),
            (Some(_), None) => format!("not served {there_name}, served {here_name}"),
            (None, _) => format!("served {there_name}, not served {here_name}"),
        };
        let more = match differing.len() - 1 {
            0 => String::new(),
            1 => ", and 1 more database differs".to_string(),
            count => format!(", and {count} more databases differ"),
        };
        Some(format!("database {first}: {text}{more}"))
    }
}

fn show_replicas(replicas: Option<u8>) -> String {
    replicas.map_or_else(|| "all".to_owned(), |replicas| replicas.to_string())
}

impl Wire for Databases {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.0.len() as u8);
        for one in &self.0 {
            let replicas = one.replicas.unwrap_or(0);
            out.extend_from_slice(&[one.database.0, one.durability as u8, replicas]);
            put_blob(out, one.protocol.as_bytes());
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Databases, Malformed> {
        let count = usize::from(reader.u8()?);
        if count > DATABASES {
            return Err(Malformed);
        }
        let one = |reader: &mut Reader<'_>| {
            let database = Database(reader.u8()?);
            let durability = match reader.u8()? {
                0 => Durability::Volatile,
                1 => Durability::Pmem,
                2 => Durability::Disk,
                _ => return Err(Malformed),
            };
            let replicas = Some(reader.u8()?).filter(|&replicas| replicas > 0);
            let protocol = reader.blob(PROTOCOL_LEN_MAX)?;
            let protocol = std::str::from_utf8(protocol).map_err(|_| Malformed)?.to_owned();
            Ok(DatabaseSetting { database, protocol, durability, replicas })
        };
        Ok(Databases((0..count).map(|_| one(reader)).collect::<Result<_, Malformed>>()?))
    }
}

/// Limits of one node, as configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of one key's value.
    pub max_value_size: usize,
    /// How long a command under `ONCE` is remembered.
    pub once_window: Millis,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_value_size: VALUE_LEN_DEFAULT, once_window: ONCE_WINDOW_DEFAULT }
    }
}

impl Limits {
    /// Of each limit the one that restricts more.
    #[must_use]
    pub fn strictest(self, other: Limits) -> Limits {
        Limits {
            max_value_size: self.max_value_size.min(other.max_value_size),
            once_window: self.once_window.min(other.once_window),
        }
    }
}

impl Wire for Limits {
    fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.max_value_size as u64, self.once_window.0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Limits, Malformed> {
        Ok(Limits {
            max_value_size: usize::try_from(reader.u64()?).map_err(|_| Malformed)?,
            once_window: Millis(reader.u64()?),
        })
    }
}

/// Limits that count in the whole cluster, and the members that set them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agreed {
    pub max_value_size: usize,
    pub once_window: Millis,
    /// Members whose own `max-value-size` is smaller than another member's and counts.
    pub max_value_size_set_by: Vec<NodeId>,
    /// Members whose own `once-window` is shorter than another member's and the shortest.
    pub once_window_set_by: Vec<NodeId>,
}

impl Agreed {
    /// The limits in force where members announced `limits`. Members without an announcement are
    /// ignored.
    #[must_use]
    pub fn of(limits: &BTreeMap<NodeId, Limits>) -> Agreed {
        let least = |value: fn(&Limits) -> u64| limits.values().map(value).min();
        let set_by = |value: fn(&Limits) -> u64| {
            let least = least(value);
            if limits.values().all(|one| Some(value(one)) == least) {
                return Vec::new();
            }
            let is_least = |(_, one): &(&NodeId, &Limits)| Some(value(one)) == least;
            limits.iter().filter(is_least).map(|(&node, _)| node).collect()
        };
        let default = Limits::default();
        let size = |one: &Limits| one.max_value_size as u64;
        let window = |one: &Limits| one.once_window.0;
        let shortest = least(window).unwrap_or(default.once_window.0);
        Agreed {
            max_value_size: least(size).map_or(default.max_value_size, |size| size as usize),
            once_window: Millis(shortest),
            max_value_size_set_by: set_by(size),
            once_window_set_by: set_by(window),
        }
    }
}

impl Default for Agreed {
    fn default() -> Agreed {
        Agreed::of(&BTreeMap::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(index: u8, protocol: &str, durability: Durability) -> DatabaseSetting {
        let (database, protocol) = (Database(index), protocol.to_owned());
        DatabaseSetting { database, protocol, durability, replicas: None }
    }

    fn databases(settings: &[(u8, &str, Durability)]) -> Databases {
        Databases::new(settings.iter().map(|&(at, name, kind)| setting(at, name, kind)).collect())
    }

    #[test]
    fn difference_names_database_setting_and_values() {
        let here = databases(&[(0, "rmwpaxos", Durability::Disk), (1, "abd", Durability::Disk)]);
        let of = |there: &[(u8, &str, Durability)]| {
            here.difference("here", &databases(there), "there").unwrap_or_default()
        };
        assert_eq!(of(&[(1, "abd", Durability::Disk), (0, "rmwpaxos", Durability::Disk)]), "");
        assert_eq!(
            of(&[(0, "abd", Durability::Disk), (1, "abd", Durability::Disk)]),
            "database 0: protocol abd there, rmwpaxos here"
        );
        assert_eq!(
            of(&[(0, "rmwpaxos", Durability::Volatile), (1, "abd", Durability::Pmem)]),
            "database 0: durability volatile there, disk here, and 1 more database differs"
        );
        assert_eq!(
            of(&[(0, "rmwpaxos", Durability::Disk)]),
            "database 1: not served there, served here"
        );
    }

    #[test]
    fn difference_names_replicas() {
        let group = |replicas| {
            let setting = setting(2, "hermes", Durability::Disk);
            Databases::new(vec![DatabaseSetting { replicas, ..setting }])
        };
        let of = |here, there| group(here).difference("here", &group(there), "there");
        assert_eq!(of(Some(3), Some(3)), None);
        assert_eq!(of(Some(3), None).as_deref(), Some("database 2: replicas all there, 3 here"));
        assert_eq!(of(Some(3), Some(5)).as_deref(), Some("database 2: replicas 5 there, 3 here"));
        assert_ne!(group(Some(3)).hash(), group(Some(5)).hash());
        assert_eq!(Databases::from_bytes(&group(Some(7)).to_bytes()), Ok(group(Some(7))));
    }

    #[test]
    fn settings_survive_the_wire() {
        let one = databases(&[(0, "rmwpaxos", Durability::Disk), (3, "abd", Durability::Volatile)]);
        assert_eq!(Databases::from_bytes(&one.to_bytes()), Ok(one.clone()));
        assert_ne!(one.hash(), databases(&[(0, "rmwpaxos", Durability::Disk)]).hash());
        let limits = Limits { max_value_size: 77, ..Limits::default() };
        assert_eq!(Limits::from_bytes(&limits.to_bytes()), Ok(limits));
    }

    #[test]
    fn smallest_limit_counts_and_is_attributed() {
        let limits = |size, window| Limits { max_value_size: size, once_window: Millis(window) };
        let all = BTreeMap::from([
            (NodeId(1), limits(100, 20_000)),
            (NodeId(2), limits(50, 600_000)),
            (NodeId(3), limits(50, 30_000)),
        ]);
        let agreed = Agreed::of(&all);
        assert_eq!((agreed.max_value_size, agreed.once_window.0), (50, 20_000));
        assert_eq!(agreed.max_value_size_set_by, [NodeId(2), NodeId(3)]);
        assert_eq!(agreed.once_window_set_by, [NodeId(1)]);
        let alike = BTreeMap::from([(NodeId(1), all[&NodeId(1)]), (NodeId(2), all[&NodeId(1)])]);
        assert!(Agreed::of(&alike).max_value_size_set_by.is_empty(), "no member is smaller");
    }
}
