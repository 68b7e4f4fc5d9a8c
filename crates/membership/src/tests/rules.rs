//! Schedules made for single rules: one service, with its inputs given by hand.

use base::{Nanos, Prng};
use bytes::Bytes;
use types::wire::Wire as _;
use types::{Configuration, Epoch, GroupMember, ImageId, Incarnation, NodeId, Role, Serial};

use super::world::GROUP;
use crate::message::{Grants, GroupBeat, Heartbeat, ImageReport, Message, Process, Wedged};
use crate::{
    Content, Effect, GroupSettings, GroupValue, Input, LocalRecord, Membership, Phase,
    RegisterResult, Report, Settings, Timing,
};

pub(super) const MS: Nanos = Nanos::from_millis(1);
pub(super) const IMAGE: ImageId = ImageId(101);

pub(super) fn ms(count: u64) -> Nanos {
    Nanos::from_millis(count)
}

/// Node 1 of three, with its start at 1,000 ms.
pub(super) struct Single {
    pub(super) service: Membership,
    pub(super) now: Nanos,
    pub(super) out: Vec<Effect>,
    /// Answers reads at once, if there is one.
    pub(super) register: Option<Bytes>,
}

pub(super) fn full(node: u16) -> GroupMember {
    GroupMember {
        node: NodeId(node),
        incarnation: Incarnation(1),
        image: ImageId(100 + u64::from(node)),
        serial: Serial(u32::from(node)),
        role: Role::Full,
    }
}

pub(super) fn shadow(node: u16) -> GroupMember {
    GroupMember { role: Role::Shadow, ..full(node) }
}

pub(super) fn configuration(epoch: u32, members: &[GroupMember]) -> Configuration {
    let (lease, members) = (ms(400), members.to_vec());
    Configuration { epoch: Epoch(epoch), members, lease, extra: Bytes::new() }
}

pub(super) fn active(epoch: u32, members: &[GroupMember]) -> GroupValue {
    GroupValue {
        configuration: configuration(epoch, members),
        phase: Phase::Active,
        previous: None,
        decree: None,
        next_serial: 20,
        proposer: NodeId(2),
    }
}

pub(super) fn wedging(value: &GroupValue, members: &[GroupMember]) -> GroupValue {
    let previous = Some(value.configuration.clone());
    let epoch = value.epoch().0 + 1;
    GroupValue { phase: Phase::Wedging, previous, ..active(epoch, members) }
}

pub(super) fn raw(value: &GroupValue) -> Bytes {
    Bytes::from(value.to_bytes())
}

pub(super) fn record(promised: u32, content: Content) -> LocalRecord {
    let joined = Epoch(if content == Content::Whole { promised } else { 0 });
    LocalRecord { promised: Epoch(promised), image: IMAGE, content, joined }
}

pub(super) fn report(node: u16, content: Content) -> ImageReport {
    ImageReport {
        promised: Epoch(1),
        image: ImageId(100 + u64::from(node)),
        content,
        copied: Epoch(0),
        joined: Epoch(0),
    }
}

impl Single {
    pub(super) fn start(record: Option<LocalRecord>) -> Single {
        Single::start_with(record, |_| {})
    }

    pub(super) fn start_with(
        record: Option<LocalRecord>,
        change: impl FnOnce(&mut GroupSettings),
    ) -> Single {
        let mut group = GroupSettings::new(GROUP, 3);
        change(&mut group);
        let settings = Settings {
            me: NodeId(1),
            incarnation: Incarnation(1),
            servers: vec![NodeId(1), NodeId(2), NodeId(3)],
            groups: vec![group],
            timing: Timing::default(),
            random: Prng::new(7),
        };
        let service = Membership::new(settings);
        let (now, out) = (ms(1_000), Vec::new());
        let mut single = Single { service, now, out, register: None };
        let records = record.map(|record| (GROUP, record)).into_iter().collect();
        single.give(Input::Start { records });
        single
    }

    /// A full member of three that has installed epoch 1 and holds no lease yet.
    pub(super) fn member() -> (Single, GroupValue) {
        let mut single = Single::start(Some(record(1, Content::Whole)));
        let value = active(1, &[full(1), full(2), full(3)]);
        single.answer_read(Some(raw(&value)));
        single.seal(1);
        (single, value)
    }

    pub(super) fn give(&mut self, input: Input) {
        let place = self.out.len();
        self.service.on(self.now, input, &mut self.out);
        let Some(register) = self.register.clone() else { return };
        for token in tokens(&self.out[place..]) {
            let result = RegisterResult::Read(Some(register.clone()));
            self.give(Input::Register { group: GROUP, token, result });
        }
    }

    pub(super) fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.out)
    }

    pub(super) fn tick_at(&mut self, now: Nanos) -> Vec<Effect> {
        self.now = now;
        self.give(Input::Tick);
        self.take()
    }

    /// Ticks as a shell does, with heartbeats of the others, which hear each other.
    pub(super) fn pass(&mut self, span: Nanos, others: &[(u16, GroupBeat)]) -> Vec<Effect> {
        let nodes: Vec<u16> = [1].into_iter().chain(others.iter().map(|(node, _)| *node)).collect();
        self.pass_hearing(span, others, &nodes)
    }

    /// The same with heartbeats of one node, which hears this one only.
    pub(super) fn pass_alone_with(&mut self, node: u16, span: Nanos) -> Vec<Effect> {
        self.pass_hearing(span, &[(node, lease_beat(node, 0))], &[1])
    }

    /// The same with others that hear these nodes.
    pub(super) fn pass_hearing(
        &mut self,
        span: Nanos,
        others: &[(u16, GroupBeat)],
        heard: &[u16],
    ) -> Vec<Effect> {
        let (end, mut all) = (self.now + span, Vec::new());
        while self.now < end {
            for (node, beat) in others {
                self.beat_hearing(*node, heard, beat.clone());
            }
            all.extend(self.tick_at((self.now + ms(20)).min(end)));
        }
        all
    }

    pub(super) fn answer_read(&mut self, value: Option<Bytes>) {
        let token = *tokens(&self.out).last().expect("a read is under way");
        let result = RegisterResult::Read(value);
        self.give(Input::Register { group: GROUP, token, result });
    }

    pub(super) fn seal(&mut self, epoch: u32) {
        self.give(Input::Sealed { group: GROUP, epoch: Epoch(epoch), summary: Bytes::new() });
    }

    pub(super) fn hear(&mut self, from: u16, incarnation: u32, message: Message) {
        let (from, incarnation) = (NodeId(from), Incarnation(incarnation));
        self.give(Input::Message { from, incarnation, message });
    }

    pub(super) fn beat(&mut self, from: u16, incarnation: u32, beat: GroupBeat) {
        let hears = vec![NodeId(1), NodeId(2), NodeId(3)];
        let heartbeat = Heartbeat { sent: self.now, hears, groups: vec![beat] };
        self.hear(from, incarnation, Message::Heartbeat(heartbeat));
    }

    /// The heartbeat of a node that hears these nodes.
    fn beat_hearing(&mut self, from: u16, heard: &[u16], beat: GroupBeat) {
        let hears = heard.iter().map(|&node| NodeId(node)).collect();
        let heartbeat = Heartbeat { sent: self.now, hears, groups: vec![beat] };
        self.hear(from, 1, Message::Heartbeat(heartbeat));
    }

    pub(super) fn wedge(&mut self, from: u16, value: &GroupValue, shown: &[Process]) {
        let (value, shown) = (raw(value), shown.to_vec());
        self.hear(from, 1, Message::Wedge { group: GROUP, value, shown });
    }
}

/// Reads that are under way.
pub(super) fn tokens(effects: &[Effect]) -> Vec<u64> {
    let token = |effect: &Effect| match effect {
        Effect::ReadRegister { token, .. } => Some(*token),
        _ => None,
    };
    effects.iter().filter_map(token).collect()
}

pub(super) fn lease_beat(node: u16, lease: u32) -> GroupBeat {
    let report = report(node, Content::Whole);
    GroupBeat { group: GROUP, lease: Epoch(lease), report, stalled: Vec::new() }
}

fn granted(effects: &[Effect]) -> Vec<Epoch> {
    let epochs = |effect: &Effect| match effect {
        Effect::Send { message: Message::Grants(grants), .. } => grants.granted.clone(),
        _ => Vec::new(),
    };
    effects.iter().flat_map(epochs).map(|(_, epoch)| epoch).collect()
}

fn wedged(effects: &[Effect]) -> Vec<(Epoch, bool)> {
    let answer = |effect: &Effect| match effect {
        Effect::Send { message: Message::Wedged(one), .. } => Some((one.epoch, one.may_activate)),
        _ => None,
    };
    effects.iter().filter_map(answer).collect()
}

pub(super) fn swapped(effects: &[Effect]) -> Vec<GroupValue> {
    let value = |effect: &Effect| match effect {
        Effect::SwapRegister { new, .. } => GroupValue::read(new).ok(),
        _ => None,
    };
    effects.iter().filter_map(value).collect()
}

fn swap_token(effects: &[Effect]) -> u64 {
    let token = |effect: &Effect| match effect {
        Effect::SwapRegister { token, .. } => Some(*token),
        _ => None,
    };
    effects.iter().find_map(token).expect("a swap is under way")
}

pub(super) fn has_installed(effects: &[Effect]) -> Vec<(Epoch, Option<Role>)> {
    let role = |effect: &Effect| match effect {
        Effect::Install { configuration, role, .. } => Some((configuration.epoch, *role)),
        _ => None,
    };
    effects.iter().filter_map(role).collect()
}

fn leases(effects: &[Effect]) -> Vec<Nanos> {
    let until = |effect: &Effect| match effect {
        Effect::SetLease { until, .. } => Some(*until),
        _ => None,
    };
    effects.iter().filter_map(until).collect()
}

// Trap 1.
#[test]
fn lease_counts_from_the_sending() {
    let (mut single, _) = Single::member();
    single.take();
    let sent = ms(1_060);
    single.tick_at(sent);
    single.now = sent + ms(60);
    let granted = vec![(GROUP, Epoch(1))];
    let grants = Grants { to: Incarnation(1), sent, granted, refused: Vec::new() };
    single.hear(2, 1, Message::Grants(grants.clone()));
    assert_eq!(leases(&single.take()), [sent + ms(400)]);
    // M8: to another process of this node.
    single.now = sent + ms(90);
    single.hear(3, 1, Message::Grants(Grants { to: Incarnation(0), sent: single.now, ..grants }));
    assert_eq!(leases(&single.take()), []);
}

// M8.
#[test]
pub(super) fn grants_of_an_earlier_epoch_do_not_count() {
    let (mut single, value) = Single::member();
    single.pass(ms(60), &[(2, lease_beat(2, 1))]);
    let granted = |epoch, sent| {
        let granted = vec![(GROUP, Epoch(epoch))];
        Message::Grants(Grants { to: Incarnation(1), sent, granted, refused: Vec::new() })
    };
    single.hear(2, 1, granted(1, single.now));
    assert_eq!(leases(&single.take()).len(), 1);
    let members = [full(1), full(2), full(3)];
    let next = GroupValue { phase: Phase::Active, ..wedging(&value, &members) };
    single.hear(2, 1, Message::Install { group: GROUP, value: raw(&next) });
    single.seal(2);
    assert_eq!(leases(&single.pass(ms(60), &[])), []);
    single.hear(2, 1, granted(2, single.now));
    assert_eq!(leases(&single.take()), [single.now - ms(0) + ms(400)]);
}

// Trap 9: one member of three servers has no lease by its own grant.
#[test]
fn quorum_is_of_all_servers() {
    let mut single = Single::start(Some(record(1, Content::Whole)));
    single.answer_read(Some(raw(&active(1, &[full(1)]))));
    single.seal(1);
    assert_eq!(leases(&single.tick_at(ms(1_060))), []);
}

// Trap 2 and M2, M8.
#[test]
pub(super) fn restarted_granter_waits_for_its_former_grants() {
    let mut single = Single::start(Some(record(2, Content::Whole)));
    let mut before = active(1, &[full(1), full(2), full(3)]);
    before.configuration.lease = ms(700);
    let value = wedging(&before, &[full(1), full(2)]);
    single.answer_read(Some(raw(&value)));
    single.take();
    single.now = ms(1_010);
    single.wedge(2, &value, &[]);
    assert_eq!(wedged(&single.take()), [], "the workers have not sealed");
    single.seal(2);
    assert_eq!(wedged(&single.take()), [(Epoch(2), false)]);
    single.wedge(2, &value, &[]);
    assert_eq!(wedged(&single.take()), [(Epoch(2), false)], "a repeated wedge is answered");
    let mut answers = Vec::new();
    while answers.is_empty() {
        let next = single.service.deadline().expect("a group ticks");
        answers = wedged(&single.tick_at(next));
    }
    assert_eq!(answers, [(Epoch(2), true)]);
    assert_eq!(single.now, ms(1_000) + Timing::default().stretched(ms(700)));
}

// Trap 3.
#[test]
fn wiped_member_comes_back_with_another_image() {
    let mut single = Single::start(None);
    let image = single.service.status(GROUP).expect("a group").record.image;
    assert_ne!(image, IMAGE);
    single.answer_read(Some(raw(&active(1, &[full(1), full(2), full(3)]))));
    single.seal(1);
    assert_eq!(has_installed(&single.take()), [(Epoch(1), None)]);
    single.give(Input::Erased { group: GROUP, image });
    assert_eq!(single.service.status(GROUP).expect("a group").record.content, Content::Blank);
}

// Trap 5: the loser of two changes.
#[test]
fn removed_member_stops_and_erases_its_image() {
    let (mut single, value) = Single::member();
    single.beat(2, 1, lease_beat(2, 1));
    single.take();
    let next = GroupValue { phase: Phase::Active, ..wedging(&value, &[full(2), full(3)]) };
    single.hear(2, 1, Message::Install { group: GROUP, value: raw(&next) });
    let effects = single.take();
    assert!(matches!(
        effects[..3],
        [Effect::ClearLease { .. }, Effect::Wedge { .. }, Effect::Persist { .. }]
    ));
    let erases = |effect: &Effect| matches!(effect, Effect::Erase { image, .. } if *image != IMAGE);
    assert!(effects.iter().any(erases), "{effects:?}");
    assert_eq!(has_installed(&effects), [], "not before its workers have sealed");
    single.seal(2);
    assert_eq!(has_installed(&single.take()), [(Epoch(2), None)]);
}

// M11.
#[test]
pub(super) fn late_install_is_ignored() {
    let (mut single, value) = Single::member();
    let members = [full(1), full(2), full(3)];
    let second = GroupValue { phase: Phase::Active, ..wedging(&value, &members) };
    single.wedge(2, &wedging(&second, &[full(1), full(2)]), &[]);
    single.seal(3);
    single.take();
    single.hear(2, 1, Message::Install { group: GROUP, value: raw(&second) });
    assert_eq!(has_installed(&single.take()), []);
}

#[test]
fn silent_member_is_left_out() {
    let (mut single, _) = Single::member();
    single.pass(ms(100), &[(2, lease_beat(2, 1)), (3, lease_beat(3, 1))]);
    let effects = single.pass(ms(280), &[(2, lease_beat(2, 1))]);
    assert_eq!(swapped(&effects), [], "node 3 has not been silent for long enough");
    let effects = single.pass(ms(60), &[(2, lease_beat(2, 1))]);
    let values = swapped(&effects);
    assert_eq!(values.len(), 1);
    assert_eq!(values[0].members(), [full(1), full(2)]);
    assert_eq!((values[0].epoch(), values[0].phase), (Epoch(2), Phase::Wedging));
}

/// A node that cannot keep up would join, fall silent, and join again for ever.
#[test]
fn shadow_that_fell_silent_stays_out_for_a_while() {
    let mut single = Single::start(Some(record(1, Content::Whole)));
    let value = active(1, &[full(1), full(2), shadow(3)]);
    single.answer_read(Some(raw(&value)));
    single.seal(1);
    single.pass(ms(100), &[(2, lease_beat(2, 1)), (3, lease_beat(3, 0))]);
    let effects = single.pass(ms(340), &[(2, lease_beat(2, 1))]);
    assert_eq!(swapped(&effects)[0].members(), [full(1), full(2)]);
    let next = GroupValue { phase: Phase::Active, ..wedging(&value, &[full(1), full(2)]) };
    single.register = Some(raw(&next));
    // Node 2 was faster with the same change.
    let result = RegisterResult::Swapped { done: false, value: Some(raw(&next)) };
    single.give(Input::Register { group: GROUP, token: swap_token(&effects), result });
    single.seal(2);
    let blank = ImageReport { promised: Epoch(2), ..report(3, Content::Blank) };
    let empty = GroupBeat { report: blank, ..lease_beat(3, 0) };
    let beats = [(2, lease_beat(2, 2)), (3, empty)];
    assert_eq!(swapped(&single.pass(ms(1_500), &beats)), []);
    let values = swapped(&single.pass(ms(1_000), &beats));
    let nodes: Vec<NodeId> = values[0].members().iter().map(|member| member.node).collect();
    assert_eq!(nodes, [NodeId(1), NodeId(2), NodeId(3)]);
}

/// When all nodes start, some take longer than others.
#[test]
fn starting_members_are_waited_for() {
    let (mut single, _) = Single::member();
    let effects = single.pass(ms(2_900), &[(2, lease_beat(2, 1))]);
    assert_eq!(swapped(&effects), [], "node 3 was not heard yet");
    let effects = single.pass(ms(200), &[(2, lease_beat(2, 1))]);
    assert_eq!(swapped(&effects)[0].members(), [full(1), full(2)]);
}

/// The last nodes of a restart may come long after the first one.
#[test]
fn starting_members_are_waited_for_since_a_majority_is_there() {
    let (mut single, _) = Single::member();
    let mut effects = single.pass(ms(5_000), &[]);
    effects.extend(single.pass(ms(2_900), &[(2, lease_beat(2, 1))]));
    assert_eq!(swapped(&effects), [], "node 3 was not heard yet");
    let effects = single.pass(ms(200), &[(2, lease_beat(2, 1))]);
    assert_eq!(swapped(&effects)[0].members(), [full(1), full(2)]);
}

/// A node whose steps all take long still finds a dead peer.
#[test]
fn slow_steps_excuse_a_silent_peer_for_a_while_only() {
    let (mut single, _) = Single::member();
    single.pass(ms(340), &[(2, lease_beat(2, 1)), (3, lease_beat(3, 1))]);
    let slow_step = |single: &mut Single| {
        single.now += ms(200);
        single.beat_hearing(2, &[1, 2], lease_beat(2, 1));
        single.take().iter().chain(&single.tick_at(single.now)).cloned().collect::<Vec<_>>()
    };
    let mut effects = Vec::new();
    (0..4).for_each(|_| effects.extend(slow_step(&mut single)));
    assert_eq!(swapped(&effects), [], "this node may have been deaf");
    (0..4).for_each(|_| effects.extend(slow_step(&mut single)));
    assert_eq!(swapped(&effects)[0].members(), [full(1), full(2)]);
}

#[test]
fn member_without_a_report_is_not_waited_for_longer() {
    let (mut single, _) = Single::member();
    let mut effects = Vec::new();
    for _ in 0..200 {
        single.beat(2, 1, lease_beat(2, 1));
        let heartbeat = Heartbeat { sent: single.now, hears: Vec::new(), groups: Vec::new() };
        single.hear(3, 1, Message::Heartbeat(heartbeat));
        effects.extend(single.tick_at(single.now + ms(20)));
    }
    assert_eq!(swapped(&effects)[0].members(), [full(1), full(2)]);
}

// Trap 6: slow heartbeats change a configuration at most once per span.
#[test]
fn silence_soon_after_a_change_waits() {
    let (mut single, value) = Single::member();
    single.beat(3, 1, lease_beat(3, 1));
    single.pass(ms(240), &[(2, lease_beat(2, 1))]);
    let members = [full(1), full(2), full(3)];
    let next = GroupValue { phase: Phase::Active, ..wedging(&value, &members) };
    single.hear(2, 1, Message::Install { group: GROUP, value: raw(&next) });
    single.seal(2);
    let effects = single.pass(ms(280), &[(2, lease_beat(2, 2))]);
    assert_eq!(swapped(&effects), [], "node 3 is silent, but the epoch is young");
    let effects = single.pass(ms(40), &[(2, lease_beat(2, 2))]);
    assert_eq!(swapped(&effects)[0].members(), [full(1), full(2)]);
}

#[test]
fn restarted_member_is_renamed_at_once() {
    let (mut single, _) = Single::member();
    single.pass(ms(40), &[(2, lease_beat(2, 1)), (3, lease_beat(3, 1))]);
    single.beat(3, 2, lease_beat(3, 0));
    let values = swapped(&single.tick_at(single.now + MS));
    let again = GroupMember { incarnation: Incarnation(2), serial: Serial(20), ..full(3) };
    assert_eq!(values[0].members(), [full(1), full(2), again], "it keeps its place");
    assert_eq!(values[0].next_serial, 21);
}

// Trap 7.
#[test]
pub(super) fn member_that_does_not_acknowledge_is_left_out() {
    let (mut single, _) = Single::member();
    let beats = [(2, lease_beat(2, 1)), (3, lease_beat(3, 1))];
    single.pass(ms(340), &beats);
    single.give(Input::Suspect { group: GROUP, node: NodeId(3) });
    let accusing = GroupBeat { stalled: vec![NodeId(3)], ..lease_beat(2, 1) };
    let effects = single.pass(ms(40), &[(2, accusing), (3, lease_beat(3, 1))]);
    assert_eq!(swapped(&effects)[0].members(), [full(1), full(2)]);
}

// M1 and trap 4: a heartbeat leads to a read, and the read seals.
#[test]
pub(super) fn every_rise_of_the_promise_seals() {
    let (mut single, value) = Single::member();
    single.take();
    single.now = ms(1_100);
    single.beat(2, 1, lease_beat(2, 2));
    assert_eq!(granted(&single.out), []);
    let next = GroupValue { phase: Phase::Active, ..wedging(&value, &[full(1), full(2)]) };
    single.answer_read(Some(raw(&next)));
    let effects = single.take();
    let place = |wanted: fn(&Effect) -> bool| effects.iter().position(wanted);
    let cleared = place(|effect| matches!(effect, Effect::ClearLease { .. }));
    let sealed = place(|effect| matches!(effect, Effect::Wedge { epoch: Epoch(2), .. }));
    let kept = place(
        |effect| matches!(effect, Effect::Persist { record, .. } if record.promised == Epoch(2)),
    );
    assert!(cleared.is_some() && cleared < sealed && sealed < kept, "{effects:?}");
    single.beat(2, 1, lease_beat(2, 2));
    assert_eq!(granted(&single.take()), [], "not before the workers have sealed");
    single.seal(2);
    assert_eq!(has_installed(&single.take()), [(Epoch(2), Some(Role::Full))]);
    single.beat(2, 1, lease_beat(2, 2));
    assert_eq!(granted(&single.take()), [Epoch(2)]);
}

// M4: no answer before the register was read.
#[test]
pub(super) fn node_without_record_does_not_answer_before_it_read() {
    let mut single = Single::start(None);
    let value = active(1, &[full(2), full(3)]);
    single.hear(2, 1, Message::Install { group: GROUP, value: raw(&value) });
    single.seal(1);
    single.beat(2, 1, lease_beat(2, 1));
    let effects = single.take();
    assert!(granted(&effects).is_empty() && has_installed(&effects).is_empty(), "{effects:?}");
    let next = wedging(&value, &[full(2)]);
    single.wedge(2, &next, &[]);
    single.seal(2);
    assert_eq!(wedged(&single.take()), []);
}

/// A granter of node 3's lease that is asked to agree to its removal.
fn granter() -> (Single, GroupValue) {
    let (mut single, value) = Single::member();
    // The quarantine is over.
    single.pass(ms(500), &[(2, lease_beat(2, 1)), (3, lease_beat(3, 1))]);
    let next = wedging(&value, &[full(1), full(2)]);
    let sealed = Process { node: NodeId(2), incarnation: Incarnation(1), image: ImageId(102) };
    single.wedge(2, &next, &[sealed]);
    single.seal(2);
    assert_eq!(wedged(&single.take()), [(Epoch(2), false)], "node 3 may hold a lease");
    (single, next)
}

#[test]
fn seal_of_the_holder_ends_the_wait() {
    let (mut single, next) = granter();
    let sealed = |node: u16| Process {
        node: NodeId(node),
        incarnation: Incarnation(1),
        image: ImageId(100 + u64::from(node)),
    };
    let own = Process { node: NodeId(1), ..sealed(1) };
    single.wedge(2, &next, &[own, sealed(2), sealed(3)]);
    assert_eq!(wedged(&single.take()), [(Epoch(2), true)]);
}

#[test]
pub(super) fn later_process_ends_the_wait_only_with_its_image() {
    let own = Process { node: NodeId(1), incarnation: Incarnation(1), image: IMAGE };
    for (image, agrees) in [(103, true), (999, false)] {
        let (mut single, next) = granter();
        let mut beat = lease_beat(3, 0);
        beat.report.image = ImageId(image);
        single.beat(3, 2, beat);
        single.wedge(2, &next, &[own]);
        assert_eq!(wedged(&single.take()), [(Epoch(2), agrees)]);
    }
}

// M7.
#[test]
fn wedged_member_asks_for_no_lease() {
    let (mut single, value) = Single::member();
    single.wedge(2, &wedging(&value, &[full(1), full(2)]), &[]);
    single.seal(2);
    single.take();
    let effects = single.tick_at(ms(1_060));
    let asks = |effect: &Effect| match effect {
        Effect::Send { message: Message::Heartbeat(heartbeat), .. } => {
            heartbeat.groups.iter().all(|beat| beat.lease == Epoch(0))
        }
        _ => true,
    };
    assert!(effects.len() >= 2 && effects.iter().all(asks), "{effects:?}");
}

// M10.
#[test]
pub(super) fn node_looks_for_a_value_that_it_has_not_installed() {
    let (mut single, value) = Single::member();
    single.wedge(2, &wedging(&value, &[full(1), full(2)]), &[]);
    single.seal(2);
    single.take();
    let effects = single.pass(ms(320), &[(2, lease_beat(2, 0))]);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::ReadRegister { .. })));
}

// M11.
#[test]
pub(super) fn swap_of_unknown_outcome_is_read_first() {
    let (mut single, _) = Single::member();
    single.pass(ms(100), &[(2, lease_beat(2, 1)), (3, lease_beat(3, 1))]);
    let effects = single.pass(ms(350), &[(2, lease_beat(2, 1))]);
    let token = |effect: &Effect| match effect {
        Effect::SwapRegister { token, .. } => Some(*token),
        _ => None,
    };
    let token = effects.iter().find_map(token).expect("node 3 is to be removed");
    let value = swapped(&effects).remove(0);
    single.give(Input::Register { group: GROUP, token, result: RegisterResult::Unknown });
    let effects = single.take();
    let sends =
        |effect: &Effect| matches!(effect, Effect::Send { message: Message::Wedge { .. }, .. });
    assert!(!effects.iter().any(sends));
    single.out = effects;
    single.answer_read(Some(raw(&value)));
    let effects = single.tick_at(single.now + ms(60));
    assert!(effects.iter().any(sends), "the register holds it");
}

// M6.
#[test]
pub(super) fn member_without_seal_is_distrusted() {
    let (mut single, _) = Single::member();
    single.pass(ms(340), &[(2, lease_beat(2, 1)), (3, lease_beat(3, 1))]);
    // Node 3 restarts; node 2 is heard and never seals.
    single.beat(3, 2, lease_beat(3, 0));
    let mut effects = single.tick_at(single.now + MS);
    let value = swapped(&effects).remove(0);
    let result = RegisterResult::Swapped { done: true, value: Some(raw(&value)) };
    single.register = Some(raw(&value));
    single.give(Input::Register { group: GROUP, token: swap_token(&effects), result });
    single.seal(2);
    let image = report(3, Content::Whole);
    let seal = Wedged {
        group: GROUP,
        epoch: Epoch(2),
        report: image,
        summary: Bytes::new(),
        may_activate: true,
    };
    single.hear(3, 2, Message::Wedged(seal));
    effects = Vec::new();
    for _ in 0..60 {
        single.beat(2, 1, lease_beat(2, 0));
        single.beat(3, 2, lease_beat(3, 0));
        effects.extend(single.tick_at(single.now + ms(20)));
    }
    let last = swapped(&effects).pop().expect("a change without node 2");
    let nodes: Vec<NodeId> = last.members().iter().map(|member| member.node).collect();
    assert_eq!((last.epoch(), nodes), (Epoch(3), vec![NodeId(1), NodeId(3)]));
}

/// Sent before each flush, which may take long. It claims no more.
#[test]
fn pulse_shows_only_that_the_node_lives() {
    let (mut single, _) = Single::member();
    single.take();
    single.service.pulse(single.now, &mut single.out);
    let pulse = Heartbeat { sent: single.now, hears: Vec::new(), groups: Vec::new() };
    let send = |to| Effect::Send { to: NodeId(to), message: Message::Heartbeat(pulse.clone()) };
    assert_eq!(single.take(), [send(2), send(3)]);
}

#[test]
fn register_below_the_promise_is_reported() {
    let mut single = Single::start(Some(record(3, Content::Whole)));
    single.answer_read(Some(raw(&active(2, &[full(1), full(2)]))));
    let unreadable = Effect::Report(Report::Unreadable { group: GROUP });
    assert!(single.take().contains(&unreadable));
    assert!(!single.service.status(GROUP).expect("a group").is_ready);
}
