//! Transactions' locks on a key: commands wait for their end, in order, and have no effect before.

mod conflicts;

use base::{Nanos, Prng};
use bytes::Bytes;
use types::{
    Access, Change, Command, ExpiryChange, Found, Incarnation, NodeId, Outcome, Reply, Settle, Tag,
    Take, Then, TimeToLive, Txid,
};

use super::steps::{Kind, claim};
use super::strings::Ask;
use super::world::{Ways, World};

/// Random schedules.
const SEEDS: u64 = 100;

fn txid(counter: u64) -> Txid {
    Txid { start: 1, node: NodeId(1), incarnation: Incarnation(1), counter }
}

fn take(counter: u64) -> Command {
    let record = Bytes::from_static(b"record");
    let take = Take { txid: txid(counter), record, generation: 0, once: None };
    Command::holding(Access::Update, Then::Take(take))
}

fn look() -> Command {
    Command::holding(Access::Read, Then::Look { waits: false })
}

fn settle(counter: u64, version: u64, install: Change) -> Command {
    let nothing = Command::new(Access::Update, Bytes::new());
    nothing.after(Settle { txid: txid(counter), version, install, once: None })
}

fn put(text: &'static str) -> Change {
    let expiry = ExpiryChange::Set(TimeToLive::Never);
    Change::Put { value: Bytes::from_static(text.as_bytes()), expiry }
}

fn found(world: &World, tag: Tag) -> Result<Found, String> {
    match world.held_by(tag) {
        Some(Outcome::Held(found)) => Ok((**found).clone()),
        other => Err(format!("no state: {other:?}")),
    }
}

fn ways() -> [Ways; 2] {
    let all = Ways { by_message: false, always_deltas: false, core_alone: false };
    [all, Ways { core_alone: true, by_message: true, ..all }]
}

/// Node 0 holds the key, with value `v`.
fn taken(ways: Ways) -> Result<(World, Found), String> {
    let mut world = World::with(3, true, 1, ways);
    world.write(0, Ask::Append("v"));
    let tag = world.start_hold(0, take(1));
    world.flow(|_| true);
    world.calm();
    let found = found(&world, tag)?;
    claim(found.value.as_deref() == Some(b"v"), "it is the state before")?;
    claim(found.version > found.mod_version, "a lock is no change of the value")?;
    Ok((world, found))
}

#[test]
fn commands_wait_for_the_end_of_a_transaction() -> Result<(), String> {
    for ways in ways() {
        let (mut world, found) = taken(ways)?;
        let commands: Vec<Tag> = (0..3)
            .flat_map(|node| [world.start(node, Ask::Get), world.append(node, "w")])
            .collect();
        world.flow(|_| true);
        claim(commands.iter().all(|&tag| world.is_open(tag)), "all wait")?;
        let nodes: Vec<usize> = world.locked.iter().map(|(node, _)| *node).collect();
        claim((0..3).all(|node| nodes.contains(&node)), &format!("each node is told: {nodes:?}"))?;
        claim(world.locked.iter().all(|(_, lock)| lock.txid == txid(1)), "by name")?;
        world.start_hold(0, settle(1, found.version, Change::None));
        for node in 0..3 {
            world.flow(|_| true);
            world.calm();
            world.start_hold(node, look());
        }
        world.flow(|_| true);
        for _ in 0..50 {
            world.pass(Nanos::from_millis(20));
            world.flow(|_| true);
        }
        claim(commands.iter().all(|&tag| !world.is_open(tag)), "they ran")?;
        world.finish_with("vvwww")?;
    }
    Ok(())
}

#[test]
fn settled_value_is_the_transactions() -> Result<(), String> {
    for ways in ways() {
        let (mut world, found) = taken(ways)?;
        let other = world.start_hold(1, settle(2, found.version, put("other")));
        world.flow(|_| true);
        claim(world.held_by(other).is_some(), "another transaction has no effect")?;
        world.calm();
        world.start_hold(2, settle(1, found.version, put("mine")));
        world.flow(|_| true);
        world.calm();
        let tag = world.start_hold(0, look());
        world.flow(|_| true);
        let now = self::found(&world, tag)?;
        claim(now.value.as_deref() == Some(b"mine"), &format!("{now:?}"))?;
        claim(now.mod_version == now.version, "a settled write changes the value")?;
        let late = world.start_hold(1, settle(1, found.version, put("late")));
        world.flow(|_| true);
        claim(world.held_by(late) == Some(&Outcome::Reply(Reply::OK)), "a repeat has no effect")?;
        world.calm();
        let tag = world.start_hold(2, look());
        world.flow(|_| true);
        claim(self::found(&world, tag)?.value.as_deref() == Some(b"mine"), "it stays")?;
    }
    Ok(())
}

/// T5: a lock that came after the end of its transaction is cleared, and the value stays.
#[test]
fn stray_lock_is_cleared_without_a_write() -> Result<(), String> {
    let (mut world, found) = taken(ways()[0])?;
    world.start_hold(1, settle(1, found.version + 7, put("half a transaction")));
    world.flow(|_| true);
    world.finish_with("vv")
}

#[test]
fn second_transaction_meets_the_first() -> Result<(), String> {
    let (mut world, first) = taken(ways()[0])?;
    let (again, other) = (world.start_hold(0, take(1)), world.start_hold(0, take(2)));
    world.flow(|_| true);
    claim(found(&world, again)?.version == first.version, "its own lock is the same")?;
    match world.held_by(other) {
        Some(Outcome::Locked(locked)) => {
            claim(locked.lock.txid == txid(1) && locked.lock.version == first.version, "by name")?;
        }
        outcome => return Err(format!("it met a lock: {outcome:?}")),
    }
    world.calm();
    let next = Command::clone(&take(2)).after(Settle {
        txid: txid(1),
        version: first.version,
        install: put("first"),
        once: None,
    });
    let tag = world.start_hold(1, next);
    world.flow(|_| true);
    let second = found(&world, tag)?;
    claim(second.value.as_deref() == Some(b"first"), "the end of one is the start of the next")?;
    claim(second.mod_version == second.version, "and the value changed with it")
}

/// T10: a key does not expire under a lock, and no tombstone under a lock is collected.
#[test]
fn locked_key_neither_expires_nor_vanishes() -> Result<(), String> {
    for ways in ways() {
        let mut world = World::with(3, true, 1, ways);
        world.write(0, Ask::Expiring { value: b'x', millis: 50 });
        let tag = world.start_hold(0, take(1));
        world.flow(|_| true);
        let found = found(&world, tag)?;
        let read = world.start(1, Ask::Get);
        for _ in 0..20 {
            world.pass(Nanos::from_millis(20));
            world.flow(|_| true);
        }
        claim(world.is_open(read), "the read waits")?;
        let tag = world.start_hold(2, look());
        world.flow(|_| true);
        claim(
            matches!(world.held_by(tag), Some(Outcome::Locked(it)) if it.found.value.is_some()),
            "the value is there under the lock",
        )?;
        world.start_hold(0, settle(1, found.version, Change::None));
        world.flow(|_| true);
        world.start_hold(1, look());
        world.flow(|_| true);
        world.finish_with("-")?;
    }
    Ok(())
}

/// A write of one session is queued when another command meets the lock; the next write of the
/// session must stay behind it.
#[test]
fn session_keeps_its_order_behind_a_lock() -> Result<(), String> {
    for ways in ways() {
        let (mut world, found) = taken(ways)?;
        let key = world.key.clone();
        let read = world.start(1, Ask::Get);
        let first = world.append(1, "a");
        world.flow(|m| m.is(Kind::Read) || m.is(Kind::State));
        let second = world.ask_behind(1, &key, Ask::Append("b"), Some(first));
        world.flow(|_| true);
        claim([read, first, second].iter().all(|&tag| world.is_open(tag)), "all wait")?;
        world.calm();
        world.start_hold(0, settle(1, found.version, Change::None));
        world.flow(|_| true);
        world.calm();
        world.start_hold(1, look());
        world.flow(|_| true);
        world.finish_with("vvab")?;
    }
    Ok(())
}

/// More commands than one proposal holds wait, and all run.
#[test]
fn many_commands_wait_and_run() -> Result<(), String> {
    let (mut world, found) = taken(ways()[0])?;
    let commands: Vec<Tag> = (0..1_300).map(|_| world.append(1, "x")).collect();
    world.flow(|_| true);
    claim(commands.iter().all(|&tag| world.is_open(tag)), "all wait")?;
    world.calm();
    world.start_hold(1, settle(1, found.version, Change::None));
    world.flow(|_| true);
    for _ in 0..20 {
        world.pass(Nanos::from_millis(20));
        world.flow(|_| true);
    }
    claim(commands.iter().all(|&tag| !world.is_open(tag)), "all ran")
}

/// Random schedules with losses and restarts: no command has an effect under a lock, and each
/// command ends.
#[test]
fn histories_with_locks_are_linearizable() -> Result<(), String> {
    let mut waited = 0;
    for seed in 0..SEEDS {
        let (one, other) = (ways()[0], ways()[1]);
        let mut world =
            World::with(3, seed % 2 == 0, seed, if seed % 3 == 0 { other } else { one });
        let mut rng = Prng::new(seed);
        for step in 0..60 {
            let node = rng.below(3) as usize;
            match rng.below(12) {
                0 => drop(world.start(node, Ask::Get)),
                1 => drop(world.start(node, Ask::AppendByte(b'a' + (step % 26) as u8))),
                2 => drop(world.start(node, Ask::SetIfAbsent(b'n'))),
                3 => drop(world.start(node, Ask::Delete)),
                4 | 5 => drop(world.start_hold(node, take(rng.below(3)))),
                6 => drop(world.start_hold(node, settle(rng.below(3), 0, put("never")))),
                7 => drop(world.start_hold(node, look())),
                8 => world.pass(Nanos::from_millis(rng.below(30))),
                9 if rng.chance(0.2) => {
                    world.lose(|m| m.sender() == node);
                    world.crash(node, rng.below(3) as usize);
                }
                _ => {
                    for _ in 0..rng.below(20) {
                        (0..3).for_each(|node| _ = world.flush(node));
                        if !world.bag.is_empty() {
                            let at = rng.below(world.bag.len() as u64) as usize;
                            let envelope = world.bag.remove(at);
                            world.deliver(envelope);
                        }
                    }
                }
            }
        }
        waited += u64::from(!world.locked.is_empty());
        for _ in 0..6 {
            for counter in 0..3 {
                world.start_hold(counter as usize, settle(counter, 0, put("never")));
            }
            claim(world.settle(), "the holds end")?;
            for node in 0..3 {
                world.start_hold(node, look());
            }
            claim(world.settle(), "work ends")?;
        }
        world.finish().map_err(|text| format!("seed {seed}: {text}"))?;
    }
    claim(waited > SEEDS / 4, &format!("commands meet locks: {waited}"))
}
