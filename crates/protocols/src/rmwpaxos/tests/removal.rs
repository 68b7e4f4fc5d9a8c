//! Schedules of deletion and of collecting tombstones. [spec 11, S21 to S26]

use base::Nanos;
use types::Reply;

use super::steps::{Kind, claim};
use super::strings::Ask;
use super::world::{Envelope, World};

fn volatile() -> World {
    World::new(3, false, 1)
}

/// S21: an absent register, an undecided tombstone, a live chosen value.
pub(super) fn an_undecided_tombstone() -> Result<(), String> {
    let mut world = volatile();
    world.append(1, "v");
    world.flow(|m| m.among(&[1, 2]));
    world.lose_all();
    world.calm();
    world.start(1, Ask::Delete);
    world.flow(|m| m.goes(Kind::Accept, 1, 1));
    world.lose_all();
    let read = world.start(0, Ask::Get);
    world.flow(|m| m.among(&[0, 1]) && (m.is(Kind::Read) || m.is(Kind::State)));
    claim(world.reply(read).is_none(), "no report shows the deletion as chosen")?;
    world.lose_all();
    world.calm();
    world.append(2, "w");
    world.flow(|m| m.among(&[0, 2]));
    world.finish()
}

#[test]
fn an_undecided_tombstone_is_not_nil() -> Result<(), String> {
    an_undecided_tombstone()
}

/// S22: a tombstone that one member lacks.
pub(super) fn a_tombstone_that_one_lacks() -> Result<(), String> {
    let mut world = volatile();
    world.write(0, Ask::Append("a"));
    world.start(1, Ask::Delete);
    let lacking = |m: &Envelope| m.goes(Kind::Accept, 1, 0);
    world.flow(|m| !lacking(m));
    world.lose_all();
    world.collect(1, |m| !lacking(m));
    claim(world.held(2).is_some(), "no register is removed")?;
    world.finish_with("-")
}

#[test]
fn a_tombstone_that_one_lacks_is_kept() -> Result<(), String> {
    a_tombstone_that_one_lacks()
}

/// S22b: one report of a read is from before the deletion, another from after the removal. With
/// `forgets` the second acceptor lost its memory, and knows the removal only from the others.
pub(super) fn a_report_from_before_the_deletion(forgets: bool) -> Result<(), String> {
    let mut world = volatile();
    world.append(0, "a");
    world.flow(|m| m.among(&[0, 1]));
    world.lose_all();
    world.calm();
    let read = world.start(2, Ask::Get);
    let mut questions = world.take(|m| m.is(Kind::Read));
    questions.sort_by_key(|m| m.receiver());
    world.deliver(questions[0].clone());
    let early = world.take(|m| m.is(Kind::State));
    let removed = world.start(1, Ask::Delete);
    world.flow(|_| true);
    claim(!world.is_open(removed), "it is deleted")?;
    world.collect(1, |_| true);
    claim((0..3).all(|node| world.held(node).is_none()), "it is removed everywhere")?;
    if forgets {
        world.crash(1, 0);
        world.lose_all();
        world.deliver(questions[1].clone());
        world.flow(|m| m.is(Kind::Recover) || m.is(Kind::Recovered));
        world.lose_all();
    }
    world.deliver(questions[1].clone());
    world.deliver_all(early);
    world.flow(|m| m.goes(Kind::State, 1, 2));
    claim(world.reply(read) != Some(Reply::bulk("a")), "it was gone before the read ended")?;
    world.finish()
}

#[test]
fn removed_tombstone_hidden_by_absence_is_respected() -> Result<(), String> {
    a_report_from_before_the_deletion(false)
}

#[test]
fn removed_tombstone_is_respected_after_amnesia() -> Result<(), String> {
    a_report_from_before_the_deletion(true)
}

/// S23: after the removal an accept of an older ballot arrives, and one of the tombstone's own.
pub(super) fn late_accepts_after_a_removal() -> Result<(), String> {
    let mut world = volatile();
    world.append(2, "x");
    world.prepared(&[0, 1, 2]);
    let older = world.take(|m| m.is(Kind::Accept));
    world.calm();
    world.append(0, "a");
    world.prepared(&[0, 1, 2]);
    let own = world.bag.iter().filter(|m| m.goes(Kind::Accept, 0, 1)).cloned().collect();
    world.flow(|_| true);
    world.write(0, Ask::Delete);
    world.collect(0, |_| true);
    claim((0..3).all(|node| world.held(node).is_none()), "it is removed everywhere")?;
    world.deliver_all(older);
    claim(world.held(1).is_none() && world.held(2).is_none(), "the older one is refused")?;
    world.deliver_all(own);
    claim(world.held(1).is_none(), "and so is the tombstone's own ballot")?;
    world.lose_all();
    world.finish_with("-")
}

#[test]
fn floors_refuse_late_accepts() -> Result<(), String> {
    late_accepts_after_a_removal()
}

/// S23 after a loss of memory: the floors that a register is recovered from are as strict as floors
/// of its own.
#[test]
fn recovered_floors_refuse_late_accepts() -> Result<(), String> {
    let mut world = volatile();
    world.append(0, "a");
    world.prepared(&[0, 1, 2]);
    let late = world.bag.iter().filter(|m| m.goes(Kind::Accept, 0, 2)).cloned().collect();
    world.flow(|_| true);
    world.write(0, Ask::Delete);
    world.collect(0, |_| true);
    world.crash(2, 0);
    world.lose_all();
    world.start(2, Ask::Get);
    world.flow(|m| m.is(Kind::Recover) || m.is(Kind::Recovered));
    world.deliver_all(late);
    claim(world.held(2).is_some_and(|r| r.state.is_none()), "it was deleted since")?;
    world.finish_with("-")
}

/// S24: an operation was applied, deleted by another and removed everywhere. Then its proposer
/// looks for it.
pub(super) fn an_attempt_removed_with_its_register() -> Result<(), String> {
    let mut world = volatile();
    let tag = world.append(0, "a");
    world.flow(|m| !m.is(Kind::Accepted));
    world.lose_all();
    world.calm();
    world.start(1, Ask::Delete);
    world.flow(|_| true);
    world.collect(1, |_| true);
    claim(world.held(2).is_none(), "it is removed")?;
    world.finish_with("-")?;
    claim(world.value_of(tag) == Some(&types::Outcome::Unknown), "no state remembers it")
}

#[test]
fn an_attempt_removed_with_its_register_ends_unknown() -> Result<(), String> {
    an_attempt_removed_with_its_register()
}

/// A key is deleted. Another key of the shard was removed under a higher version.
fn deleted_below_a_floor() -> World {
    let mut world = volatile();
    let neighbour = world.neighbour.clone();
    world.write(0, Ask::Append("a"));
    for _ in 0..5 {
        world.write_key(0, &neighbour, Ask::Append("n"));
    }
    world.write_key(0, &neighbour, Ask::Delete);
    world.collect(0, |_| true);
    world.write(0, Ask::Delete);
    world
}

/// The collector gets a command when the others have removed the key and it has not.
#[test]
fn command_between_removals_ends_known() -> Result<(), String> {
    let mut world = deleted_below_a_floor();
    world.collect(0, |m| !m.goes(Kind::Remove, 0, 0));
    let last = world.take(|m| m.is(Kind::Remove));
    claim(world.held(0).is_some() && world.held(1).is_none(), "one still has it")?;
    let tag = world.append(0, "b");
    world.flow(|_| true);
    world.deliver_all(last);
    world.finish()?;
    claim(world.reply(tag).is_some(), "its outcome is known")
}

/// The proposal that collects a key ends another node's attempt, which no replica has accepted.
#[test]
fn attempt_that_a_collection_ends_ends_known() -> Result<(), String> {
    for proposer in [1, 2] {
        let mut world = deleted_below_a_floor();
        let tag = world.append(proposer, "b");
        world.prepared(&[0, 1, 2]);
        world.lose(|m| m.is(Kind::Accept));
        world.pass_at(0, Nanos::from_millis(1_100));
        world.flow(|m| m.sender() == 0 || m.receiver() == 0);
        claim(world.is_open(tag), "it is to find out its fate")?;
        world.flow(|_| true);
        world.finish()?;
        claim(world.reply(tag).is_some(), "its outcome is known")?;
    }
    Ok(())
}

#[test]
fn reads_at_the_collector_end_no_collection() -> Result<(), String> {
    let mut world = volatile();
    world.write(0, Ask::Append("a"));
    world.write(0, Ask::Delete);
    world.pass_at(0, Nanos::from_millis(1_100));
    world.flow(|m| !m.goes(Kind::Accepted, 2, 0));
    let read = world.start(0, Ask::Get);
    world.flow(|_| true);
    world.pass_at(0, Nanos::from_millis(1_100));
    world.flow(|_| true);
    claim(!world.is_open(read), "the read ends")?;
    claim((0..3).all(|node| world.held(node).is_none()), "it is removed")
}

/// Another node has prepared since all members hold the tombstone: its turn comes first.
#[test]
fn collector_waits_for_another_proposer() -> Result<(), String> {
    let mut world = volatile();
    world.write(0, Ask::Append("a"));
    world.write(0, Ask::Delete);
    world.pass_at(0, Nanos::from_millis(1_100));
    world.flow(|_| true);
    world.append(1, "b");
    world.flow(|m| m.goes(Kind::Prepare, 1, 0));
    world.lose_all();
    for _ in 0..3 {
        world.pass_at(0, Nanos::from_millis(1_100));
        let goes_on = |m: &Envelope| m.goes(Kind::Prepare, 0, 1) || m.goes(Kind::Remove, 0, 1);
        claim(!world.bag.iter().any(goes_on), "it neither removes nor proposes")?;
    }
    world.flow(|_| true);
    world.converge()
}

/// S25: a removal delayed until the key was written and deleted again.
#[test]
fn a_late_removal_is_ignored() -> Result<(), String> {
    let mut world = volatile();
    world.write(0, Ask::Append("a"));
    world.write(0, Ask::Delete);
    world.collect(0, |m| !m.goes(Kind::Remove, 0, 2));
    let late = world.take(|m| m.is(Kind::Remove));
    claim(late.len() == 1, "one removal is on its way")?;
    world.write(1, Ask::Append("b"));
    world.deliver_all(late.clone());
    claim(
        world.held(2).is_some_and(|r| r.state.as_ref().is_some_and(|s| !s.is_tombstone())),
        "it lives",
    )?;
    world.write(1, Ask::Delete);
    world.deliver_all(late);
    claim(world.held(2).is_some(), "another tombstone is meant")?;
    world.finish_with("-")
}

/// S26: a floor raised by another key at an acceptor that lags behind on a live one.
pub(super) fn a_floor_of_another_key() -> Result<(), String> {
    let mut world = volatile();
    let neighbour = world.neighbour.clone();
    world.append(0, "a");
    world.flow(|m| m.among(&[0, 1]));
    world.lose_all();
    world.calm();
    world.write_key(1, &neighbour, Ask::Append("n"));
    world.write_key(1, &neighbour, Ask::Delete);
    world.collect(1, |_| true);
    let read = world.start(2, Ask::Get);
    world.flow(|m| m.is(Kind::Read) || m.is(Kind::State));
    claim(world.reply(read) == Some(Reply::bulk("a")), "the live value is read")?;
    world.append(2, "w");
    for _ in 0..20 {
        world.flow(|m| m.among(&[1, 2]));
        world.pass_at(2, Nanos::from_millis(20));
    }
    world.finish_with("vaw")
}

#[test]
fn another_keys_floor_hides_no_register() -> Result<(), String> {
    a_floor_of_another_key()
}
