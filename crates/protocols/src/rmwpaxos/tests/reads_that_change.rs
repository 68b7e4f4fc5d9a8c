//! Schedules of reads that change the state, as those do that find fields of a hash over.
//!
//! A read may run again after its own change was chosen: see [`types::Access::Read`]. The read of
//! these tests shows that, since its reply differs then.

use base::Nanos;
use types::Reply;

use super::steps::{Kind, claim};
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

/// The owner runs a forwarded read, and its answer is lost: the origin runs the read again.
#[test]
fn read_that_changes_may_run_twice() -> Result<(), String> {
    let mut world = World::new(3, false, 1);
    for text in ["a", "", ""] {
        world.append(1, text);
        world.flow(|_| true);
    }
    let take = world.start(0, Ask::Take);
    world.flow(|m| !m.is(Kind::Forwarded));
    claim(world.bag.iter().any(|m| m.is(Kind::Forwarded)), "the owner ran it")?;
    while world.is_open(take) {
        world.lose(|m| m.is(Kind::Forwarded));
        world.pass(Nanos::from_millis(20));
        world.flow(|m| !m.is(Kind::Forwarded));
    }
    claim(world.reply(take) == Some(Reply::Null), "its own change is in its reply")
}
