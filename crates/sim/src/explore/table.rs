//! States and steps of single nodes, each computed once.
//!
//! A step depends only on the node's state and its input. States are numbered in order of
//! discovery. To restore a state, replay the inputs that led to it first, unless the last step
//! ended there.

use std::fmt::Debug;
use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;
use protocols::Protocol;

use super::clients::{CommandEnd, IssuedCommand, Outcomes, ended};
use super::dead::known_effect;
use super::node::{ExploredNode, Input, SentMessage, Setting};

/// Hashes keys, which are small numbers or hashes.
#[derive(Default)]
pub(super) struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = base::checksum::checksum(self.0, bytes);
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u128(&mut self, number: u128) {
        self.0 ^= number as u64;
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }
}

pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mixed>>;

/// The result of one step.
pub(super) struct NodeStep {
    pub next: u32,
    /// Messages by number, with their addressees.
    pub sends: Vec<(u32, usize)>,
    pub ended: Vec<(u64, CommandEnd)>,
    pub copied: Option<u32>,
}

impl NodeStep {
    /// True unless it leaves that state without an output.
    pub(super) fn changes(&self, state: u32) -> bool {
        let is_silent = self.sends.is_empty() && self.ended.is_empty() && self.copied.is_none();
        self.next != state || !is_silent
    }
}

/// The path to a state, and facts about it.
struct KnownState {
    /// `None`: the beginning.
    from: Option<(u32, Input)>,
    node: usize,
    has_timers: bool,
    /// States that follow by one step.
    successors: Vec<u32>,
    /// Messages that change something.
    effective: Vec<u32>,
}

pub(super) struct StepTable<P: Protocol> {
    setting: Setting,
    known: Vec<KnownState>,
    by_digest: Map<(u32, u128), u32>,
    steps: Map<(u32, Input), u32>,
    computed: Vec<Result<NodeStep, String>>,
    envelopes: Vec<SentMessage>,
    by_envelope: Map<SentMessage, u32>,
    /// Sets of outcomes of commands, each with the violation found in it.
    outcomes: Vec<(Outcomes, Option<String>)>,
    by_outcomes: Map<Outcomes, u32>,
    /// One node each, as the last step of it left it.
    warm: Vec<Option<(u32, ExploredNode<P>)>>,
}

impl<P: Protocol + Debug> StepTable<P> {
    /// The initial states have the numbers of their nodes.
    pub(super) fn new(setting: Setting) -> StepTable<P> {
        let count = setting.ids.len();
        let mut table = StepTable {
            setting,
            known: Vec::new(),
            by_digest: Map::default(),
            steps: Map::default(),
            computed: Vec::new(),
            envelopes: Vec::new(),
            by_envelope: Map::default(),
            outcomes: Vec::new(),
            by_outcomes: Map::default(),
            warm: (0..count).map(|_| None).collect(),
        };
        for index in 0..count {
            let node = ExploredNode::new(&table.setting, index);
            table.number(index, &node, None);
        }
        table
    }

    pub(super) fn setting(&self) -> &Setting {
        &self.setting
    }

    /// States of single nodes that were met.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn has_timers(&self, state: u32) -> bool {
        self.known[state as usize].has_timers
    }

    pub(super) fn successors(&self, state: u32) -> &[u32] {
        &self.known[state as usize].successors
    }

    pub(super) fn effective(&self, state: u32) -> impl Iterator<Item = u32> + '_ {
        self.known[state as usize].effective.iter().copied()
    }

    /// Messages that were met.
    pub(super) fn messages(&self) -> u32 {
        self.envelopes.len() as u32
    }

    pub(super) fn known_step(&self, state: u32, input: Input) -> Option<&Result<NodeStep, String>> {
        self.steps.get(&(state, input)).map(|&index| &self.computed[index as usize])
    }

    pub(super) fn envelope(&self, number: u32) -> &SentMessage {
        &self.envelopes[number as usize]
    }

    pub(super) fn outcomes(&self, number: u32) -> &Outcomes {
        &self.outcomes[number as usize].0
    }

    /// The violation in a set of outcomes.
    pub(super) fn fault(&self, outcomes: u32) -> Option<&String> {
        self.outcomes[outcomes as usize].1.as_ref()
    }

    /// Numbers a set of outcomes; judges a new one.
    pub(super) fn number_outcomes(
        &mut self,
        outcomes: Outcomes,
        judge: impl FnOnce(&Outcomes) -> Result<(), String>,
    ) -> u32 {
        if let Some(&number) = self.by_outcomes.get(&outcomes) {
            return number;
        }
        let number = self.outcomes.len() as u32;
        let fault = judge(&outcomes).err();
        self.outcomes.push((outcomes.clone(), fault));
        self.by_outcomes.insert(outcomes, number);
        number
    }

    fn number(&mut self, index: usize, node: &ExploredNode<P>, from: Option<(u32, Input)>) -> u32 {
        let digest = (index as u32, node.digest(&self.setting));
        let next = self.known.len() as u32;
        let number = *self.by_digest.entry(digest).or_insert(next);
        if number == next {
            self.known.push(KnownState {
                from,
                node: index,
                has_timers: node.has_timers(),
                successors: Vec::new(),
                effective: Vec::new(),
            });
        }
        number
    }

    /// The step from a state by an input.
    ///
    /// # Errors
    /// A broken rule.
    pub(super) fn step(&mut self, state: u32, input: Input) -> Result<&NodeStep, String> {
        let index = match self.steps.get(&(state, input)) {
            Some(&index) => index,
            None => {
                let step = self.compute(state, input);
                self.note(state, input, &step);
                let index = self.computed.len() as u32;
                self.computed.push(step);
                self.steps.insert((state, input), index);
                index
            }
        };
        self.computed[index as usize].as_ref().map_err(Clone::clone)
    }

    fn compute(&mut self, state: u32, input: Input) -> Result<NodeStep, String> {
        let index = self.known[state as usize].node;
        let mut node = self.node_in(state);
        let envelope = self.arriving(input);
        let output = node.take(&self.setting, input, envelope)?;
        let next = self.number(index, &node, Some((state, input)));
        self.warm[index] = Some((next, node));
        let mut sends = Vec::new();
        for envelope in output.sends {
            let to = envelope.to;
            sends.push((self.number_envelope(envelope), to));
        }
        Ok(NodeStep { next, sends, ended: output.ended, copied: output.copied })
    }

    fn note(&mut self, state: u32, input: Input, step: &Result<NodeStep, String>) {
        let known = &mut self.known[state as usize];
        let changes = step.as_ref().map_or(true, |step| step.changes(state));
        if let Input::Deliver(message) = input
            && changes
        {
            known.effective.push(message);
        }
        if let Ok(step) = step
            && step.next != state
            && !known.successors.contains(&step.next)
        {
            known.successors.push(step.next);
        }
    }

    /// Delivers messages for trial and records their effects; false if any has one.
    pub(super) fn changes_nothing(
        &mut self,
        state: u32,
        messages: impl Iterator<Item = u32>,
    ) -> bool {
        let mut is_nothing = true;
        let mut node = None;
        for message in messages {
            if let Some(changes) = known_effect(self, state, message) {
                is_nothing &= !changes;
                continue;
            }
            let mut tried = node.take().unwrap_or_else(|| self.node_in(state));
            let digest = tried.digest(&self.setting);
            let envelope = Some(self.envelope(message).clone());
            let output = tried.take(&self.setting, Input::Deliver(message), envelope);
            let is_silent = output.is_ok_and(|output| {
                output.sends.is_empty() && output.ended.is_empty() && output.copied.is_none()
            });
            if is_silent && tried.digest(&self.setting) == digest {
                node = Some(tried);
                let index = self.computed.len() as u32;
                let (sends, ended) = (Vec::new(), Vec::new());
                let nothing = NodeStep { next: state, sends, ended, copied: None };
                self.computed.push(Ok(nothing));
                self.steps.insert((state, Input::Deliver(message)), index);
            } else {
                self.known[state as usize].effective.push(message);
                is_nothing = false;
            }
        }
        is_nothing
    }

    fn arriving(&self, input: Input) -> Option<SentMessage> {
        let Input::Deliver(number) = input else { return None };
        Some(self.envelope(number).clone())
    }

    fn number_envelope(&mut self, envelope: SentMessage) -> u32 {
        if let Some(&number) = self.by_envelope.get(&envelope) {
            return number;
        }
        let number = self.envelopes.len() as u32;
        self.envelopes.push(envelope.clone());
        self.by_envelope.insert(envelope, number);
        number
    }

    /// A node in that state.
    pub(super) fn node_in(&mut self, state: u32) -> ExploredNode<P> {
        let index = self.known[state as usize].node;
        if let Some((_, node)) = self.warm[index].take_if(|(warm, _)| *warm == state) {
            return node;
        }
        let mut inputs = Vec::new();
        let mut at = state;
        while let Some((from, input)) = self.known[at as usize].from {
            inputs.push(input);
            at = from;
        }
        let mut node = ExploredNode::new(&self.setting, index);
        for input in inputs.into_iter().rev() {
            let envelope = self.arriving(input);
            node.take(&self.setting, input, envelope).expect("it went well before");
        }
        node
    }
}

/// Issues a command.
pub(super) fn ask(outcomes: &Outcomes, number: usize) -> Outcomes {
    let mut next = outcomes.clone();
    next[number] = Some(IssuedCommand { after: ended(outcomes), ended: None });
    next
}

/// Ends a command.
///
/// # Errors
/// If it had ended.
pub(super) fn end(
    outcomes: &Outcomes,
    number: usize,
    with: CommandEnd,
) -> Result<Outcomes, String> {
    let mut next = outcomes.clone();
    match &mut next[number] {
        Some(IssuedCommand { ended: place @ None, .. }) => *place = Some(with),
        _ => return Err(format!("command {number} was answered twice, or never asked")),
    }
    Ok(next)
}
