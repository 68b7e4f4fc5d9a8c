//! Real-time order: a call that responded before another was invoked comes first.
//!
//! On demand, answered calls of one client also keep their order of issue, even when they overlap.
//!
//! The key is the response cut and one bit for each call open at the cut.
//! Every call with an earlier response is placed, and every call invoked later is not.
//! Calls open at the same moment hold different slots.
//! So the bits are as many as the clients that were busy at once, whatever the history's length.

use super::Frontier;
use super::response_cut::ResponseCut;
use crate::bitset::BitSet;
use crate::history::ClientId;
use crate::model::Model;
use crate::prepared::{Prepared, PreparedCall};

pub(crate) struct RealTime {
    cut: ResponseCut,
    // By call: how many responses must have been passed before it may be placed.
    required_opening: Vec<u32>,
    optional_opening: Vec<u32>,
    // By call: unique among the calls open at any one moment.
    slot: Vec<u32>,
    // Slots of placed calls whose response has not been passed.
    open_placed: BitSet,
    unplaced: Unplaced,
    // By required call: its client, where program order counts and the call was answered.
    client: Option<Vec<Option<ClientId>>>,
}

impl RealTime {
    pub(crate) fn new<M: Model>(prepared: &Prepared<'_, M>) -> RealTime {
        let required = &prepared.required;
        let members = required.iter().map(|call| call.latest).enumerate();
        let cut = ResponseCut::new(required.len(), members);
        let openings = |calls: &[PreparedCall<'_, M>]| {
            calls.iter().map(|call| cut.opening(call.earliest)).collect::<Vec<u32>>()
        };
        let required_opening = openings(required);
        let optional_opening = openings(&prepared.optional);
        let (slot, slots_count) = assign_slots(&required_opening, &cut);
        RealTime {
            cut,
            required_opening,
            optional_opening,
            slot,
            open_placed: BitSet::with_capacity(slots_count),
            unplaced: Unplaced::new(required.len()),
            client: None,
        }
    }

    /// With the program order of each client.
    pub(crate) fn in_sessions<M: Model>(prepared: &Prepared<'_, M>) -> RealTime {
        let client = |call: &PreparedCall<'_, M>| call.output.map(|_| call.client);
        let client = prepared.required.iter().map(client).collect();
        RealTime { client: Some(client), ..RealTime::new(prepared) }
    }
}

impl Frontier for RealTime {
    type Key = (u32, BitSet);

    fn key(&self) -> Self::Key {
        let passed = u32::try_from(self.cut.passed()).expect("OPERATIONS_MAX is below u32::MAX");
        (passed, self.open_placed.clone())
    }

    fn place(&mut self, required: usize) {
        let before = self.cut.passed();
        self.open_placed.insert(self.slot[required] as usize);
        self.unplaced.remove(required);
        self.cut.place(required);
        for rank in before..self.cut.passed() {
            self.open_placed.remove(self.slot[self.cut.call_at(rank)] as usize);
        }
    }

    fn unplace(&mut self, required: usize) {
        let after = self.cut.passed();
        self.cut.unplace(required);
        for rank in self.cut.passed()..after {
            self.open_placed.insert(self.slot[self.cut.call_at(rank)] as usize);
        }
        self.unplaced.restore(required);
        self.open_placed.remove(self.slot[required] as usize);
    }

    fn candidates(&self, into: &mut Vec<u32>) {
        let passed = self.cut.passed();
        let is_open = |call: &u32| self.required_opening[*call as usize] as usize <= passed;
        for call in self.unplaced.iter().take_while(is_open) {
            // Calls of one client keep their order of issue.
            let is_next = |client: &Vec<Option<ClientId>>| {
                let own = client[call as usize];
                own.is_none() || into.iter().all(|other| client[*other as usize] != own)
            };
            if self.client.as_ref().is_none_or(is_next) {
                into.push(call);
            }
        }
        into.sort_unstable_by_key(|call| self.cut.rank(*call as usize));
    }

    fn admits_optional(&self, optional: usize) -> bool {
        self.optional_opening[optional] as usize <= self.cut.passed()
    }

    fn upcoming(&self) -> impl Iterator<Item = usize> + '_ {
        self.cut.upcoming()
    }
}

/// Gives each call the slot freed last, in time order; returns the slots and their number.
fn assign_slots(opening: &[u32], cut: &ResponseCut) -> (Vec<u32>, usize) {
    let mut slot = vec![0; opening.len()];
    let mut free = Vec::new();
    let mut slots_count = 0;
    let mut responses_done = 0;
    // Calls are in order of their earliest effect, so their openings never decrease.
    for (call, opening) in opening.iter().enumerate() {
        while responses_done < *opening as usize {
            let done = cut.call_at(responses_done);
            // A call that ends before it begins holds no slot yet, and is never placed.
            if done < call {
                free.push(slot[done]);
            }
            responses_done += 1;
        }
        slot[call] = free.pop().unwrap_or_else(|| {
            slots_count += 1;
            slots_count - 1
        });
    }
    (slot, slots_count as usize)
}

/// The calls not placed, by earliest effect: a list with a sentinel that takes members out and puts
/// them back in reverse order.
struct Unplaced {
    next: Vec<u32>,
    previous: Vec<u32>,
}

impl Unplaced {
    fn new(calls_count: usize) -> Unplaced {
        let count = u32::try_from(calls_count).expect("OPERATIONS_MAX is below u32::MAX");
        // The sentinel is the last element: its next is the first call.
        let next = (1..=count).chain([0]).collect();
        let previous = [count].into_iter().chain(0..count).collect();
        Unplaced { next, previous }
    }

    fn remove(&mut self, call: usize) {
        let (previous, next) = (self.previous[call], self.next[call]);
        self.next[previous as usize] = next;
        self.previous[next as usize] = previous;
    }

    fn restore(&mut self, call: usize) {
        let (previous, next) = (self.previous[call], self.next[call]);
        let call = u32::try_from(call).expect("OPERATIONS_MAX is below u32::MAX");
        self.next[previous as usize] = call;
        self.previous[next as usize] = call;
    }

    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let sentinel = self.next.len() - 1;
        let mut at = sentinel;
        std::iter::from_fn(move || {
            at = self.next[at] as usize;
            (at != sentinel).then_some(at as u32)
        })
    }
}
