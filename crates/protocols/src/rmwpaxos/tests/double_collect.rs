//! Two looks at a key, and whether its state stayed in between. [transactions T8]

use base::Nanos;
use types::{Access, Command, Found, Outcome, Tag, Then};

use super::steps::claim;
use super::strings::Ask;
use super::world::World;

fn look(world: &mut World, node: usize) -> Result<Found, String> {
    let command = Command::holding(Access::Read, Then::Look { waits: true });
    let tag: Tag = world.start_hold(node, command);
    world.flow(|_| true);
    world.calm();
    match world.held_by(tag) {
        Some(Outcome::Held(found)) => Ok((**found).clone()),
        other => Err(format!("no state: {other:?}")),
    }
}

/// Whether looks see the state stay while `between` happens.
fn stays(world: &mut World, between: impl FnOnce(&mut World)) -> Result<bool, String> {
    let before = look(world, 0)?;
    between(world);
    Ok(before.stays_until(&look(world, 0)?))
}

fn delete(world: &mut World) {
    world.start(1, Ask::Delete);
    world.flow(|_| true);
    world.calm();
}

#[test]
fn state_stays_without_writes() -> Result<(), String> {
    let mut world = World::new(3, false, 1);
    claim(stays(&mut world, |_| ())?, "absence")?;
    world.write(0, Ask::Append("v"));
    claim(stays(&mut world, |_| ())?, "a value")?;
    delete(&mut world);
    claim(stays(&mut world, |_| ())?, "a tombstone")
}

#[test]
fn writes_between_looks_are_seen() -> Result<(), String> {
    let mut world = World::new(3, false, 1);
    claim(!stays(&mut world, |world| _ = world.write(1, Ask::Append("v")))?, "a first value")?;
    claim(!stays(&mut world, |world| _ = world.write(1, Ask::Append("w")))?, "another value")?;
    claim(!stays(&mut world, delete)?, "a deletion")
}

#[test]
fn key_that_came_and_went_is_seen() -> Result<(), String> {
    let mut world = World::new(3, false, 1);
    let came_and_went = |world: &mut World| {
        world.write(1, Ask::Append("v"));
        delete(world);
        world.collect(1, |_| true);
        world.calm();
        assert!((0..3).all(|node| world.held(node).is_none()), "it is removed everywhere");
    };
    claim(!stays(&mut world, came_and_went)?, "it was there in between")?;
    claim(stays(&mut world, |_| ())?, "it is gone")
}

/// An entry of `ONCE` whose window is over changes no version before a proposal drops it.
#[test]
fn look_shows_the_version_of_the_state() -> Result<(), String> {
    let mut world = World::new(3, false, 1);
    for (session, text) in [(1, "a"), (2, "b"), (3, "c")] {
        world.start(0, Ask::Append(text).once(session, 1));
        world.flow(|_| true);
        world.calm();
        world.pass(Nanos::from_secs(200));
    }
    let version = |world: &World| {
        let register = world.held(0).and_then(|register| register.state.as_ref());
        register.map_or(0, crate::rmwpaxos::State::version)
    };
    for _ in 0..40 {
        let before = version(&world);
        let found = look(&mut world, 0)?;
        let is_one = [before, version(&world)].contains(&found.version);
        claim(is_one, "a version that a state has")?;
        world.pass(Nanos::from_secs(10));
    }
    Ok(())
}
