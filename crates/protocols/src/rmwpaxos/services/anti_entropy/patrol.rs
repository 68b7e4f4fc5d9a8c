//! The patrol: compares every shard with all members within a set time, even without writes.
//!
//! It requests one comparison after the other, evenly over that time;
//! [`crate::rmwpaxos::services::anti_entropy::ranges`] runs them. A pass is complete once every
//! shard was found equal at every member since the pass began.

use base::{Millis, Nanos};
use types::Shard;
use types::key::SHARDS;

use super::ranges::{Ranges, replicated_shards};
use crate::effects::TimerId;
use crate::mutation::{self, Mutation};
use crate::protocol::Env;
use crate::replicas::Places;
use crate::rmwpaxos::context::Cx;

pub(crate) const PATROL: TimerId = TimerId(7);

#[derive(Debug)]
pub(crate) struct Patrol {
    /// Per shard, the members that this pass has not found equal yet.
    missing: Box<[Places; SHARDS]>,
    /// Shards of this pass with such members.
    left: usize,
    /// The next shard.
    next: Shard,
    pub(crate) passes: u64,
    /// Unix time when the last complete pass ended.
    pub(crate) passed_at: Millis,
    is_behind: bool,
}

impl Default for Patrol {
    fn default() -> Patrol {
        Patrol {
            missing: Box::new([0; SHARDS]),
            left: 0,
            next: Shard(0),
            passes: 0,
            passed_at: Millis(0),
            is_behind: false,
        }
    }
}

impl Patrol {
    /// True if comparisons take longer than the time between two shards. Walks then hurry.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }
}

impl Patrol {
    pub(crate) fn start(&mut self, env: &Env, cx: &mut Cx<'_>) {
        let Some(first) = replicated_shards(env, cx).next() else { return };
        self.next = first;
        self.arm(env, cx);
    }

    fn arm(&self, env: &Env, cx: &mut Cx<'_>) {
        let every = env.compare_every;
        let shards = replicated_shards(env, cx).count() as u64;
        if every > Nanos::ZERO && cx.replicas.peers.nodes().len() > 1 {
            cx.fx.timer(PATROL, cx.now + Nanos((every.0 / shards.max(1)).max(1)));
        }
    }

    /// Requests the comparison of the next shard.
    pub(crate) fn on_timer(&mut self, ranges: &mut Ranges, env: &Env, cx: &mut Cx<'_>) {
        self.arm(env, cx);
        if mutation::is(Mutation::NoPatrol) {
            return;
        }
        let shards: Vec<Shard> = replicated_shards(env, cx).collect();
        let shard = self.next;
        let others = |cx: &Cx<'_>, shard: Shard| {
            let set = cx.replicas_of(shard).set;
            set.all_places() & !set.own_place()
        };
        let at = shards.iter().position(|&it| it == shard).unwrap_or(0);
        if at == 0 {
            let missing = &mut self.missing;
            shards.iter().for_each(|&it| missing[usize::from(it.0)] = others(cx, it));
            self.left = shards.len();
        }
        let before = shards[(at + shards.len() - 1) % shards.len()];
        self.is_behind = at > 0 && self.missing[usize::from(before.0)] != 0;
        self.next = shards[(at + 1) % shards.len()];
        if self.missing[usize::from(shard.0)] != 0 && !cx.cache.is_forgotten(shard) {
            cx.about(shard);
            ranges.doubt(cx, shard, others(cx, shard));
        }
    }

    /// Notes members that were found equal in this shard.
    pub(crate) fn found_equal(&mut self, cx: &mut Cx<'_>, shard: Shard, members: Places) {
        let missing = &mut self.missing[usize::from(shard.0)];
        if *missing == 0 {
            return;
        }
        *missing &= !members;
        if *missing == 0 {
            self.left -= 1;
            if self.left == 0 {
                self.passes += 1;
                self.passed_at = cx.unix;
            }
        }
    }
}
