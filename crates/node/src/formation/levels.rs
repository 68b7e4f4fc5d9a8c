//! The feature level of the cluster, pledged by each member, then raised; and the generations of
//! its databases.

use std::collections::BTreeMap;

use types::features::{Clash, FeatureLevel, Features, Running};
use types::{Database, NodeId};

use super::{Cluster, Effect, Formation, Standing, Status};

impl Formation {
    /// The features that this node announces.
    #[must_use]
    pub fn features(&self) -> Features {
        Features { supported: self.supported, running: self.durable.running }
    }

    /// Why a peer with these features is refused.
    pub(super) fn clash(&self, peer: NodeId, theirs: Features) -> Option<Clash> {
        self.features().clash(self.me, theirs, peer)
    }

    /// Pledges the level that all members support, and runs at the one that all have pledged.
    pub(super) fn raise_level(&mut self, out: &mut Vec<Effect>) {
        let (Standing::Formed(cluster), Some(before)) =
            (self.durable.standing, self.durable.running)
        else {
            return;
        };
        let mut after = self.running_in(cluster).map_or(before, |others| {
            // A member that runs at a level saw this one pledge it.
            let level = others.level.max(before.level);
            Running { level, pledged: before.pledged.max(level) }
        });
        let said = |node: NodeId| {
            let status = self.heard.get(&node)?.as_ref()?;
            self.is_fellow(status, cluster).then_some(status.features)
        };
        let all: Option<Vec<Features>> = self.others().map(said).collect();
        if let Some(others) = all {
            let highest = others.iter().map(|one| one.supported.highest);
            let supported = highest
                .min()
                .map_or(self.supported.highest, |theirs| theirs.min(self.supported.highest));
            after.pledged = after.pledged.max(supported);
            let pledged = others.iter().filter_map(|one| Some(one.running?.pledged));
            let by_all = pledged.min().map_or(after.pledged, |theirs| theirs.min(after.pledged));
            after.level = after.level.max(by_all);
        }
        if after == before {
            return;
        }
        self.durable.running = Some(after);
        self.persist_with_former(out);
        if after.level > before.level {
            out.push(Effect::Raised(after.level));
        }
    }

    /// Makes the change durable together with the last one of this step: a member writes once.
    fn persist_with_former(&self, out: &mut Vec<Effect>) {
        let mut effects = out.iter_mut().rev();
        let former = effects.find_map(|effect| match effect {
            Effect::Persist(durable) => Some(durable),
            _ => None,
        });
        match former {
            Some(durable) => **durable = self.durable.clone(),
            None => out.push(Effect::Persist(Box::new(self.durable.clone()))),
        }
        out.push(Effect::TellAll);
    }

    /// The highest levels that connected members of `cluster` have said.
    pub(super) fn running_in(&self, cluster: Cluster) -> Option<Running> {
        let heard = self.heard.values().flatten();
        let fellows = heard.filter(|status| self.is_fellow(status, cluster));
        fellows.filter_map(|status| status.features.running).reduce(Running::max)
    }

    fn is_fellow(&self, status: &Status, cluster: Cluster) -> bool {
        status.standing == Standing::Formed(cluster) && status.databases == self.durable.databases
    }

    /// The lowest of the highest levels of all members. Each has been heard.
    pub(super) fn common_level(&self) -> FeatureLevel {
        let heard = self.heard.values().flatten();
        let highest = heard.map(|status| status.features.supported.highest);
        highest.fold(self.supported.highest, FeatureLevel::min)
    }

    /// A database is as new as the newest generation of it that any member knows.
    pub(super) fn learn_generations(&mut self, out: &mut Vec<Effect>) {
        let Standing::Formed(cluster) = self.durable.standing else { return };
        let generations = self.generations_in(cluster);
        if generations != self.durable.generations {
            self.durable.generations = generations;
            self.persist_with_former(out);
        }
    }

    /// The highest generations that this node or a connected member of `cluster` knows.
    pub(super) fn generations_in(&self, cluster: Cluster) -> BTreeMap<Database, u64> {
        let mut generations = self.durable.generations.clone();
        let heard = self.heard.values().flatten();
        let fellows = heard.filter(|status| self.is_fellow(status, cluster));
        for (&database, &generation) in fellows.flat_map(|status| &status.generations) {
            let known = generations.entry(database).or_default();
            *known = generation.max(*known);
        }
        generations
    }
}
