//! Range digests [spec 9.7]: the schedule of comparisons, which make replicas equal even if no
//! client reads.
//!
//! A shard is compared with a member after an accept here or an absence of that member, once the
//! shard is quiet. Equal shards cause no further messages. One walk at a time goes through the
//! registers of one shard in hash order, a few per step. It asks all members in question together
//! ([`crate::rmwpaxos::services::anti_entropy::comparison`]). On its way it finds tombstones
//! without a collector.
//!
//! All of it is a hint. It causes a late accept, which the acceptor may refuse, or an ordinary
//! proposal.

use std::fmt;

use base::Nanos;
use types::key::SHARDS;
use types::limits::MEMBERS_MAX;
use types::{AmnesiaCount, Ballot, NodeId, Round, Shard};

use super::pending_repairs::others_in_reach;
use super::walk::{Step, Walk};
use crate::effects::TimerId;
use crate::peers::Pace;
use crate::protocol::Env;
use crate::replicas::{Places, Replicas, place};
use crate::rmwpaxos::context::Cx;

pub(crate) const COMPARE: TimerId = TimerId(6);

/// The quiet time after a write, times a member's place. So one member compares for all.
const QUIET: Nanos = Nanos::from_secs(2);
/// A shard that is never quiet is compared after this.
const BUSY_MAX: Nanos = Nanos::from_secs(60);
/// Between two steps of a walk. It bounds the cost of walks, above all of the full one after a
/// start.
pub(crate) const PAUSE: Nanos = Nanos::from_millis(200);
/// Pauses after a full step.
const FULL_STEP_PACES: u64 = 3;
/// After a step that found a difference.
const PAUSE_SHORT: Nanos = Nanos::from_millis(2);
/// The extra pause per byte of a late delivery: to a steady member, and to one that is to be
/// spared.
const PAUSE_PER_BYTE: [Nanos; 2] = [Nanos(100), Nanos(1_000)];
/// Late deliveries wait for the next walk if a longer pause is due already.
const PAUSE_OWED_MAX: Nanos = Nanos::from_secs(1);
/// The longest pause, even after a long state.
const PAUSE_LONG: Nanos = Nanos::from_secs(10);
const RETRY_MIN: Nanos = Nanos::from_secs(1);
const RETRY_MAX: Nanos = Nanos::from_secs(60);
/// A member that accepts neither late accepts nor proposals may have a full disk. Each further
/// proposal costs the others a write, so the pause doubles each time, up to an hour.
const INSIST_AGAIN_AFTER: Nanos = Nanos::from_secs(8);
const INSISTED_MAX: u8 = 9;
/// Walks over an unwritten shard that find it different before a proposal replaces the late accept.
const LATE_ACCEPTS_MAX: u8 = 1;
/// Walks in a row after short pauses; later ones wait ever longer.
const SOON_MAX: u8 = 3;

/// The doubts about one shard.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Unsure {
    /// Members to compare with. This node's own bit: search for tombstones.
    with: Places,
    /// Members that walk this shard from their side, with no difference so far and no accept here
    /// since.
    agreeing: Places,
    /// Members that durably held the same as this node when they were last asked, with no accept
    /// here since.
    held_by: Places,
    /// Those of them that were told since that they held more than they reported, with no accept
    /// here since.
    told: Places,
    /// Members that were found equal, with no removal here since.
    equal_once: Places,
    /// The amnesia count of each of those then, at most.
    held_with: [AmnesiaCount; MEMBERS_MAX],
    /// The floor of each of those then. It covered all registers that the member lacked.
    held_floors: [Ballot; MEMBERS_MAX],
    since: Nanos,
    written_at: Nanos,
    /// When the floor last rose here.
    raised_at: Option<Nanos>,
    /// The earliest next walk.
    try_at: Nanos,
    /// Walks in a row that left work to do.
    failures: u8,
    /// Walks in a row that found a difference, with no accept here between them.
    differed: u8,
    /// Insisting walks that still found a difference, since the last one without, and when the next
    /// may insist.
    insisted: u8,
    insist_at: Nanos,
}

pub(crate) struct Ranges {
    shards: Box<[Unsure; SHARDS]>,
    /// The end of the gapless answers to each member's walk, since links may lose a question.
    answered: [Option<(Shard, u64)>; MEMBERS_MAX],
    /// The amnesia count with which each began its walk, and the lowest floor since.
    asked_with: [(AmnesiaCount, Ballot); MEMBERS_MAX],
    pub(crate) walk: Option<Walk>,
    /// The shard at which the next search begins.
    next: u8,
    armed: Option<Nanos>,
    /// The time of the process's first event.
    pub(crate) started: Option<Nanos>,
    /// No step follows until then, because of late deliveries by this node and to it.
    pub(crate) resting_until: Nanos,
    /// The number of the newest question of a walk.
    pub(crate) last_question: u64,
}

/// Prints only shards with doubts.
impl fmt::Debug for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shards = self.shards.iter().enumerate();
        let unsure = shards.filter(|(_, unsure)| **unsure != Unsure::default());
        f.debug_map().entries(unsure).finish()?;
        write!(f, "{:?} {:?} ", self.answered, self.walk)?;
        write!(f, "{} {:?} {:?} ", self.next, self.armed, self.started)?;
        write!(f, "{}", self.last_question)
    }
}

impl Default for Ranges {
    fn default() -> Ranges {
        Ranges {
            shards: Box::new([Unsure::default(); SHARDS]),
            answered: [None; MEMBERS_MAX],
            asked_with: [(AmnesiaCount(0), Ballot::ZERO); MEMBERS_MAX],
            walk: None,
            next: 0,
            armed: None,
            started: None,
            resting_until: Nanos::ZERO,
            last_question: 0,
        }
    }
}

impl Unsure {
    fn note_held(&mut self, member: usize, (amnesia, floor): (AmnesiaCount, Ballot)) {
        self.held_by |= 1 << member;
        self.told &= !(1 << member);
        self.equal_once |= 1 << member;
        self.held_with[member] = amnesia;
        self.held_floors[member] = floor;
    }
}

impl Ranges {
    /// True if no comparison with a member in reach is due. Before its first event a process does
    /// not know.
    pub(crate) fn is_quiet(&self) -> bool {
        self.started.is_some() && self.walk.is_none() && self.armed.is_none()
    }

    fn of(&mut self, shard: Shard) -> &mut Unsure {
        &mut self.shards[usize::from(shard.0)]
    }

    pub(crate) fn arm(&mut self, cx: &mut Cx<'_>, at: Nanos) {
        if self.armed.is_none_or(|armed| at < armed) {
            self.armed = Some(at);
            cx.fx.timer(COMPARE, at);
        }
    }

    /// Notes an accept here.
    pub(crate) fn on_write(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        let unsure = self.of(shard);
        if unsure.with == 0 {
            unsure.since = cx.now;
        }
        unsure.with = Places::MAX;
        (unsure.agreeing, unsure.held_by, unsure.told) = (0, 0, 0);
        (unsure.differed, unsure.failures) = (0, 0);
        unsure.written_at = cx.now;
        if self.armed.is_none() && self.walk.is_none() {
            self.arm(cx, cx.now + QUIET);
        }
    }

    /// Notes a removal here. Others may still hold the tombstone, and a newer state on top of it.
    pub(crate) fn on_removal(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        self.on_write(cx, shard);
        self.of(shard).equal_once = 0;
        self.on_raised(cx, shard);
    }

    /// Notes that the floor rose here.
    pub(crate) fn on_raised(&mut self, cx: &Cx<'_>, shard: Shard) {
        self.of(shard).raised_at = Some(cx.now);
    }

    pub(crate) fn was_written_since(&self, shard: Shard, since: Nanos) -> bool {
        self.shards[usize::from(shard.0)].written_at >= since
    }

    pub(crate) fn has_risen_since(&self, shard: Shard, since: Nanos) -> bool {
        self.shards[usize::from(shard.0)].raised_at.is_some_and(|at| at >= since)
    }

    /// Notes that a member's walk has been answered up to `until`. Only gapless ranges make a
    /// shard. True if the whole shard was equal.
    pub(crate) fn on_agreement(
        &mut self,
        (member, amnesia, floor): (usize, AmnesiaCount, Ballot),
        shard: Shard,
        (from_hash, until): (u64, Option<u64>),
        is_equal: bool,
    ) -> bool {
        let is_first = from_hash == shard.first_hash();
        let joins = |(of, end): (Shard, u64)| of == shard && from_hash <= end;
        let is_joined = is_first || self.answered[member].is_some_and(joins);
        // A question from before an amnesia may be answered late. It is no evidence of the member's
        // present state.
        let is_joined = is_joined && (is_first || self.asked_with[member].0 == amnesia);
        self.answered[member] = until.filter(|_| is_joined).map(|until| (shard, until));
        let lowest = if is_first { floor } else { floor.min(self.asked_with[member].1) };
        self.asked_with[member] = (amnesia, lowest);
        let asked_with = self.asked_with[member];
        let unsure = self.of(shard);
        if is_first {
            unsure.agreeing |= 1 << member;
        }
        if !is_equal || !is_joined {
            unsure.agreeing &= !(1 << member);
        }
        if until.is_none() && unsure.agreeing & 1 << member != 0 {
            base::sometimes!("a member that was asked learns that it is equal");
            unsure.with &= !(1 << member);
            unsure.note_held(member, asked_with);
            return true;
        }
        false
    }

    /// The amnesia count at which the member durably held the same as this node in this shard.
    /// Unless it has lost part of the shard since, it cannot rightly hold less now.
    pub(crate) fn was_held_with(&self, shard: Shard, member: usize) -> Option<AmnesiaCount> {
        let unsure = &self.shards[usize::from(shard.0)];
        (unsure.held_by & 1 << member != 0).then_some(unsure.held_with[member])
    }

    /// The same for a register that is absent here, if the member's floor then forbids the round
    /// that it holds now. Also returns that floor.
    pub(crate) fn was_removed_with(
        &self,
        shard: Shard,
        member: usize,
        round: Round,
    ) -> Option<(AmnesiaCount, Ballot)> {
        self.had_floor(shard, member).filter(|&(_, floor)| round.ballot() <= floor)
    }

    /// The amnesia count and floor of a member when it held no register that is absent here now.
    pub(crate) fn was_equal_under(
        &self,
        shard: Shard,
        member: usize,
    ) -> Option<(AmnesiaCount, Ballot)> {
        let unsure = &self.shards[usize::from(shard.0)];
        (unsure.equal_once & 1 << member != 0)
            .then(|| (unsure.held_with[member], unsure.held_floors[member]))
    }

    /// The floor that a member durably had, and its amnesia count then.
    pub(crate) fn had_floor(&self, shard: Shard, member: usize) -> Option<(AmnesiaCount, Ballot)> {
        let floor = self.shards[usize::from(shard.0)].held_floors[member];
        Some((self.was_held_with(shard, member)?, floor))
    }

    /// Notes that a member was told that it held more. Its present state is unknown again.
    pub(crate) fn note_told(&mut self, shard: Shard, member: usize) {
        let unsure = self.of(shard);
        unsure.told |= unsure.held_by & 1 << member;
        unsure.held_by &= !(1 << member);
    }

    /// True if the member was told that it durably held the same as this node in this shard.
    pub(crate) fn was_told(&self, shard: Shard, member: usize) -> bool {
        self.shards[usize::from(shard.0)].told & 1 << member != 0
    }

    /// True if a state of `len` bytes may be delivered late now, to a member of this pace.
    pub(crate) fn may_deliver(
        &mut self,
        now: Nanos,
        shard: Shard,
        (len, pace): (usize, Pace),
    ) -> bool {
        if self.resting_until > now + PAUSE_OWED_MAX {
            // It was not refused, so its difference does not count.
            self.of(shard).differed = 0;
            return false;
        }
        self.note_late(now, len, pace);
        true
    }

    /// Notes a late delivery of `len` bytes, by or to a member of this pace.
    pub(crate) fn note_late(&mut self, now: Nanos, len: usize, pace: Pace) {
        let per_byte = PAUSE_PER_BYTE[usize::from(pace != Pace::Steady)];
        let until = self.resting_until.max(now) + Nanos(len as u64 * per_byte.0);
        self.resting_until = until.min(now + PAUSE_LONG);
    }

    /// The shard is forgotten here. Earlier comparisons are no evidence of the state that will be
    /// recovered.
    pub(crate) fn doubt_holders(&mut self, shard: Shard) {
        let unsure = self.of(shard);
        (unsure.held_by, unsure.told, unsure.equal_once, unsure.agreeing) = (0, 0, 0, 0);
        if let Some(walk) = self.walk.as_mut().filter(|walk| walk.shard == shard) {
            walk.note_doubt(Places::MAX);
        }
    }
}

/// Doubts about shards.
impl Ranges {
    /// Requests a comparison with those of these members that await none yet.
    pub(crate) fn doubt_once(&mut self, cx: &mut Cx<'_>, shard: Shard, with: Places) {
        let with = with & !self.of(shard).with;
        if with != 0 {
            self.doubt(cx, shard, with);
        }
    }

    /// Requests a comparison with these members.
    pub(crate) fn doubt(&mut self, cx: &mut Cx<'_>, shard: Shard, with: Places) {
        let replicas = cx.replicas_of(shard);
        if !replicas.set.has_me() {
            return;
        }
        let quiet = quiet_for(replicas);
        if let Some(walk) = self.walk.as_mut().filter(|walk| walk.shard == shard) {
            walk.note_doubt(with);
        }
        let unsure = self.of(shard);
        if unsure.with == 0 {
            unsure.since = cx.now;
        }
        unsure.with |= with;
        unsure.agreeing &= !with;
        unsure.failures = 0;
        (unsure.insisted, unsure.insist_at) = (0, Nanos::ZERO);
        unsure.try_at = cx.now + quiet;
        self.arm(cx, cx.now + quiet);
    }

    /// A member was away and may have missed accepts.
    pub(crate) fn doubt_member(&mut self, env: &Env, cx: &mut Cx<'_>, node: NodeId) {
        let shards: Vec<Shard> = replicated_shards(env, cx).collect();
        for shard in shards {
            cx.about(shard);
            if let Some(index) = cx.replicas.index(node) {
                self.doubt(cx, shard, place(index));
            }
        }
    }

    /// True unless a newer timer replaced the one that fired.
    pub(super) fn on_fired(&mut self, cx: &Cx<'_>) -> bool {
        let is_newest = self.armed.is_none_or(|armed| armed <= cx.now);
        if is_newest {
            self.armed = None;
        }
        is_newest
    }

    /// Starts a walk of the next due shard, or sets the timer for the earliest other one.
    pub(super) fn start_walk(&mut self, cx: &mut Cx<'_>) {
        let mut first: Option<Nanos> = None;
        for ahead in 0..=u8::MAX {
            let shard = Shard(self.next.wrapping_add(ahead));
            let replicas = cx.replicas_of(shard);
            let quiet = quiet_for(replicas);
            let unsure = self.of(shard);
            let with = unsure.with & reach(replicas);
            // A shard that is forgotten here is in doubt again after its recovery.
            if with == 0 || cx.cache.is_forgotten(shard) {
                continue;
            }
            let is_quiet_at = (unsure.written_at + quiet).min(unsure.since + BUSY_MAX);
            let at = unsure.try_at.max(is_quiet_at);
            if at > cx.now {
                first = Some(first.map_or(at, |first| first.min(at)));
                continue;
            }
            cx.about(shard);
            let insist = unsure.differed >= LATE_ACCEPTS_MAX && cx.now >= unsure.insist_at;
            self.next = shard.0.wrapping_add(1);
            self.walk = Some(Walk {
                shard,
                with,
                equal: with,
                from_hash: shard.first_hash(),
                step: Step::Pausing { until: cx.now },
                insist,
                differs: false,
                left_over: 0,
                floors: [Ballot::ceiling(cx.replicas.epoch(), Ballot::NUMBER_MAX); MEMBERS_MAX],
                losses: losses(cx),
                started: cx.now,
            });
            return;
        }
        if let Some(at) = first {
            self.arm(cx, at);
        }
    }
}

impl Ranges {
    /// Ends a step: returns a walk that has ended. In a hurry, full steps follow each other sooner.
    pub(super) fn end_step(
        &mut self,
        cx: &mut Cx<'_>,
        until: Option<u64>,
        is_in_hurry: bool,
    ) -> Option<Ended> {
        let soon = cx.now + PAUSE_SHORT;
        let walk = self.walk.as_mut()?;
        let Some(from_hash) = until else {
            // A member that missed accepts in one shard most likely did in others, too. Repeated
            // differences need another remedy, not haste.
            let (shard, is_news) = (walk.shard, walk.differs && !walk.insist);
            let is_news = is_news && self.of(shard).failures == 0;
            let ended = self.end_walk(cx);
            self.arm(cx, if is_news { soon } else { next_pace(cx.now) });
            return ended;
        };
        walk.from_hash = from_hash;
        let paces = if is_in_hurry { 1 } else { FULL_STEP_PACES };
        let after_full = next_pace(cx.now) + Nanos(PAUSE.0 * (paces - 1));
        let until = if walk.differs { soon } else { after_full };
        walk.step = Step::Pausing { until };
        self.arm(cx, until);
        None
    }

    /// Ends a walk. A shard that was equal throughout, with no accept since the walk began, is
    /// settled.
    fn end_walk(&mut self, cx: &mut Cx<'_>) -> Option<Ended> {
        let walk = self.walk.take()?;
        cx.about(walk.shard);
        let unsure = self.of(walk.shard);
        if walk.insist && walk.differs {
            unsure.insist_at = cx.now + Nanos(INSIST_AGAIN_AFTER.0 << unsure.insisted);
            unsure.insisted = (unsure.insisted + 1).min(INSISTED_MAX);
        } else if walk.equal == walk.with {
            (unsure.insisted, unsure.insist_at) = (0, Nanos::ZERO);
        }
        let is_still = unsure.written_at < walk.started;
        let mut floor = Ballot::ZERO;
        if is_still {
            unsure.with &= !walk.equal;
            let exact = walk.equal & !walk.left_over & !own_place(cx);
            for member in (0..MEMBERS_MAX).filter(|member| exact & 1 << member != 0) {
                unsure.note_held(member, (walk.losses[member], walk.floors[member]));
                floor = floor.max(walk.floors[member]);
            }
            unsure.differed = if walk.differs { unsure.differed.saturating_add(1) } else { 0 };
        }
        if walk.equal == walk.with {
            unsure.failures = 0;
        } else {
            unsure.failures = unsure.failures.saturating_add(1);
            let doublings = unsure.failures.saturating_sub(SOON_MAX).min(6);
            let pause = Nanos(RETRY_MIN.0 << doublings).min(RETRY_MAX);
            unsure.try_at = cx.now + pause;
        }
        unsure.since = cx.now;
        // Bits of no member only record a write.
        if unsure.with & all(cx) == 0 {
            unsure.with = 0;
        }
        let (shard, differs) = (walk.shard, walk.differs);
        Some(Ended { shard, differs, equal: if is_still { walk.equal } else { 0 }, floor })
    }
}

/// A walk that reached the end of its shard.
pub(super) struct Ended {
    pub(super) shard: Shard,
    pub(super) differs: bool,
    /// Members that hold the same as this node.
    pub(super) equal: Places,
    /// The highest floor of a member that holds exactly the same.
    pub(super) floor: Ballot,
}

/// The shards of this worker of which this node is a replica.
pub(crate) fn replicated_shards<'a>(
    env: &'a Env,
    cx: &'a Cx<'_>,
) -> impl Iterator<Item = Shard> + 'a {
    let is_ours = |shard: &Shard| env.owns(*shard) && cx.sets.of(*shard).has_me();
    (0..=u8::MAX).map(Shard).filter(is_ours)
}

/// The databases of a node walk independently but in step, since a shared wake-up costs less.
fn next_pace(now: Nanos) -> Nanos {
    Nanos((now.0 / PAUSE.0 + 1) * PAUSE.0)
}

fn losses(cx: &Cx<'_>) -> [AmnesiaCount; MEMBERS_MAX] {
    let mut losses = [AmnesiaCount(0); MEMBERS_MAX];
    let members = cx.replicas.members();
    losses.iter_mut().zip(members).for_each(|(amnesia, member)| *amnesia = member.amnesia);
    losses
}

fn all(cx: &Cx<'_>) -> Places {
    cx.replicas.set.all_places()
}

/// This node and the others in reach.
fn reach(replicas: Replicas<'_>) -> Places {
    others_in_reach(replicas) | replicas.set.own_place()
}

/// This node as a set of places.
pub(crate) fn own_place(cx: &Cx<'_>) -> Places {
    cx.replicas.set.own_place()
}

fn quiet_for(replicas: Replicas<'_>) -> Nanos {
    let place = replicas.set.me().unwrap_or(0) as u64;
    Nanos(QUIET.0 * (1 + place))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: Shard = Shard(3);
    const MEMBER: usize = 1;

    /// Answers the ranges of `parts`, all equal. True when the member is no longer asked
    /// afterwards.
    fn is_settled_by(parts: &[(u64, Option<u64>)]) -> bool {
        let mut ranges = Ranges::default();
        ranges.of(SHARD).with = 1 << MEMBER;
        let first = SHARD.first_hash();
        for &(from, until) in parts {
            let range = (first + from, until.map(|until| first + until));
            ranges.on_agreement((MEMBER, AmnesiaCount(1), Ballot::ZERO), SHARD, range, true);
        }
        ranges.of(SHARD).with == 0
    }

    #[test]
    fn member_asked_about_all_ranges_is_equal() {
        assert!(is_settled_by(&[(0, None)]));
        assert!(is_settled_by(&[(0, Some(5)), (5, Some(9)), (9, None)]));
        assert!(is_settled_by(&[(0, Some(5)), (3, Some(9)), (9, None)]), "one end was nearer");
    }

    #[test]
    fn a_question_that_was_lost_leaves_a_gap() {
        assert!(!is_settled_by(&[(0, Some(5)), (9, None)]));
        assert!(!is_settled_by(&[(5, Some(9)), (9, None)]));
        assert!(!is_settled_by(&[(0, Some(5)), (6, Some(9)), (9, None)]));
    }

    fn ballot(number: u64) -> Ballot {
        Ballot::ceiling(types::Epoch(1), number)
    }

    #[test]
    fn agreement_has_one_amnesia_count_and_the_lowest_floor() {
        let first = SHARD.first_hash();
        let parts = [(first, Some(first + 5)), (first + 5, None)];
        let agree = |losses: [u32; 2], floors: [u64; 2]| {
            let mut ranges = Ranges::default();
            for ((range, amnesia), floor) in parts.into_iter().zip(losses).zip(floors) {
                let with = (MEMBER, AmnesiaCount(amnesia), ballot(floor));
                ranges.on_agreement(with, SHARD, range, true);
            }
            let removed = |number: u64| {
                ranges.was_removed_with(SHARD, MEMBER, ballot(number).round(1)).is_some()
            };
            (ranges.was_held_with(SHARD, MEMBER), removed(7), removed(8))
        };
        assert_eq!(agree([2, 2], [9, 7]), (Some(AmnesiaCount(2)), true, false));
        assert_eq!(agree([2, 2], [7, 9]), (Some(AmnesiaCount(2)), true, false));
        assert_eq!(agree([2, 1], [9, 9]).0, None, "asked before the loss, answered late");
        assert_eq!(agree([1, 2], [9, 9]).0, None);
    }

    #[test]
    fn each_member_keeps_its_newest_agreements_floor() {
        const OTHER: usize = 2;
        let all = (SHARD.first_hash(), None);
        let round = ballot(7).round(1);
        let mut ranges = Ranges::default();
        ranges.on_agreement((MEMBER, AmnesiaCount(1), ballot(1)), SHARD, all, true);
        ranges.on_agreement((OTHER, AmnesiaCount(1), ballot(1)), SHARD, all, true);
        ranges.on_agreement((MEMBER, AmnesiaCount(2), ballot(9)), SHARD, all, true);
        assert_eq!(
            ranges.was_removed_with(SHARD, MEMBER, round),
            Some((AmnesiaCount(2), ballot(9)))
        );
        assert_eq!(ranges.was_removed_with(SHARD, OTHER, round), None);
    }

    #[test]
    fn forgotten_shard_relies_on_no_member() {
        let mut ranges = Ranges::default();
        ranges.on_agreement(
            (MEMBER, AmnesiaCount(1), ballot(1)),
            SHARD,
            (SHARD.first_hash(), None),
            true,
        );
        let first = (SHARD.first_hash(), Some(SHARD.first_hash() + 5));
        ranges.on_agreement((MEMBER, AmnesiaCount(1), ballot(1)), SHARD, first, true);
        ranges.doubt_holders(SHARD);
        assert_eq!(ranges.was_held_with(SHARD, MEMBER), None);
        let rest = (SHARD.first_hash() + 5, None);
        assert!(!ranges.on_agreement((MEMBER, AmnesiaCount(1), ballot(1)), SHARD, rest, true));
        assert_eq!(ranges.was_held_with(SHARD, MEMBER), None, "it has begun before");
    }

    #[test]
    fn late_deliveries_are_paced_without_a_refusal() {
        let mut ranges = Ranges::default();
        let (now, mib) = (Nanos::from_secs(9), 1 << 20);
        ranges.of(SHARD).differed = 1;
        assert!(ranges.may_deliver(now, SHARD, (mib, Pace::Steady)));
        let rest = |ranges: &Ranges| ranges.resting_until.since(now).as_millis();
        assert_eq!(rest(&ranges), 104);
        assert!(ranges.may_deliver(now, SHARD, (mib, Pace::Spared)));
        assert_eq!((rest(&ranges), ranges.of(SHARD).differed), (1_153, 1));
        assert!(!ranges.may_deliver(now, SHARD, (1, Pace::Steady)));
        assert_eq!((rest(&ranges), ranges.of(SHARD).differed), (1_153, 0));
        assert!(ranges.may_deliver(now + PAUSE_OWED_MAX, SHARD, (100 * mib, Pace::Spared)));
        assert_eq!(rest(&ranges), 11_000, "a long one is not waited for for ever");
    }
}
