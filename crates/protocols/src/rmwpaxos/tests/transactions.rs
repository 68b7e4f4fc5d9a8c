//! Fields of registers and shards for transactions. No command sets them yet.

use base::Millis;
use bytes::Bytes;
use proptest::prelude::*;
use types::{
    Access, Applied, Ballot, Change, Clock, Command, Epoch, ExpiryChange, Incarnation, NodeId,
    Reply, TimeToLive, Update, View,
};

use super::steps::claim;
use super::strings::Ask;
use super::world::World;
use crate::rmwpaxos::core::acceptor;
use crate::rmwpaxos::record::register::{Register, ShardMeta};
use crate::rmwpaxos::record::state::tests::states;
use crate::rmwpaxos::record::state_builder::StateBuilder;

/// Obeys the first byte of the command.
struct Anything;

impl Update for Anything {
    fn apply(&self, _view: View<'_>, body: &[u8], _clock: Clock) -> Applied {
        let expiry = ExpiryChange::Set(TimeToLive::After(Millis(9)));
        let value = Bytes::copy_from_slice(body);
        let change = match body[0] % 4 {
            0 => Change::None,
            1 => Change::Put { value, expiry },
            2 => Change::Expire(expiry),
            _ => Change::Delete,
        };
        Applied { change, reply: Reply::bulk(Bytes::new()) }
    }
}

proptest! {
    #[test]
    fn transitions_keep_the_lock(
        base in states(),
        bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..9), 1..4),
    ) {
        prop_assume!(base.version() < u64::MAX);
        let birth = Ballot::new(Epoch(1), 9, NodeId(1), Incarnation(1));
        let clock = Clock { unix: Millis(5), seed: 7 };
        let mut next = StateBuilder::on(Some(&base), None);
        for body in bodies {
            let command = Command::new(Access::Update, Bytes::from(body));
            next.run(&Anything, &command, clock);
        }
        let next = next.finish(base.version(), birth);
        prop_assert_eq!(next.lock(), base.lock());
    }

    #[test]
    fn locked_tombstone_is_not_collected(state in states()) {
        let round = Ballot::new(Epoch(1), 9, NodeId(1), Incarnation(1)).round(1);
        let (is_locked, is_gone) = (state.has_lock(), state.is_tombstone() && !state.has_once());
        let held = Register { accepted: round, state: Some(state), ..Register::promise_only(round.ballot()) };
        let mut register = Some(held);
        let removed = acceptor::on_remove(&mut register, &mut ShardMeta::default(), round);
        prop_assert_eq!(removed, is_gone && !is_locked);
        prop_assert_eq!(register.is_none(), removed);
    }
}

#[test]
fn lost_fences_are_recovered_as_the_highest() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    world.write(1, Ask::Append("a"));
    world.converge()?;
    let shard = world.key.shard();
    for (node, peer, to) in [(0, 7, 3), (0, 8, 4), (1, 7, 9), (2, 7, 5), (2, 9, 1)] {
        let meta = world.nodes[node].metas.get_mut(shard);
        claim(meta.fences.raise(NodeId(peer), Incarnation(to)), "it rises")?;
    }
    world.crash_without_fields(1);
    world.flow(|_| true);
    let meta = world.nodes[1].metas.get(shard);
    claim(!meta.void, "the fields are recovered")?;
    let fences = [7, 8, 9, 6].map(|peer| meta.fences.of(NodeId(peer)).0);
    claim(fences == [5, 4, 1, 0], "each is the highest of the others")?;
    world.finish_with("va")
}
