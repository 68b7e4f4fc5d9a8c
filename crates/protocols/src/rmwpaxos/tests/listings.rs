//! Listings while replicas differ.

use base::{Millis, Nanos};

use super::steps::{Kind, claim};
use super::strings::Ask;
use super::world::{Envelope, World};
use crate::rmwpaxos::State;

fn is_listing(m: &Envelope) -> bool {
    m.is(Kind::List) || m.is(Kind::Listed)
}

/// A3 alone accepts A2's proposal. No client gets an answer.
fn accepted_by_one(world: &mut World, ask: Ask) {
    world.start(1, ask);
    world.prepared(&[1, 2]);
    world.flow(|m| m.goes(Kind::Accept, 1, 2) || m.goes(Kind::Combined, 1, 2));
    world.lose_all();
    world.calm();
}

#[test]
fn first_write_accepted_by_one_is_not_listed() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    accepted_by_one(&mut world, Ask::Append("a"));
    claim(world.held(2).is_some_and(|it| it.state.is_some()), "A3 holds it")?;
    claim(world.held(0).is_none_or(|it| it.state.is_none()), "A1 does not")?;
    let tag = world.list(2);
    world.flow(|m| is_listing(m) && m.among(&[0, 2]));
    claim(world.listed(tag).is_none(), "A2 is up and may tell more")?;
    world.flow(is_listing);
    claim(world.listed(tag) == Some((&[], &[])), "two of three lack it")?;
    world.finish()
}

#[test]
fn keys_that_two_reports_dispute_are_undecided() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    accepted_by_one(&mut world, Ask::Append("a"));
    world.sees(2, 1, false);
    let tag = world.list(2);
    world.flow(|m| is_listing(m) && m.among(&[0, 2]));
    let key = world.key.clone();
    claim(world.listed(tag) == Some((&[], &[key])), "a read has to say")?;
    world.finish()
}

#[test]
fn listing_does_not_wait_for_a_silent_member() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    accepted_by_one(&mut world, Ask::Append("a"));
    let tag = world.list(2);
    world.flow(|m| is_listing(m) && m.among(&[0, 2]));
    world.pass(Nanos::from_secs(1));
    let key = world.key.clone();
    claim(world.listed(tag) == Some((&[], &[key])), "a read has to say")?;
    world.finish()
}

#[test]
fn unconfirmed_delete_hides_no_key_from_a_listing() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    world.write(1, Ask::Append("a"));
    accepted_by_one(&mut world, Ask::Delete);
    let is_deleted = |node| {
        world.held(node).is_some_and(|it| it.state.as_ref().is_some_and(State::is_tombstone))
    };
    claim(is_deleted(2) && !is_deleted(0) && !is_deleted(1), "A3 alone holds the deletion")?;
    let tag = world.list(2);
    world.flow(is_listing);
    let key = world.key.clone();
    claim(world.listed(tag) == Some((&[key], &[])), "two of three hold it")?;
    world.finish()
}

#[test]
fn a_damaged_register_is_not_listed_as_absent() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    world.append(0, "a");
    world.flow(|m| m.among(&[0, 2]));
    world.lose_all();
    world.calm();
    world.crash_damaged(0);
    world.lose_all();
    let tag = world.list(1);
    world.flow(|m| is_listing(m) && m.among(&[0, 1]));
    world.pass(Nanos::from_secs(1));
    claim(
        world.listed(tag).is_some_and(|(_, undecided)| undecided == [world.key.clone()]),
        "a loss is no absence",
    )?;
    world.finish_with("va")
}

/// A key whose time is over on the first `first` of three nodes. Lists it at the last node, once
/// with all answers, and once with those of the first and last node only.
fn listed_while_over_on(first: usize) -> Result<[(usize, usize); 2], String> {
    let mut world = World::new(3, false, 1);
    world.start(0, Ask::Expiring { value: b'v', millis: 60 });
    world.flow(|_| true);
    for node in &mut world.nodes[..first] {
        node.ahead = Millis(1_000);
    }
    let all = world.list(2);
    world.flow(is_listing);
    let two = world.list(2);
    world.flow(|m| is_listing(m) && m.among(&[0, 2]));
    world.lose_all();
    world.sees(2, 1, false);
    world.pass_at(2, Nanos::from_millis(50));
    let count = |tag| {
        let (keys, undecided) = world.listed(tag).ok_or("a listing ends")?;
        Ok::<_, String>((keys.len(), undecided.len()))
    };
    Ok([count(all)?, count(two)?])
}

#[test]
fn key_is_listed_until_a_majority_expires_it() -> Result<(), String> {
    claim(listed_while_over_on(0)? == [(1, 0), (1, 0)], "it is not over")?;
    claim(listed_while_over_on(1)? == [(1, 0), (0, 1)], "over on one: a read has to say")?;
    claim(listed_while_over_on(2)? == [(0, 0), (0, 1)], "over on two of three")?;
    claim(listed_while_over_on(3)? == [(0, 0), (0, 0)], "over on all")
}

/// A holder of the last value and the member that missed it have counted its time down. They are a
/// majority, but not one of the members that list the value.
#[test]
fn expired_value_missed_by_one_is_undecided() -> Result<(), String> {
    let mut world = World::new(3, false, 1);
    world.write(0, Ask::Expiring { value: b'v', millis: 60 });
    world.append(0, "a");
    world.flow(|m| m.among(&[0, 1]));
    world.lose_all();
    for node in [0, 2] {
        world.nodes[node].ahead = Millis(1_000);
    }
    let tag = world.list(1);
    world.flow(is_listing);
    let key = world.key.clone();
    claim(world.listed(tag) == Some((&[], &[key])), "a read has to say")
}
