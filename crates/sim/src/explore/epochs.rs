//! Configurations of a group in a small world, and the steps from one to the next.
//!
//! They follow `docs/protocols/membership.md`. A node may hear of a step at any time, or never. An
//! epoch begins once a majority of all nodes and each of its full members have sealed the one
//! before. Leases last as long as they may: until the next epoch begins.

use std::sync::Arc;

use base::Nanos;
use bytes::Bytes;
use types::{Configuration, Epoch, GroupMember, ImageId, Incarnation, NodeId, Role, Serial};

use super::node::Setting;
use super::{EpochPlan, WorldPlan};

/// The configurations of a plan, that of the first epoch first.
pub(super) fn configurations(plan: &WorldPlan) -> Vec<Arc<Configuration>> {
    let first = EpochPlan { full: (1..=plan.replicas).collect(), shadows: Vec::new() };
    let plans = std::iter::once(&first).chain(&plan.epochs);
    plans.zip(1..).map(|(plan, epoch)| Arc::new(configuration(plan, Epoch(epoch)))).collect()
}

fn configuration(plan: &EpochPlan, epoch: Epoch) -> Configuration {
    let member = |role| {
        move |&node: &u16| GroupMember {
            node: NodeId(node),
            incarnation: Incarnation(1),
            image: ImageId(u64::from(node)),
            serial: Serial(u32::from(node)),
            role,
        }
    };
    let full = plan.full.iter().map(member(Role::Full));
    let shadows = plan.shadows.iter().map(member(Role::Shadow));
    let (members, lease) = (full.chain(shadows).collect(), Nanos::from_secs(1));
    Configuration { epoch, members, lease, extra: Bytes::new() }
}

/// The register of the group, and the epochs of each node.
#[derive(Clone)]
pub(super) struct Epochs {
    active: u8,
    /// By node: every epoch below is sealed.
    promised: Vec<u8>,
    installed: Vec<u8>,
    /// By node: the last epoch in which it was a shadow with a whole copy.
    copied: Vec<u8>,
}

impl Epochs {
    pub(super) fn first(nodes: usize) -> Epochs {
        let each = |epoch| vec![epoch; nodes];
        Epochs { active: 1, promised: each(1), installed: each(1), copied: each(0) }
    }

    pub(super) fn may_wedge(&self, setting: &Setting, node: usize) -> bool {
        usize::from(self.active) < setting.configurations.len()
            && self.promised[node] <= self.active
    }

    pub(super) fn wedge(&mut self, node: usize) -> u32 {
        self.promised[node] = self.active + 1;
        u32::from(self.active) + 1
    }

    pub(super) fn may_activate(&self, setting: &Setting) -> bool {
        let Some(next) = setting.configurations.get(usize::from(self.active)) else { return false };
        let before = &setting.configurations[usize::from(self.active) - 1];
        let has_sealed = |node: usize| self.promised[node] > self.active;
        let sealed = (0..self.promised.len()).filter(|&node| has_sealed(node)).count();
        let may_be_full = |member: &GroupMember| {
            let node = usize::from(member.node.0) - 1;
            let role = before.member(member.node).map(|member| member.role);
            let has_copy = self.copied[node] == self.active;
            has_sealed(node) && (role == Some(Role::Full) || has_copy)
        };
        sealed > self.promised.len() / 2 && next.full().all(may_be_full)
    }

    pub(super) fn activate(&mut self) -> u32 {
        self.active += 1;
        u32::from(self.active)
    }

    pub(super) fn may_install(&self, node: usize) -> bool {
        self.installed[node] < self.active && self.promised[node] <= self.active
    }

    /// The epoch, and whether the node has yet to seal those below.
    pub(super) fn install(&mut self, node: usize) -> (u32, bool) {
        let must_seal = self.promised[node] < self.active;
        (self.promised[node], self.installed[node]) = (self.active, self.active);
        (u32::from(self.active), must_seal)
    }

    pub(super) fn note_copied(&mut self, node: usize, copied: Option<u32>) {
        if let Some(epoch) = copied {
            self.copied[node] = epoch as u8;
        }
    }

    pub(super) fn add_to(&self, digest: &mut Vec<u8>) {
        digest.push(self.active);
        for of_each in [&self.promised, &self.installed, &self.copied] {
            digest.extend(of_each);
        }
    }
}
