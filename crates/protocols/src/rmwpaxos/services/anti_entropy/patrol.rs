//! The patrol: every shard is compared with all members within a set time, whether or not anything was written.
//!
//! It only asks for comparisons, one shard after the other, evenly over that time; [`crate::rmwpaxos::services::anti_entropy::ranges`] walks. A pass is
//! complete once every shard was found equal at every member since the pass began.

use base::{Millis, Nanos};
use types::Shard;
use types::key::SHARDS;

use crate::effects::TimerId;
use crate::mutation::{self, Mutation};
use crate::replicas::Places;
use crate::rmwpaxos::Cx;
use crate::rmwpaxos::RmwPaxos;

pub(crate) const PATROL: TimerId = TimerId(7);

#[derive(Debug)]
pub(crate) struct Patrol {
    /// Of each shard of this pass: members that were not found equal since the pass began.
    missing: Box<[Places; SHARDS]>,
    /// Shards of this pass with such members.
    left: usize,
    /// The shard that comes next.
    next: Shard,
    pub(crate) passes: u64,
    /// By the wall clock, when the last complete pass ended.
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
    /// Comparisons take longer than the time between two shards: walks should hurry.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }
}

impl RmwPaxos {
    pub(crate) fn start_patrol(&mut self, cx: &mut Cx<'_>) {
        let Some(first) = self.replicated_shards(cx).next() else { return };
        self.patrol.next = first;
        self.arm_patrol(cx);
    }

    fn arm_patrol(&self, cx: &mut Cx<'_>) {
        let every = self.env.compare_every;
        let shards = self.replicated_shards(cx).count() as u64;
        if every > Nanos::ZERO && cx.replicas.peers.nodes().len() > 1 {
            cx.fx.timer(PATROL, cx.now + Nanos((every.0 / shards.max(1)).max(1)));
        }
    }

    /// The next shard's turn.
    pub(crate) fn on_patrol_timer(&mut self, cx: &mut Cx<'_>) {
        self.arm_patrol(cx);
        if mutation::is(Mutation::NoPatrol) {
            return;
        }
        let shards: Vec<Shard> = self.replicated_shards(cx).collect();
        let shard = self.patrol.next;
        let others = |cx: &Cx<'_>, shard: Shard| {
            let set = cx.replicas_of(shard).set;
            set.all_places() & !set.own_place()
        };
        let at = shards.iter().position(|&it| it == shard).unwrap_or(0);
        if at == 0 {
            let missing = &mut self.patrol.missing;
            shards.iter().for_each(|&it| missing[usize::from(it.0)] = others(cx, it));
            self.patrol.left = shards.len();
        }
        let before = shards[(at + shards.len() - 1) % shards.len()];
        self.patrol.is_behind = at > 0 && self.patrol.missing[usize::from(before.0)] != 0;
        self.patrol.next = shards[(at + 1) % shards.len()];
        if self.patrol.missing[usize::from(shard.0)] != 0 && !cx.cells.is_forgotten(shard) {
            cx.about(shard);
            self.doubt(cx, shard, others(cx, shard));
        }
    }

    /// These members hold what this node holds of the shard.
    pub(crate) fn patrol_found_equal(&mut self, cx: &mut Cx<'_>, shard: Shard, members: Places) {
        let missing = &mut self.patrol.missing[usize::from(shard.0)];
        if *missing == 0 {
            return;
        }
        *missing &= !members;
        if *missing == 0 {
            self.patrol.left -= 1;
            if self.patrol.left == 0 {
                self.patrol.passes += 1;
                self.patrol.passed_at = cx.unix;
            }
        }
    }
}
