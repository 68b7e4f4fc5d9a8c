//! What was acknowledged before a cut, and whether what was read after it is one of the states that allows.
//!
//! There is one operation under way per key at most, so the newest acknowledged one of each is known, and of what may
//! have begun after it a bound: a client says ahead how far it will go. After a cut a key may hold
//! that newest one or one that was begun after it; whatever was read counts as acknowledged from then on. A deletion that found nothing changed nothing: it is a read,
//! and a write that was under way at a cut may still take effect after it.

use std::ops::Range;

use crate::operation::{self, CLIENTS, Change, KEYS};
use crate::said::Said;

/// Operations of one boot of one client that may have begun: first and last.
type Span = (u64, u64);

#[derive(Default)]
struct ClientLedger {
    // One for each boot in which the client got to write; disjoint, ascending.
    spans: Vec<Span>,
    // By key: the newest operation that was acknowledged or read.
    newest: Vec<Option<u64>>,
    // By key: an operation failed with an outcome that nobody knows, which may still take effect at any time.
    is_unsure: Vec<bool>,
}

/// What the host knows.
pub struct Ledger {
    clients: Vec<ClientLedger>,
    pub acked: u64,
    pub read: u64,
    /// Operations without an outcome while the power was on.
    pub unknown: u64,
}

impl Default for Ledger {
    fn default() -> Ledger {
        let client = || ClientLedger {
            spans: Vec::new(),
            newest: vec![None; KEYS as usize],
            is_unsure: vec![false; KEYS as usize],
        };
        let clients = (0..CLIENTS).map(|_| client()).collect();
        Ledger { clients, acked: 0, read: 0, unknown: 0 }
    }
}

impl Ledger {
    /// Notes a line; what is wrong with it, if anything.
    ///
    /// # Errors
    /// A write that was lost or invented, or a line that no guest says.
    pub fn note(&mut self, said: &Said) -> Result<(), String> {
        match *said {
            Said::Reserved { client, number } => self.client(client)?.reserve(number),
            Said::Acked { client, number } => {
                self.acked += 1;
                self.client(client)?.ack(number)
            }
            Said::Missed { client, number } => {
                self.acked += 1;
                let read = self.client(client)?.read(client, number % KEYS, (None, number));
                read.map_err(|what| format!("{}: {what}", operation::key(client, number % KEYS)))
            }
            Said::Unknown { client, number, .. } => {
                self.unknown += 1;
                self.client(client)?.is_unsure[(number % KEYS) as usize] = true;
                Ok(())
            }
            Said::Holds { client, key, number } if key < KEYS => {
                self.read += 1;
                let holds = self.client(client)?.read(client, key, (number, u64::MAX));
                holds.map_err(|what| format!("{}: {what}", operation::key(client, key)))
            }
            Said::Holds { key, .. } => Err(format!("there is no key {key}")),
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

    /// What an operation found that comes before `before` on its key.
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
                None => format!("lost: operation {newest:?} was acknowledged, nothing is there"),
            });
        }
        self.newest[key as usize] = counts.max(newest);
        Ok(())
    }

    /// The first of these operations that has begun, is on the key of the first one, and deletes it.
    fn deletion_in(&self, client: usize, range: Range<u64>) -> Option<u64> {
        let begun = |&(first, last): &Span| first.max(range.start)..(last + 1).min(range.end);
        let later = self.spans.iter().flat_map(begun);
        later
            .filter(|number| number % KEYS == range.start % KEYS)
            .find(|&number| operation::change(client, number) == Change::Delete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: usize = 2;

    fn ledger(lines: &[Said]) -> Ledger {
        let mut ledger = Ledger::default();
        for said in lines {
            ledger.note(said).expect("nothing is wrong yet");
        }
        ledger
    }

    fn reserved(number: u64) -> Said {
        Said::Reserved { client: CLIENT, number }
    }

    fn acked(number: u64) -> Said {
        Said::Acked { client: CLIENT, number }
    }

    fn holds(key: u64, number: Option<u64>) -> Said {
        Said::Holds { client: CLIENT, key, number }
    }

    /// The first two operations on one key of which this is so.
    fn two(is_wanted: impl Fn(bool, bool) -> bool) -> (u64, u64) {
        let deletes = |number| operation::change(CLIENT, number) == Change::Delete;
        let is_right = |&first: &u64| is_wanted(deletes(first), deletes(first + KEYS));
        let first = (0..KEYS).find(is_right).expect("there are such two among so many");
        (first, first + KEYS)
    }

    #[test]
    fn the_newest_acknowledged_or_a_later_begun_one_is_right() {
        let (first, second) = two(|first, second| !first && !second);
        let before = [reserved(2 * KEYS), acked(first)];
        assert_eq!(ledger(&before).note(&holds(first, Some(first))), Ok(()));
        assert_eq!(ledger(&before).note(&holds(first, Some(second))), Ok(()));
        assert_eq!(ledger(&[]).note(&holds(first, None)), Ok(()), "nothing was acknowledged");
    }

    #[test]
    fn what_is_older_than_the_newest_acknowledged_is_lost() {
        let (first, second) = two(|first, second| !first && !second);
        let mut ledger = ledger(&[reserved(2 * KEYS), acked(first), acked(second)]);
        assert!(ledger.note(&holds(first, Some(first))).is_err());
        assert!(ledger.note(&holds(first, None)).is_err());
    }

    #[test]
    fn absence_wants_a_deletion() {
        let (first, _) = two(|first, second| !first && second);
        let before = [reserved(first), acked(first)];
        assert!(ledger(&before).note(&holds(first, None)).is_err(), "none has begun");
        let mut begun = ledger(&before);
        assert_eq!(begun.note(&reserved(first + KEYS)), Ok(()));
        assert_eq!(begun.note(&holds(first, None)), Ok(()), "one may have taken effect");
        assert!(begun.note(&holds(first, Some(first))).is_err(), "it was seen to have");
    }

    #[test]
    fn what_was_read_once_may_not_be_taken_back() {
        let (first, second) = two(|first, second| !first && !second);
        let mut ledger = ledger(&[reserved(2 * KEYS), acked(first), holds(first, Some(second))]);
        assert!(ledger.note(&holds(first, Some(first))).is_err());
    }

    #[test]
    fn a_deletion_that_found_nothing_is_no_bar_to_a_write_under_way_before_it() {
        let (first, second) = two(|first, second| !first && second);
        let missed = Said::Missed { client: CLIENT, number: second };
        let mut under_way = ledger(&[reserved(2 * KEYS), missed.clone()]);
        assert_eq!(under_way.note(&holds(first, Some(first))), Ok(()));
        let mut acknowledged = ledger(&[reserved(2 * KEYS), acked(first)]);
        assert!(acknowledged.note(&missed).is_err(), "there was something to delete");
    }

    #[test]
    fn what_was_never_begun_is_invented() {
        let mut ledger = ledger(&[reserved(10), acked(3)]);
        assert!(ledger.note(&holds(11, Some(11))).is_err());
        assert!(ledger.note(&holds(4, Some(3))).is_err(), "of another key");
        assert!(ledger.note(&acked(11)).is_err());
        assert_eq!(ledger.note(&reserved(operation::PER_BOOT + 10)), Ok(()), "the next boot");
        assert!(ledger.note(&holds(11, Some(11))).is_err(), "not in between");
    }

    #[test]
    fn a_key_with_an_unknown_outcome_may_change_late() {
        let (first, second) = two(|first, second| !first && !second);
        let reply = "an error".to_string();
        let unknown = Said::Unknown { client: CLIENT, number: second, reply };
        let mut ledger = ledger(&[reserved(2 * KEYS), acked(first), unknown]);
        assert_eq!(ledger.note(&holds(first, Some(second))), Ok(()));
        assert_eq!(ledger.note(&holds(first, Some(first))), Ok(()));
        assert_eq!((ledger.unknown, ledger.read), (1, 2));
    }
}
