//! Checks of the invariants F1 to F5, for simulators that see all nodes at once.

use std::collections::BTreeMap;
use std::fmt;

use types::{Database, Epoch, NodeId};

use crate::value::GroupValue;

/// A broken invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One group as a global observer sees it.
#[derive(Debug, Default)]
struct Watched {
    active: Option<GroupValue>,
    promised: BTreeMap<NodeId, Epoch>,
    sealed: BTreeMap<NodeId, Epoch>,
}

/// Watches all groups of a simulated cluster.
#[derive(Debug, Default)]
pub struct Watch {
    groups: BTreeMap<Database, Watched>,
}

impl Watch {
    /// F1. To be called whenever the register takes a value.
    ///
    /// # Errors
    /// If it is active and not above the active value before, or does not follow that one.
    pub fn on_register(&mut self, group: Database, value: &GroupValue) -> Result<(), Violation> {
        let watched = self.groups.entry(group).or_default();
        let epoch = value.epoch();
        let last = watched.active.as_ref().filter(|last| *last != value);
        if last.is_some_and(|last| epoch <= last.epoch()) {
            return violation(format!("F1: epoch {epoch} after {last:?}"));
        }
        let is_known = watched.active.is_some() && last.is_none();
        let before = last.map(|last| &last.configuration);
        if !is_known && value.previous.as_ref() != before {
            return violation(format!(
                "F1: epoch {epoch} follows {:?}, not {last:?}",
                value.previous
            ));
        }
        if value.is_active() {
            watched.active = Some(value.clone());
        }
        Ok(())
    }

    /// F2. To be called for each lease that is valid now, by its holder's clock.
    ///
    /// # Errors
    /// If a later epoch is active.
    pub fn on_lease(&self, group: Database, node: NodeId, epoch: Epoch) -> Result<(), Violation> {
        let active = self.active(group);
        if epoch < active {
            return violation(format!(
                "F2: {node} has a lease of {epoch} while {active} is active"
            ));
        }
        Ok(())
    }

    /// F3. `intact` says whether a node's image is the one that the value names and holds all that
    /// was committed. To be called when the value becomes active.
    ///
    /// # Errors
    /// If no full member holds it all.
    pub fn on_active(
        value: &GroupValue,
        mut intact: impl FnMut(NodeId) -> bool,
    ) -> Result<(), Violation> {
        if value.previous.is_none() || value.configuration.full().any(|one| intact(one.node)) {
            return Ok(());
        }
        violation(format!("F3: no full member of {} holds all", value.epoch()))
    }

    /// F4. To be called when a node reports the epochs below `epoch` as sealed.
    pub fn on_sealed(&mut self, group: Database, node: NodeId, epoch: Epoch) {
        let sealed = &mut self.groups.entry(group).or_default().sealed;
        let known = sealed.entry(node).or_default();
        *known = epoch.max(*known);
    }

    /// F4. To be called when a node acknowledges in `epoch`.
    ///
    /// # Errors
    /// If it has reported that epoch as sealed.
    pub fn on_acknowledged(
        &self,
        group: Database,
        node: NodeId,
        epoch: Epoch,
    ) -> Result<(), Violation> {
        let sealed = self.groups.get(&group).and_then(|one| one.sealed.get(&node));
        if sealed.is_some_and(|&sealed| epoch < sealed) {
            return violation(format!("F4: {node} acknowledges in {epoch} after its seal"));
        }
        Ok(())
    }

    /// F5. To be called with each durable record of a node.
    ///
    /// # Errors
    /// If the promise is lower than before.
    pub fn on_promised(
        &mut self,
        group: Database,
        node: NodeId,
        promised: Epoch,
    ) -> Result<(), Violation> {
        let known = &mut self.groups.entry(group).or_default().promised;
        let before = known.insert(node, promised).unwrap_or_default();
        if promised < before {
            return violation(format!("F5: the promise of {node} falls from {before}"));
        }
        Ok(())
    }

    /// The node lost its disk: its promises and seals are gone.
    pub fn on_wiped(&mut self, node: NodeId) {
        for watched in self.groups.values_mut() {
            watched.promised.remove(&node);
            watched.sealed.remove(&node);
        }
    }

    /// The highest active epoch.
    #[must_use]
    pub fn active(&self, group: Database) -> Epoch {
        let active = self.groups.get(&group).and_then(|one| one.active.as_ref());
        active.map_or(Epoch(0), GroupValue::epoch)
    }
}

fn violation(text: String) -> Result<(), Violation> {
    Err(Violation(text))
}

#[cfg(test)]
mod tests {
    use base::Nanos;
    use bytes::Bytes;
    use types::Configuration;

    use super::*;
    use crate::value::Phase;

    const GROUP: Database = Database(1);
    const NODE: NodeId = NodeId(2);

    fn value(epoch: u32, proposer: u16) -> GroupValue {
        let (members, lease) = (Vec::new(), Nanos(1));
        let epoch = Epoch(epoch);
        GroupValue {
            configuration: Configuration { epoch, members, lease, extra: Bytes::new() },
            phase: Phase::Active,
            previous: None,
            decree: None,
            next_serial: 1,
            proposer: NodeId(proposer),
        }
    }

    #[test]
    fn each_check_fails_for_its_violation() {
        let mut watch = Watch::default();
        assert!(watch.on_register(GROUP, &value(2, 1)).is_ok());
        assert!(watch.on_register(GROUP, &value(2, 1)).is_ok());
        assert!(watch.on_register(GROUP, &value(2, 3)).is_err());
        assert!(watch.on_register(GROUP, &value(3, 1)).is_err());
        assert!(watch.on_register(GROUP, &value(1, 1)).is_err());
        assert!(watch.on_lease(GROUP, NODE, Epoch(2)).is_ok());
        assert!(watch.on_lease(GROUP, NODE, Epoch(1)).is_err());
        let after = GroupValue { previous: Some(value(1, 1).configuration), ..value(2, 1) };
        assert!(Watch::on_active(&after, |_| true).is_err());
        assert!(Watch::on_active(&value(2, 1), |_| false).is_ok());
        watch.on_sealed(GROUP, NODE, Epoch(3));
        assert!(watch.on_acknowledged(GROUP, NODE, Epoch(3)).is_ok());
        assert!(watch.on_acknowledged(GROUP, NODE, Epoch(2)).is_err());
        assert!(watch.on_promised(GROUP, NODE, Epoch(3)).is_ok());
        assert!(watch.on_promised(GROUP, NODE, Epoch(2)).is_err());
        watch.on_wiped(NODE);
        assert!(watch.on_promised(GROUP, NODE, Epoch(1)).is_ok());
        assert!(watch.on_acknowledged(GROUP, NODE, Epoch(2)).is_ok());
    }
}
