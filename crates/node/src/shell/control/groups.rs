//! The membership service of configured databases on the control thread: its messages, durable
//! records, registers and orders to workers.

use std::sync::Arc;

use base::{Nanos, Prng};
use membership::{GroupSettings, LocalRecord, Report, Settings};
use protocols::{Leases, NoLeases};
use storage::identity::GroupRecord;
use types::wire::Wire as _;
use types::{Database, Epoch};

use super::Control;
use super::reports::GROUP;
use crate::config::{DatabaseConfig, Durability};
use crate::events::event;
use crate::groups::{GroupEffect, Groups, LeaseWords, register};
use crate::shell::clock::Clocks;
use crate::shell::mailbox::{ControlMail, Mail};
use crate::worker::Input;

/// The leases of this node.
#[derive(Debug)]
struct NodeLeases {
    words: Arc<LeaseWords>,
    clocks: Clocks,
}

impl Leases for NodeLeases {
    fn holds(&self, database: Database, epoch: Epoch) -> bool {
        self.words.holds(database, epoch, || self.clocks.now())
    }
}

impl Control {
    /// Makes the service of the databases that need one, before workers begin.
    pub(super) fn open_groups(&mut self) -> Arc<dyn Leases> {
        let config = &self.node_status.config;
        let durable = self.formation.durable();
        let servers: Vec<_> = durable.members.iter().map(|member| member.node).collect();
        let group = |one: &DatabaseConfig| GroupSettings {
            is_volatile: one.durability == Durability::Volatile,
            ..GroupSettings::new(one.database, one.replicas.map_or(servers.len(), usize::from))
        };
        let groups: Vec<GroupSettings> =
            config.databases.iter().filter(|one| one.has_group()).map(group).collect();
        if groups.is_empty() {
            return Arc::new(NoLeases);
        }
        let settings = Settings {
            me: config.id,
            incarnation: durable.mine.incarnation,
            servers,
            groups,
            timing: membership::Timing::default(),
            random: Prng::new(self.rng.next_u64()),
        };
        let groups = Groups::new(settings, self.node_status.workers.len());
        let words = groups.words();
        let is_first = self.node_status.lease_words.set(Arc::clone(&words)).is_ok();
        assert!(is_first, "a node opens its groups once");
        self.groups = Some(groups);
        Arc::new(NodeLeases { words, clocks: self.node_status.clocks })
    }

    /// The workers run: the service may order and ask.
    pub(super) fn start_groups(&mut self) -> Result<(), String> {
        let saved = self.dir.identity().map(|identity| identity.groups.clone());
        let records = saved.unwrap_or_default().into_iter().filter_map(|saved| {
            let record = LocalRecord::from_bytes(&saved.bytes).ok()?;
            Some((Database(saved.index), record))
        });
        let records = records.collect();
        self.with_groups(|groups, now, out| groups.start(now, records, out))?;
        let links: Vec<_> = self.links.iter().map(|(&peer, &at)| (peer, at)).collect();
        for (peer, at) in links {
            let hello = self.conns[at].as_ref().and_then(|conn| conn.hello.as_ref());
            if let Some(incarnation) = hello.map(|hello| hello.incarnation) {
                self.with_groups(|groups, now, out| {
                    groups.on_peer_up(now, (peer, incarnation), out);
                })?;
            }
        }
        Ok(())
    }

    /// One step of the service, with the clock read just now. A send whose link ends takes a step
    /// within this one; its effects follow those of this step.
    pub(super) fn with_groups(
        &mut self,
        run: impl FnOnce(&mut Groups, Nanos, &mut Vec<GroupEffect>),
    ) -> Result<(), String> {
        let Some(groups) = &mut self.groups else { return Ok(()) };
        let mut effects = Vec::new();
        run(groups, self.node_status.clocks.now(), &mut effects);
        if !self.group_effects.add(effects) {
            return Ok(());
        }
        while let Some(effect) = self.group_effects.next() {
            self.carry_out_group(effect)?;
        }
        Ok(())
    }

    fn carry_out_group(&mut self, effect: GroupEffect) -> Result<(), String> {
        match effect {
            GroupEffect::Send { to, message } => {
                let Some(&at) = self.links.get(&to) else { return Ok(()) };
                let mut bytes = vec![GROUP];
                message.encode(&mut bytes);
                return self.send(at, &bytes);
            }
            GroupEffect::Register { group, token, command } => {
                let control = Arc::clone(&self.mailbox);
                let answer = move |outcome| {
                    control.send(ControlMail::Register { group, token, outcome });
                };
                let key = register::key(group);
                self.node_status.ask(Database::SYSTEM, &key, command, Box::new(answer));
            }
            GroupEffect::Persist { group, record } => return self.save_group(group, &record),
            GroupEffect::Workers { database, event } => {
                for mailbox in &self.node_status.workers {
                    let event = event.clone();
                    mailbox.send(Mail::Input(Input::Group { database, event }));
                }
            }
            GroupEffect::Report(report) => self.report_group(&report),
        }
        Ok(())
    }

    fn save_group(&mut self, group: Database, record: &LocalRecord) -> Result<(), String> {
        let bytes = record.to_bytes();
        let saved = self.dir.update(|identity| {
            identity.groups.retain(|saved| saved.index != group.0);
            identity.groups.push(GroupRecord { index: group.0, bytes });
            identity.groups.sort_by_key(|saved| saved.index);
        });
        saved.map_err(|error| error.to_string())
    }

    fn report_group(&mut self, report: &Report) {
        self.orders.on_report(report);
        let text = report.to_string();
        match report {
            Report::Configured { .. } | Report::Found { .. } | Report::Decreed { .. } => {
                event!(self.node_status, INFO, "groups", text.as_str());
            }
            Report::Lost { .. }
            | Report::Erasing { .. }
            | Report::Refused { .. }
            | Report::Unreadable { .. } => {
                event!(self.node_status, WARN, "groups", text.as_str());
            }
        }
    }
}
