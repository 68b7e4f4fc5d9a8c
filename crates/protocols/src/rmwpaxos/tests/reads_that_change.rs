//! Schedules of reads that change the state, as those do that find fields of a hash over.
//!
//! Such a change depends on time alone, so it may take effect twice. No test demands otherwise.

use types::Reply;

use super::steps::claim;
use super::strings::Ask;
use super::world::World;

#[test]
fn read_that_changes_is_proposed() -> Result<(), String> {
    for (members, durable) in [(1, true), (3, false), (3, true), (5, true)] {
        let mut world = World::new(members, durable, 1);
        let last = usize::from(members) - 1;
        world.write(0, Ask::Append("a"));
        let take = world.start(last, Ask::Take);
        claim(world.settle(), "the read ends")?;
        claim(world.reply(take) == Some(Reply::bulk("a")), "it answers the old state")?;
        for node in 0..=last {
            let read = world.start(node, Ask::Get);
            claim(world.settle(), "a later read ends")?;
            claim(world.reply(read) == Some(Reply::Null), "the change holds for all")?;
        }
        world.write(0, Ask::Append("b"));
        world.finish_with("vb")?;
    }
    Ok(())
}

#[test]
fn read_that_changes_an_undecided_state_is_proposed() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    world.append(0, "a");
    world.flow(|m| m.among(&[0, 1]));
    world.lose_all();
    let take = world.start(2, Ask::Take);
    claim(world.settle(), "the read ends")?;
    claim(world.reply(take) == Some(Reply::bulk("a")), "it answers the chosen state")?;
    world.finish_with("-")
}
