//! The reports of this protocol in pages and explanations.

use std::collections::BTreeMap;

use base::checksum;
use types::Key;
use types::explain::{Held, Record};

use super::message::{Message, Report, Reported, Version};
use super::register::Register;
use crate::replicas::{Places, ReplicaSet, place};
use crate::toolkit::pager::{PageMessage, Paged, PagedScope, Presence};

impl Paged for Report {
    type Record = Register;
    type Message = Message;
    type Found = Register;

    fn of(register: &Register, _cx: &PagedScope<'_, Report>) -> Report {
        register.report(true)
    }

    fn without_values(&self) -> Report {
        self.without_value()
    }

    fn value_len(register: &Register) -> usize {
        register.value.as_ref().map_or(0, |value| value.len())
    }

    fn found(_: &ReplicaSet, counted: Places, at: &BTreeMap<usize, Report>) -> Option<Register> {
        let (report, _) = newest(counted, at);
        Some(Register { version: report.version, value: report.value.into_value() })
    }

    fn presence(set: &ReplicaSet, counted: Places, at: &BTreeMap<usize, Report>) -> Presence {
        match newest(counted, at) {
            (_, holders) if !set.is_quorum_of(holders) => Presence::Undecided,
            (report, _) if report.value == Reported::Nothing => Presence::Absent,
            _ => Presence::Present,
        }
    }

    fn message(message: PageMessage<Report>) -> Message {
        Message::Paging(message)
    }

    fn read(key: Key) -> Message {
        Message::Query { op: 0, key, want_value: false }
    }

    fn recover(walk: u64, key: Key, found: Option<Register>) -> Message {
        match found {
            Some(Register { version, value }) => Message::Adopt { walk, key, version, value },
            None => Report::read(key),
        }
    }
}

/// The newest of the reports, and the replicas that hold its version.
fn newest(counted: Places, at: &BTreeMap<usize, Report>) -> (Report, Places) {
    let counted = at.iter().filter(|(index, _)| counted & place(**index) != 0);
    let newest = counted.clone().map(|(_, report)| report).max_by_key(|report| report.version);
    let newest = newest.cloned().unwrap_or(Report::ABSENT);
    let held = counted.filter(|(_, report)| report.version == newest.version);
    let holders = held.fold(0, |holders, (index, _)| holders | place(*index));
    (newest, holders)
}

/// The register of a replica, for people.
pub(super) fn held(report: &Report) -> Held {
    let Report { version, value } = report;
    if *version == Version::NONE {
        return Held::Absent;
    }
    let bytes: &[u8] = match value {
        Reported::Value(bytes) => bytes,
        Reported::Nothing | Reported::Omitted => &[],
    };
    Held::Present(Record {
        round: format!("{}.{}.{}", version.number, version.writer.0, version.incarnation.0),
        version: version.number,
        is_tombstone: *value == Reported::Nothing,
        value_len: bytes.len(),
        checksum: checksum::hash(bytes),
        rest: None,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use types::{Epoch, Incarnation, NodeId};

    use super::*;

    fn report(number: u64, value: Reported) -> Report {
        let version = Version { number, writer: NodeId(1), incarnation: Incarnation(1) };
        Report { version, value }
    }

    #[test]
    fn listing_leaves_split_versions_undecided() {
        let set = ReplicaSet::new(Epoch(1), NodeId(1), &[NodeId(1), NodeId(2), NodeId(3)]);
        let value = || Reported::Value(Bytes::from_static(b"v"));
        let mut at = BTreeMap::from([(0, report(2, value())), (1, report(1, value()))]);
        assert_eq!(Report::presence(&set, 0b011, &at), Presence::Undecided);
        at.insert(1, report(2, value()));
        assert_eq!(Report::presence(&set, 0b011, &at), Presence::Present);
        at.insert(2, report(3, Reported::Nothing));
        assert_eq!(Report::presence(&set, 0b011, &at), Presence::Present, "it is not counted");
        assert_eq!(Report::presence(&set, 0b111, &at), Presence::Undecided);
        at.insert(1, report(3, Reported::Nothing));
        assert_eq!(Report::presence(&set, 0b110, &at), Presence::Absent);
        let found = Report::found(&set, 0b011, &at).expect("the newest always stands");
        assert_eq!((found.version.number, found.value), (3, None));
    }
}
