//! Marks that calls still need, and whether a remaining call could make them.
//!
//! A call that needs a lost mark can never be placed, unless a remaining call makes the mark again.
//! Without this check, a write placed too early shows only when its readers come, after a vain
//! search in between.

use std::hash::Hash;
use std::ops::Range;

use hashbrown::HashMap;

use crate::makers::Makers;
use crate::model::Model;
use crate::prepared::Prepared;

/// A mark that some required call needs, as an index.
pub(crate) type MarkIndex = u32;

/// Calls are named by their index in `Prepared::required`, then `Prepared::optional`.
pub(crate) struct Demand<K> {
    token_of: HashMap<K, MarkIndex>,
    // By token: required calls not placed that need it, calls not placed that may make it.
    needed: Vec<u32>,
    makers: Vec<u32>,
    // By call: the tokens it needs, and the part of `made` that lists the tokens it may make.
    needs: Vec<Box<[MarkIndex]>>,
    makes: Vec<Range<usize>>,
    made: Vec<MarkIndex>,
    // By call: whether it can do without the state before it.
    blind: Vec<bool>,
    // Calls not placed that are neither blind nor known to need a mark.
    unclear_count: u32,
}

impl<K: Clone + Eq + Hash> Demand<K> {
    pub(crate) fn new<M: Model<Mark = K>>(model: &M, prepared: &Prepared<'_, M>) -> Self {
        let mut demand = Demand {
            token_of: HashMap::new(),
            needed: Vec::new(),
            makers: Vec::new(),
            needs: Vec::new(),
            makes: Vec::new(),
            made: Vec::new(),
            blind: Vec::new(),
            unclear_count: 0,
        };
        let mut marks = Vec::new();
        let makers = Makers::new(model, prepared);
        for call in &makers.calls {
            let needs: Box<[MarkIndex]> =
                call.needs.iter().map(|mark| demand.add_need(mark, &mut marks)).collect();
            demand.blind.push(call.is_blind);
            demand.unclear_count += u32::from(!call.is_blind && needs.is_empty());
            demand.needs.push(needs);
        }
        demand.add_makers(&makers, &marks);
        demand
    }

    /// Whether the call does without the state before it.
    pub(crate) fn is_blind(&self, call: usize) -> bool {
        self.blind[call]
    }

    /// Whether no remaining call can use the state that a blind call leaves.
    ///
    /// Wherever it stands, a blind call must follow, or it is the last.
    pub(crate) fn is_useless(&self, call: usize) -> bool {
        self.blind[call] && self.unclear_count == 0 && {
            // For a blind call these are all the marks it leaves.
            let left = &self.made[self.makes[call].clone()];
            left.iter().all(|token| self.needed[*token as usize] == 0)
        }
    }

    fn is_unclear(&self, call: usize) -> bool {
        !self.blind[call] && self.needs[call].is_empty()
    }

    /// Counts one need of `mark`; `marks` lists the marks by token.
    fn add_need(&mut self, mark: &K, marks: &mut Vec<K>) -> MarkIndex {
        let count = MarkIndex::try_from(marks.len()).expect("no more marks than operations");
        let token = *self.token_of.entry(mark.clone()).or_insert(count);
        if token == count {
            marks.push(mark.clone());
            self.needed.push(0);
            self.makers.push(0);
        }
        self.needed[token as usize] += 1;
        token
    }

    /// Notes for each call which of `marks`, listed by token, it may make.
    fn add_makers<M: Model<Mark = K>>(&mut self, makers: &Makers<'_, '_, M>, marks: &[K]) {
        let mut made = vec![Vec::new(); makers.calls.len()];
        for (token, mark) in (0..).zip(marks) {
            for maker in makers.of(mark) {
                made[maker].push(token);
                self.makers[token as usize] += 1;
            }
        }
        for tokens in made {
            let from = self.made.len();
            self.made.extend(tokens);
            self.makes.push(from..self.made.len());
        }
    }

    pub(crate) fn place(&mut self, call: usize) {
        self.unclear_count -= u32::from(self.is_unclear(call));
        for token in &self.needs[call] {
            self.needed[*token as usize] -= 1;
        }
        for token in &self.made[self.makes[call].clone()] {
            self.makers[*token as usize] -= 1;
        }
    }

    pub(crate) fn unplace(&mut self, call: usize) {
        self.unclear_count += u32::from(self.is_unclear(call));
        for token in &self.needs[call] {
            self.needed[*token as usize] += 1;
        }
        for token in &self.made[self.makes[call].clone()] {
            self.makers[*token as usize] += 1;
        }
    }

    /// The tokens of a state's marks, without marks that no call needed.
    fn tokens(&self, marks: &[K]) -> Vec<MarkIndex> {
        marks.iter().filter_map(|mark| self.token_of.get(mark).copied()).collect()
    }

    /// A token that is lost for good after `call` has turned the marks `before` into `after`.
    pub(crate) fn lost(&self, call: usize, before: &[K], after: &[K]) -> Option<MarkIndex> {
        let made = &self.made[self.makes[call].clone()];
        let present = self.tokens(after);
        let mut affected = self.tokens(before).into_iter().chain(made.iter().copied());
        affected.find(|token| self.is_starved(*token) && !present.contains(token))
    }

    /// Whether calls need the token and no remaining call makes it.
    fn is_starved(&self, token: MarkIndex) -> bool {
        self.needed[token as usize] > 0 && self.makers[token as usize] == 0
    }

    /// Whether a required call needs `token`.
    pub(crate) fn is_needed_by(&self, required: usize, token: MarkIndex) -> bool {
        self.needs[required].contains(&token)
    }

    /// Whether no call could ever make `required` right from the marks `initial`.
    pub(crate) fn is_impossible(&self, required: usize, initial: &[K]) -> bool {
        let initial = self.tokens(initial);
        let is_lacking = |token: &&MarkIndex| self.is_starved(**token) && !initial.contains(token);
        self.needs[required].iter().find(is_lacking).is_some()
    }
}
