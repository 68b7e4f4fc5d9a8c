//! Media faults once all is quiet: silent damage, and parts that revert to an older state.
//!
//! All replicas are equal when a medium is hit. Nodes must find and repair damage without client
//! requests. Comparison finds a reverted part: the node with the older register must report it,
//! unless other damage was found there. In any case all replicas must agree on the newest state.
//! [`healing`](super::healing) reads that from every node, as part of the checked history.
//!
//! All other replicas hold the newest state, so no read may show the reverted one: every key is
//! read through every node at once.
//!
//! One promise is impossible and unchecked: reads while only a minority holds the newest state,
//! before the discovery.

use protocols::rmwpaxos::Register;
use storage::{Load, Place};
use types::{Key, Round, Wire};

use super::*;
use crate::world::DATABASE;

/// Long enough for two passes of the scrub.
const SCRUBBED_AFTER: u64 = 125_000 * MILLI;
/// Long enough for two passes of anti-entropy.
const ANTI_ENTROPY_AFTER: u64 = 2 * 10_300_000 * MILLI;
/// Long enough for a starting node to compare all its registers, even if one member stays silent
/// about some.
const COMPARED_AFTER: u64 = 300_000 * MILLI;
/// Tries to make a fault with an effect.
const TRIES: usize = 32;

/// One of the engines, unless the configuration names a medium.
pub(super) fn medium_for(config: &SimConfig) -> Option<MediumKind> {
    let kind = if config.seed.is_multiple_of(4) { MediumKind::Pmem } else { MediumKind::Disk };
    (config.media_faults > 0).then_some(kind)
}

impl Run {
    pub(super) fn remember_media(&self) {
        (0..self.world.node_count()).for_each(|node| self.world.medium(node).remember());
    }

    /// A report that a register is older than it was.
    pub(super) fn warning_of_age(&self) -> Option<&(usize, String)> {
        self.world.warnings.iter().find(|(_, text)| text.contains("older than it was"))
    }

    pub(super) fn act_of_media_faults(&mut self) -> Result<(), Wrong> {
        self.end_requests()?;
        self.settle()?;
        if let Some((node, text)) = self.warning_of_age() {
            return Err(format!("n{} was not reverted, yet it warns: {text}", node + 1).into());
        }
        self.wait_for_anti_entropy()?;
        for _ in 0..self.media_faults {
            let node = self.rng.below(self.world.node_count() as u64) as usize;
            match self.rng.chance(0.4) {
                true => self.damage(node)?,
                false => self.revert(node)?,
            }
        }
        Ok(())
    }

    /// Every worker compares all its shards, even without writes.
    fn wait_for_anti_entropy(&mut self) -> Result<(), Wrong> {
        self.run_for(ANTI_ENTROPY_AFTER)?;
        let passed = self.world.stats().values.get("rmw_compare_passed_unix").copied();
        match passed {
            Some(0) | None => Err("not every shard is compared with the others".to_string().into()),
            Some(_) => Ok(()),
        }
    }

    fn damage(&mut self, node: usize) -> Result<(), Wrong> {
        let medium = self.world.medium(node).clone();
        // A reverted map of the disk contradicts its pages; nodes notice that only when it matters.
        if !medium.is_whole() || !medium.damage_homes() {
            return Ok(());
        }
        self.world.note(|| format!("media fault: n{} is damaged", node + 1));
        self.run_for(SCRUBBED_AFTER)?;
        self.settle()?;
        match medium.is_whole() {
            false => Err(format!("n{}: silent damage is not found", node + 1).into()),
            true => Ok(()),
        }
    }

    fn revert(&mut self, node: usize) -> Result<(), Wrong> {
        let places: Vec<Place> = (0..self.profile.keys.len())
            .map(|key| Place::Cell(DATABASE, Key::new(format!("k{key}").as_bytes())))
            .collect();
        self.world.crash(node, crate::store::Survival::Prefix);
        self.after_faults(Casualties { crashed: vec![node] });
        let medium = self.world.medium(node).clone();
        let before = medium.look(&places);
        let has_changed = (0..TRIES).any(|_| medium.revert());
        let after = medium.look(&places);
        self.world.note(|| format!("media fault: n{} goes back: {has_changed}", node + 1));
        self.world.excuse_medium(node);
        // The watchers remember messages of this node that its medium does not.
        self.world.watchers.clear();
        let earlier = self.world.warnings.len();
        let amnesia = self.world.amnesia(node);
        // A restarted node has forgotten earlier comparisons: it repairs reverted registers without
        // reporting them.
        let is_remembered = self.rng.chance(0.7);
        if !is_remembered {
            self.restart_others(node);
        }
        self.world.start(node);
        self.read_every_key()?;
        self.run_for(COMPARED_AFTER)?;
        self.settle()?;
        let is_damaged = after.contains(&Load::Lost) || self.has_found_damage(node, earlier);
        let other = (node + 1) % self.world.node_count();
        let now = self.world.medium(other).look(&places);
        let of_each = before.iter().zip(&after).zip(&now);
        for (place, ((before, after), now)) in places.iter().zip(of_each) {
            let Place::Cell(_, key) = place else { continue };
            // A register written since, by its expiry for example, is right.
            if accepted(before) != accepted(now) {
                continue;
            }
            let warnings = self.world.warnings[earlier..].iter();
            // The first affected register of a shard speaks for the others.
            let names = format!("shard {}:", key.shard().0);
            let mut warnings = warnings.filter(|(_, text)| text.contains(&names));
            let is_reported = warnings.any(|(by, text)| *by == node && text.contains("older"));
            if is_older(before, after) && is_remembered && !is_damaged && !is_reported {
                let reason =
                    format!("n{}: {key:?} is older than it was, without a warning", node + 1);
                return Err(reason.into());
            }
        }
        let is_raised = self.world.amnesia(node) > amnesia;
        // Damage that a second copy repairs costs no register.
        let forgets = |(by, text): &(usize, String)| *by == node && text.contains("forgotten");
        let has_forgotten = self.world.warnings[earlier..].iter().any(forgets);
        match has_forgotten && !is_raised {
            true => Err(format!("n{} warns and raises no loss", node + 1).into()),
            false => Ok(()),
        }
    }

    fn restart_others(&mut self, node: usize) {
        for other in (0..self.world.node_count()).filter(|&other| other != node) {
            self.world.crash(other, crate::store::Survival::Prefix);
            self.after_faults(Casualties { crashed: vec![other] });
            self.world.start(other);
        }
    }

    /// All other replicas hold the newest state, so no read shows the reverted one, even before any
    /// comparison.
    fn read_every_key(&mut self) -> Result<(), Wrong> {
        for key in 0..self.profile.keys.len() {
            for node in 0..self.world.node_count() {
                self.read_finally(key, node)?;
            }
        }
        Ok(())
    }

    fn has_found_damage(&self, node: usize, earlier: usize) -> bool {
        let mut warnings = self.world.warnings[earlier..].iter();
        warnings.any(|(by, text)| *by == node && text.contains("are damaged"))
    }
}

fn accepted(load: &Load) -> Option<Round> {
    match load {
        Load::Found(record) => Register::from_bytes(record).ok().map(|it| it.accepted),
        _ => None,
    }
}

/// The accepted round has fallen, or the register is gone.
fn is_older(before: &Load, after: &Load) -> bool {
    let is_tombstone = |load: &Load| match load {
        Load::Found(record) => Register::from_bytes(record)
            .is_ok_and(|it| it.state.as_ref().is_none_or(|state| state.is_tombstone())),
        _ => true,
    };
    accepted(before) > accepted(after) && !is_tombstone(before)
}
