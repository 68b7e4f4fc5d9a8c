//! Program order of each client; optionally real-time order among writes and some reads too.
//!
//! The key is the number of placed calls of each client.

use std::collections::{BTreeMap, BTreeSet};

use super::Frontier;
use super::response_cut::ResponseCut;
use crate::history::{ClientId, OpId};
use crate::model::Model;
use crate::prepared::{Prepared, PreparedCall};
use crate::sequential::WriteOrder;

pub(crate) struct ProgramOrder {
    // Over all required calls; orders the search, and sets no precedence.
    responses: ResponseCut,
    // Over the required calls under real-time order; without any, it holds back no call.
    writes: ResponseCut,
    // By call: how many responses of `writes` must have been passed before it may be placed.
    required_opening: Vec<u32>,
    optional_opening: Vec<u32>,
    clients: Vec<ClientCalls>,
    // By required call: index of its client.
    client: Vec<u32>,
    optional_after: Vec<After>,
}

struct ClientCalls {
    // Required calls in program order.
    calls: Vec<u32>,
    placed: u32,
}

/// An optional call may follow once its client has placed that many required calls.
struct After {
    client: usize,
    placed: u32,
}

impl ProgramOrder {
    /// `ordered`: reads that keep real-time order as writes do.
    pub(crate) fn new<M: Model>(
        prepared: &Prepared<'_, M>,
        order: WriteOrder,
        ordered: &BTreeSet<OpId>,
    ) -> ProgramOrder {
        let required = &prepared.required;
        let is_ordered = |call: &PreparedCall<'_, M>| {
            order == WriteOrder::RealTime && (!call.is_read || ordered.contains(&call.id))
        };
        let all = required.iter().map(|call| call.responded).enumerate();
        let responses = ResponseCut::new(required.len(), all.clone());
        let writes =
            ResponseCut::new(required.len(), all.filter(|(at, _)| is_ordered(&required[*at])));
        let openings = |calls: &[PreparedCall<'_, M>]| {
            let opening = |call: &PreparedCall<'_, M>| {
                if is_ordered(call) { writes.opening(call.invoked) } else { 0 }
            };
            calls.iter().map(opening).collect::<Vec<u32>>()
        };
        let required_opening = openings(required);
        let optional_opening = openings(&prepared.optional);
        let (clients, client, optional_after) = split_by_client(prepared);
        ProgramOrder {
            responses,
            writes,
            required_opening,
            optional_opening,
            clients,
            client,
            optional_after,
        }
    }
}

impl Frontier for ProgramOrder {
    type Key = Box<[u32]>;

    fn key(&self) -> Self::Key {
        self.clients.iter().map(|client| client.placed).collect()
    }

    fn place(&mut self, required: usize) {
        self.clients[self.client[required] as usize].placed += 1;
        self.responses.place(required);
        self.writes.place(required);
    }

    fn unplace(&mut self, required: usize) {
        self.writes.unplace(required);
        self.responses.unplace(required);
        self.clients[self.client[required] as usize].placed -= 1;
    }

    fn candidates(&self, into: &mut Vec<u32>) {
        let next = |client: &ClientCalls| client.calls.get(client.placed as usize).copied();
        let passed = self.writes.passed();
        let is_open = |call: &u32| self.required_opening[*call as usize] as usize <= passed;
        into.extend(self.clients.iter().filter_map(next).filter(is_open));
        into.sort_unstable_by_key(|call| self.responses.rank(*call as usize));
    }

    fn admits_optional(&self, optional: usize) -> bool {
        let after = &self.optional_after[optional];
        self.clients[after.client].placed >= after.placed
            && self.optional_opening[optional] as usize <= self.writes.passed()
    }

    fn upcoming(&self) -> impl Iterator<Item = usize> + '_ {
        self.responses.upcoming()
    }
}

/// The clients, the client of each required call, and the predecessors of each optional call.
fn split_by_client<M: Model>(
    prepared: &Prepared<'_, M>,
) -> (Vec<ClientCalls>, Vec<u32>, Vec<After>) {
    let mut index: BTreeMap<ClientId, usize> = BTreeMap::new();
    for call in prepared.required.iter().chain(&prepared.optional) {
        let count = index.len();
        index.entry(call.client).or_insert(count);
    }
    let mut clients: Vec<ClientCalls> =
        index.iter().map(|_| ClientCalls { calls: Vec::new(), placed: 0 }).collect();
    let mut client = Vec::with_capacity(prepared.required.len());
    for (at, call) in (0..).zip(&prepared.required) {
        let of = index[&call.client];
        clients[of].calls.push(at);
        client.push(u32::try_from(of).expect("no more clients than operations"));
    }
    let after = |call: &PreparedCall<'_, M>| {
        let client = index[&call.client];
        let order = (call.invoked, call.id);
        let placed = clients[client].calls.partition_point(|at| {
            let earlier = &prepared.required[*at as usize];
            (earlier.invoked, earlier.id) < order
        });
        After { client, placed: u32::try_from(placed).expect("OPERATIONS_MAX is below u32::MAX") }
    };
    let optional_after = prepared.optional.iter().map(after).collect();
    (clients, client, optional_after)
}
