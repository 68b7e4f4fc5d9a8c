//! The second act: faults end, and the group must work again.

use std::collections::BTreeSet;

use types::Role;

use super::world::{Check, GROUP, MS, World, fail};
use crate::{Content, Decree, GroupValue, Input};

impl World {
    /// Nodes whose image may carry the group on.
    fn intact(&self) -> BTreeSet<usize> {
        let Some(value) = self.value() else { return self.all() };
        let Some(last) = value.last_active() else { return self.all() };
        let members = last.members.iter().filter(|member| {
            let node = &self.nodes[usize::from(member.node.0) - 1];
            let same = node.disk.record.is_some_and(|record| record.image == member.image);
            same && !node.disk.is_lost && member.role == Role::Full
        });
        members.map(|member| usize::from(member.node.0) - 1).collect()
    }

    /// All nodes run and all links stand, except for at most one node that is dead or deaf.
    pub(super) fn heal(&mut self) -> Check {
        self.is_rough = false;
        self.cuts.clear();
        self.apart.clear();
        let odd = self.random.below(self.nodes.len() as u64) as usize;
        let may_miss = self.intact().iter().any(|&node| node != odd);
        let mut dead = None;
        if may_miss && self.nodes.len() > 2 && self.random.chance(0.6) {
            if self.random.chance(0.5) {
                dead = Some(odd);
                self.crash(odd, false);
            } else {
                self.deaf = Some(odd);
            }
        }
        for node in self.all() {
            self.nodes[node].paused_until = 0;
            if !self.is_up(node) && dead != Some(node) {
                self.start(node);
            }
        }
        let deaf = self.deaf;
        self.say(|_| format!("heal: dead {dead:?}, deaf {deaf:?}"));
        let live: BTreeSet<usize> = self
            .all()
            .into_iter()
            .filter(|&node| Some(node) != dead && Some(node) != deaf)
            .collect();
        self.recover(&live)
    }

    fn recover(&mut self, live: &BTreeSet<usize>) -> Check {
        let talking: BTreeSet<usize> =
            self.all().into_iter().filter(|&one| self.is_up(one)).collect();
        let end = self.now + 30_000 * MS;
        let mut next_write = 0;
        while self.now < end {
            self.operations.retain(|one| live.contains(&one.node));
            self.advance(&talking)?;
            if self.now >= next_write {
                next_write = self.now + 100 * MS;
                for &node in live {
                    self.write(node, 0)?;
                    self.write(node, 1)?;
                }
                if self.works(live)? {
                    self.counts.healed += 1;
                    return Ok(());
                }
            }
        }
        let mut intact = self.intact();
        intact.retain(|node| live.contains(node));
        if intact.is_empty() && self.counts.lost == 0 {
            self.counts.lost += 1;
            if let Some(deaf) = self.deaf.take() {
                // Nodes hear the last full member. The operator stops it first.
                self.crash(deaf, false);
                for _ in 0..40 {
                    self.advance(live)?;
                }
            }
            self.order(live)?;
            return self.recover(live);
        }
        let value = self.value();
        let state: Vec<String> = self
            .all()
            .into_iter()
            .map(|node| {
                let service = self.nodes[node].service.as_ref();
                format!("{node}: {:?}", service.and_then(|one| one.status(GROUP)))
            })
            .collect();
        fail(format!("no progress after healing: {value:?}\nlive {live:?}\n{}", state.join("\n")))
    }

    /// An operator saves an image, or lets the group start empty. All that was shown is void.
    fn order(&mut self, live: &BTreeSet<usize>) -> Check {
        let live: Vec<usize> = live.iter().copied().collect();
        let node = *self.random.pick(&live);
        let status = self.nodes[node].service.as_ref().and_then(|one| one.status(GROUP));
        let Some(status) = status else { return Ok(()) };
        let Some(last) = status.value.as_ref().and_then(GroupValue::last_active) else {
            return Ok(());
        };
        let epoch = last.epoch;
        let useful = status.reports.iter().filter(|(node, report)| {
            let place = usize::from(node.0) - 1;
            let filled = matches!(report.content, Content::Whole | Content::Partial);
            filled && live.contains(&place)
        });
        let useful: Vec<Decree> =
            useful.map(|&(node, report)| Decree::Image { node, image: report.image }).collect();
        let decree = if useful.is_empty() || self.random.chance(0.5) {
            Decree::Empty
        } else {
            *self.random.pick(&useful)
        };
        self.say(|_| format!("order {decree:?} at {node}"));
        (self.shown, self.committed) = (Default::default(), Default::default());
        self.history = Default::default();
        self.input(node, Input::Operator { group: GROUP, epoch, decree })
    }

    /// As many live nodes as wanted are full, and each of them writes and reads.
    fn works(&mut self, live: &BTreeSet<usize>) -> Check<bool> {
        // A wedge that no node has heard of does not matter.
        let value = self.value();
        let Some(last) = value.as_ref().and_then(GroupValue::last_active) else {
            return Ok(false);
        };
        let full: BTreeSet<usize> =
            last.full().map(|member| usize::from(member.node.0) - 1).collect();
        let wanted = self.replicas.min(live.len());
        if full.len() < wanted || last.members.len() != full.len() || !full.is_subset(live) {
            return Ok(false);
        }
        let nodes: BTreeSet<usize> = live.clone();
        for &node in live {
            if self.nodes[node].workers.iter().any(|one| one.epoch() != last.epoch) {
                return Ok(false);
            }
        }
        for node in full {
            for key in 0..2 {
                self.replay(node, key)?;
                self.settle(&nodes, 2000)?;
                if !self.write(node, key)? {
                    return Ok(false);
                }
                self.settle(&nodes, 2000)?;
                if !self.read_key(node, key)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
