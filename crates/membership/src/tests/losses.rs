//! Schedules about images that are damaged or gone, and the orders of an operator after them.

use types::{Epoch, GroupMember, ImageId, NodeId, Role, Serial};

use super::rules::{
    IMAGE, MS, Single, active, configuration, full, has_installed, lease_beat, ms, raw, record,
    report, shadow, swapped, tokens, wedging,
};
use super::world::GROUP;
use crate::message::{GroupBeat, Heartbeat, ImageReport, Message};
use crate::{Content, Decree, Effect, Input, LocalRecord, Report};

/// An old copy may be all that an operator has left.
#[test]
fn image_is_kept_while_no_full_member_is_heard() {
    let mut single = Single::start(Some(record(1, Content::Whole)));
    let mut value = active(2, &[full(2)]);
    value.previous = Some(configuration(1, &[full(1), full(2)]));
    single.answer_read(Some(raw(&value)));
    single.seal(2);
    let erases = |effect: &Effect| matches!(effect, Effect::Erase { .. });
    assert!(!single.take().iter().any(erases));
    single.beat(2, 1, lease_beat(2, 2));
    assert!(single.tick_at(ms(1_050)).iter().any(erases));
}

/// A damaged record at the last full member must not cost all others.
#[test]
pub(super) fn rest_of_a_damaged_image_is_kept_until_a_full_member_is_heard() {
    let mut single = Single::start(Some(record(1, Content::Whole)));
    single.answer_read(Some(raw(&active(1, &[full(1), full(2)]))));
    single.seal(1);
    single.take();
    single.give(Input::Lost { group: GROUP });
    let effects = single.take();
    let [
        Effect::ClearLease { .. },
        Effect::Wedge { epoch: Epoch(1), .. },
        Effect::Persist { record, .. },
        Effect::Keep { .. },
        ..,
    ] = effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!((record.content, record.joined), (Content::Partial, Epoch(0)));
    assert_ne!(record.image, IMAGE);
    let erases = |effect: &Effect| matches!(effect, Effect::Erase { .. });
    assert!(!effects.iter().any(erases));
    single.seal(1);
    assert_eq!(has_installed(&single.take()), [(Epoch(1), None)], "it is no member any more");
    // A second loss, and a restart, change no more.
    single.give(Input::Lost { group: GROUP });
    assert!(!single.pass_alone_with(3, ms(100)).iter().any(erases));
    let kept = single.service.status(GROUP).expect("a group").record;
    let mut again = Single::start(Some(kept));
    again.answer_read(Some(raw(&active(1, &[full(1), full(2)]))));
    again.seal(1);
    assert!(!again.pass_alone_with(3, ms(100)).iter().any(erases));
    again.beat(2, 1, lease_beat(2, 1));
    assert!(again.tick_at(again.now + MS).iter().any(erases), "another member has everything");
}

/// A volatile image ends with its process, whatever its content.
#[test]
fn volatile_image_never_outlives_its_process() {
    for content in [Content::Whole, Content::Stale, Content::Blank] {
        let single = Single::start_with(Some(record(1, content)), |group| group.is_volatile = true);
        let status = single.service.status(GROUP).expect("a group");
        assert_ne!(status.record.image, IMAGE, "{content:?}");
    }
}

/// The operator keeps an image of node 3, which is lost before its epoch begins. Then a node comes
/// back that was full in the last active epoch.
#[test]
fn full_member_goes_before_a_kept_image_that_is_lost() {
    let mut single = Single::start(Some(record(1, Content::Partial)));
    let mut value = wedging(&active(1, &[full(2)]), &[full(3)]);
    value.decree = Some(Decree::Image { node: NodeId(3), image: ImageId(7) });
    single.register = Some(raw(&value));
    single.answer_read(Some(raw(&value)));
    single.seal(2);
    single.take();
    let lost = report(3, Content::Blank);
    let lost = GroupBeat { report: lost, ..lease_beat(3, 0) };
    let effects = single.pass(ms(4_000), &[(3, lost.clone())]);
    assert_eq!(swapped(&effects), [], "no full member is heard");
    let back = ImageReport { joined: Epoch(1), ..report(2, Content::Whole) };
    let back = GroupBeat { report: back, ..lease_beat(2, 0) };
    let values = swapped(&single.pass(ms(2_000), &[(2, back), (3, lost)]));
    assert_eq!((values[0].decree, values[0].epoch()), (None, Epoch(3)));
    assert_eq!(values[0].members()[0], full(2));
}

#[test]
fn operator_keeps_the_rest_of_the_last_full_member() {
    let mut single = Single::start(Some(record(1, Content::Whole)));
    single.answer_read(Some(raw(&active(1, &[full(1)]))));
    single.seal(1);
    single.give(Input::Lost { group: GROUP });
    single.seal(1);
    let effects = single.pass_alone_with(3, ms(4_000));
    let lost = Report::Lost { group: GROUP, epoch: Epoch(1) };
    assert!(effects.contains(&Effect::Report(lost)), "{effects:?}");
    let LocalRecord { image, .. } = single.service.status(GROUP).expect("a group").record;
    let decree = Decree::Image { node: NodeId(1), image };
    single.give(Input::Operator { group: GROUP, epoch: Epoch(1), decree });
    let values = swapped(&single.take());
    let saved = GroupMember { image, serial: Serial(20), ..full(1) };
    assert_eq!(values[0].members(), [saved]);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Erase { .. })));
}

// Trap 6 and M5.
#[test]
fn group_without_full_member_waits_for_the_operator() {
    let mut single = Single::start(Some(record(1, Content::Partial)));
    let value = active(1, &[full(2), shadow(1)]);
    single.answer_read(Some(raw(&value)));
    single.seal(1);
    let effects = single.pass_alone_with(3, ms(4_000));
    assert_eq!(swapped(&effects), []);
    let lost = Report::Lost { group: GROUP, epoch: Epoch(1) };
    assert!(effects.contains(&Effect::Report(lost)), "{effects:?}");
    let decree = Decree::Image { node: NodeId(1), image: IMAGE };
    single.give(Input::Operator { group: GROUP, epoch: Epoch(7), decree });
    let refused = |effect: &Effect| matches!(effect, Effect::Report(Report::Refused { .. }));
    assert!(single.take().iter().any(refused), "the order names another epoch");
    single.give(Input::Operator { group: GROUP, epoch: Epoch(1), decree });
    let values = swapped(&single.take());
    assert_eq!(values.len(), 1);
    assert_eq!((values[0].decree, values[0].members().len()), (Some(decree), 1));
}

/// The members may live on where this node cannot see them.
#[test]
pub(super) fn order_is_refused_at_a_node_that_is_cut_off() {
    let mut single = Single::start(Some(record(1, Content::Partial)));
    single.answer_read(Some(raw(&active(1, &[full(2), shadow(1)]))));
    single.seal(1);
    let order = |single: &mut Single| {
        single.take();
        let decree = Decree::Empty;
        single.give(Input::Operator { group: GROUP, epoch: Epoch(1), decree });
        let effects = single.take();
        let refused = |effect: &Effect| matches!(effect, Effect::Report(Report::Refused { .. }));
        assert_ne!(effects.iter().any(refused), !swapped(&effects).is_empty(), "{effects:?}");
        swapped(&effects).len()
    };
    assert_eq!(order(&mut single), 0, "the member may be starting");
    single.pass(ms(4_000), &[]);
    assert_eq!(order(&mut single), 0, "no majority was heard");
    single.pass_hearing(ms(4_000), &[(3, lease_beat(3, 0))], &[1, 2]);
    assert_eq!(order(&mut single), 0, "node 3 hears the member");
    single.pass_alone_with(3, ms(100));
    single.pass(ms(400), &[]);
    assert_eq!(order(&mut single), 0, "no majority is heard");
    single.pass_alone_with(3, ms(100));
    assert_eq!(order(&mut single), 1);
}

#[test]
fn order_does_not_wait_for_ever() {
    let refusals = |effects: &[Effect]| {
        let refused = |effect: &&Effect| matches!(effect, Effect::Report(Report::Refused { .. }));
        effects.iter().filter(refused).count()
    };
    let mut single = Single::start(Some(record(1, Content::Partial)));
    let order = Input::Operator { group: GROUP, epoch: Epoch(1), decree: Decree::Empty };
    single.give(order.clone());
    assert_eq!(refusals(&single.take()), 1, "the register was not read yet");
    let mut single = Single::start(Some(record(1, Content::Partial)));
    single.answer_read(Some(raw(&active(1, &[full(2), shadow(1)]))));
    single.seal(1);
    single.pass_alone_with(3, ms(4_000));
    // The register answers no more.
    single.beat(3, 1, lease_beat(3, 2));
    let mut effects = single.pass_alone_with(3, ms(100));
    assert_eq!(tokens(&effects).len(), 1, "a read is under way");
    single.give(order.clone());
    effects.extend(single.pass_alone_with(3, ms(1_000)));
    assert_eq!((refusals(&effects), swapped(&effects).len()), (0, 0));
    single.give(order.clone());
    assert_eq!(refusals(&single.take()), 1, "one order at a time");
    let effects = single.pass_alone_with(3, ms(8_000));
    assert_eq!((refusals(&effects), swapped(&effects).len()), (0, 0));
    // The read is given up, so the order is carried out, and is not answered.
    let effects = single.pass_alone_with(3, ms(2_000));
    assert_eq!((refusals(&effects), swapped(&effects).len()), (0, 1));
    single.give(order);
    assert_eq!(refusals(&single.take()), 1, "the swap is under way");
    let effects = single.pass_alone_with(3, ms(12_000));
    assert_eq!((refusals(&effects), swapped(&effects).len()), (1, 0), "its outcome is unknown");
}

/// An empty node that is there joins at once.
#[test]
fn order_to_keep_an_image_takes_empty_nodes_in() {
    let mut single = Single::start(Some(record(1, Content::Partial)));
    single.answer_read(Some(raw(&active(1, &[full(2), shadow(1)]))));
    single.seal(1);
    let hears = vec![NodeId(1)];
    let blank = GroupBeat { report: report(3, Content::Blank), ..lease_beat(3, 0) };
    for _ in 0..200 {
        let groups = vec![blank.clone()];
        let heartbeat = Heartbeat { sent: single.now, hears: hears.clone(), groups };
        single.hear(3, 1, Message::Heartbeat(heartbeat));
        single.tick_at(single.now + ms(20));
    }
    let decree = Decree::Image { node: NodeId(1), image: IMAGE };
    single.give(Input::Operator { group: GROUP, epoch: Epoch(1), decree });
    let values = swapped(&single.take());
    let roles: Vec<Role> = values[0].members().iter().map(|member| member.role).collect();
    assert_eq!(roles, [Role::Full, Role::Shadow]);
}

#[test]
fn end_of_the_epochs_is_told_once() {
    let mut single = Single::start(Some(record(Epoch::MAX.0, Content::Whole)));
    single.answer_read(Some(raw(&active(Epoch::MAX.0, &[full(1), full(2), full(3)]))));
    single.seal(Epoch::MAX.0);
    let effects = single.pass(ms(5_000), &[(2, lease_beat(2, Epoch::MAX.0))]);
    let told = |effect: &&Effect| matches!(effect, Effect::Report(Report::UsedUp { .. }));
    assert_eq!((swapped(&effects).len(), effects.iter().filter(told).count()), (0, 1));
}

#[test]
fn operator_does_not_overrule_a_full_member() {
    let (mut single, _) = Single::member();
    single.take();
    single.give(Input::Operator { group: GROUP, epoch: Epoch(1), decree: Decree::Empty });
    let effects = single.take();
    let refused = |effect: &Effect| matches!(effect, Effect::Report(Report::Refused { .. }));
    assert!(effects.iter().any(refused) && swapped(&effects).is_empty(), "{effects:?}");
}

#[test]
fn lost_image_ends_membership() {
    let (mut single, _) = Single::member();
    single.take();
    single.give(Input::Lost { group: GROUP });
    let effects = single.take();
    assert!(matches!(effects[0], Effect::ClearLease { .. }), "{effects:?}");
    single.seal(1);
    assert_eq!(has_installed(&single.take()), [(Epoch(1), None)]);
    assert_ne!(single.service.status(GROUP).expect("a group").record.image, IMAGE);
}
