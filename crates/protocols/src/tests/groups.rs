//! The membership service: it keeps the contract of `docs/protocols/membership.md`, and no time.
//!
//! Its steps come one by one, so a schedule may leave a change half done.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Nanos;
use bytes::Bytes;
use types::{Configuration, Epoch, GroupMember, ImageId, Incarnation, NodeId, Role, Serial};

use super::{World, node_id};
use crate::group::{GroupEvent, GroupReport};
use crate::protocol::{Event, Protocol};

/// A process and the content of its stores.
type Process = (Incarnation, ImageId);

#[derive(Debug)]
pub(super) struct Service {
    /// The last epoch that a change has tried.
    pub tried: Epoch,
    pub active: Option<Arc<Configuration>>,
    serials: BTreeMap<(NodeId, Incarnation, ImageId), Serial>,
    images: u64,
    /// By node, the process that sealed, and for which epoch.
    sealed: Vec<Option<(Process, Epoch)>>,
    /// By node, the shadow whose copy is complete.
    copied: Vec<Option<(Incarnation, Epoch)>>,
}

impl Service {
    pub fn new(nodes: usize) -> Service {
        Service {
            tried: Epoch(0),
            active: None,
            serials: BTreeMap::new(),
            images: 0,
            sealed: vec![None; nodes],
            copied: vec![None; nodes],
        }
    }

    pub fn new_image(&mut self) -> ImageId {
        self.images += 1;
        ImageId(self.images)
    }
}

impl<P: Protocol> World<P> {
    /// The first configuration, installed at all nodes: these are full, the others no members.
    pub fn begin(&mut self, full: &[usize]) {
        self.service.tried = Epoch(1);
        (0..self.nodes.len()).for_each(|index| self.wedge(index));
        self.activate(full.iter().map(|&index| (index, Role::Full)).collect());
        (0..self.nodes.len()).for_each(|index| self.install(index));
        for index in (0..self.nodes.len()).filter(|index| !full.contains(index)) {
            self.erase(index);
        }
        self.lend_all();
    }

    /// One node learns of the epoch that is tried.
    pub fn wedge(&mut self, index: usize) {
        let epoch = self.service.tried;
        if !self.nodes[index].is_up {
            return;
        }
        self.note(|| format!("node {index}: wedge {epoch:?}"));
        let node = &mut self.nodes[index];
        node.promised = epoch;
        node.lent.set(Epoch(0));
        node.gated.retain(|send| P::outlives_epoch(&send.message));
        self.step(index, Event::Group(GroupEvent::Wedge { epoch }));
    }

    pub fn on_report(&mut self, index: usize, report: GroupReport) {
        self.note(|| format!("node {index}: reports {report:?}"));
        let node = &mut self.nodes[index];
        match report {
            GroupReport::Sealed { epoch, .. } => {
                self.service.sealed[index] = Some(((node.incarnation, node.image), epoch));
            }
            GroupReport::Copied { epoch } => {
                self.service.copied[index] = Some((node.incarnation, epoch));
            }
            GroupReport::Erased { image } => node.is_blank = node.image == image,
            GroupReport::Lost => {
                node.image = self.service.new_image();
                node.is_blank = false;
            }
        }
    }

    /// A process of this node has started: earlier reports are void.
    pub fn forget_service_state(&mut self, index: usize) {
        self.service.sealed[index] = None;
        self.service.copied[index] = None;
    }

    fn has_sealed(&self, index: usize) -> bool {
        let node = &self.nodes[index];
        let process = (node.incarnation, node.image);
        node.is_up && self.service.sealed[index] == Some((process, self.service.tried))
    }

    /// The role that a node may have in the configuration after the active one.
    pub fn eligible(&self, index: usize) -> Option<Role> {
        let active = self.service.active.as_ref()?;
        let node = &self.nodes[index];
        if !node.is_up {
            return None;
        }
        let member = active.member(node_id(index)).filter(|member| member.image == node.image);
        let is_process = member.is_some_and(|member| member.incarnation == node.incarnation);
        match member.map(|member| member.role) {
            Some(Role::Full) if self.has_sealed(index) => Some(Role::Full),
            Some(Role::Shadow) if is_process => {
                let has_copy = self.service.copied[index] == Some((node.incarnation, active.epoch));
                Some(if has_copy && self.has_sealed(index) { Role::Full } else { Role::Shadow })
            }
            None if node.is_blank && node.installed >= active.epoch => Some(Role::Shadow),
            _ => None,
        }
    }

    /// The epoch that is tried begins with these members, in their order. Every lease of an epoch
    /// before has ended.
    pub fn activate(&mut self, members: Vec<(usize, Role)>) {
        let epoch = self.service.tried;
        let mut listed = Vec::new();
        for (index, role) in members {
            let node = &self.nodes[index];
            let name = (node_id(index), node.incarnation, node.image);
            let next = Serial(u32::try_from(self.service.serials.len()).expect("few") + 1);
            let serial = *self.service.serials.entry(name).or_insert(next);
            let (node, incarnation, image) = name;
            listed.push(GroupMember { node, incarnation, image, serial, role });
        }
        for node in &self.nodes {
            node.lent.set(Epoch(0));
        }
        let configuration =
            Configuration { epoch, members: listed, lease: LEASE, extra: Bytes::new() };
        self.note(|| format!("active: {configuration:?}"));
        self.service.active = Some(Arc::new(configuration));
    }

    /// A node learns of the active configuration.
    pub fn install(&mut self, index: usize) {
        let Some(configuration) = self.service.active.clone() else { return };
        let epoch = configuration.epoch;
        let node = &self.nodes[index];
        if !node.is_up || node.installed >= epoch || node.promised > epoch {
            return;
        }
        if node.promised < epoch {
            let tried = std::mem::replace(&mut self.service.tried, epoch);
            self.wedge(index);
            self.service.tried = tried;
        }
        let node = &mut self.nodes[index];
        node.installed = epoch;
        let process = (node.incarnation, node.image);
        let member = configuration.member(node_id(index));
        let member = member.filter(|member| (member.incarnation, member.image) == process);
        let role = member.map(|member| member.role);
        if role.is_some() {
            node.is_blank = false;
        }
        self.note(|| format!("node {index}: install {epoch:?} as {role:?}"));
        self.step(index, Event::Group(GroupEvent::Install { configuration, role }));
    }

    /// A node that is no member gives up its stores.
    pub fn erase(&mut self, index: usize) {
        let Some(active) = &self.service.active else { return };
        let node = &self.nodes[index];
        let is_needed = active.member(node_id(index)).is_some_and(|member| {
            member.image == node.image
                && (member.role == Role::Full || member.incarnation == node.incarnation)
        });
        if !node.is_up || node.installed < active.epoch || is_needed || node.is_blank {
            return;
        }
        let image = self.service.new_image();
        self.nodes[index].image = image;
        self.note(|| format!("node {index}: erase for {image:?}"));
        self.step(index, Event::Group(GroupEvent::Erase { image }));
    }

    /// A member gets the lease of its epoch, if that is the active one.
    pub fn lend(&mut self, index: usize) {
        let Some(active) = &self.service.active else { return };
        let node = &self.nodes[index];
        if node.is_up && node.installed == active.epoch && node.promised == active.epoch {
            node.lent.set(active.epoch);
        }
    }

    pub fn lend_all(&mut self) {
        (0..self.nodes.len()).for_each(|index| self.lend(index));
    }

    /// A whole change: these nodes seal, become the configuration with the roles that they may
    /// have, and install it. The others do not hear of it.
    ///
    /// # Panics
    /// If one of them cannot be a member.
    pub fn change(&mut self, members: &[usize]) {
        self.service.tried.0 += 1;
        members.iter().for_each(|&index| self.wedge(index));
        let role = |&index: &usize| (index, self.eligible(index).expect("it may be a member"));
        let listed: Vec<(usize, Role)> = members.iter().map(role).collect();
        self.activate(listed);
        members.iter().for_each(|&index| self.install(index));
    }
}

const LEASE: Nanos = Nanos::from_millis(400);
