//! Reference model: which values may a key hold after a power cut?
//!
//! A key has at most one operation under way, so the newest acknowledged one is known.
//! Clients reserve operations ahead, which bounds those that may have begun.
//! After a cut a key holds the newest acknowledged operation or one that began later.
//! A read value counts as acknowledged from then on.
//! A deletion that found no key is a read: a write under way at a cut may still take effect after
//! it.

use std::ops::Range;

use crate::message::GuestMessage;
use crate::operation::{self, CLIENTS, KEYS, KeyChange};

/// Operations of one boot of one client that may have begun: first and last.
type Span = (u64, u64);

#[derive(Default)]
struct ClientLedger {
    // One for each boot in which the client wrote; disjoint, ascending.
    spans: Vec<Span>,
    // By key: the newest operation that was acknowledged or read.
    newest: Vec<Option<u64>>,
    // By key: an operation has an unknown outcome, so it may still take effect at any time.
    is_unsure: Vec<bool>,
}

/// The host's knowledge of all keys.
pub struct ReferenceModel {
    clients: Vec<ClientLedger>,
    pub acked: u64,
    pub read: u64,
    /// Operations without an outcome while the power was on.
    pub unknown: u64,
}

impl Default for ReferenceModel {
    fn default() -> ReferenceModel {
        let client = || ClientLedger {
            spans: Vec::new(),
            newest: vec![None; KEYS as usize],
            is_unsure: vec![false; KEYS as usize],
        };
        let clients = (0..CLIENTS).map(|_| client()).collect();
        ReferenceModel { clients, acked: 0, read: 0, unknown: 0 }
    }
}

impl ReferenceModel {
    /// Records a message.
    ///
    /// # Errors
    /// A lost or invented write, or a message that no guest sends.
    pub fn note(&mut self, message: &GuestMessage) -> Result<(), String> {
        match *message {
            GuestMessage::Reserved { client, number } => self.client(client)?.reserve(number),
            GuestMessage::Acked { client, number } => {
                self.acked += 1;
                self.client(client)?.ack(number)
            }
            GuestMessage::Missed { client, number } => {
                self.acked += 1;
                let read = self.client(client)?.read(client, number % KEYS, (None, number));
                read.map_err(|finding| {
                    format!("{}: {finding}", operation::key(client, number % KEYS))
                })
            }
            GuestMessage::Unknown { client, number, .. } => {
                self.unknown += 1;
                self.client(client)?.is_unsure[(number % KEYS) as usize] = true;
                Ok(())
            }
            GuestMessage::Holds { client, key, number } if key < KEYS => {
                self.read += 1;
                let holds = self.client(client)?.read(client, key, (number, u64::MAX));
                holds.map_err(|finding| format!("{}: {finding}", operation::key(client, key)))
            }
            GuestMessage::Holds { key, .. } => Err(format!("there is no key {key}")),
            _ => Ok(()),
        }
    }

    fn client(&mut self, client: usize) -> Result<&mut ClientLedger, String> {
        self.clients.get_mut(client).ok_or_else(|| format!("there is no client {client}"))
    }
}

impl ClientLedger {
    fn reserve(&mut self, number: u64) -> Result<(), String> {
        let boot = |number: u64| number / operation::PER_BOOT;
        match self.spans.last_mut() {
            Some((_, last)) if boot(*last) == boot(number) && number > *last => *last = number,
            Some((_, last)) if number <= *last => return Err(format!("{number} comes again")),
            _ => self.spans.push((boot(number) * operation::PER_BOOT, number)),
        }
        Ok(())
    }

    fn ack(&mut self, number: u64) -> Result<(), String> {
        if !self.has_begun(number) {
            return Err(format!("operation {number} was acknowledged before it was announced"));
        }
        self.newest[(number % KEYS) as usize] = Some(number);
        Ok(())
    }

    fn has_begun(&self, number: u64) -> bool {
        self.spans.iter().any(|&(first, last)| (first..=last).contains(&number))
    }

    /// Records that an operation read a key's state from before `before`.
    fn read(
        &mut self,
        client: usize,
        key: u64,
        (found, before): (Option<u64>, u64),
    ) -> Result<(), String> {
        let newest = self.newest[key as usize];
        let counts = match found {
            Some(number) if number % KEYS != key || !self.has_begun(number) => {
                return Err(format!("invented: operation {number} was never begun"));
            }
            Some(number) => Some(number),
            None => match newest {
                None => None,
                Some(newest) => self.deletion_in(client, newest..before),
            },
        };
        if !self.is_unsure[key as usize] && counts < newest {
            return Err(match found {
                Some(number) => {
                    format!("lost: operation {newest:?} was acknowledged, {number} is there")
                }
                None => format!("lost: operation {newest:?} was acknowledged, the key is absent"),
            });
        }
        self.newest[key as usize] = counts.max(newest);
        Ok(())
    }

    /// The first of these operations that has begun, is on the first one's key, and deletes it.
    fn deletion_in(&self, client: usize, range: Range<u64>) -> Option<u64> {
        let begun = |&(first, last): &Span| first.max(range.start)..(last + 1).min(range.end);
        let later = self.spans.iter().flat_map(begun);
        later
            .filter(|number| number % KEYS == range.start % KEYS)
            .find(|&number| operation::change(client, number) == KeyChange::Delete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: usize = 2;

    fn model(lines: &[GuestMessage]) -> ReferenceModel {
        let mut model = ReferenceModel::default();
        for message in lines {
            model.note(message).expect("the messages so far are consistent");
        }
        model
    }

    fn reserved(number: u64) -> GuestMessage {
        GuestMessage::Reserved { client: CLIENT, number }
    }

    fn acked(number: u64) -> GuestMessage {
        GuestMessage::Acked { client: CLIENT, number }
    }

    fn holds(key: u64, number: Option<u64>) -> GuestMessage {
        GuestMessage::Holds { client: CLIENT, key, number }
    }

    /// The first two operations on one key that satisfy `is_wanted`.
    fn two(is_wanted: impl Fn(bool, bool) -> bool) -> (u64, u64) {
        let deletes = |number| operation::change(CLIENT, number) == KeyChange::Delete;
        let is_right = |&first: &u64| is_wanted(deletes(first), deletes(first + KEYS));
        let first = (0..KEYS).find(is_right).expect("there are such two among so many");
        (first, first + KEYS)
    }

    #[test]
    fn newest_acknowledged_or_later_operation_is_right() {
        let (first, second) = two(|first, second| !first && !second);
        let before = [reserved(2 * KEYS), acked(first)];
        assert_eq!(model(&before).note(&holds(first, Some(first))), Ok(()));
        assert_eq!(model(&before).note(&holds(first, Some(second))), Ok(()));
        assert_eq!(model(&[]).note(&holds(first, None)), Ok(()), "no write was acknowledged");
    }

    #[test]
    fn value_before_newest_acknowledged_is_lost() {
        let (first, second) = two(|first, second| !first && !second);
        let mut model = model(&[reserved(2 * KEYS), acked(first), acked(second)]);
        assert!(model.note(&holds(first, Some(first))).is_err());
        assert!(model.note(&holds(first, None)).is_err());
    }

    #[test]
    fn absent_key_requires_a_deletion() {
        let (first, _) = two(|first, second| !first && second);
        let before = [reserved(first), acked(first)];
        assert!(model(&before).note(&holds(first, None)).is_err(), "none has begun");
        let mut begun = model(&before);
        assert_eq!(begun.note(&reserved(first + KEYS)), Ok(()));
        assert_eq!(begun.note(&holds(first, None)), Ok(()), "one may have taken effect");
        assert!(begun.note(&holds(first, Some(first))).is_err(), "it was seen to have");
    }

    #[test]
    fn read_value_never_goes_back() {
        let (first, second) = two(|first, second| !first && !second);
        let mut model = model(&[reserved(2 * KEYS), acked(first), holds(first, Some(second))]);
        assert!(model.note(&holds(first, Some(first))).is_err());
    }

    #[test]
    fn missed_deletion_allows_earlier_pending_write() {
        let (first, second) = two(|first, second| !first && second);
        let missed = GuestMessage::Missed { client: CLIENT, number: second };
        let mut under_way = model(&[reserved(2 * KEYS), missed.clone()]);
        assert_eq!(under_way.note(&holds(first, Some(first))), Ok(()));
        let mut acknowledged = model(&[reserved(2 * KEYS), acked(first)]);
        assert!(acknowledged.note(&missed).is_err(), "there was something to delete");
    }

    #[test]
    fn operation_never_begun_is_invented() {
        let mut model = model(&[reserved(10), acked(3)]);
        assert!(model.note(&holds(11, Some(11))).is_err());
        assert!(model.note(&holds(4, Some(3))).is_err(), "of another key");
        assert!(model.note(&acked(11)).is_err());
        assert_eq!(model.note(&reserved(operation::PER_BOOT + 10)), Ok(()), "the next boot");
        assert!(model.note(&holds(11, Some(11))).is_err(), "not in between");
    }

    #[test]
    fn key_with_unknown_outcome_may_change_late() {
        let (first, second) = two(|first, second| !first && !second);
        let reply = "an error".to_string();
        let unknown = GuestMessage::Unknown { client: CLIENT, number: second, reply };
        let mut model = model(&[reserved(2 * KEYS), acked(first), unknown]);
        assert_eq!(model.note(&holds(first, Some(second))), Ok(()));
        assert_eq!(model.note(&holds(first, Some(first))), Ok(()));
        assert_eq!((model.unknown, model.read), (1, 2));
    }
}
