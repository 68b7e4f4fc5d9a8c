//! States and steps of single nodes, each computed once.
//!
//! A step depends only on the node's state and its input. States are numbered in order of
//! discovery.
//! To restore a state, replay the inputs that led to it first, unless the last step ended there.

use std::fmt::Debug;
use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;
use protocols::Protocol;

use super::clients::{Asked, Ended, Told, ended};
use super::dead::known_effect;
use super::node::{Envelope, Input, Node, Setting};

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
pub(super) struct Step {
    pub next: u32,
    /// Messages by number, with their addressees.
    pub sends: Vec<(u32, usize)>,
    pub ended: Vec<(u64, Ended)>,
}

impl Step {
    /// True unless it leaves that state without an output.
    pub(super) fn changes(&self, state: u32) -> bool {
        self.next != state || !self.sends.is_empty() || !self.ended.is_empty()
    }
}

/// The path to a state, and facts about it.
struct Known {
    /// `None`: the beginning.
    from: Option<(u32, Input)>,
    node: usize,
    has_timers: bool,
    /// States that follow by one step.
    successors: Vec<u32>,
    /// Messages that change something.
    effective: Vec<u32>,
}

pub(super) struct Table<P: Protocol> {
    setting: Setting,
    known: Vec<Known>,
    by_digest: Map<(u32, u128), u32>,
    steps: Map<(u32, Input), u32>,
    computed: Vec<Result<Step, String>>,
    envelopes: Vec<Envelope>,
    by_envelope: Map<Envelope, u32>,
    /// Sets of outcomes of commands, each with the violation found in it.
    told: Vec<(Told, Option<String>)>,
    by_told: Map<Told, u32>,
    /// One node each, as the last step of it left it.
    warm: Vec<Option<(u32, Node<P>)>>,
}

impl<P: Protocol + Debug> Table<P> {
    /// The initial states have the numbers of their nodes.
    pub(super) fn new(setting: Setting) -> Table<P> {
        let count = setting.ids.len();
        let mut table = Table {
            setting,
            known: Vec::new(),
            by_digest: Map::default(),
            steps: Map::default(),
            computed: Vec::new(),
            envelopes: Vec::new(),
            by_envelope: Map::default(),
            told: Vec::new(),
            by_told: Map::default(),
            warm: (0..count).map(|_| None).collect(),
        };
        for index in 0..count {
            let node = Node::new(&table.setting, index);
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

    pub(super) fn known_step(&self, state: u32, input: Input) -> Option<&Result<Step, String>> {
        self.steps.get(&(state, input)).map(|&index| &self.computed[index as usize])
    }

    pub(super) fn envelope(&self, number: u32) -> &Envelope {
        &self.envelopes[number as usize]
    }

    pub(super) fn told(&self, number: u32) -> &Told {
        &self.told[number as usize].0
    }

    /// The violation in a set of outcomes.
    pub(super) fn fault(&self, told: u32) -> Option<&String> {
        self.told[told as usize].1.as_ref()
    }

    /// Numbers a set of outcomes; judges a new one.
    pub(super) fn number_told(
        &mut self,
        told: Told,
        judge: impl FnOnce(&Told) -> Result<(), String>,
    ) -> u32 {
        if let Some(&number) = self.by_told.get(&told) {
            return number;
        }
        let number = self.told.len() as u32;
        let fault = judge(&told).err();
        self.told.push((told.clone(), fault));
        self.by_told.insert(told, number);
        number
    }

    fn number(&mut self, index: usize, node: &Node<P>, from: Option<(u32, Input)>) -> u32 {
        let digest = (index as u32, node.digest(&self.setting));
        let next = self.known.len() as u32;
        let number = *self.by_digest.entry(digest).or_insert(next);
        if number == next {
            self.known.push(Known {
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
    pub(super) fn step(&mut self, state: u32, input: Input) -> Result<&Step, String> {
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

    fn compute(&mut self, state: u32, input: Input) -> Result<Step, String> {
        let index = self.known[state as usize].node;
        let mut node = self.node_in(state);
        let envelope = self.arriving(input);
        let said = node.take(&self.setting, input, envelope)?;
        let next = self.number(index, &node, Some((state, input)));
        self.warm[index] = Some((next, node));
        let mut sends = Vec::new();
        for envelope in said.sends {
            let to = envelope.to;
            sends.push((self.number_envelope(envelope), to));
        }
        Ok(Step { next, sends, ended: said.ended })
    }

    fn note(&mut self, state: u32, input: Input, step: &Result<Step, String>) {
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
            let said = tried.take(&self.setting, Input::Deliver(message), envelope);
            let is_silent = said.is_ok_and(|said| said.sends.is_empty() && said.ended.is_empty());
            if is_silent && tried.digest(&self.setting) == digest {
                node = Some(tried);
                let index = self.computed.len() as u32;
                let nothing = Step { next: state, sends: Vec::new(), ended: Vec::new() };
                self.computed.push(Ok(nothing));
                self.steps.insert((state, Input::Deliver(message)), index);
            } else {
                self.known[state as usize].effective.push(message);
                is_nothing = false;
            }
        }
        is_nothing
    }

    fn arriving(&self, input: Input) -> Option<Envelope> {
        let Input::Deliver(number) = input else { return None };
        Some(self.envelope(number).clone())
    }

    fn number_envelope(&mut self, envelope: Envelope) -> u32 {
        if let Some(&number) = self.by_envelope.get(&envelope) {
            return number;
        }
        let number = self.envelopes.len() as u32;
        self.envelopes.push(envelope.clone());
        self.by_envelope.insert(envelope, number);
        number
    }

    /// A node in that state.
    pub(super) fn node_in(&mut self, state: u32) -> Node<P> {
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
        let mut node = Node::new(&self.setting, index);
        for input in inputs.into_iter().rev() {
            let envelope = self.arriving(input);
            node.take(&self.setting, input, envelope).expect("it went well before");
        }
        node
    }
}

/// Issues a command.
pub(super) fn ask(told: &Told, number: usize) -> Told {
    let mut next = told.clone();
    next[number] = Some(Asked { after: ended(told), ended: None });
    next
}

/// Ends a command.
///
/// # Errors
/// If it had ended.
pub(super) fn end(told: &Told, number: usize, with: Ended) -> Result<Told, String> {
    let mut next = told.clone();
    match &mut next[number] {
        Some(Asked { ended: place @ None, .. }) => *place = Some(with),
        _ => return Err(format!("command {number} was answered twice, or never asked")),
    }
    Ok(next)
}
