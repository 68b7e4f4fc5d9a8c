//! The membership service of configured databases on the control thread: its messages, durable
//! records, registers and orders to workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Nanos, Prng};
use membership::{GroupSettings, LocalRecord, Report, Settings};
use protocols::{Leases, NoLeases};
use storage::data_dir::DataDirError;
use storage::identity::GroupRecord;
use types::wire::Wire as _;
use types::{Database, Epoch, Outcome};

use super::Control;
use super::full_disk::IdentityWrite;
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

type Saved = (Database, LocalRecord);

/// The records of a data directory.
fn records(saved: Vec<GroupRecord>) -> Result<Vec<Saved>, String> {
    let read = |one: GroupRecord| {
        let database = Database(one.index);
        let record = LocalRecord::from_bytes(&one.bytes).map_err(|_| {
            format!("database {database}: its group's record is of another version: run the version that wrote it")
        });
        record.map(|record| (database, record))
    };
    saved.into_iter().map(read).collect()
}

/// The effects that wait for a record, and those that do not.
///
/// Messages count as lost: many would gather. Operations on the register end as unknown: an
/// operator's order must not take effect long after it was given.
fn held_back(effects: Vec<GroupEffect>) -> (Vec<GroupEffect>, Vec<GroupEffect>) {
    let (mut held, mut now) = (Vec::new(), Vec::new());
    for effect in effects {
        match effect {
            GroupEffect::Send { .. } => {}
            GroupEffect::Persist { .. } | GroupEffect::Workers { .. } => held.push(effect),
            GroupEffect::Register { .. } | GroupEffect::Report(_) => now.push(effect),
        }
    }
    (held, now)
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
    ///
    /// # Errors
    /// If a record is of another version.
    pub(super) fn start_groups(&mut self) -> Result<(), String> {
        let saved = self.dir.identity().map(|identity| identity.groups.clone());
        let records = records(saved.unwrap_or_default())?;
        self.with_groups(|groups, now, out| groups.start(now, records, out));
        let links: Vec<_> = self.links.iter().map(|(&peer, &at)| (peer, at)).collect();
        for (peer, at) in links {
            let hello = self.conns[at].as_ref().and_then(|conn| conn.hello.as_ref());
            if let Some(incarnation) = hello.map(|hello| hello.incarnation) {
                self.with_groups(|groups, now, out| {
                    groups.on_peer_up(now, (peer, incarnation), out);
                });
            }
        }
        Ok(())
    }

    /// One step of the service, with the clock read just now. Its effects are carried out behind
    /// the events of this round.
    pub(super) fn with_groups(
        &mut self,
        run: impl FnOnce(&mut Groups, Nanos, &mut Vec<GroupEffect>),
    ) {
        if let Some(groups) = &mut self.groups {
            run(groups, self.node_status.clocks.now(), &mut self.group_effects);
        }
    }

    /// Carries out the effects of all steps since the last call. A send whose link ends takes a
    /// step of its own; its effects come last.
    pub(super) fn carry_out_groups(&mut self) -> Result<(), String> {
        while !self.group_effects.is_empty() {
            if self.full_disk.holds_groups(self.node_status.clocks.now()) {
                let effects = std::mem::take(&mut self.group_effects);
                let (held, now) = held_back(effects);
                self.group_effects = held;
                for effect in now {
                    match effect {
                        GroupEffect::Register { group, token, .. } => {
                            let outcome = Outcome::Unknown;
                            self.mailbox.send(ControlMail::Register { group, token, outcome });
                        }
                        effect => self.carry_out_group(effect)?,
                    }
                }
                return Ok(());
            }
            let effects = std::mem::take(&mut self.group_effects);
            if !self.save_groups(&effects)? {
                drop(self.group_effects.splice(..0, effects));
                continue;
            }
            for effect in effects {
                self.carry_out_group(effect)?;
            }
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
            // All records are durable already.
            GroupEffect::Persist { .. } => {}
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

    /// Saves the records of all groups by one write. Other effects may always be late, so a group's
    /// last record is enough. False if the disk has no room: all effects wait.
    fn save_groups(&mut self, effects: &[GroupEffect]) -> Result<bool, String> {
        let record = |effect: &GroupEffect| match effect {
            GroupEffect::Persist { group, record } => Some((group.0, record.to_bytes())),
            _ => None,
        };
        let records: BTreeMap<_, _> = effects.iter().filter_map(record).collect();
        if records.is_empty() {
            return Ok(true);
        }
        self.pulse_groups()?;
        let saved = self.dir.update(|identity| {
            identity.groups.retain(|saved| !records.contains_key(&saved.index));
            let new = records.into_iter().map(|(index, bytes)| GroupRecord { index, bytes });
            identity.groups.extend(new);
            identity.groups.sort_by_key(|saved| saved.index);
        });
        let is_done = match saved {
            Ok(()) => true,
            // File systems that copy on write need room for it.
            Err(DataDirError::Full(_)) => {
                self.full_disk.hold_groups(self.node_status.clocks.now());
                false
            }
            Err(error) => return Err(error.to_string()),
        };
        self.report_write(IdentityWrite::Groups, is_done);
        Ok(is_done)
    }

    /// Before each flush of this thread: the others must not take a slow disk for a dead node.
    pub(super) fn pulse_groups(&mut self) -> Result<(), String> {
        let mut pulses = Vec::new();
        // It would say that this node can go on.
        let may_pulse = self.has_begun && !self.full_disk.are_groups_refused;
        if let Some(groups) = self.groups.as_mut().filter(|_| may_pulse) {
            groups.pulse(self.node_status.clocks.now(), &mut pulses);
        }
        pulses.into_iter().try_for_each(|pulse| self.carry_out_group(pulse))
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
            | Report::Damaged { .. }
            | Report::Refused { .. }
            | Report::Unreadable { .. }
            | Report::UsedUp { .. } => {
                event!(self.node_status, WARN, "groups", text.as_str());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use membership::Content;
    use types::ImageId;

    use super::*;

    #[test]
    fn records_are_read_or_refused() {
        let record = LocalRecord {
            promised: Epoch(3),
            image: ImageId(5),
            content: Content::Whole,
            joined: Epoch(3),
        };
        let saved = |index, bytes| GroupRecord { index, bytes };
        let read = records(vec![saved(1, record.to_bytes())]);
        assert_eq!(read, Ok(vec![(Database(1), record)]));
        let error = records(vec![saved(1, vec![9])]).expect_err("it is no record");
        assert!(error.starts_with("database 1: "), "{error}");
    }

    /// An order of an operator must not take effect once the disk has room again.
    #[test]
    fn full_disk_holds_back_what_must_follow_the_record_only() {
        let record = LocalRecord {
            promised: Epoch(3),
            image: ImageId(5),
            content: Content::Whole,
            joined: Epoch(3),
        };
        let group = Database(1);
        let persist = GroupEffect::Persist { group, record };
        let command = register::read();
        let found = Report::Found { group };
        let effects = vec![
            GroupEffect::Register { group, token: 1, command },
            GroupEffect::Report(found),
            persist,
        ];
        let (held, now) = held_back(effects);
        assert!(matches!(held[..], [GroupEffect::Persist { .. }]));
        assert!(matches!(now[..], [GroupEffect::Register { .. }, GroupEffect::Report(_)]));
    }
}
