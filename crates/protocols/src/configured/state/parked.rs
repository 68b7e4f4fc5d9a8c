//! Requests outside the member: those that wait, and those under way to other nodes.
//!
//! Requests of one session on one key keep their order: only the first of them moves.

use std::collections::BTreeMap;

use base::Nanos;
use types::Tag;

use crate::protocol::Request;
use crate::toolkit::lanes::Place;

/// Requests that are kept; more end at once without effect.
const PARKED_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub(crate) struct Parked {
    /// By number. `None`: it is under way to another node, or comes again soon.
    lanes: BTreeMap<Place, BTreeMap<i64, Option<Request>>>,
    /// They follow the order in which requests came.
    numbers: BTreeMap<Tag, i64>,
    /// The numbers that were given last, on both ends.
    lowest: i64,
    highest: i64,
    /// Requests that are kept here.
    len: usize,
    /// When to try the parked ones again or to give them up.
    pub(crate) due: Option<Nanos>,
}

/// The fate of a request that comes.
#[derive(Debug)]
pub(crate) enum Admitted {
    Now(Request),
    Kept,
    Refused(Request),
}

pub(crate) fn place(request: &Request) -> Place {
    (request.session, request.key.clone())
}

impl Parked {
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn has(&self, tag: Tag) -> bool {
        !self.numbers.is_empty() && self.numbers.contains_key(&tag)
    }

    /// Takes note of a request that comes, be it for the first time or again. Keeps it unless it is
    /// the first of its lane, or there is no room for another one.
    pub(crate) fn admit(&mut self, request: Request) -> Admitted {
        if self.numbers.is_empty() {
            return Admitted::Now(request);
        }
        let place = place(&request);
        if !self.lanes.contains_key(&place) {
            return Admitted::Now(request);
        }
        if !self.has(request.tag) && !self.has_room() {
            return Admitted::Refused(request);
        }
        let number = self.number(&request);
        let lane = self.lanes.entry(place).or_default();
        if lane.first_key_value().is_none_or(|(&first, _)| first == number) {
            return Admitted::Now(request);
        }
        lane.insert(number, Some(request));
        self.len += 1;
        Admitted::Kept
    }

    /// True if one more may be kept. Those that were admitted always are.
    pub(crate) fn has_room(&self) -> bool {
        self.len < PARKED_MAX
    }

    /// The lanes of all requests.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Keeps a request that came, until it is taken again.
    pub(crate) fn keep(&mut self, request: Request) {
        let number = self.number(&request);
        self.lanes.entry(place(&request)).or_default().insert(number, Some(request));
        self.len += 1;
    }

    /// A request that came goes to another node. Later ones of its lane wait.
    pub(crate) fn send(&mut self, request: &Request) {
        let number = self.number(request);
        self.lanes.entry(place(request)).or_default().insert(number, None);
    }

    /// Keeps requests that came before all others, in their order.
    pub(crate) fn keep_first(&mut self, requests: Vec<Request>) {
        for request in requests.into_iter().rev() {
            self.lowest -= 1;
            self.numbers.insert(request.tag, self.lowest);
            self.keep(request);
        }
    }

    /// A request has left. Returns the next one of its lane, which comes again.
    pub(crate) fn end(&mut self, tag: Tag, place: &Place) -> Option<Request> {
        let number = self.numbers.remove(&tag)?;
        let lane = self.lanes.get_mut(place)?;
        if lane.remove(&number).flatten().is_some() {
            self.len -= 1;
        }
        let next = lane.first_entry().and_then(|mut first| first.get_mut().take());
        if lane.is_empty() {
            self.lanes.remove(place);
        }
        self.len -= usize::from(next.is_some());
        next
    }

    /// Takes the kept first ones of all lanes, in the order of their coming. They come again.
    pub(crate) fn take_firsts(&mut self) -> Vec<Request> {
        let first = |lane: &mut BTreeMap<i64, Option<Request>>| {
            let mut first = lane.first_entry()?;
            Some((*first.key(), first.get_mut().take()?))
        };
        let mut firsts: Vec<(i64, Request)> = self.lanes.values_mut().filter_map(first).collect();
        firsts.sort_by_key(|&(number, _)| number);
        self.len -= firsts.len();
        firsts.into_iter().map(|(_, request)| request).collect()
    }

    fn number(&mut self, request: &Request) -> i64 {
        let highest = &mut self.highest;
        *self.numbers.entry(request.tag).or_insert_with(|| {
            *highest += 1;
            *highest
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use types::{Access, Command, Key, SessionId};

    use super::*;

    fn request(tag: u64) -> Request {
        let command = Command::new(Access::Read, Bytes::new());
        let (tag, session) = (Tag(tag), SessionId(7));
        Request { tag, session, key: Key::new(b"k"), command, asked_at: Nanos::ZERO }
    }

    fn tags(requests: impl IntoIterator<Item = Request>) -> Vec<u64> {
        requests.into_iter().map(|request| request.tag.0).collect()
    }

    fn come(parked: &mut Parked, tag: u64) -> bool {
        matches!(parked.admit(request(tag)), Admitted::Now(_))
    }

    /// A released request comes while an earlier one is on its way, and that one comes back.
    #[test]
    fn request_that_comes_again_passes_no_earlier_one() {
        let mut parked = Parked::default();
        (1..=3).for_each(|tag| parked.keep(request(tag)));
        assert_eq!(tags(parked.take_firsts()), [1]);
        assert!(come(&mut parked, 1));
        parked.send(&request(1));
        assert!(!come(&mut parked, 4), "it is a new one");
        assert!(tags(parked.take_firsts()).is_empty(), "the first is under way");
        parked.keep(request(1));
        assert_eq!(tags(parked.take_firsts()), [1]);
        assert!(come(&mut parked, 1));
        let lane = place(&request(1));
        assert_eq!(tags(parked.end(Tag(1), &lane)), [2]);
        assert!(!come(&mut parked, 5) && come(&mut parked, 2));
        for next in [3, 4, 5] {
            assert_eq!(tags(parked.end(Tag(next - 1), &lane)), [next]);
            assert!(come(&mut parked, next));
        }
        assert!(parked.end(Tag(5), &lane).is_none());
        assert_eq!((parked.is_empty(), parked.len()), (true, 0));
        assert!(come(&mut parked, 6) && parked.is_empty(), "it is not noted");
    }

    #[test]
    fn newcomers_find_no_room_but_those_that_are_known_do() {
        let mut parked = Parked::default();
        parked.send(&request(0));
        (1..=PARKED_MAX as u64).for_each(|tag| assert!(!come(&mut parked, tag)));
        assert!(matches!(parked.admit(request(u64::MAX)), Admitted::Refused(_)));
        parked.keep(request(0));
        assert_eq!((parked.lanes(), parked.len()), (1, PARKED_MAX + 1));
    }

    #[test]
    fn requests_of_the_member_go_first() {
        let mut parked = Parked::default();
        parked.keep(request(3));
        assert_eq!(tags(parked.take_firsts()), [3]);
        parked.keep_first(vec![request(1), request(2)]);
        assert!(!come(&mut parked, 3));
        assert_eq!(tags(parked.take_firsts()), [1]);
        let lane = place(&request(1));
        assert!(come(&mut parked, 1));
        assert_eq!(tags(parked.end(Tag(1), &lane)), [2]);
        assert_eq!(tags(parked.end(Tag(2), &lane)), [3]);
        assert_eq!(parked.len(), 0);
    }
}
