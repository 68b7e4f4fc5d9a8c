//! The reports of this protocol in pages and explanations.

use std::collections::BTreeMap;

use base::checksum;
use types::Key;
use types::explain::{Held, Record};

use super::message::Message;
use super::register::{Register, Version};
use super::reports::Report;
use crate::replicas::{Places, ReplicaSet, place};
use crate::toolkit::countdown::Countdown;
use crate::toolkit::eras::Eras;
use crate::toolkit::pager::{PageMessage, Paged, PagedScope, Presence};

impl Paged for Report {
    type Record = Register;
    type Meta = Eras;
    type Message = Message;
    type Found = Register;

    fn of(register: &Register, cx: &PagedScope<'_, Report>) -> Report {
        let countdown = register.content.countdown(cx.uptime, cx.unix);
        Report { register: register.clone(), countdown }
    }

    fn without_values(&self) -> Report {
        let content = self.register.content.without_value();
        Report { register: Register { content, ..self.register }, ..*self }
    }

    fn value_len(register: &Register) -> usize {
        register.content.value.as_ref().map_or(0, |value| value.len())
    }

    fn found(_: &ReplicaSet, counted: Places, at: &BTreeMap<usize, Report>) -> Option<Register> {
        Some(Newest::of(counted, at).register)
    }

    fn presence(set: &ReplicaSet, counted: Places, at: &BTreeMap<usize, Report>) -> Presence {
        let newest = Newest::of(counted, at);
        match newest.register.content.is_empty() {
            _ if !set.is_quorum_of(newest.holders) || newest.is_over => Presence::Undecided,
            true => Presence::Absent,
            false => Presence::Present,
        }
    }

    fn message(message: PageMessage<Report>) -> Message {
        Message::Paging(message)
    }

    fn read(key: Key) -> Message {
        Message::Query { op: 0, key, era: None, want_value: false }
    }

    fn recover(walk: u64, key: Key, found: Option<Register>) -> Message {
        match found {
            Some(register) => Message::Adopt { walk, key, register },
            None => Report::read(key),
        }
    }
}

/// The newest of the reports.
struct Newest {
    register: Register,
    /// The replicas that hold its version.
    holders: Places,
    /// Its time to live is over at one of them.
    is_over: bool,
}

impl Newest {
    fn of(counted: Places, at: &BTreeMap<usize, Report>) -> Newest {
        let counted = at.iter().filter(|(index, _)| counted & place(**index) != 0);
        let registers = counted.clone().map(|(_, report)| &report.register);
        let newest = registers.max_by_key(|register| register.version);
        let register = newest.cloned().unwrap_or(Register::ABSENT);
        let held = counted.filter(|(_, report)| report.register.version == register.version);
        let is_over = held.clone().any(|(_, report)| report.countdown == Countdown::Over);
        let holders = held.fold(0, |holders, (index, _)| holders | place(*index));
        Newest { register, holders, is_over }
    }
}

/// The register of a replica, for people.
pub(super) fn held(report: &Report) -> Held {
    let Register { version, content } = &report.register;
    if *version == Version::NONE {
        return Held::Absent;
    }
    let bytes: &[u8] = content.value.as_deref().unwrap_or_default();
    let (era, stamp) = (version.era, version.stamp);
    Held::Present(Record {
        round: format!("{era}.{}.{}.{}", stamp.number, stamp.writer.0, stamp.incarnation.0),
        version: stamp.number,
        is_tombstone: content.is_empty(),
        value_len: bytes.len(),
        checksum: checksum::hash(bytes),
        rest: report.countdown.rest(),
    })
}

#[cfg(test)]
mod tests {
    use base::Millis;
    use types::{Epoch, NodeId};

    use super::super::register::tests::register;
    use super::*;

    #[test]
    fn listing_leaves_split_versions_undecided() {
        let set = ReplicaSet::new(Epoch(1), NodeId(1), &[NodeId(1), NodeId(2), NodeId(3)]);
        let value = |number| Report { register: register(number, false), ..Report::ABSENT };
        let deleted =
            |number| Report { register: register(number, true).ended(), ..Report::ABSENT };
        let mut at = BTreeMap::from([(0, value(2)), (1, value(1))]);
        assert_eq!(Report::presence(&set, 0b011, &at), Presence::Undecided);
        at.insert(1, value(2));
        assert_eq!(Report::presence(&set, 0b011, &at), Presence::Present);
        at.insert(2, deleted(3));
        assert_eq!(Report::presence(&set, 0b011, &at), Presence::Present, "it is not counted");
        assert_eq!(Report::presence(&set, 0b111, &at), Presence::Undecided);
        at.insert(1, deleted(3));
        assert_eq!(Report::presence(&set, 0b110, &at), Presence::Absent);
        let found = Report::found(&set, 0b011, &at).expect("the newest always stands");
        assert_eq!(found, deleted(3).register);
    }

    #[test]
    fn listing_leaves_keys_undecided_whose_time_is_over() {
        let set = ReplicaSet::new(Epoch(1), NodeId(1), &[NodeId(1), NodeId(2), NodeId(3)]);
        let expiring = |countdown| Report { register: register(2, true), countdown };
        let running = Countdown::Running(Millis(5));
        let mut at = BTreeMap::from([(0, expiring(running)), (1, expiring(running))]);
        assert_eq!(Report::presence(&set, 0b011, &at), Presence::Present);
        at.insert(1, expiring(Countdown::Over));
        assert_eq!(Report::presence(&set, 0b011, &at), Presence::Undecided);
    }
}
