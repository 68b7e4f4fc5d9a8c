//! Schedules of presence conflicts: one medium brings a deleted register back, and no client may
//! see it. [spec 9.5, 9.7]

use base::Nanos;
use types::{Ballot, Outcome, Reply, Round, Wire};

use super::rollback_detector::compare_with;
use super::steps::{Kind, claim};
use super::strings::Ask;
use super::world::{Envelope, Ways, World};
use crate::mutation::{self, Mutation};
use crate::protocol::Event;
use crate::rmwpaxos::{Message, Register};

const MOMENT: Nanos = Nanos::from_millis(100);
const LONG: Nanos = Nanos::from_secs(30);

/// Nodes count their own promise and report first, as in servers.
fn world() -> World {
    World::with(3, true, 1, Ways { by_message: false, always_deltas: false, core_alone: false })
}

/// Writes, deletes and collects a key until all are found equal. Then the second node's medium
/// brings it back.
fn brought_back() -> Result<World, String> {
    brought_back_among(3)
}

fn brought_back_among(members: u16) -> Result<World, String> {
    let mut world = World::with(
        members,
        true,
        1,
        Ways { by_message: false, always_deltas: false, core_alone: false },
    );
    world.write(1, Ask::Append("a"));
    let before = world.held(1).expect("held").to_bytes();
    world.write(0, Ask::Delete);
    world.converge()?;
    claim((0..usize::from(members)).all(|node| world.held(node).is_none()), "it is collected")?;
    world.takes_back = true;
    let key = world.key.clone();
    let before = Register::from_bytes(&before).map_err(|it| format!("{it:?}"))?;
    world.nodes[1].cache.put(&key, before);
    Ok(world)
}

/// The same, but no process remembers an earlier comparison.
fn brought_back_at_a_start() -> Result<World, String> {
    let mut world = brought_back()?;
    let (key, before) = (world.key.clone(), world.held(1).cloned().expect("held"));
    (0..3).for_each(|node| world.crash(node, 9));
    world.nodes[1].cache.put(&key, before);
    Ok(world)
}

/// The second node remembers that the others held the same, but at that time all lacked the key.
/// The third node, or all others, have restarted since and remember no comparison.
pub(super) fn one_holder_against_absent_members() -> Result<(), String> {
    for (members, started) in [(3, 2..3), (5, 2..3), (3, 0..1), (3, 0..3), (5, 0..5)] {
        for (asked, ask) in
            [0, 1, 2].into_iter().flat_map(|it| [(it, Ask::Get), (it, Ask::Append("b"))])
        {
            let mut world = brought_back_among(members)?;
            started.clone().filter(|&node| node != 1).for_each(|node| world.crash(node, 9));
            let is_read = matches!(ask, Ask::Get);
            let tag = world.start(asked, ask);
            for _ in 0..30 {
                world.flow(|_| true);
                world.pass(Nanos::from_millis(1));
            }
            claim(!is_read || world.reply(tag) == Some(Reply::Null), "it was removed")?;
            let is_unknown = world.value_of(tag) == Some(&Outcome::Unknown);
            claim(!is_unknown || asked == 1, "only a proposal on it has an open fate")?;
            world.finish_with(if is_read || is_unknown { "-" } else { "vb" })?;
        }
    }
    Ok(())
}

#[test]
fn one_holder_does_not_outvote_absent_members() -> Result<(), String> {
    one_holder_against_absent_members()
}

fn on_the_way(m: &Envelope) -> bool {
    [Kind::Read, Kind::State, Kind::Prepare, Kind::Accept].iter().any(|&kind| m.is(kind))
}

/// No process remembers a comparison. One of the members that removed it answers late, though it is
/// up.
pub(super) fn one_that_brings_back() -> Result<(), String> {
    for reader in [1, 2] {
        let mut world = brought_back_at_a_start()?;
        let read = world.ask(reader, &world.key.clone(), Ask::Get);
        world.flow(|m| m.among(&[1, 2]));
        world.pass(MOMENT);
        world.flow(|m| m.among(&[1, 2]));
        claim(world.is_open(read), "one of two may be wrong")?;
        world.flow(|_| true);
        claim(world.reply(read) == Some(Reply::Null), "the third has removed it, too")?;
        world.finish_with("-")?;
    }
    for writer in [1, 2] {
        let mut world = brought_back_at_a_start()?;
        let write = world.append(writer, "b");
        world.flow(|m| m.among(&[1, 2]));
        world.pass(MOMENT);
        world.flow(|m| m.among(&[1, 2]));
        claim(world.is_open(write), "one of two may be wrong")?;
        world.flow(|_| true);
        world.pass(MOMENT);
        world.flow(|_| true);
        // The second node's proposal on its own register may have an open fate.
        claim(world.value_of(write) != Some(&Outcome::NoQuorum), "all are there")?;
        let is_unknown = world.value_of(write) == Some(&Outcome::Unknown);
        claim(!is_unknown || writer == 1, "the third makes no such proposal")?;
        world.finish_with(if is_unknown { "-" } else { "vb" })?;
    }
    Ok(())
}

#[test]
fn revived_register_waits_for_the_third() -> Result<(), String> {
    one_that_brings_back()
}

/// Processes are not new any more, and the third's link ends for a moment. It is waited for like a
/// member that is up.
#[test]
fn member_that_just_left_is_waited_for() -> Result<(), String> {
    for ask in [Ask::Get, Ask::Append("b")] {
        let mut world = brought_back_at_a_start()?;
        (0..3).for_each(|node| world.step(node, Event::Turn));
        let end = world.now + LONG;
        while world.now < end {
            world.pass(MOMENT);
            world.lose_all();
        }
        for node in [1, 2] {
            world.sees(node, 0, false);
        }
        let tag = world.start(2, ask.clone());
        for _ in 0..5 {
            world.lose(|m| m.is(Kind::Compare));
            world.flow(|m| m.among(&[1, 2]));
            world.pass(MOMENT);
        }
        claim(world.is_open(tag), "one of two may be wrong")?;
        for node in [1, 2] {
            world.sees(node, 0, true);
        }
        world.flow(|m| !m.is(Kind::Compare));
        for _ in 0..5 {
            world.pass(MOMENT);
            world.flow(|m| !m.is(Kind::Compare));
        }
        let is_read = matches!(ask, Ask::Get);
        claim(!is_read || world.reply(tag) == Some(Reply::Null), "the third has removed it, too")?;
        world.finish_with(if is_read { "-" } else { "vb" })?;
    }
    Ok(())
}

/// A silent member that is up is waited for only a bounded time: it may be the key's second holder.
#[test]
fn silent_third_is_not_waited_for_long() -> Result<(), String> {
    let mut world = world();
    world.append(1, "a");
    world.flow(|m| m.among(&[0, 1]));
    world.lose_all();
    let neighbour = world.neighbour.clone();
    world.write_key(0, &neighbour, Ask::Append("n"));
    world.write_key(0, &neighbour, Ask::Delete);
    world.crash(2, 9);
    let read = world.start(2, Ask::Get);
    for _ in 0..50 {
        world.lose(|m| !m.among(&[1, 2]) && on_the_way(m));
        world.flow(|m| m.among(&[1, 2]));
        world.pass(MOMENT);
    }
    claim(world.reply(read) == Some(Reply::bulk("a")), "it was missed, not removed")?;
    world.finish_with("va")
}

/// The others remember that the second lacked the register. One of them is away.
pub(super) fn one_that_brings_back_while_one_is_away() -> Result<(), String> {
    for asked in [1, 2] {
        for ask in [Ask::Get, Ask::Append("b")] {
            let mut world = brought_back()?;
            for node in [1, 2] {
                world.sees(node, 0, false);
            }
            let tag = world.start(asked, ask);
            let end = world.now + LONG;
            while world.now < end {
                world.lose(|m| !m.among(&[1, 2]));
                world.flow(|m| m.among(&[1, 2]));
                world.pass(MOMENT);
            }
            claim(world.value_of(tag) == Some(&Outcome::NoQuorum), "one of two is wrong")?;
            let held = world.held(2).map_or(Round::NONE, |register| register.accepted);
            claim(held.is_none(), "it does not spread")?;
            for node in [1, 2] {
                world.sees(node, 0, true);
            }
            world.finish_with("-")?;
        }
    }
    Ok(())
}

#[test]
fn register_remembered_as_removed_does_not_count() -> Result<(), String> {
    one_that_brings_back_while_one_is_away()
}

/// The first node's medium loses a register while its process lives. The node denies the others'
/// register, and they confirm each other.
#[test]
fn member_that_lost_a_register_denies_in_vain() -> Result<(), String> {
    for asked in [0, 1, 2] {
        let mut world = world();
        world.write(1, Ask::Append("a"));
        let neighbour = world.neighbour.clone();
        world.write_key(1, &neighbour, Ask::Append("n"));
        world.write_key(2, &neighbour, Ask::Delete);
        world.converge()?;
        let key = world.key.clone();
        world.takes_back = true;
        world.nodes[0].cache.remove(&key);
        let read = world.start(asked, Ask::Get);
        world.flow(|_| true);
        claim(world.reply(read) == Some(Reply::bulk("a")), "two hold it")?;
        world.finish_with("va")?;
    }
    Ok(())
}

/// The second node reads the shard for a comparison with the first.
fn while_the_second_reads(
    world: &mut World,
    meanwhile: impl FnOnce(&mut World) -> Result<(), String>,
) -> Result<(), String> {
    let compares = |m: &Envelope| matches!(m.message, Message::Compare { .. }) && m.sender() == 0;
    while !world.bag.iter().any(|m| compares(m) && m.receiver() == 1) {
        world.pass_at(0, Nanos::from_millis(200));
        world.lose(|m| !compares(m));
    }
    world.nodes[1].scans_wait = true;
    world.flow(|m| m.is(Kind::Compare));
    meanwhile(world)?;
    world.nodes[1].scans_wait = false;
    world.step(1, Event::Turn);
    world.flow(|m| m.is(Kind::Compare));
    Ok(())
}

/// While the second node reads the shard for a comparison with the first, it accepts a key that the
/// first misses.
#[test]
fn accept_behind_a_scan_is_not_equal() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    let neighbour = world.neighbour.clone();
    world.write_key(0, &neighbour, Ask::Append("n"));
    while_the_second_reads(&mut world, |world| {
        world.append(1, "a");
        world.flow(|m| m.among(&[1, 2]));
        world.lose_all();
        Ok(())
    })?;
    world.start(0, Ask::Get);
    world.flow(|m| m.among(&[0, 1]));
    world.rest(LONG);
    world.finish_with("va")
}

/// The second node reads the shard for a comparison with the first. Meanwhile it accepts a key that
/// the first misses, and removes another under a higher promise. The floor of that removal covers
/// the key.
#[test]
fn accept_behind_a_scan_is_not_denied() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    let (key, neighbour) = (world.key.clone(), world.neighbour.clone());
    world.write_key(0, &neighbour, Ask::Append("n"));
    world.write_key(0, &neighbour, Ask::Delete);
    world.collect(0, |m| !m.is(Kind::Remove));
    let removals = world.take(|m| m.is(Kind::Remove));
    claim(removals.len() == 3, "all hold the tombstone, and are to remove it")?;
    while_the_second_reads(&mut world, |world| {
        world.append(1, "a");
        world.flow(|m| m.among(&[1, 2]));
        world.lose_all();
        world.ask(2, &neighbour, Ask::Append("m"));
        world.flow(|m| m.goes(Kind::Prepare, 2, 1));
        world.lose_all();
        world.deliver_all(removals.into_iter().filter(|m| m.receiver() == 1).collect());
        let held = world.held(1).map_or(Round::NONE, |register| register.accepted);
        let floor = world.nodes[1].metas.get(key.shard()).floor_ballot;
        claim(!held.is_none() && floor >= held.ballot(), "its floor covers its register")?;
        Ok(())
    })?;
    world.start(1, Ask::Get);
    world.flow(|m| m.among(&[0, 1]));
    world.finish_with("va")
}

/// Writes, deletes and collects a neighbour, which raises floors over earlier accepts. No
/// comparison runs, and one node misses all messages on the key itself.
fn raise_floors(world: &mut World, writers: &[usize], deaf: usize) -> Result<(), String> {
    let (key, neighbour) = (world.key.clone(), world.neighbour.clone());
    for &node in writers {
        world.write_key(node, &neighbour, Ask::Append("n"));
    }
    world.write_key(0, &neighbour, Ask::Delete);
    let is_kept_back = |m: &Envelope| {
        let is_of_key = m.message.key() == Some(&key) && m.receiver() == deaf;
        m.is(Kind::Compare) || (is_of_key && (m.is(Kind::Accept) || m.is(Kind::Repair)))
    };
    for _ in 0..250 {
        world.lose(is_kept_back);
        world.flow(|m| !is_kept_back(m));
        world.pass(Nanos::from_millis(10));
    }
    world.lose_all();
    claim(world.nodes.iter().all(|node| node.register(&neighbour).is_none()), "it is collected")?;
    claim(world.held(deaf).is_none_or(|it| it.accepted.is_none()), "the key is missed by one")
}

/// The first node misses the key. The second restarts and has lost it. A quorum of these two finds
/// no register. The third found the second equal before, so its report restores the key.
pub(super) fn one_that_lost_a_register_the_last_missed() -> Result<(), String> {
    for is_written in [false, true] {
        let mut world = world();
        let key = world.key.clone();
        world.append(1, "a");
        world.flow(|m| m.among(&[1, 2]));
        world.lose_all();
        raise_floors(&mut world, &[1, 2, 1, 2], 0)?;
        for _ in 0..1_000 {
            world.flow(|m| m.among(&[1, 2]));
            world.lose_all();
            world.pass(Nanos::from_millis(10));
        }
        world.takes_back = true;
        world.crash(1, 9);
        world.nodes[1].cache.remove(&key);
        if is_written {
            world.append(2, "b");
            world.flow(|_| true);
        }
        world.rest(LONG);
        world.finish_with(if is_written { "vab" } else { "va" })?;
    }
    Ok(())
}

#[test]
fn witnessed_holder_does_not_count_as_absent() -> Result<(), String> {
    one_that_lost_a_register_the_last_missed()
}

/// The third node's shard fields have gone back, unnoticed, and its floor with them. It denies the
/// register that the second brings back, and must not accept it when it is asked again.
#[test]
fn denied_register_is_not_accepted() -> Result<(), String> {
    let mut world = world();
    let (key, shard) = (world.key.clone(), world.key.shard());
    world.write(1, Ask::Append("a"));
    let before = world.held(1).expect("held").to_bytes();
    world.write(0, Ask::Delete);
    world.converge()?;
    world.takes_back = true;
    (0..3).for_each(|node| world.crash(node, 9));
    let meta = world.nodes[2].metas.get_mut(shard);
    (meta.floor_ballot, meta.restart_floor) = (Ballot::ZERO, Ballot::ZERO);
    mutation::set(Some(Mutation::FloorsStay));
    (0..3).for_each(|node| _ = world.start(node, Ask::Get));
    world.flow(|_| true);
    (0..3).for_each(|node| compare_with(&mut world, node));
    world.rest(Nanos::from_secs(240));
    mutation::set(None);
    claim(world.nodes[2].metas.get(shard).floor_ballot == Ballot::ZERO, "it is not noticed")?;
    let before = Register::from_bytes(&before).map_err(|it| format!("{it:?}"))?;
    world.nodes[1].cache.put(&key, before);
    world.start(1, Ask::Get);
    world.flow(|_| true);
    world.rest(LONG);
    world.finish_with("-")
}

/// Five members. The second misses the key; the first's record of it is damaged while the two
/// compare.
#[test]
fn damaged_register_is_not_found_equal() -> Result<(), String> {
    let mut world = World::with(
        5,
        true,
        1,
        Ways { by_message: false, always_deltas: false, core_alone: false },
    );
    world.append(2, "a");
    world.flow(|m| m.among(&[0, 2, 3, 4]));
    world.lose_all();
    raise_floors(&mut world, &[1, 2, 1, 2, 3, 4], 1)?;
    world.crash_damaged(0);
    let node = world.nodes[1].peers.me();
    world.step(0, Event::PeerUp { node });
    for _ in 0..60 {
        world.lose(|m| m.is(Kind::Compare) && !m.among(&[0, 1]));
        world.flow(|m| m.among(&[0]) || (m.is(Kind::Compare) && m.among(&[0, 1])));
        world.pass(Nanos::from_millis(50));
    }
    let is_other = |m: &Envelope| m.is(Kind::Compare) || m.is(Kind::Repair) || m.among(&[0, 1]);
    for _ in 0..30 {
        world.flow(|m| !is_other(m) || m.among(&[0]));
        world.lose(is_other);
        world.pass(Nanos::from_millis(10));
    }
    let round = |node: usize| world.held(node).map(|register| register.accepted);
    claim(round(0) == round(2) && round(0).is_some(), "it is recovered as it was")?;
    let read = world.start(0, Ask::Get);
    world.flow(|m| !m.is(Kind::Compare));
    claim(world.reply(read) == Some(Reply::bulk("a")), "and counts")?;
    world.finish_with("va")
}

/// Five members. The first node's medium loses the key. The node denies the register of two others,
/// which confirm each other. The last two are up and silent.
#[test]
fn refuted_denial_delays_no_client() -> Result<(), String> {
    let mut world = World::with(
        5,
        true,
        1,
        Ways { by_message: false, always_deltas: false, core_alone: false },
    );
    world.write(1, Ask::Append("a"));
    let (key, neighbour) = (world.key.clone(), world.neighbour.clone());
    world.write_key(1, &neighbour, Ask::Append("n"));
    world.write_key(2, &neighbour, Ask::Delete);
    world.converge()?;
    world.takes_back = true;
    world.nodes[0].cache.remove(&key);
    for node in 1..5 {
        world.nodes[node].cache.get_mut(&key).expect("held").chosen = false;
    }
    let (read, end) = (world.start(1, Ask::Get), world.now + Nanos::from_secs(3));
    while world.now < end {
        world.lose(|m| !m.among(&[0, 1, 2]) || m.is(Kind::Compare));
        world.flow(|m| m.among(&[0, 1, 2]) && !m.is(Kind::Compare));
        world.pass(Nanos::from_millis(1));
    }
    claim(
        world.reply(read) == Some(Reply::bulk("a")),
        "two hold it, and others are not waited for long",
    )
}

/// The first node's medium loses the key. The node denies two reports: the owner's next proposal,
/// which has not arrived elsewhere, and the one before it. So neither confirms the other. Phase 1
/// of the first node continues all the same.
#[test]
fn phase_one_with_only_denied_reports_retries() -> Result<(), String> {
    let mut world = world();
    let (key, neighbour) = (world.key.clone(), world.neighbour.clone());
    world.write(1, Ask::Append("a"));
    world.write_key(1, &neighbour, Ask::Append("n"));
    world.write_key(2, &neighbour, Ask::Delete);
    world.converge()?;
    let floor = world.nodes[1].metas.get(key.shard()).floor_ballot;
    let covered = world.held(1).is_some_and(|held| held.accepted.ballot() <= floor);
    claim(covered, "all hold it, and a floor covers it")?;
    world.takes_back = true;
    world.nodes[0].cache.remove(&key);
    world.append(1, "b");
    let mut late = world.take(|_| true);
    let first = world.append(0, "c");
    for _ in 0..10 {
        let is_late = |m: &Envelope| {
            m.sender() == 1 && m.receiver() != 1 && (m.is(Kind::Accept) || m.is(Kind::Delta))
        };
        world.flow(|m| !is_late(m));
        late.extend(world.take(is_late));
        world.pass(Nanos::from_millis(5));
    }
    world.deliver_all(late);
    let mut asked = vec![first];
    for second in 0..40 {
        for _ in 0..100 {
            world.flow(|_| true);
            world.pass(Nanos::from_millis(10));
        }
        if second % 5 == 4 {
            asked.push(world.append(0, "c"));
            world.append(1, "d");
        }
    }
    // A request waits all the time, so this phase 1 is never given up for lack of one.
    let served = asked[1..4].iter().all(|&tag| world.reply(tag).is_some());
    claim(served, "the first node serves the key")
}
