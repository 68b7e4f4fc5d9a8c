//! Commands that meet a lock after they were proposed or forwarded, and those that wait while one
//! transaction follows another.

use std::collections::BTreeMap;

use base::{Nanos, Prng};
use bytes::Bytes;
use types::{Change, Command, Lock, Outcome, Reply, Settle, Tag, Wire};

use super::super::steps::{Kind, claim};
use super::super::strings::Ask;
use super::super::world::{Envelope, Ways, World};
use super::{look, put, settle, take, taken, txid, ways};
use crate::rmwpaxos::Verdict;

/// Random schedules.
const SEEDS: u64 = 150;

/// Takes the key for one transaction in the transition that ends another.
fn take_after(counter: u64, former: u64, version: u64, install: Change) -> Command {
    take(counter).after(Settle { txid: txid(former), version, install, once: None })
}

fn version_of(world: &World, tag: Tag) -> Result<u64, String> {
    super::found(world, tag).map(|found| found.version)
}

/// Lets time pass until the nodes have retried.
fn rest(world: &mut World) {
    for _ in 0..20 {
        world.flow(|_| true);
        world.pass(Nanos::from_millis(20));
    }
}

/// The proposal of an append at node 0 is lost, and node 1 takes the key. Returns the append.
fn lost_to_a_lock(ways: Ways, reaches: &[usize]) -> Result<(World, Tag, u64), String> {
    let mut world = World::with(3, true, 1, ways);
    world.write(0, Ask::Append("v"));
    let lost = world.append(0, "w");
    // By a phase 1 of its own, and then by its proposal.
    let reaches = reaches.to_vec();
    world.flow(|m| (m.is(Kind::Prepare) || m.is(Kind::Promise)) && m.among(&[0, 1, 2]));
    world.flow(|m| {
        (m.is(Kind::Accept) || m.is(Kind::Delta) || m.is(Kind::Combined))
            && reaches.contains(&m.receiver())
    });
    world.lose_all();
    let tag = world.start_hold(1, take(1));
    world.flow(|m| m.among(&[1, 2]));
    world.lose_all();
    let version = version_of(&world, tag)?;
    Ok((world, lost, version))
}

#[test]
fn command_that_lost_to_a_lock_waits() -> Result<(), String> {
    for ways in ways() {
        for reaches in [&[][..], &[0]] {
            let (mut world, lost, version) = lost_to_a_lock(ways, reaches)?;
            let behind = world.ask_behind(0, &world.key.clone(), Ask::Append("x"), Some(lost));
            rest(&mut world);
            claim(world.is_open(lost), &format!("it waits: {:?}", world.value_of(lost)))?;
            claim(world.is_open(behind), "and so does the next of its session")?;
            claim(world.locked.iter().any(|(node, _)| *node == 0), "its node knows of the lock")?;
            world.start_hold(0, settle(1, version, Change::None));
            rest(&mut world);
            claim(matches!(world.value_of(lost), Some(Outcome::Reply(_))), "it runs")?;
            world.finish_with("vvwx")?;
        }
    }
    Ok(())
}

/// It lost and waits until its deadline passes.
#[test]
fn excluded_command_surely_had_no_effect() -> Result<(), String> {
    let (mut world, lost, version) = lost_to_a_lock(ways()[1], &[0])?;
    rest(&mut world);
    for _ in 0..30 {
        world.pass(Nanos::from_secs(1));
        world.flow(|_| true);
    }
    let told = world.value_of(lost);
    claim(told == Some(&Outcome::NoQuorum), &format!("no attempt of it is left: {told:?}"))?;
    world.start_hold(0, settle(1, version, Change::None));
    rest(&mut world);
    world.finish_with("vv")
}

/// Node 0 forwards an append to node 1, the busy owner. Meanwhile node 1 takes the key for a
/// transaction.
fn forwarded_to_a_lock() -> Result<(World, Tag, Vec<Envelope>, u64), String> {
    let mut world = World::new(3, false, 1);
    for text in ["a", "", ""] {
        world.append(1, text);
        world.flow(|_| true);
    }
    let tag = world.append(0, "b");
    let forward = world.take(|m| m.is(Kind::Forward));
    claim(forward.len() == 1, "it is forwarded")?;
    let hold = world.start_hold(1, take(1));
    world.flow(|_| true);
    let version = version_of(&world, hold)?;
    Ok((world, tag, forward, version))
}

#[test]
fn forwarded_command_waits_at_its_origin() -> Result<(), String> {
    let (mut world, tag, forward, version) = forwarded_to_a_lock()?;
    let copies = forward.clone();
    world.deliver_all(forward);
    world.flow(|_| true);
    claim(world.is_open(tag), "it waits")?;
    let told: Vec<usize> = world.locked.iter().map(|(node, _)| *node).collect();
    claim(told == [0], &format!("its origin knows of the lock at once: {told:?}"))?;
    let looked = world.start_hold(0, look());
    world.flow(|_| true);
    claim(
        matches!(world.held_by(looked), Some(Outcome::Locked(_))),
        "commands about locks pass it there",
    )?;
    let behind = world.ask_behind(0, &world.key.clone(), Ask::Append("c"), Some(tag));
    world.deliver_all(copies.clone());
    world.start_hold(0, settle(1, version, Change::None));
    rest(&mut world);
    claim(!world.is_open(tag) && !world.is_open(behind), "both ran")?;
    world.deliver_all(copies);
    world.finish_with("vabc")
}

#[test]
fn lost_word_of_a_lock_is_repeated() -> Result<(), String> {
    let (mut world, tag, forward, version) = forwarded_to_a_lock()?;
    world.deliver_all(forward);
    world.lose(|m| m.is(Kind::Forwarded));
    world.pass(Nanos::from_millis(50));
    world.flow(|_| true);
    claim(world.locked.iter().any(|(node, _)| *node == 0), "the origin asked again")?;
    claim(world.is_open(tag), "and the command waits")?;
    world.start_hold(0, settle(1, version, Change::None));
    rest(&mut world);
    claim(matches!(world.value_of(tag), Some(Outcome::Reply(_))), "it runs")?;
    world.finish_with("vab")
}

/// The word comes after the origin has given up. The command is never run.
#[test]
fn late_word_of_a_lock_changes_no_answer() -> Result<(), String> {
    let (mut world, tag, forward, version) = forwarded_to_a_lock()?;
    world.deliver_all(forward);
    world.flow(|m| !m.is(Kind::Forwarded));
    let late = world.take(|m| m.is(Kind::Forwarded));
    for _ in 0..100 {
        world.pass(Nanos::from_millis(20));
        world.lose(|m| m.is(Kind::Forward));
    }
    claim(world.value_of(tag) == Some(&Outcome::Unknown), "the origin cannot tell")?;
    world.deliver_all(late);
    world.start_hold(0, settle(1, version, Change::None));
    rest(&mut world);
    world.finish_with("va")
}

/// A forwarded command lost its proposal at the owner, to a lock.
#[test]
fn forwarded_command_that_lost_to_a_lock_comes_back() -> Result<(), String> {
    let mut world = World::new(3, false, 1);
    for text in ["a", "", ""] {
        world.append(1, text);
        world.flow(|_| true);
    }
    let tag = world.append(0, "b");
    world.flow(|m| m.is(Kind::Forward));
    claim(world.bag.iter().any(|m| m.sender() == 1), "the owner proposes")?;
    world.lose_all();
    let hold = world.start_hold(2, take(1));
    world.flow(|m| m.among(&[0, 2]));
    world.lose(|m| !m.is(Kind::Other));
    let version = version_of(&world, hold)?;
    for _ in 0..10 {
        world.flow(|_| true);
        world.pass(Nanos::from_millis(20));
    }
    claim(world.is_open(tag), &format!("it waits: {:?}", world.value_of(tag)))?;
    claim(world.locked.iter().any(|(node, _)| *node == 0), "at its origin")?;
    world.start_hold(0, settle(1, version, Change::None));
    rest(&mut world);
    claim(matches!(world.value_of(tag), Some(Outcome::Reply(_))), "it runs")?;
    world.finish_with("vab")
}

/// T12: transactions of one node follow one another, each taking the key as it ends the one before.
#[test]
fn waiting_commands_run_between_two_transactions() -> Result<(), String> {
    for ways in ways() {
        let (mut world, mut found) = taken(ways)?;
        for counter in 2..6 {
            let commands = [world.start(0, Ask::Get), world.append(0, "w")];
            world.flow(|_| true);
            claim(commands.iter().all(|&tag| world.is_open(tag)), "all wait")?;
            let next = take_after(counter, counter - 1, found.version, put("t"));
            let tag = world.start_hold(0, next);
            world.flow(|_| true);
            claim(commands.iter().all(|&tag| !world.is_open(tag)), "they ran")?;
            let read = world.reply(commands[0]);
            let is_after = read == Some(Reply::bulk("t")) || read == Some(Reply::bulk("tw"));
            claim(is_after, &format!("on the end of the first: {read:?}"))?;
            found = super::found(&world, tag)?;
            claim(found.value.as_deref() == Some(b"tw"), "before the start of the second")?;
            claim(found.mod_version == found.version, "which knows that the value changed")?;
        }
    }
    Ok(())
}

/// The transition that lets commands in loses to another proposer and is made again.
#[test]
fn lost_transition_lets_commands_in_again() -> Result<(), String> {
    for ways in ways() {
        let (mut world, found) = taken(ways)?;
        world.calm();
        let command = world.append(0, "w");
        world.flow(|_| true);
        let next = world.start_hold(0, take_after(2, 1, found.version, put("t")));
        world.lose_all();
        let tag = world.start_hold(1, look());
        world.flow(|m| m.among(&[1, 2]));
        world.lose_all();
        claim(world.held_by(tag).is_some(), "another node looked")?;
        rest(&mut world);
        claim(matches!(world.value_of(command), Some(Outcome::Reply(_))), "it ran")?;
        let found = super::found(&world, next)?;
        claim(found.value.as_deref() == Some(b"tw"), &format!("{found:?}"))?;
        world.start_hold(0, settle(2, found.version, Change::None));
        rest(&mut world);
        let read = world.start_hold(1, look());
        rest(&mut world);
        claim(super::found(&world, read)?.value.as_deref() == Some(b"tw"), "once")?;
    }
    Ok(())
}

/// A session's command: the byte that it appends, or a read.
type Said = (Option<u8>, Tag);

/// Sessions append among transactions, with losses, delays and restarts. Each command takes effect
/// at most once, and in the order of its session.
#[test]
fn sessions_keep_their_order_among_locks() -> Result<(), String> {
    let (mut forwards, mut sent_back) = (0, 0);
    for seed in 0..SEEDS {
        let mut world = World::with(3, seed % 2 == 0, seed, ways()[usize::from(seed % 4 == 0)]);
        let mut rng = Prng::new(seed);
        let mut sessions: [Vec<Said>; 3] = Default::default();
        for step in 0..120_u8 {
            let node = rng.below(3) as usize;
            match rng.below(16) {
                0..=3 => say(&mut world, &mut sessions, node, Some(step)),
                4 => say(&mut world, &mut sessions, node, None),
                5 | 6 => drop(world.start_hold(node, take(rng.below(3)))),
                7 => {
                    let command = take_after(rng.below(3), rng.below(3), 0, put("never"));
                    world.start_hold(node, command);
                }
                8 => drop(world.start_hold(node, settle(rng.below(3), 0, put("never")))),
                9 => drop(world.start_hold(node, look())),
                10 => world.pass(Nanos::from_millis(rng.below(30))),
                11 if rng.chance(0.2) => {
                    world.lose(|m| m.sender() == node);
                    if world.durable && rng.chance(0.3) {
                        world.crash(node, rng.below(3) as usize);
                        // Its clients are gone, too.
                        sessions[node].clear();
                    }
                }
                // It becomes the busy owner, to which others forward.
                12 => {
                    for _ in 0..4 {
                        say(&mut world, &mut sessions, node, None);
                        world.append(node, "");
                        world.flow(|_| true);
                    }
                    say(&mut world, &mut sessions, (node + 1) % 3, Some(step));
                    if rng.chance(0.5) {
                        world.start_hold(node, take(rng.below(3)));
                    }
                }
                _ => {
                    for _ in 0..rng.below(30) {
                        (0..3).for_each(|node| _ = world.flush(node));
                        if !world.bag.is_empty() {
                            // Links keep their order, and so do most deliveries here.
                            let len = world.bag.len().min(4) as u64;
                            let envelope = world.bag.remove(rng.below(len) as usize);
                            forwards += u64::from(envelope.is(Kind::Forward));
                            sent_back += u64::from(envelope.says_locked());
                            world.deliver(envelope);
                        }
                    }
                }
            }
        }
        for _ in 0..6 {
            for counter in 0..3 {
                world.start_hold(counter as usize, settle(counter, 0, put("never")));
            }
            claim(world.settle(), "the holds end")?;
            (0..3).for_each(|node| _ = world.start_hold(node, look()));
            claim(world.settle(), "work ends")?;
        }
        // The checker may give up on so many commands at a time.
        judge(&mut world, &sessions)
            .and_then(|()| world.verdict())
            .map_err(|text| format!("seed {seed}: {text}"))?;
    }
    claim(forwards > 20, &format!("commands are forwarded: {forwards}"))?;
    claim(sent_back > 0, &format!("some are sent back: {sent_back}"))
}

/// The node's session goes on: it appends the byte, or reads.
fn say(world: &mut World, sessions: &mut [Vec<Said>; 3], node: usize, byte: Option<u8>) {
    let first = sessions[node].first().map(|(_, tag)| *tag);
    let ask = byte.map_or(Ask::Get, Ask::AppendByte);
    let key = world.key.clone();
    sessions[node].push((byte, world.ask_behind(node, &key, ask, first)));
}

/// The value has each session's bytes in order. A read shows those that its session appended before
/// it, and none that it appended later.
fn judge(world: &mut World, sessions: &[Vec<Said>; 3]) -> Result<(), String> {
    let read = world.start(0, Ask::Get);
    claim(world.settle(), "the read ends")?;
    let shown = |world: &World, tag: Tag| match world.reply(tag) {
        Some(Reply::Bulk(value)) => Some(value.to_vec()),
        Some(Reply::Null) => Some(Vec::new()),
        _ => None,
    };
    let value = shown(world, read).ok_or_else(|| format!("{:?}", world.value_of(read)))?;
    let place: BTreeMap<u8, usize> = value.iter().copied().zip(0..).collect();
    claim(place.len() == value.len(), &format!("twice: {value:?}"))?;
    let has_run = |tag: Tag| matches!(world.value_of(tag), Some(Outcome::Reply(_)));
    for session in sessions {
        // A command with an unknown outcome may take effect late.
        let session: Vec<Said> = session.iter().filter(|(_, tag)| has_run(*tag)).copied().collect();
        let bytes = session.iter().filter_map(|(byte, _)| *byte);
        let places: Vec<usize> = bytes.filter_map(|byte| place.get(&byte).copied()).collect();
        claim(places.is_sorted(), &format!("{session:?} in {value:?}"))?;
        for (at, (_, tag)) in session.iter().enumerate().filter(|(_, (byte, _))| byte.is_none()) {
            let Some(seen) = shown(world, *tag) else { continue };
            let of = |said: &[Said]| said.iter().filter_map(|(byte, _)| *byte).collect::<Vec<u8>>();
            let later = of(&session[at..]).into_iter().find(|byte| seen.contains(byte));
            claim(later.is_none(), &format!("{tag:?} shows {later:?}: {session:?} in {value:?}"))?;
            let missing = of(&session[..at])
                .into_iter()
                .find(|byte| place.contains_key(byte) && !seen.contains(byte));
            claim(missing.is_none(), &format!("{tag:?} misses {missing:?}: {session:?}"))?;
        }
    }
    Ok(())
}

#[test]
fn word_of_a_lock_comes_back() {
    let lock =
        Lock { txid: txid(7), record: Bytes::from_static(b"record"), version: 300, generation: 2 };
    let outcomes = vec![Outcome::Reply(Reply::OK), Outcome::not_run(lock), Outcome::Unknown];
    let verdict = Verdict::Done { outcomes, take_over: true };
    assert_eq!(Verdict::from_bytes(&verdict.to_bytes()), Ok(verdict));
}
