//! The members of the cluster as clients may reach them, and the slots that each of them serves.

use base::Nanos;
use commands::hash_slot;
use node::session::SessionContext;
use node::status::{MemberView, NodeStatus};
use node::summary::NodeState;
use types::NodeId;

/// Slots from one to another, both included, and the place of the member that serves them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotRange {
    pub first: u16,
    pub last: u16,
    pub owner: usize,
}

/// A member as clients see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Endpoint {
    pub node: NodeId,
    /// Forty hexadecimal digits.
    pub id: String,
    pub host: String,
    pub port: u16,
    /// Where other nodes reach it.
    pub bus_port: u16,
    pub is_self: bool,
    /// It is connected to this node.
    pub is_up: bool,
    /// It is up, and a quorum can serve through it.
    pub serves: bool,
    /// Milliseconds since its last report.
    pub silent_for: Option<u64>,
    pub round_trip: Option<Nanos>,
    /// Host and port for clients of Redis Sentinel, if it answers them.
    pub sentinel: Option<(String, u16)>,
}

/// All members, sorted by id.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    pub all: Vec<Endpoint>,
    /// This node belongs to a quorum that can serve.
    pub is_ready: bool,
    cluster: String,
}

/// How far a node's bus port lies above its client port in Redis. It stands in for a link without
/// a port.
const BUS_PORT_OFFSET: u16 = 10_000;

impl Endpoints {
    pub(crate) fn of(cx: &SessionContext<'_>) -> Endpoints {
        let status = cx.node.status();
        let cluster = status.cluster.clone().unwrap_or_else(|| "none".into());
        let mut all: Vec<Endpoint> =
            cx.node.cluster().iter().map(|member| endpoint(member, &cluster, &status)).collect();
        if all.is_empty() {
            all.push(alone(&cluster, &status));
        }
        all.sort_unstable_by_key(|endpoint| endpoint.node);
        Endpoints { all, is_ready: status.ready, cluster }
    }

    /// This node.
    pub(crate) fn me(&self) -> &Endpoint {
        self.all.iter().find(|endpoint| endpoint.is_self).unwrap_or(&self.all[0])
    }

    /// Places of the members that clients should use. All, where none is known to serve: then
    /// clients keep every address to try.
    pub(crate) fn usable(&self) -> Vec<usize> {
        let serving = |at: &usize| self.all[*at].serves;
        let usable: Vec<usize> = (0..self.all.len()).filter(serving).collect();
        if usable.is_empty() { (0..self.all.len()).collect() } else { usable }
    }

    pub(crate) fn slots(&self) -> Vec<SlotRange> {
        let usable = self.usable();
        deal(self.all.len(), |at| usable.contains(&at))
    }

    /// Forty digits that name the sentinel port of `node`.
    pub(crate) fn sentinel_id(&self, node: &Endpoint) -> String {
        forty_digits(&format!("{} sentinel {}", self.cluster, node.node))
    }

    /// Forty digits that name the shard whose master is the member at `at`.
    pub(crate) fn shard_id(&self, at: usize) -> String {
        forty_digits(&format!("{} shard {}", self.cluster, self.all[at].node))
    }
}

fn endpoint(member: &MemberView, cluster: &str, status: &NodeStatus) -> Endpoint {
    let summary = member.summary.as_ref();
    let told = summary.map(|summary| summary.advertise.as_str()).filter(|it| !it.is_empty());
    let (host, port) = split(told.unwrap_or(&member.address));
    let is_ready = summary.is_some_and(|summary| summary.state == NodeState::Ready);
    let is_link = |link: &&node::status::MemberStatus| link.node == member.node;
    let link = status.members.iter().find(is_link).map(|link| split(&link.address).1);
    Endpoint {
        node: member.node,
        id: node_id(cluster, member.node),
        host: host.into(),
        port,
        bus_port: link.filter(|&port| port > 0).unwrap_or(port.saturating_add(BUS_PORT_OFFSET)),
        is_self: member.is_self,
        is_up: member.up,
        serves: member.up && if member.is_self { status.ready } else { is_ready },
        silent_for: member.silent_for.map(|time| time.0),
        round_trip: member.round_trip,
        sentinel: summary.and_then(|summary| sentinel(&summary.sentinel)),
    }
}

/// This node, where it knows of no members.
fn alone(cluster: &str, status: &NodeStatus) -> Endpoint {
    let (host, port) = split(&status.advertise);
    Endpoint {
        node: status.id,
        id: node_id(cluster, status.id),
        host: host.into(),
        port,
        bus_port: port.saturating_add(BUS_PORT_OFFSET),
        is_self: true,
        is_up: true,
        serves: status.ready,
        silent_for: Some(0),
        round_trip: None,
        sentinel: status.sentinel.as_deref().and_then(sentinel),
    }
}

/// Host and port of an announced address; `None` for an empty one.
fn sentinel(address: &str) -> Option<(String, u16)> {
    let (host, port) = split(address);
    (port > 0).then(|| (host.to_string(), port))
}

/// Host and port of `HOST:PORT`, without the brackets around an IPv6 address. Port 0 where there
/// is none.
fn split(address: &str) -> (&str, u16) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    (bare.unwrap_or(host), port.parse().unwrap_or(0))
}

/// The id of a node for cluster clients. Stays the same while the node belongs to the cluster.
fn node_id(cluster: &str, node: NodeId) -> String {
    forty_digits(&format!("{cluster} node {node}"))
}

/// Forty hexadecimal digits that follow from `seed`.
pub(crate) fn forty_digits(seed: &str) -> String {
    let word = |number: u32| base::checksum::hash(format!("{seed} {number}").as_bytes());
    format!("{:016x}{:016x}{:016x}", word(0), word(1), word(2))[..40].to_string()
}

/// Deals all slots over `members`, of which some serve.
///
/// Each member has a home range. The range of a member that does not serve falls in pieces to the
/// others. Each piece has an order of members of its own. So a slot moves only when its owner goes
/// or a better one returns.
fn deal(members: usize, serves: impl Fn(usize) -> bool) -> Vec<SlotRange> {
    let mut ranges: Vec<SlotRange> = Vec::new();
    for home in 0..members {
        let (start, end) = (bound(home, members), bound(home + 1, members));
        let pieces = if serves(home) { 1 } else { (members - 1).max(1) };
        for piece in 0..pieces {
            let cut = |at: usize| start + (end - start) * at / pieces;
            let owner = owner(home, piece, members, &serves);
            push(&mut ranges, cut(piece), cut(piece + 1), owner);
        }
    }
    ranges
}

fn bound(member: usize, members: usize) -> usize {
    usize::from(hash_slot::COUNT) * member / members
}

/// The home member, or the first other that serves, beginning with another one for each piece.
fn owner(home: usize, piece: usize, members: usize, serves: &impl Fn(usize) -> bool) -> usize {
    if serves(home) {
        return home;
    }
    let others = members - 1;
    let other = |step: usize| (home + 1 + (piece + step) % others) % members;
    (0..others).map(other).find(|&at| serves(at)).unwrap_or(home)
}

fn push(ranges: &mut Vec<SlotRange>, start: usize, end: usize, owner: usize) {
    if start == end {
        return;
    }
    let (first, last) = (start as u16, (end - 1) as u16);
    match ranges.last_mut() {
        Some(range) if range.owner == owner => range.last = last,
        _ => ranges.push(SlotRange { first, last, owner }),
    }
}

#[cfg(test)]
mod tests {
    use types::limits::MEMBERS_MAX;

    use super::*;

    /// The owner of each slot. Checks that ranges cover all slots once.
    fn owners(members: usize, up: u32) -> Vec<usize> {
        let ranges = deal(members, |at| up & 1 << at != 0);
        let mut owners = Vec::new();
        for range in ranges {
            assert_eq!(usize::from(range.first), owners.len());
            assert!(up & 1 << range.owner != 0, "{members} {up:b} {range:?}");
            owners.extend((range.first..=range.last).map(|_| range.owner));
        }
        assert_eq!(owners.len(), usize::from(hash_slot::COUNT));
        owners
    }

    #[test]
    fn every_slot_has_one_owner_that_serves() {
        for members in 1..=MEMBERS_MAX {
            (1..1 << members).for_each(|up| drop(owners(members, up)));
        }
    }

    #[test]
    fn slots_move_from_lost_members_only() {
        for members in 2..=MEMBERS_MAX {
            for up in 1..1_u32 << members {
                for lost in (0..members).filter(|at| up & 1 << at != 0 && up != 1 << at) {
                    let (before, after) = (owners(members, up), owners(members, up & !(1 << lost)));
                    let moved = before.iter().zip(&after).filter(|(was, is)| was != is);
                    assert!(moved.clone().all(|(&was, _)| was == lost), "{members} {up:b} {lost}");
                    assert_eq!(moved.count(), before.iter().filter(|&&at| at == lost).count());
                }
            }
        }
    }

    #[test]
    fn shares_are_even() {
        for members in 1..=MEMBERS_MAX {
            let all = (1_u32 << members) - 1;
            for up in std::iter::once(all).chain((0..members).map(|at| all & !(1 << at))) {
                let count = up.count_ones() as usize;
                for at in (0..members).filter(|at| up & 1 << at != 0) {
                    let share = owners(members, up).iter().filter(|&&owner| owner == at).count();
                    let fair = usize::from(hash_slot::COUNT) / count;
                    assert!(share.abs_diff(fair) <= 10, "{members} {up:b}: {share} of {fair}");
                }
            }
        }
    }

    #[test]
    fn addresses_split_before_the_port() {
        assert_eq!(split("store.example:6379"), ("store.example", 6_379));
        assert_eq!(split("[::1]:7000"), ("::1", 7_000));
        assert_eq!(split("node-2"), ("node-2", 0));
    }
}
