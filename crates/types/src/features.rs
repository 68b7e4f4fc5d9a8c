//! Feature levels: the formats and messages that a cluster may use.
//!
//! A version supports a range of levels. A cluster runs at the lowest of its members' highest
//! levels, and never returns to a lower one. A member pledges a level first: from then on it
//! refuses nodes that do not support it. The cluster runs at a level that all members have pledged,
//! so no member can meet records or messages that it does not know.

use std::fmt;

use crate::id::NodeId;
use crate::wire::{Malformed, Reader, Wire};

/// The lowest level that this version supports.
pub const LOWEST: FeatureLevel = FeatureLevel(1);
/// The highest level that this version supports. Raise it with a new record kind or message.
pub const HIGHEST: FeatureLevel = FeatureLevel(1);

/// A feature level, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FeatureLevel(pub u16);

/// The levels that a node supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Supported {
    pub lowest: FeatureLevel,
    pub highest: FeatureLevel,
}

/// The level of a cluster as one member knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Running {
    /// All members have pledged it.
    pub level: FeatureLevel,
    /// This member refuses nodes that do not support it. Never below `level`.
    pub pledged: FeatureLevel,
}

/// The features that a node announces to the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    pub supported: Supported,
    /// `None` while the node belongs to no cluster.
    pub running: Option<Running>,
}

/// Why two nodes cannot belong to one cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clash {
    /// The node does not support the cluster's level.
    Level { node: NodeId, level: FeatureLevel, supported: Supported },
    /// The node has no level in common with the other one.
    Apart { node: NodeId, supported: Supported },
}

impl Supported {
    /// The range of this version.
    pub const HERE: Supported = Supported { lowest: LOWEST, highest: HIGHEST };

    #[must_use]
    pub fn contains(self, level: FeatureLevel) -> bool {
        (self.lowest..=self.highest).contains(&level)
    }
}

impl Default for Supported {
    fn default() -> Supported {
        Supported::HERE
    }
}

impl Running {
    /// Every member supports `level`.
    #[must_use]
    pub fn at(level: FeatureLevel) -> Running {
        Running { level, pledged: level }
    }

    /// The first level that is not supported.
    #[must_use]
    pub fn beyond(self, supported: Supported) -> Option<FeatureLevel> {
        [self.pledged, self.level].into_iter().find(|&level| !supported.contains(level))
    }

    /// The higher level of each kind.
    #[must_use]
    pub fn max(self, other: Running) -> Running {
        Running { level: self.level.max(other.level), pledged: self.pledged.max(other.pledged) }
    }
}

impl Features {
    /// Why `node` and `peer` cannot work together, if they cannot.
    #[must_use]
    pub fn clash(self, node: NodeId, theirs: Features, peer: NodeId) -> Option<Clash> {
        let lacks = |running: Option<Running>, node: NodeId, supported: Supported| {
            let level = running?.beyond(supported)?;
            Some(Clash::Level { node, level, supported })
        };
        let (mine, their) = (self.supported, theirs.supported);
        let is_apart = mine.highest < their.lowest || their.highest < mine.lowest;
        lacks(self.running, peer, their)
            .or_else(|| lacks(theirs.running, node, mine))
            .or_else(|| is_apart.then_some(Clash::Apart { node: peer, supported: their }))
    }
}

impl fmt::Display for FeatureLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Supported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.lowest, self.highest)
    }
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Clash::Level { node, level, supported } => write!(
                f,
                "the cluster runs at feature level {level}; the version of node {node} supports \
                 {supported}"
            ),
            Clash::Apart { node, supported } => write!(
                f,
                "node {node} supports feature levels {supported}; the other node supports none of \
                 them"
            ),
        }
    }
}

impl Wire for FeatureLevel {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<FeatureLevel, Malformed> {
        Ok(FeatureLevel(reader.u16()?))
    }
}

impl Wire for Supported {
    fn encode(&self, out: &mut Vec<u8>) {
        self.lowest.encode(out);
        self.highest.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Supported, Malformed> {
        let (lowest, highest) = (FeatureLevel::decode(reader)?, FeatureLevel::decode(reader)?);
        let is_range = FeatureLevel(0) < lowest && lowest <= highest;
        is_range.then_some(Supported { lowest, highest }).ok_or(Malformed)
    }
}

/// Both levels, or zeros where there are none.
impl Wire for Option<Running> {
    fn encode(&self, out: &mut Vec<u8>) {
        let none = Running::at(FeatureLevel(0));
        let Running { level, pledged } = self.unwrap_or(none);
        level.encode(out);
        pledged.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Option<Running>, Malformed> {
        match (FeatureLevel::decode(reader)?, FeatureLevel::decode(reader)?) {
            (FeatureLevel(0), FeatureLevel(0)) => Ok(None),
            (FeatureLevel(0), _) => Err(Malformed),
            (level, pledged) if level <= pledged => Ok(Some(Running { level, pledged })),
            _ => Err(Malformed),
        }
    }
}

impl Wire for Features {
    fn encode(&self, out: &mut Vec<u8>) {
        self.supported.encode(out);
        self.running.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Features, Malformed> {
        let (supported, running) = (Supported::decode(reader)?, Wire::decode(reader)?);
        Ok(Features { supported, running })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(lowest: u16, highest: u16) -> Supported {
        Supported { lowest: FeatureLevel(lowest), highest: FeatureLevel(highest) }
    }

    fn clash(mine: Features, theirs: Features) -> Option<String> {
        mine.clash(NodeId(1), theirs, NodeId(2)).map(|clash| clash.to_string())
    }

    #[test]
    fn clash_reads_the_same_at_both_nodes() {
        let new = Features { supported: levels(1, 2), running: Some(Running::at(FeatureLevel(2))) };
        let old = Features { supported: levels(1, 1), running: Some(Running::at(FeatureLevel(1))) };
        let text = "the cluster runs at feature level 2; the version of node 2 supports 1 to 1";
        assert_eq!(clash(new, old).as_deref(), Some(text));
        let seen = old.clash(NodeId(2), new, NodeId(1)).map(|clash| clash.to_string());
        assert_eq!(seen.as_deref(), Some(text));
    }

    #[test]
    fn neighbouring_levels_run_together() {
        let new = Features { supported: levels(1, 2), running: Some(Running::at(FeatureLevel(1))) };
        let old = Features { supported: levels(1, 1), ..new };
        assert_eq!(clash(new, old), None);
        assert_eq!(clash(Features { running: None, ..new }, old), None);
    }

    #[test]
    fn pledged_level_is_required_at_once() {
        let running = Running { level: FeatureLevel(1), pledged: FeatureLevel(2) };
        let new = Features { supported: levels(1, 2), running: Some(running) };
        let old = Features { supported: levels(1, 1), running: None };
        assert!(clash(new, old).is_some());
        let later = Features { supported: levels(2, 3), running: None };
        assert!(clash(new, later).is_some(), "the cluster still runs at level 1");
    }

    #[test]
    fn nodes_without_a_common_level_are_apart() {
        let old = Features { supported: levels(1, 1), running: None };
        let new = Features { supported: levels(2, 3), running: None };
        let text = "node 2 supports feature levels 2 to 3; the other node supports none of them";
        assert_eq!(clash(old, new).as_deref(), Some(text));
    }

    #[test]
    fn bytes_come_back_and_rubbish_does_not() {
        for running in [None, Some(Running { level: FeatureLevel(3), pledged: FeatureLevel(4) })] {
            let one = Features { supported: levels(2, 5), running };
            assert_eq!(Features::from_bytes(&one.to_bytes()), Ok(one));
        }
        for bytes in [[0, 1, 0, 0], [2, 1, 0, 0], [1, 1, 0, 1], [1, 1, 2, 1]] {
            let bytes: Vec<u8> = bytes.iter().flat_map(|&low: &u8| [low, 0]).collect();
            assert_eq!(Features::from_bytes(&bytes), Err(Malformed));
        }
    }
}
