//! Schedules of the rollback detector: one medium goes back, or none, and no other node may
//! disbelieve itself. [spec 9.7]

use base::Nanos;
use types::{Ballot, Key, Reply, Round};

use super::steps::{Kind, claim};
use super::strings::Ask;
use super::world::{Envelope, Ways, World};
use crate::mutation::{self, Mutation};
use crate::protocol::{Event, Peer};
use crate::rmwpaxos::Message;
use crate::rmwpaxos::record::register::ShardMeta;

const LONG: Nanos = Nanos::from_secs(240);

fn disbelieving(world: &World) -> Vec<u64> {
    world.nodes.iter().map(|node| node.protocol.parts.detector.older()).collect()
}

/// Writes a neighbour in the same shard often, deletes and collects it. Floors end far above
/// earlier accepts.
fn raise_floors(world: &mut World) -> Result<(), String> {
    let neighbour = world.neighbour.clone();
    for node in [1, 2, 1, 2] {
        world.write_key(node, &neighbour, Ask::Append("n"));
    }
    world.write_key(2, &neighbour, Ask::Delete);
    world.converge()?;
    claim(world.nodes.iter().all(|node| node.register(&neighbour).is_none()), "it is collected")
}

/// All other nodes compare their shards with that node.
pub(super) fn compare_with(world: &mut World, index: usize) {
    let node = world.nodes[index].peers.me();
    for other in (0..world.nodes.len()).filter(|&other| other != index) {
        world.step(other, Event::PeerUp { node });
        let other = world.nodes[other].peers.me();
        world.step(index, Event::PeerUp { node: other });
    }
}

fn accepted(world: &World, node: usize, key: &Key) -> Round {
    world.nodes[node].register(key).map_or(Round::NONE, |register| register.accepted)
}

/// The first node's medium takes back the insertion of a key while its process lives, under a floor
/// that another key has raised. It alone is wrong.
pub(super) fn one_that_lost_a_register() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    world.write(1, Ask::Append("a"));
    raise_floors(&mut world)?;
    let key = world.key.clone();
    world.takes_back = true;
    world.nodes[0].cache.remove(&key);
    compare_with(&mut world, 0);
    world.rest(LONG);
    claim(disbelieving(&world)[1..] == [0, 0], "its holders believe themselves")?;
    claim(accepted(&world, 0, &key) != Round::NONE, "it is given back")?;
    world.finish_with("va")
}

#[test]
fn member_that_lost_a_register_blames_no_other() -> Result<(), String> {
    one_that_lost_a_register()
}

/// The second node's medium brings back deleted and collected registers.
fn brought_back(keys: &[Key]) -> Result<World, String> {
    // A node that has gone back would count its own promise first.
    let ways = Ways { by_message: false, always_deltas: false, core_alone: false };
    let mut world = World::with(3, true, 1, ways);
    for key in keys {
        world.write_key(1, key, Ask::Append("a"));
    }
    let before: Vec<_> =
        keys.iter().map(|key| world.nodes[1].register(key).cloned().expect("held")).collect();
    for key in keys {
        world.write_key(0, key, Ask::Delete);
    }
    world.converge()?;
    world.takes_back = true;
    for (key, register) in keys.iter().zip(before) {
        world.nodes[1].cache.put(key, register);
    }
    compare_with(&mut world, 1);
    world.rest(LONG);
    claim(keys.iter().all(|key| accepted(&world, 1, key).is_none()), "no register comes back")?;
    claim(disbelieving(&world) == [0, 1, 0], "only it disbelieves itself")?;
    Ok(world)
}

#[test]
fn register_revived_at_one_member_is_not_believed() -> Result<(), String> {
    let mut world = brought_back(&[Key::new(b"key")])?;
    world.finish_with("-")
}

#[test]
fn other_revived_registers_are_not_believed() -> Result<(), String> {
    let keys = {
        let world = World::new(3, true, 1);
        [world.key.clone(), world.neighbour.clone()]
    };
    let mut world = brought_back(&keys)?;
    for key in &keys {
        let tag = world.ask(0, key, Ask::Get);
        claim(world.settle(), "a read ends")?;
        claim(world.reply(tag) == Some(Reply::Null), "deleted keys stay deleted")?;
    }
    world.finish()
}

/// The second node's medium brings back a deleted and collected register, and loses another
/// register of that shard.
#[test]
fn revived_register_after_a_loss_is_not_believed() -> Result<(), String> {
    let ways = Ways { by_message: false, always_deltas: false, core_alone: false };
    let mut world = World::with(3, true, 1, ways);
    let (key, neighbour) = (world.key.clone(), world.neighbour.clone());
    for key in [&key, &neighbour] {
        world.write_key(1, key, Ask::Append("a"));
    }
    let before = world.nodes[1].register(&key).cloned().expect("held");
    world.write_key(0, &key, Ask::Delete);
    world.converge()?;
    world.takes_back = true;
    world.nodes[1].cache.put(&key, before);
    world.forget_anew(1, &neighbour);
    compare_with(&mut world, 1);
    world.rest(LONG);
    claim(accepted(&world, 1, &key).is_none(), "it does not come back")?;
    claim(disbelieving(&world) == [0, 1, 0], "only it disbelieves itself")?;
    world.finish_with("-")
}

/// A removal has raised the floor of its shard. Returns that floor and the second node's earlier
/// shard fields.
fn with_a_raised_floor() -> Result<(World, Ballot, ShardMeta), String> {
    let mut world = World::new(3, true, 1);
    let shard = world.key.shard();
    world.write(1, Ask::Append("a"));
    let before = world.nodes[1].metas.get(shard).clone();
    world.write(0, Ask::Delete);
    world.converge()?;
    let floor = world.nodes[1].metas.get(shard).floor_ballot;
    claim(before.floor_ballot < floor, "the removal raised it")?;
    Ok((world, floor, before))
}

/// The second node's medium takes back the fields of a shard, and the floor with them.
#[test]
fn fields_that_went_back_are_not_believed() -> Result<(), String> {
    let (mut world, floor, before) = with_a_raised_floor()?;
    let shard = world.key.shard();
    world.takes_back = true;
    *world.nodes[1].metas.get_mut(shard) = before;
    compare_with(&mut world, 1);
    world.rest(LONG);
    claim(disbelieving(&world) == [0, 1, 0], "only it disbelieves itself")?;
    claim(world.nodes[1].metas.get(shard).floor_ballot >= floor, "it has a floor again")?;
    world.finish_with("-")
}

/// The same, but no node remembers the floor. It rises again once all are found equal.
pub(super) fn a_floor_that_went_back() -> Result<(), String> {
    let (mut world, floor, before) = with_a_raised_floor()?;
    let shard = world.key.shard();
    (0..3).for_each(|node| world.crash(node, 9));
    world.nodes[1].metas.get_mut(shard).floor_ballot = before.floor_ballot;
    claim(world.rest(LONG), "all is compared")?;
    claim(disbelieving(&world) == [0, 0, 0], "no node knows of it")?;
    claim(world.nodes[1].metas.get(shard).floor_ballot >= floor, "it is as high as before")?;
    world.finish_with("-")
}

#[test]
fn a_floor_that_went_back_unnoticed_rises_again() -> Result<(), String> {
    a_floor_that_went_back()
}

/// A member has promised a key without an accept, and a neighbour's floor rises above that promise.
/// All compare equal. Then the accept arrives, which the promise permits.
#[test]
fn promise_below_a_floor_is_no_removal() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    world.append(1, "a");
    world.prepared(&[1, 2]);
    let late = world.take(|m| m.goes(Kind::Accept, 1, 2));
    world.lose_all();
    world.crash(1, 9);
    world.flow(|_| true);
    raise_floors(&mut world)?;
    claim(!late.is_empty() && accepted(&world, 2, &world.key) == Round::NONE, "it is under way")?;
    world.deliver_all(late);
    world.flow(|_| true);
    compare_with(&mut world, 0);
    world.rest(LONG);
    claim(disbelieving(&world) == [0, 0, 0], "no node disbelieves itself")
}

/// Two media of three go back, each in another key of one shard.
pub(super) fn two_that_went_back() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    let keys = [world.key.clone(), world.neighbour.clone()];
    for key in &keys {
        world.write_key(0, key, Ask::Append("a"));
    }
    world.converge()?;
    let older: Vec<_> = (1..3)
        .map(|node| world.nodes[node].register(&keys[node - 1]).cloned().expect("held"))
        .collect();
    for key in &keys {
        world.write_key(0, key, Ask::Append("b"));
    }
    world.converge()?;
    world.takes_back = true;
    for (node, register) in (1..3).zip(older) {
        world.nodes[node].cache.put(&keys[node - 1], register);
    }
    compare_with(&mut world, 0);
    world.rest(LONG);
    claim(disbelieving(&world).iter().sum::<u64>() == 1, "one at a time disbelieves itself")?;
    for key in &keys {
        let tag = world.ask(0, key, Ask::Get);
        claim(world.settle(), "a read ends")?;
        claim(world.reply(tag) == Some(Reply::bulk("ab")), "and finds the written value")?;
    }
    world.finish()
}

#[test]
fn second_rolled_back_member_is_repaired_silently() -> Result<(), String> {
    two_that_went_back()
}

fn step_for(world: &mut World, span: Nanos, lost: impl Fn(&Envelope) -> bool) {
    let end = world.now + span;
    while world.now < end {
        world.pass(Nanos::from_millis(50));
        world.lose(&lost);
        world.flow(|m| !lost(m));
        world.lose(&lost);
    }
}

/// Further keys of the shard.
fn fillers(world: &World) -> Vec<Key> {
    (0..)
        .map(|n: u32| Key::new(format!("filler-{n}").as_bytes()))
        .filter(|other| other.shard() == world.key.shard())
        .take(20)
        .collect()
}

/// The second node has a higher promise for a tombstone than the others when it is removed. All
/// compare equal, and the second node's floor is far above theirs. Among five, the members that
/// raised their floors with it may not be asked.
fn floor_far_above(world: &mut World) -> Result<(), String> {
    mutation::set(Some(Mutation::FloorsStay));
    let gone = world.neighbour.clone();
    world.write_key(0, &gone, Ask::Append("g"));
    world.write_key(0, &gone, Ask::Delete);
    for _ in 0..2_000 {
        world.flow(|m| !m.is(Kind::Remove));
        if world.bag.iter().any(|m| m.goes(Kind::Remove, 0, 1)) {
            break;
        }
        world.pass(Nanos::from_millis(10));
    }
    claim(world.bag.iter().any(|m| m.goes(Kind::Remove, 0, 1)), "it is to be removed")?;
    for key in fillers(world) {
        world.ask(1, &key, Ask::Append("f"));
        world.lose(|m| !m.is(Kind::Remove));
    }
    world.ask(1, &gone, Ask::Append("h"));
    world.flow(|m| m.goes(Kind::Prepare, 1, 1));
    world.lose(|m| !m.is(Kind::Remove));
    world.flow(|_| true);
    step_for(world, Nanos::from_secs(30), |m| m.sender() == 1 && m.is(Kind::Prepare));
    compare_with(world, 1);
    claim(world.rest(LONG), "all is compared")?;
    mutation::set(None);
    let shard = gone.shard();
    let floor = |node: usize| world.nodes[node].metas.get(shard).floor_ballot;
    claim(floor(1).number() > floor(0).number() + 15, "its floor is far above the first's")?;
    claim(floor(1).number() > floor(2).number() + 15, "its floor is far above the third's")
}

/// Damages its shard fields, which are recovered from the others.
fn recovered_floor_is_lower(world: &mut World) -> Result<(), String> {
    let shard = world.key.shard();
    let before = world.nodes[1].metas.get(shard).floor_ballot;
    world.crash_without_fields(1);
    world.flow(|_| true);
    claim(!world.nodes[1].is_recovering(), "it is recovered")?;
    let meta = world.nodes[1].metas.get(shard);
    claim(!meta.void && meta.floor_ballot < before, "its floor is lower now")
}

/// The second node recovers its damaged shard with a lower floor. Soon after, the third node's
/// medium brings back a deleted and collected register.
#[test]
fn recovered_lower_floor_hides_no_rollback() -> Result<(), String> {
    let ways = Ways { by_message: false, always_deltas: false, core_alone: false };
    let mut world = World::with(3, true, 1, ways);
    let key = world.key.clone();
    world.write(1, Ask::Append("a"));
    let before = world.nodes[2].register(&key).cloned().expect("held");
    world.write(0, Ask::Delete);
    world.converge()?;
    floor_far_above(&mut world)?;
    recovered_floor_is_lower(&mut world)?;
    claim(world.rest(LONG), "all is compared")?;
    claim(disbelieving(&world) == [0, 0, 0], "no node disbelieves itself so far")?;
    world.takes_back = true;
    world.nodes[2].cache.put(&key, before);
    compare_with(&mut world, 2);
    world.rest(LONG);
    claim(accepted(&world, 0, &key).is_none(), "it does not come back at the first")?;
    claim(accepted(&world, 2, &key).is_none(), "it does not come back")?;
    claim(disbelieving(&world) == [0, 0, 1], "only it disbelieves itself")?;
    world.finish_with("-")
}

/// The same after the first got a late question of the second, with its earlier floor. No memory
/// was lost.
#[test]
fn late_question_hides_no_rollback() -> Result<(), String> {
    let ways = Ways { by_message: false, always_deltas: false, core_alone: false };
    let mut world = World::with(3, true, 1, ways);
    let key = world.key.clone();
    world.write(1, Ask::Append("a"));
    let before = world.nodes[2].register(&key).cloned().expect("held");
    compare_with(&mut world, 0);
    let mut late = Vec::new();
    for _ in 0..2_000 {
        world.flow(|m| !matches!(m.message, Message::Compare { .. }) || m.sender() != 0);
        late = world.take(|m| matches!(m.message, Message::Compare { .. }) && m.receiver() == 1);
        if !late.is_empty() {
            break;
        }
        world.pass(Nanos::from_millis(10));
    }
    claim(!late.is_empty(), "the second asks the first")?;
    world.write(0, Ask::Delete);
    world.rest(LONG);
    claim(accepted(&world, 2, &key).is_none(), "it is collected")?;
    world.deliver_all(late);
    world.rest(Nanos::from_secs(20));
    world.takes_back = true;
    world.nodes[2].cache.put(&key, before);
    compare_with(&mut world, 2);
    world.rest(LONG);
    claim(accepted(&world, 0, &key).is_none(), "it does not come back at the first")?;
    claim(disbelieving(&world) == [0, 0, 1], "only it disbelieves itself")?;
    world.finish_with("-")
}

/// No medium goes back. The second node has recovered its shard with a lower floor, and accepts its
/// own proposal, which reaches no other node. Then late requests of the others for an older state
/// of that key arrive.
#[test]
fn accept_above_a_recovered_floor_is_no_removal() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    let key = world.key.clone();
    world.append(1, "a");
    world.prepared(&[0, 1, 2]);
    world.flow(|m| m.goes(Kind::Accept, 1, 1));
    world.lose_all();
    world.crash(1, 9);
    let mut late = Vec::new();
    for _ in 0..6_000 {
        world.flow(|m| !matches!(m.message, Message::Want { .. }));
        late.extend(world.take(|m| matches!(m.message, Message::Want { .. })));
        if late.iter().any(|m| m.goes(Kind::Compare, 0, 1))
            && late.iter().any(|m| m.goes(Kind::Compare, 2, 1))
        {
            break;
        }
        if late.iter().any(|m| m.goes(Kind::Compare, 0, 1)) {
            world.lose(|m| m.is(Kind::Repair));
        }
        world.pass(Nanos::from_millis(10));
        world.lose(|m| m.is(Kind::Repair));
    }
    late.retain(|m| matches!(m.message, Message::Want { insist: false, .. }));
    late.sort_by_key(Envelope::sender);
    late.dedup_by_key(|m| m.sender());
    claim(late.len() == 2, "both want it")?;
    world.converge()?;
    world.write(0, Ask::Delete);
    world.converge()?;
    floor_far_above(&mut world)?;
    recovered_floor_is_lower(&mut world)?;
    world.append(1, "b");
    world.prepared(&[0, 1, 2]);
    world.flow(|m| m.goes(Kind::Accept, 1, 1));
    world.lose_all();
    claim(accepted(&world, 1, &key) != Round::NONE, "it has accepted")?;
    world.crash(1, 9);
    world.flow(|_| true);
    claim(disbelieving(&world) == [0, 0, 0], "no node disbelieves itself so far")?;
    world.deliver_all(late);
    world.flow(|_| true);
    world.rest(LONG);
    claim(disbelieving(&world) == [0, 0, 0], "no medium has gone back")?;
    world.finish()
}

/// The second node has recovered its shard with a lower floor. It writes a key, which the third
/// misses and gets late. Long after, the first node's medium loses that key. It alone is wrong.
#[test]
fn old_denial_does_not_count_beside_a_loss() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    let key = world.key.clone();
    floor_far_above(&mut world)?;
    recovered_floor_is_lower(&mut world)?;
    world.append(1, "a");
    world.flow(|m| m.among(&[0, 1]));
    world.lose_all();
    claim(accepted(&world, 0, &key) != Round::NONE, "the first has accepted")?;
    claim(accepted(&world, 2, &key).is_none(), "the third has not")?;
    world.calm();
    world.start(1, Ask::Get);
    world.flow(|m| m.among(&[1, 2]));
    world.flow(|_| true);
    claim(world.rest(LONG), "all is compared")?;
    claim(accepted(&world, 2, &key) == accepted(&world, 1, &key), "all hold it")?;
    claim(accepted(&world, 0, &key) == accepted(&world, 1, &key), "all hold it")?;
    claim(disbelieving(&world) == [0, 0, 0], "no node disbelieves itself so far")?;
    raise_floors(&mut world)?;
    world.pass(Nanos::from_secs(600));
    world.takes_back = true;
    world.nodes[0].cache.remove(&key);
    compare_with(&mut world, 0);
    world.rest(LONG);
    claim(!world.nodes.iter().any(|node| node.is_recovering()), "the shard is whole again")?;
    claim(disbelieving(&world)[1..] == [0, 0], "its holders believe themselves")?;
    world.finish_with("va")
}

/// A member has promised an absent key. It then recovers another part of the shard, and gets
/// exactly that promise as its floor. All compare equal, and then the accept arrives. No medium has
/// gone back.
#[test]
fn promise_equal_to_recovered_floor_permits_no_accept() -> Result<(), String> {
    let mut world = World::new(5, true, 1);
    let (key, neighbour) = (world.key.clone(), world.neighbour.clone());
    world.write_key(0, &neighbour, Ask::Append("n"));
    world.write(0, Ask::Append("a"));
    world.write(0, Ask::Delete);
    for _ in 0..2_000 {
        world.flow(|m| !m.is(Kind::Remove));
        if world.bag.iter().any(|m| m.goes(Kind::Remove, 0, 1)) {
            break;
        }
        world.pass(Nanos::from_millis(10));
    }
    let removes = world.take(|m| m.is(Kind::Remove));
    claim(removes.len() == 5, "it is to be removed")?;
    world.append(4, "b");
    world.prepared(&[0, 2, 3, 4]);
    let prepare = world.take(|m| m.goes(Kind::Prepare, 4, 1));
    let accept = world.take(|m| m.goes(Kind::Accept, 4, 1));
    claim(prepare.len() == 1 && accept.len() == 1, "it is proposed")?;
    world.lose_all();
    world.deliver_all(removes);
    world.deliver_all(prepare);
    world.flow(|m| !m.is(Kind::Promise));
    world.lose_all();
    world.forget_anew(1, &neighbour);
    world.flow(|m| !m.is(Kind::Accept));
    world.lose_all();
    claim(!world.nodes[1].is_recovering(), "it is recovered")?;
    let floor = world.nodes[1].metas.get(key.shard()).floor_ballot;
    claim(world.held(1).is_some_and(|it| it.promised == floor && it.accepted.is_none()), "equal")?;
    world.crash(4, 9);
    claim(world.rest(LONG), "all is compared")?;
    claim(accepted(&world, 1, &key).is_none(), "so far it is absent")?;
    world.deliver_all(accept);
    world.flow(|_| true);
    compare_with(&mut world, 1);
    world.rest(LONG);
    world.finish()
}

/// A lost register is not a removed one. A late accept of it causes only a recovery.
#[test]
fn lost_register_calls_no_member_older() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    world.write(1, Ask::Append("a"));
    raise_floors(&mut world)?;
    world.rest(LONG);
    let key = world.key.clone();
    let held = world.nodes[1].register(&key).cloned().ok_or("it is held")?;
    let state = held.state.ok_or("it has a state")?;
    let own = *world.nodes[1].peers.own();
    let from = Peer { node: own.node, incarnation: own.incarnation, amnesia: own.amnesia };
    world.nodes[0].cache.lose(&key);
    let message = Message::Repair { key, round: held.accepted, state };
    world.step(0, Event::Peer { from, message });
    claim(world.bag.iter().any(|m| m.is(Kind::Recover)), "it is recovered")?;
    claim(
        !world.bag.iter().any(|m| matches!(m.message, Message::Older { .. })),
        "no member is called older",
    )?;
    world.rest(LONG);
    world.finish_with("va")
}
