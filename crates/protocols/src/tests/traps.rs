//! Traps of the literature about configured groups that have a schedule of their own.

use types::{Outcome, Tag};

use super::World;
use super::asks::Ask;
use super::steps::{A, ALL, B, C, D, group};
use crate::configured::{Configured, Member};
use crate::craq::Craq;
use crate::hermes::Hermes;
use crate::protocol::Protocol;

type Chain = Configured<Craq>;
type Invalidating = Configured<Hermes>;

impl<P: Protocol> World<P> {
    fn expect_end(&self, tag: Tag) -> Result<(), String> {
        match self.outcomes.get(&tag) {
            Some(Outcome::Reply(_)) => Ok(()),
            outcome => Err(format!("{tag:?} ends with {outcome:?}")),
        }
    }
}

/// A message of an epoch that this node has not installed yet. No timer may be needed.
pub(super) fn message_before_its_epoch<P: Member>() -> Result<(), String> {
    let mut world = group::<Configured<P>>(2, &[A, B], false);
    world.service.tried.0 += 1;
    [A, B].into_iter().for_each(|index| world.wedge(index));
    let members = world.draft();
    world.activate(members);
    world.install(A);
    world.lend(A);
    let write = world.ask(A, 0, Ask::Set(1));
    world.carry(A, B, "");
    world.install(B);
    world.lend(B);
    world.drain();
    world.expect_end(write)?;
    world.judge(&[A, B])
}

/// All messages of a write are lost with its epoch. No timer may be needed.
fn write_over_an_epoch<P: Member>() -> Result<(), String> {
    let mut world = group::<Configured<P>>(3, &ALL, false);
    let write = world.ask(A, 0, Ask::Append(1));
    world.bag.clear();
    world.change(&[A, B]);
    world.lend_all();
    world.drain();
    world.expect_end(write)?;
    world.judge(&[A, B])
}

#[test]
fn write_goes_on_in_the_next_epoch() {
    assert_eq!(write_over_an_epoch::<Hermes>(), Ok(()));
    assert_eq!(write_over_an_epoch::<Craq>(), Ok(()));
}

/// A condition did not hold. A copy of the command comes when it would.
pub(super) fn craq_copy_of_a_refused_command() -> Result<(), String> {
    let mut world = group::<Chain>(2, &[A, B], false);
    let write = world.ask(A, 0, Ask::Set(9));
    world.done(write);
    let refused = world.ask(B, 0, Ask::SetIfAbsent(1));
    let at = world.bag.iter().position(|letter| letter.to == A).expect("it is steered");
    let late = world.bag[at].copy();
    world.done(refused);
    let delete = world.ask(A, 0, Ask::Delete);
    world.done(delete);
    world.deliver(late);
    world.drain();
    world.judge(&[A, B])
}

/// The head and another member are left out. A command without effect there is a read.
pub(super) fn craq_refusal_of_a_deposed_head() -> Result<(), String> {
    let mut world = group::<Chain>(3, &ALL, false);
    world.change(&[B]);
    world.lend(B);
    let write = world.ask(B, 0, Ask::Set(1));
    world.done(write);
    world.ask(C, 0, Ask::Delete);
    world.carry(C, A, "Steer");
    world.drain();
    world.judge(&[B])
}

/// A member asked the tail for one read. The answer comes when another read waits, which began
/// after the tail had shown a newer value.
pub(super) fn craq_read_behind_an_earlier_question() -> Result<(), String> {
    let mut world = group::<Chain>(3, &ALL, false);
    let first = world.ask(A, 0, Ask::Set(1));
    world.done(first);
    world.drain();
    let second = world.ask(A, 0, Ask::Set(2));
    world.carry(A, B, "Down");
    let early = world.ask(B, 0, Ask::Get);
    world.carry(B, C, "AskTail");
    let answer = world.take(C, B, "Tail");
    world.carry(B, C, "Down");
    let ups = world.take(C, B, "Up");
    let seen = world.ask(C, 0, Ask::Get);
    world.expect_end(seen)?;
    let late = world.ask(B, 0, Ask::Get);
    answer.into_iter().for_each(|letter| world.deliver(letter));
    world.expect_end(early)?;
    ups.into_iter().for_each(|letter| world.deliver(letter));
    world.settle(&[second, late]);
    world.judge(&ALL)
}

/// Both ends of a chain fail, and no member knows of a commit. The new tail asks the new head.
#[test]
fn dirty_key_is_read_after_both_ends_failed() {
    for reader in [B, C] {
        let mut world = group::<Chain>(4, &[A, B, C, D], false);
        world.ask(A, 0, Ask::Set(1));
        world.carry(A, B, "Down");
        world.carry(B, C, "Down");
        world.bag.clear();
        world.change(&[B, C]);
        world.lend_all();
        let read = world.ask(reader, 0, Ask::Get);
        world.drain();
        assert_eq!(world.expect_end(read), Ok(()), "node {reader}");
        assert_eq!(world.judge(&[B, C]), Ok(()));
    }
}

/// Two writes compete, and one member has heard of the higher one, whose writer dies. The lower one
/// ends. Its writer changes that value, which another member hears of, and dies too. A replay of
/// the higher write and the change must not both be seen.
#[test]
fn replayed_write_never_ends_below_a_change() {
    let mut world = group::<Invalidating>(4, &[A, B, C, D], false);
    let lower = world.ask(A, 0, Ask::Set(1));
    world.ask(D, 0, Ask::Set(2));
    world.carry(D, B, "Invalidate");
    world.carry(A, B, "Invalidate");
    world.carry(A, C, "Invalidate");
    world.bag.clear();
    world.change(&[A, B, C]);
    world.lend_all();
    for member in [B, C] {
        world.carry(A, member, "Invalidate");
        world.carry(member, A, "Ack");
    }
    assert_eq!(world.expect_end(lower), Ok(()));
    world.ask(A, 0, Ask::Append(3));
    world.carry(A, C, "Invalidate");
    world.bag.clear();
    world.change(&[B, C]);
    world.lend_all();
    // The replay ends before the other member replays the change, if it does.
    world.carry(B, C, "Invalidate");
    world.carry(C, B, "Ack");
    let read = world.ask(B, 0, Ask::Get);
    assert_eq!(world.expect_end(read), Ok(()));
    assert_eq!(world.judge(&[B, C]), Ok(()));
}

/// The coordinator of a read-modify-write restarts, and is another writer from then on.
#[test]
fn change_of_a_restarted_writer_ends() {
    let mut world = group::<Invalidating>(3, &ALL, true);
    world.ask(A, 0, Ask::Append(1));
    world.carry(A, B, "Invalidate");
    world.bag.clear();
    world.kill(A, 0, 0);
    world.start(A);
    world.change(&ALL);
    world.lend_all();
    let read = world.ask(B, 0, Ask::Get);
    world.settle(&[read]);
    assert_eq!(world.expect_end(read), Ok(()));
    assert_eq!(world.judge(&ALL), Ok(()));
}

/// A plain write is ordered before the one that overtook it. Its client gets the answer.
#[test]
fn overtaken_write_is_answered() {
    let mut world = group::<Invalidating>(3, &ALL, false);
    let (first, second) = (world.ask(A, 0, Ask::Set(1)), world.ask(B, 0, Ask::Set(2)));
    world.carry(B, A, "Invalidate");
    world.carry(A, B, "Invalidate");
    world.carry(A, C, "Invalidate");
    assert!(world.is_open(first) && world.is_open(second));
    world.carry(B, A, "Ack");
    world.carry(C, A, "Ack");
    assert_eq!(world.expect_end(first), Ok(()));
    world.drain();
    assert_eq!(world.expect_end(second), Ok(()));
    assert_eq!(world.judge(&ALL), Ok(()));
}

/// A member missed the end of a read-modify-write, and asks its coordinator.
fn question_about_a_change(
    goes_on: impl Fn(&mut World<Invalidating>),
    answer: &str,
) -> Result<(), String> {
    let mut world = group::<Invalidating>(3, &ALL, false);
    let append = world.ask(A, 0, Ask::Append(1));
    for member in [B, C] {
        world.carry(A, member, "Invalidate");
        world.carry(member, A, "Ack");
    }
    world.expect_end(append)?;
    world.bag.clear();
    goes_on(&mut world);
    let read = world.ask(B, 0, Ask::Get);
    world.wait_for(B, A, "Nudge");
    world.carry(B, A, "Nudge");
    world.carry(A, B, answer);
    world.settle(&[read]);
    world.expect_end(read)?;
    world.judge(&ALL)
}

#[test]
fn coordinator_tells_the_end_of_its_change() {
    assert_eq!(question_about_a_change(|_| (), "Validate {"), Ok(()));
}

/// The coordinator has overwritten the value meanwhile, and the asking member has not heard of it.
#[test]
fn coordinator_tells_a_newer_version() {
    let overwrite = |world: &mut World<Invalidating>| {
        world.ask(A, 0, Ask::Set(2));
        world.bag.clear();
    };
    assert_eq!(question_about_a_change(overwrite, "Invalidate {"), Ok(()));
}
