//! One small world: its possible events and their results. All parts are numbers that the table
//! explains.

use std::fmt::Debug;

use protocols::Protocol;
use types::{Key, NodeId, SessionId, Wire};

use super::clients::{self, CommandEnd, Outcomes, Planned};
use super::dead::DeadMessages;
use super::epochs::{self, Epochs};
use super::node::{Input, Setting, hash};
use super::table::{self, StepTable};
use super::{Budget, WorldPlan};
use crate::workload::update::encode;

/// A possible event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// The command of that number is issued.
    Ask(usize),
    /// The message of that number arrives.
    Deliver(u32),
    /// It arrives, and a copy stays under way.
    Duplicate(u32),
    /// A node's next timer fires.
    Fire(usize),
    /// A node stops for good.
    Stop(usize),
    /// A node starts again without its memory.
    Wipe(usize),
    /// A node starts again with its stored state.
    Restart(usize),
    /// A node seals the active epoch and those below.
    Wedge(usize),
    /// The next epoch begins: the register holds it.
    Activate,
    /// A node learns of the active epoch.
    Install(usize),
}

#[derive(Clone)]
pub(super) struct ExploredWorld {
    /// States of the nodes; `None` for a stopped one.
    nodes: Vec<Option<u32>>,
    /// Messages by number, sorted, because the order of sending has no effect.
    bag: Vec<u32>,
    outcomes: u32,
    left: Budget,
    epochs: Epochs,
}

/// The rules of a plan, and the table of all computed steps.
pub(super) struct Rules<P: Protocol> {
    pub table: StepTable<P>,
    pub dead: DeadMessages,
    planned: Vec<Planned>,
    clients: usize,
    budget: Budget,
    is_settled: bool,
}

/// Messages that nodes may exchange before they settle.
const SETTLING_MAX: usize = 10_000;

impl<P: Protocol + Debug> Rules<P> {
    pub(super) fn new(plan: &WorldPlan) -> Rules<P> {
        let mut planned = Vec::new();
        for (client, (node, inputs)) in plan.clients.iter().enumerate() {
            let node = usize::from(*node) - 1;
            planned.extend(inputs.iter().map(|input| Planned {
                client,
                node,
                input: input.clone(),
            }));
        }
        let session = |it: &Planned| SessionId(it.client as u64 + 1);
        let setting = Setting {
            ids: (1..=plan.nodes).map(NodeId).collect(),
            replicas: (1..=plan.replicas).map(NodeId).collect(),
            key: Key::new(b"key"),
            configurations: epochs::configurations(plan),
            is_durable: plan.budget.restarts > 0,
            has_timers: plan.budget.timers > 0,
            commands: planned.iter().map(|it| (session(it), encode(&it.input, 0))).collect(),
        };
        let clients = plan.clients.len();
        let (table, dead) = (StepTable::new(setting), DeadMessages::default());
        let is_settled = plan.is_settled;
        Rules { table, dead, planned, clients, budget: plan.budget, is_settled }
    }

    /// # Errors
    /// A broken rule on the way there.
    pub(super) fn first(&mut self) -> Result<ExploredWorld, String> {
        let mut world = self.new_world();
        if !self.is_settled {
            return Ok(world);
        }
        for node in 0..world.nodes.len() {
            self.apply(&mut world, node, Input::Begin)?;
        }
        for _ in 0..SETTLING_MAX {
            if world.bag.is_empty() {
                return Ok(world);
            }
            let message = world.bag.remove(0);
            self.apply(&mut world, self.table.envelope(message).to, Input::Deliver(message))?;
        }
        Err("the nodes never settle".into())
    }

    fn new_world(&mut self) -> ExploredWorld {
        let count = self.table.setting().ids.len();
        let nothing = self.planned.iter().map(|_| None).collect();
        let outcomes = self.table.number_outcomes(nothing, |_| Ok(()));
        let nodes = (0..count as u32).map(Some).collect();
        let epochs = Epochs::first(count);
        ExploredWorld { nodes, bag: Vec::new(), outcomes, left: self.budget, epochs }
    }

    /// All events that may happen now.
    pub(super) fn choices(&self, world: &ExploredWorld) -> Vec<Choice> {
        let mut choices = Vec::new();
        let setting = self.table.setting();
        let outcomes = self.table.outcomes(world.outcomes);
        if self.is_over(outcomes) {
            return choices;
        }
        for client in 0..self.clients {
            let next = clients::next_of(&self.planned, outcomes, client);
            let next = next.filter(|&it| world.nodes[self.planned[it].node].is_some());
            choices.extend(next.map(Choice::Ask));
        }
        for (at, &message) in world.bag.iter().enumerate() {
            // Copies of a message are interchangeable.
            if at > 0 && world.bag[at - 1] == message {
                continue;
            }
            choices.push(Choice::Deliver(message));
            if world.left.duplicates > 0 {
                choices.push(Choice::Duplicate(message));
            }
        }
        for (node, state) in world.nodes.iter().enumerate() {
            let Some(state) = *state else { continue };
            let left = world.left;
            let may_fire = left.timers > 0 && self.table.has_timers(state);
            choices.extend(may_fire.then_some(Choice::Fire(node)));
            choices.extend((left.stops > 0).then_some(Choice::Stop(node)));
            choices.extend((left.wipes > 0).then_some(Choice::Wipe(node)));
            choices.extend((left.restarts > 0).then_some(Choice::Restart(node)));
            choices.extend(world.epochs.may_wedge(setting, node).then_some(Choice::Wedge(node)));
            choices.extend(world.epochs.may_install(node).then_some(Choice::Install(node)));
        }
        choices.extend(world.epochs.may_activate(setting).then_some(Choice::Activate));
        choices
    }

    /// Every client has all its answers, so no outcome can change.
    fn is_over(&self, outcomes: &Outcomes) -> bool {
        outcomes.iter().all(|asked| asked.as_ref().is_some_and(|it| it.ended.is_some()))
    }

    /// The world after a choice; `None` where it only loses a message.
    ///
    /// # Errors
    /// A broken rule.
    pub(super) fn take(
        &mut self,
        world: &ExploredWorld,
        choice: Choice,
    ) -> Result<Option<ExploredWorld>, String> {
        let mut next = world.clone();
        match choice {
            Choice::Ask(number) => {
                let outcomes = table::ask(self.table.outcomes(next.outcomes), number);
                next.outcomes = self.number_outcomes(outcomes);
                self.apply(&mut next, self.planned[number].node, Input::Ask(number as u32))?;
            }
            Choice::Deliver(message) | Choice::Duplicate(message) => {
                let to = self.table.envelope(message).to;
                if !self.apply(&mut next, to, Input::Deliver(message))? {
                    return Ok(None);
                }
                if choice == Choice::Deliver(message) {
                    let at = next.bag.iter().position(|&it| it == message);
                    next.bag.remove(at.expect("it is on its way"));
                } else {
                    next.left.duplicates -= 1;
                }
            }
            Choice::Fire(node) => {
                next.left.timers -= 1;
                self.apply(&mut next, node, Input::Fire)?;
                if next.left.timers == 0 {
                    for node in 0..next.nodes.len() {
                        self.apply(&mut next, node, Input::Quiet)?;
                    }
                }
            }
            Choice::Stop(node) => {
                next.left.stops -= 1;
                next.nodes[node] = None;
                next.bag.retain(|&message| self.table.envelope(message).to != node);
                self.give_up(&mut next, node)?;
                self.tell_others(&mut next, node, Input::Gone)?;
            }
            Choice::Wipe(node) | Choice::Restart(node) => {
                self.give_up(&mut next, node)?;
                let input = if matches!(choice, Choice::Wipe(_)) {
                    next.left.wipes -= 1;
                    Input::Wipe
                } else {
                    next.left.restarts -= 1;
                    Input::Restart
                };
                self.apply(&mut next, node, input)?;
                self.tell_others(&mut next, node, Input::Back)?;
            }
            Choice::Wedge(node) => {
                let epoch = next.epochs.wedge(node);
                self.apply(&mut next, node, Input::Wedge(epoch))?;
            }
            Choice::Activate => {
                let epoch = next.epochs.activate();
                for node in 0..next.nodes.len() {
                    self.apply(&mut next, node, Input::EndLease(epoch))?;
                }
            }
            Choice::Install(node) => {
                let (epoch, must_seal) = next.epochs.install(node);
                if must_seal {
                    self.apply(&mut next, node, Input::Wedge(epoch))?;
                }
                self.apply(&mut next, node, Input::Install(epoch))?;
            }
        }
        self.drop_dead(&mut next);
        next.bag.sort_unstable();
        Ok(Some(next))
    }

    fn drop_dead(&mut self, world: &mut ExploredWorld) {
        let (table, dead, nodes) = (&self.table, &mut self.dead, &world.nodes);
        world.bag.retain(|&message| {
            let state = nodes[table.envelope(message).to];
            !state.is_some_and(|state| dead.drops(state, message))
        });
    }

    /// False where it had no effect.
    fn apply(
        &mut self,
        world: &mut ExploredWorld,
        node: usize,
        input: Input,
    ) -> Result<bool, String> {
        let Some(state) = world.nodes[node] else { return Ok(false) };
        let step =
            self.table.step(state, input).map_err(|reason| format!("n{}: {reason}", node + 1))?;
        let changes = step.changes(state);
        world.nodes[node] = Some(step.next);
        world.epochs.note_copied(node, step.copied);
        for &(message, to) in &step.sends {
            if world.nodes[to].is_some() {
                world.bag.push(message);
            }
        }
        if !step.ended.is_empty() {
            let ended = step.ended.clone();
            for (number, with) in ended {
                self.end(world, number as usize, with)?;
            }
        }
        Ok(changes)
    }

    fn end(
        &mut self,
        world: &mut ExploredWorld,
        number: usize,
        with: CommandEnd,
    ) -> Result<(), String> {
        let outcomes = table::end(self.table.outcomes(world.outcomes), number, with)?;
        world.outcomes = self.number_outcomes(outcomes);
        self.table.fault(world.outcomes).map_or(Ok(()), |reason| Err(reason.clone()))
    }

    fn number_outcomes(&mut self, outcomes: Outcomes) -> u32 {
        let consistency = P::PROPERTIES.consistency;
        let planned = &self.planned;
        self.table
            .number_outcomes(outcomes, |outcomes| clients::judge(planned, outcomes, consistency))
    }

    /// Gives up the outstanding commands of this node's clients.
    fn give_up(&mut self, world: &mut ExploredWorld, node: usize) -> Result<(), String> {
        for number in 0..self.planned.len() {
            let asked = &self.table.outcomes(world.outcomes)[number];
            let is_open = asked.as_ref().is_some_and(|it| it.ended.is_none());
            if self.planned[number].node == node && is_open {
                self.end(world, number, CommandEnd::Unknown)?;
            }
        }
        Ok(())
    }

    fn tell_others(
        &mut self,
        world: &mut ExploredWorld,
        node: usize,
        input: impl Fn(u16) -> Input,
    ) -> Result<(), String> {
        let id = self.table.setting().ids[node].0;
        for other in (0..world.nodes.len()).filter(|&other| other != node) {
            self.apply(world, other, input(id))?;
        }
        Ok(())
    }

    /// The choice in words, before it is taken.
    pub(super) fn words(&mut self, world: &ExploredWorld, choice: Choice) -> String {
        let message = |number: u32| {
            let envelope = self.table.envelope(number);
            let message = P::Message::from_bytes(&envelope.bytes).expect("it was encoded here");
            format!("n{} -> n{}  {message:?}", envelope.from.0.0, envelope.to + 1)
        };
        match choice {
            Choice::Ask(number) => {
                let it = &self.planned[number];
                format!("client {} asks n{}: {:?}", it.client, it.node + 1, it.input)
            }
            Choice::Deliver(number) => message(number),
            Choice::Duplicate(number) => format!("{}  (a copy stays)", message(number)),
            Choice::Fire(node) => {
                let state = world.nodes[node].expect("a node that stopped has no timers");
                let timer = self.table.node_in(state).next_timer();
                format!("n{} timer {timer:?}", node + 1)
            }
            Choice::Stop(node) => format!("n{} stops", node + 1),
            Choice::Wipe(node) => format!("n{} starts without its memory", node + 1),
            Choice::Restart(node) => format!("n{} starts with its stored state", node + 1),
            Choice::Wedge(node) => format!("n{} seals its epoch", node + 1),
            Choice::Activate => "the next epoch begins".to_string(),
            Choice::Install(node) => format!("n{} installs the active epoch", node + 1),
        }
    }
}

impl ExploredWorld {
    /// All that determines its future, in 128 bits.
    pub(super) fn digest(&self, scratch: &mut Vec<u8>) -> u128 {
        scratch.clear();
        for node in &self.nodes {
            scratch.extend(node.map_or(u32::MAX, |state| state).to_le_bytes());
        }
        scratch.extend(self.outcomes.to_le_bytes());
        let Budget { duplicates, stops, wipes, restarts, timers } = self.left;
        scratch.extend([duplicates, stops, wipes, restarts, timers]);
        self.epochs.add_to(scratch);
        self.bag.iter().for_each(|message| scratch.extend(message.to_le_bytes()));
        hash(scratch)
    }
}
