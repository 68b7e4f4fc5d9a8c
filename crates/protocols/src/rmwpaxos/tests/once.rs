//! Schedules of commands that are safe to repeat. [corrections F2, F4, F5, F9, F11]

use base::{Millis, Nanos};
use types::limits::ONCE_ENTRIES_MAX;
use types::{Outcome, Reply, Tag};

use super::steps::{Kind, claim};
use super::strings::Ask;
use super::world::{ONCE_TIMEOUT, World};
use crate::rmwpaxos::State;

/// Longer than these worlds remember a line, including the time for requests in progress.
const WINDOW_AND_MORE: Nanos = Nanos::from_secs(500);

fn volatile() -> World {
    World::new(3, false, 1)
}

fn append(text: &'static str, session: u8, seq: u64) -> Ask {
    Ask::Append(text).once(session, seq)
}

/// A command under `ONCE` with all members, and then calm.
fn done(world: &mut World, node: usize, ask: Ask) -> Result<Tag, String> {
    let tag = world.start(node, ask);
    for _ in 0..40 {
        world.flow(|_| true);
        if !world.is_open(tag) {
            break;
        }
        world.pass(Nanos::from_millis(10));
    }
    world.calm();
    claim(!world.is_open(tag), "no conflict delays it").map(|()| tag)
}

/// Passes time in steps and delivers all messages.
fn wait(world: &mut World, span: Nanos) {
    for _ in 0..100 {
        world.pass(Nanos(span.0 / 100));
        world.flow(|_| true);
    }
}

fn refused(world: &World, tag: Tag) -> bool {
    matches!(world.value_of(tag), Some(Outcome::Refused(_)))
}

#[test]
fn the_same_line_at_all_nodes_runs_once() -> Result<(), String> {
    for by_message in [true, false] {
        let ways = super::world::Ways { by_message, always_deltas: false, core_alone: false };
        let mut world = World::with(3, false, 1, ways);
        let tags: Vec<Tag> = (0..3).map(|node| world.start(node, append("a", 1, 1))).collect();
        world.finish_with("va")?;
        let later = done(&mut world, 2, append("a", 1, 1))?;
        for tag in tags.into_iter().chain([later]) {
            claim(world.reply(tag) == Some(Reply::Integer(1)), "all get the first reply")?;
        }
        done(&mut world, 1, append("b", 1, 2))?;
        let older = done(&mut world, 0, append("a", 1, 1))?;
        claim(refused(&world, older), "the session has gone on")?;
        world.finish_with("vab")?;
    }
    Ok(())
}

#[test]
fn repeat_of_a_quiet_key_disturbs_no_owner() -> Result<(), String> {
    let mut world = volatile();
    done(&mut world, 0, append("a", 1, 1))?;
    let tag = world.start(1, append("a", 1, 1));
    claim(world.bag.iter().all(|m| m.is(Kind::Read)), "a read of a quorum is enough")?;
    world.flow(|m| m.is(Kind::Read) || m.is(Kind::State));
    claim(world.reply(tag) == Some(Reply::Integer(1)), "it gets the first reply")?;
    world.finish_with("va")
}

/// F2: a copy of a compare-and-set is delayed and its repeat fails. Then the value becomes the one
/// that the copy expects.
pub(super) fn a_condition_that_fails_for_a_repeat() -> Result<(), String> {
    let mut world = volatile();
    world.write(2, Ask::SetIfAbsent(b'o'));
    let set = Ask::SetIfEqual(b"x".to_vec(), b'y').once(1, 1);
    world.start(0, set.clone());
    let held = world.take(|m| m.sender() == 0);
    let repeat = done(&mut world, 2, set)?;
    claim(world.reply(repeat) == Some(Reply::Boolean(false)), "the condition does not hold")?;
    world.write(2, Ask::SetIfEqual(b"o".to_vec(), b'x'));
    world.deliver_all(held);
    world.finish_with("vx")
}

#[test]
fn a_condition_that_failed_never_holds_later() -> Result<(), String> {
    a_condition_that_fails_for_a_repeat()
}

/// F4: more sessions than a key remembers.
pub(super) fn a_session_too_many() -> Result<(), String> {
    let mut world = volatile();
    fill(&mut world)?;
    let late = done(&mut world, 1, append("b", 200, 1))?;
    let first = done(&mut world, 2, append("a", 0, 1))?;
    claim(world.reply(first) == Some(Reply::Integer(1)), "the first is remembered")?;
    claim(refused(&world, late), "there is no room for another")?;
    let next = done(&mut world, 0, append("c", 7, 2))?;
    claim(world.reply(next) == Some(Reply::Integer(65)), "a remembered session goes on")?;
    world.finish()
}

/// As many sessions as a key remembers have appended a letter.
fn fill(world: &mut World) -> Result<(), String> {
    for session in 0..ONCE_ENTRIES_MAX as u8 {
        done(world, usize::from(session) % 3, append("a", session, 1))?;
    }
    Ok(())
}

#[test]
fn full_table_evicts_no_older_session() -> Result<(), String> {
    a_session_too_many()
}

#[test]
fn a_window_that_is_over_makes_room() -> Result<(), String> {
    for asker in 0..3 {
        let mut world = volatile();
        fill(&mut world)?;
        wait(&mut world, WINDOW_AND_MORE);
        let late = done(&mut world, asker, append("b", 200, 1))?;
        claim(world.reply(late) == Some(Reply::Integer(65)), "there is room again")?;
        let repeat = done(&mut world, 0, append("b", 200, 1))?;
        claim(world.reply(repeat) == Some(Reply::Integer(65)), "it is remembered")?;
        world.finish()?;
    }
    Ok(())
}

/// One node's requests wait longer than any entry is kept, which the others do not know.
#[test]
fn a_longer_request_timeout_runs_no_command_twice() -> Result<(), String> {
    for patient in 0..3 {
        let mut world = volatile();
        let others: Vec<usize> = (0..3).filter(|&node| node != patient).collect();
        world.nodes[patient].protocol.core.env_mut().request_timeout = Nanos::from_secs(5_000);
        done(&mut world, others[0], append("a", 1, 1))?;
        let repeat = world.start(patient, append("a", 1, 1));
        for _ in 0..100 {
            world.pass(Nanos(WINDOW_AND_MORE.0 / 100));
            world.flow(|m| m.among(&others));
            world.lose_all();
        }
        claim(!is_remembered_at(&world, &others), "the window is over")?;
        claim(!world.is_open(repeat), "its time is over")?;
        world.calm();
        world.finish_with("va")?;
    }
    Ok(())
}

/// A node took a line in within the window, and read its register after the window.
#[test]
fn line_that_waited_for_loading_runs_once() -> Result<(), String> {
    for late in 0..3 {
        let mut world = volatile();
        done(&mut world, 0, append("a", 1, 1))?;
        wait(&mut world, WINDOW_AND_MORE);
        done(&mut world, 1, append("b", 2, 1))?;
        world.parked = ONCE_TIMEOUT;
        let repeat = done(&mut world, late, append("a", 1, 1))?;
        claim(world.reply(repeat).is_none(), "it came too late")?;
        world.parked = Nanos::ZERO;
        world.finish_with("vab")?;
    }
    Ok(())
}

#[test]
fn busy_owner_makes_room_after_windows_end() -> Result<(), String> {
    let mut world = volatile();
    for session in 0..ONCE_ENTRIES_MAX as u8 {
        done(&mut world, 1, append("a", session, 1))?;
    }
    wait(&mut world, WINDOW_AND_MORE);
    let plain = world.start(1, Ask::Append("p"));
    let late = world.start(1, append("b", 200, 1));
    world.finish()?;
    claim(
        world.reply(plain) == Some(Reply::Integer(65))
            && world.reply(late) == Some(Reply::Integer(66)),
        "both run",
    )
}

/// F10: one replica's clocks run far ahead.
pub(super) fn a_clock_that_jumps() -> Result<(), String> {
    let mut world = volatile();
    fill(&mut world)?;
    world.nodes[1].ahead = Millis(1_000_000);
    let late = done(&mut world, 1, append("b", 200, 1))?;
    claim(refused(&world, late), "one replica's count does not decide")?;
    let first = done(&mut world, 2, append("a", 0, 1))?;
    claim(world.reply(first) == Some(Reply::Integer(1)), "the first is remembered")?;
    world.finish()
}

#[test]
fn jumping_clock_alone_forgets_no_command() -> Result<(), String> {
    a_clock_that_jumps()
}

/// F11: the key is deleted between a command and its repeat.
pub(super) fn a_repeat_after_a_deletion() -> Result<(), String> {
    let mut world = volatile();
    done(&mut world, 0, append("a", 1, 1))?;
    world.write(1, Ask::Delete);
    let repeat = done(&mut world, 2, append("a", 1, 1))?;
    claim(world.reply(repeat) == Some(Reply::Integer(1)), "it ran before")?;
    world.finish_with("-")
}

#[test]
fn deleted_key_remembers_its_commands() -> Result<(), String> {
    a_repeat_after_a_deletion()
}

/// F11: the same, after tombstones are collected.
pub(super) fn a_repeat_after_a_while() -> Result<(), String> {
    let mut world = volatile();
    done(&mut world, 0, append("a", 1, 1))?;
    world.write(1, Ask::Delete);
    wait(&mut world, Nanos::from_secs(10));
    let repeat = done(&mut world, 2, append("a", 1, 1))?;
    claim(world.reply(repeat) == Some(Reply::Integer(1)), "it ran before")?;
    world.finish_with("-")
}

#[test]
fn a_tombstone_that_remembers_is_kept() -> Result<(), String> {
    a_repeat_after_a_while()
}

#[test]
fn tombstone_is_collected_after_its_windows() -> Result<(), String> {
    for once in [append("a", 1, 1), Ask::Get.once(1, 1), Ask::Delete.once(1, 1)] {
        let mut world = volatile();
        done(&mut world, 0, once)?;
        world.write(1, Ask::Delete);
        let held = |world: &World| (0..3).filter(|&node| world.held(node).is_some()).count();
        claim(held(&world) == 3, "it is a tombstone that remembers")?;
        wait(&mut world, Nanos::from_secs(1_600));
        claim(held(&world) == 0, "no trace of it is left")?;
        world.finish_with("-")?;
    }
    Ok(())
}

/// The value's time is over, and the table may be full for long.
#[test]
fn full_table_of_an_expiring_value_votes_once() -> Result<(), String> {
    let mut world = volatile();
    fill(&mut world)?;
    let key = world.key.clone();
    let set = world.ask(0, &key, Ask::Expiring { value: b'x', millis: 50 });
    world.flow(|_| true);
    claim(!world.is_open(set), "no conflict delays it")?;
    // No timer fires, so no node has noticed, and one replica's windows are over.
    world.now += Nanos::from_millis(100);
    world.place_expiries();
    world.nodes[1].ahead = Millis(1_000_000);
    let late = done(&mut world, 1, append("b", 200, 1))?;
    claim(refused(&world, late), "there is no room")?;
    world.finish_with("-")
}

fn is_remembered(world: &World) -> bool {
    is_remembered_at(world, &[0, 1, 2])
}

fn is_remembered_at(world: &World, nodes: &[usize]) -> bool {
    let state = |node| world.held(node).and_then(|it| it.state.as_ref());
    nodes.iter().any(|&node| state(node).is_some_and(State::has_once))
}

#[test]
fn commands_are_forgotten_in_time_without_clients() -> Result<(), String> {
    for is_restarted in [false, true] {
        let mut world = World::new(3, true, 1);
        fill(&mut world)?;
        if is_restarted {
            (0..3).for_each(|node| world.crash(node, 9));
        }
        wait(&mut world, Nanos::from_secs(400));
        claim(is_remembered(&world), "no window is over")?;
        wait(&mut world, Nanos::from_secs(300));
        claim(!is_remembered(&world), "all windows are over")?;
        world.converge()?;
        world.finish_with(&format!("v{}", "a".repeat(ONCE_ENTRIES_MAX)))?;
    }
    Ok(())
}

#[test]
fn busy_owner_forgets_ended_windows() -> Result<(), String> {
    let mut world = volatile();
    for session in 0..8 {
        done(&mut world, 1, append("a", session, 1))?;
    }
    let prepares = |world: &World| world.nodes[1].protocol.core.counters().phase_ones;
    let before = prepares(&world);
    for _ in 0..600 {
        world.append(1, "");
        wait(&mut world, Nanos::from_secs(1));
    }
    claim(prepares(&world) == before, "no phase 1 disturbs it")?;
    claim(!is_remembered(&world), "all windows are over")?;
    world.finish()
}

/// E2, F1: a repeat finds its command in a state that a minority holds.
pub(super) fn a_repeat_of_an_undecided_command() -> Result<(), String> {
    let mut world = volatile();
    world.start(0, append("a", 1, 1));
    world.prepared(&[0, 1, 2]);
    world.flow(|m| m.goes(Kind::Accept, 0, 0));
    world.lose_all();
    world.calm();
    world.sees(1, 2, false);
    let repeat = world.start(1, append("a", 1, 1));
    world.flow(|m| m.among(&[0, 1]) && !m.is(Kind::Accept));
    claim(world.is_open(repeat), "the entry that it found is not decided")?;
    world.lose_all();
    world.sees(1, 2, true);
    world.finish()
}

#[test]
fn repeat_waits_until_its_entry_is_chosen() -> Result<(), String> {
    a_repeat_of_an_undecided_command()
}

/// The ring has forgotten an attempt, but the state remembers its session.
#[test]
fn attempt_beyond_the_ring_is_in_the_table() -> Result<(), String> {
    let mut world = volatile();
    let tag = world.start(0, append("a", 1, 1));
    world.prepared(&[0, 1, 2]);
    world.flow(|m| m.goes(Kind::Accept, 0, 0) || m.goes(Kind::Accept, 0, 1));
    world.lose_all();
    world.calm();
    for other in [2, 1, 2, 1] {
        world.append(other, "b");
        world.flow(|m| m.among(&[1, 2]));
        world.lose_all();
        world.calm();
    }
    world.finish_with("vabbbb")?;
    claim(world.reply(tag) == Some(Reply::Integer(1)), "the result of the first attempt")
}

/// Node 1 owns the key, which holds `x`, and is busy with it.
fn busy(world: &mut World) {
    for text in ["x", "", ""] {
        world.append(1, text);
        world.flow(|_| true);
    }
}

/// All messages of a node about a command are delayed for longer than the command is remembered.
/// Meanwhile it ran.
#[test]
fn delayed_copy_beyond_its_window_is_refused() -> Result<(), String> {
    let mut world = volatile();
    busy(&mut world);
    let tag = world.start(0, append("a", 1, 1));
    let held = world.take(|m| m.sender() == 0);
    for _ in 0..100 {
        world.pass(Nanos::from_millis(20));
        world.flow(|m| !m.is(Kind::Forward));
    }
    world.lose_all();
    claim(world.reply(tag) == Some(Reply::Integer(2)), "it ran on its own")?;
    world.write(2, Ask::Delete);
    wait(&mut world, Nanos::from_secs(1_500));
    world.deliver_all(held);
    world.finish_with("-")
}

/// F5: an attempt that the ring has forgotten was chosen. Then the session continued.
pub(super) fn a_refusal_of_a_command_that_ran() -> Result<(), String> {
    let mut world = volatile();
    let tag = world.start(0, append("a", 1, 1));
    world.prepared(&[0, 1, 2]);
    world.flow(|m| m.goes(Kind::Accept, 0, 0) || m.goes(Kind::Accept, 0, 1));
    world.lose_all();
    world.calm();
    for (other, ask) in [
        (2, append("b", 1, 2)),
        (1, Ask::Append("b")),
        (2, Ask::Append("b")),
        (1, Ask::Append("b")),
    ] {
        world.start(other, ask);
        world.flow(|m| m.among(&[1, 2]));
        world.lose_all();
        world.calm();
    }
    world.finish_with("vabbbb")?;
    claim(!world.is_open(tag), "it has ended")?;
    claim(!refused(&world, tag), "it ran, though its repeat was refused")
}

#[test]
fn refusal_of_a_possible_run_is_not_believed() -> Result<(), String> {
    a_refusal_of_a_command_that_ran()
}

/// A process was stopped for longer than its command is remembered, and then continues with it.
#[test]
fn command_beyond_its_deadline_is_not_run() -> Result<(), String> {
    let mut world = volatile();
    let tag = world.start(0, append("a", 1, 1));
    let promises = {
        world.flow(|m| m.is(Kind::Prepare));
        world.take(|m| m.is(Kind::Promise))
    };
    done(&mut world, 2, append("a", 1, 1))?;
    // The process was stopped, so its timers have not fired.
    world.now += WINDOW_AND_MORE;
    world.deliver_all(promises);
    claim(world.reply(tag).is_none(), "its client has gone")?;
    world.finish_with("va")
}
