//! Schedules in which one medium goes back, or none, and nobody else may disbelieve itself for it. [spec 9.7]

use base::Nanos;
use types::{Key, Round};

use super::steps::{Kind, claim};
use super::strings::Ask;
use super::world::{Ways, World};
use crate::protocol::Event;

const LONG: Nanos = Nanos::from_secs(240);

fn disbelieving(world: &World) -> Vec<u64> {
    world.nodes.iter().map(|node| node.protocol.counters.older).collect()
}

/// A neighbour in the same shard is written often, deleted and collected: floors lie far above what was accepted before.
fn raise_floors(world: &mut World) -> Result<(), String> {
    let neighbour = world.neighbour.clone();
    for node in [1, 2, 1, 2] {
        world.write_key(node, &neighbour, Ask::Append("n"));
    }
    world.write_key(2, &neighbour, Ask::Delete);
    world.converge()?;
    claim(world.nodes.iter().all(|node| node.register(&neighbour).is_none()), "it is collected")
}

/// Everybody compares what it holds with that node.
fn compare_with(world: &mut World, index: usize) {
    let node = world.nodes[index].view.me;
    for other in (0..world.nodes.len()).filter(|&other| other != index) {
        world.step(other, Event::PeerUp { node });
        let other = world.nodes[other].view.me;
        world.step(index, Event::PeerUp { node: other });
    }
}

fn accepted(world: &World, node: usize, key: &Key) -> Round {
    world.nodes[node].register(key).map_or(Round::NONE, |register| register.accepted)
}

/// The first node's medium takes back the insertion of a key while its process lives, under a floor that another key
/// has raised. It alone is wrong.
pub(super) fn one_that_lost_a_register() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    world.write(1, Ask::Append("a"));
    raise_floors(&mut world)?;
    let key = world.key.clone();
    world.takes_back = true;
    world.nodes[0].cells.remove(&key);
    compare_with(&mut world, 0);
    world.rest(LONG);
    claim(disbelieving(&world)[1..] == [0, 0], "those who hold it believe themselves")?;
    claim(accepted(&world, 0, &key) != Round::NONE, "it is given back")?;
    world.finish_with("va")
}

#[test]
fn who_lost_a_register_blames_nobody_else() -> Result<(), String> {
    one_that_lost_a_register()
}

/// The second node's medium brings back what was deleted and collected.
fn brought_back(keys: &[Key]) -> Result<World, String> {
    // A node that has gone back would count its own promise first.
    let ways = Ways { by_message: false, always_deltas: false };
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
        world.nodes[1].cells.put(key, register);
    }
    compare_with(&mut world, 1);
    world.rest(LONG);
    claim(keys.iter().all(|key| accepted(&world, 1, key).is_none()), "nothing comes back")?;
    claim(disbelieving(&world) == [0, 1, 0], "only it disbelieves itself")?;
    Ok(world)
}

#[test]
fn what_was_removed_and_comes_back_at_one_is_not_believed() -> Result<(), String> {
    let mut world = brought_back(&[Key::new(b"key")])?;
    world.finish_with("-")
}

#[test]
fn nor_are_others_of_its_shard() -> Result<(), String> {
    let keys = {
        let world = World::new(3, true, 1);
        [world.key.clone(), world.neighbour.clone()]
    };
    let mut world = brought_back(&keys)?;
    for key in &keys {
        let tag = world.ask(0, key, Ask::Get);
        claim(world.settle(), "a read ends")?;
        claim(world.reply(tag).unwrap_or_default() == b"-", "what was deleted stays so")?;
    }
    world.finish()
}

/// The second node's medium brings back what was deleted and collected, and has lost something else of that shard.
#[test]
fn nor_is_it_where_something_of_the_shard_was_lost_since() -> Result<(), String> {
    let ways = Ways { by_message: false, always_deltas: false };
    let mut world = World::with(3, true, 1, ways);
    let (key, neighbour) = (world.key.clone(), world.neighbour.clone());
    for key in [&key, &neighbour] {
        world.write_key(1, key, Ask::Append("a"));
    }
    let before = world.nodes[1].register(&key).cloned().expect("held");
    world.write_key(0, &key, Ask::Delete);
    world.converge()?;
    world.takes_back = true;
    world.nodes[1].cells.put(&key, before);
    world.forget_anew(1, &neighbour);
    compare_with(&mut world, 1);
    world.rest(LONG);
    claim(accepted(&world, 1, &key).is_none(), "it does not come back")?;
    claim(disbelieving(&world) == [0, 1, 0], "only it disbelieves itself")?;
    world.finish_with("-")
}

/// The second node's medium takes back the fields of a shard, and the floor with them.
#[test]
fn fields_that_went_back_are_not_believed() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    let shard = world.key.shard();
    world.write(1, Ask::Append("a"));
    let before = world.nodes[1].metas.get(shard).clone();
    world.write(0, Ask::Delete);
    world.converge()?;
    let floor = world.nodes[1].metas.get(shard).floor_ballot;
    claim(before.floor_ballot < floor, "the removal raised it")?;
    world.takes_back = true;
    *world.nodes[1].metas.get_mut(shard) = before;
    compare_with(&mut world, 1);
    world.rest(LONG);
    claim(disbelieving(&world) == [0, 1, 0], "only it disbelieves itself")?;
    claim(world.nodes[1].metas.get(shard).floor_ballot >= floor, "it has a floor again")?;
    world.finish_with("-")
}

/// A member has promised a key and accepted nothing when a neighbour's floor rises above that promise. All compare equal,
/// and then the accept arrives, which its own promise permits.
#[test]
fn what_was_promised_below_a_floor_is_not_taken_for_what_was_removed() -> Result<(), String> {
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
    claim(disbelieving(&world) == [0, 0, 0], "nobody has lost anything")
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
        world.nodes[node].cells.put(&keys[node - 1], register);
    }
    compare_with(&mut world, 0);
    world.rest(LONG);
    claim(disbelieving(&world).iter().sum::<u64>() == 1, "one at a time disbelieves itself")?;
    for key in &keys {
        let tag = world.ask(0, key, Ask::Get);
        claim(world.settle(), "a read ends")?;
        claim(world.reply(tag).unwrap_or_default() == b"vab", "and finds what was written")?;
    }
    world.finish()
}

#[test]
fn who_is_second_to_have_gone_back_is_repaired_in_silence() -> Result<(), String> {
    two_that_went_back()
}
