//! The search for an order of calls that explains every answer.
//!
//! Depth first, after Wing and Gong, "Testing and Verifying Concurrent Objects" (1993), with the
//! table of configurations of Lowe, "Testing for Linearizability" (2017), like Porcupine.
//! Conclusions from the answers alone are in the calls already (`inference.rs`).
//! The comment at each further cut argues for it:
//!
//! - a pure call that is right now is placed now, without alternatives;
//! - the search tries the call with the earliest response first, or else a call that makes it
//!   right;
//! - a call whose state no remaining call can use is placed before the next call that hides it;
//! - an optional call must matter to the very next call;
//! - a state that can never give a missing answer is abandoned at once (`Model::can_lead_to`,
//!   `demand.rs`);
//! - a configuration is abandoned when one that spent fewer optional calls was (`dead.rs`).
//!
//! The cuts on optional calls lose no verdict. Take an order that explains all answers with as few
//! optional calls as possible. It never holds an optional call that does not matter to the next
//! one, because dropping that call would leave a smaller such order. So the search tries every step
//! of it, unless it finds another order first.

use crate::bitset::BitSet;
use crate::dead::DeadConfigurations;
use crate::demand::{Demand, MarkIndex};
use crate::frontier::Frontier;
use crate::history::OpId;
use crate::model::Model;
use crate::prepared::{Prepared, PreparedCall};
use crate::verdict::Limit;

/// After an optional call is spent, so many unplaced calls, by response, must still be able to be
/// right.
const HORIZON: usize = 64;
/// Configurations entered only to draw a violation that is already certain.
const DRAWING_EXPLORED_MAX: u64 = 20_000;

/// How a search ended.
pub(crate) enum SearchResult<S> {
    Order(Vec<OpId>),
    Nothing(DeadEnd<S>),
    LimitMet { explored: u64 },
}

/// The configuration with the most required calls placed.
pub(crate) struct DeadEnd<S> {
    pub(crate) prefix: Vec<OpId>,
    pub(crate) state: S,
    /// Index of the required call that could not be placed after it.
    pub(crate) blocked: usize,
}

/// How `explore` ended.
enum End {
    Found,
    Exhausted,
    LimitMet,
}

#[derive(Clone, Copy)]
enum Piece {
    Required(usize),
    Optional(usize),
}

#[derive(Clone, Copy)]
enum Move {
    /// Place the piece and enter the successor of that number.
    Place { piece: Piece, choice: usize },
    /// Work out the moves beyond the first.
    Others,
}

/// One configuration on the way from the start.
struct Frame<S> {
    state: S,
    placed: Option<Piece>,
    // Its moves lie in `Search::moves` from here on, the next one last.
    moves_from: usize,
    hopeless: Option<Hopeless>,
}

/// Why a configuration leads nowhere.
#[derive(Clone, Copy)]
enum Hopeless {
    /// This required call can never be right any more.
    PreparedCall(usize),
    /// Calls need this mark, and no remaining call makes it.
    Lost(MarkIndex),
}

pub(crate) struct Search<'a, M: Model, F: Frontier> {
    model: &'a M,
    prepared: &'a Prepared<'a, M>,
    frontier: F,
    frames: Vec<Frame<M::State>>,
    moves: Vec<Move>,
    spent: BitSet,
    // By optional call; calls of one class are alike.
    class: Vec<usize>,
    dead: DeadConfigurations<F::Key, M::State>,
    demand: Demand<M::Mark>,
    required_placed: usize,
    best: Option<(usize, DeadEnd<M::State>)>,
    explored: u64,
}

impl<'a, M: Model, F: Frontier> Search<'a, M, F> {
    pub(crate) fn new(model: &'a M, prepared: &'a Prepared<'a, M>, frontier: F) -> Self {
        Search {
            model,
            prepared,
            frontier,
            frames: Vec::new(),
            moves: Vec::new(),
            spent: BitSet::with_capacity(prepared.optional.len()),
            class: classes(model, &prepared.optional),
            dead: DeadConfigurations::new(),
            demand: Demand::new(model, prepared),
            required_placed: 0,
            best: None,
            explored: 0,
        }
    }

    pub(crate) fn run(mut self, limit: Limit) -> SearchResult<M::State> {
        let Some(impossible) = self.impossible_call() else {
            return match self.explore(limit.explored_max) {
                End::Found => SearchResult::Order(self.order()),
                End::Exhausted => SearchResult::Nothing(self.into_dead_end()),
                End::LimitMet => SearchResult::LimitMet { explored: self.explored },
            };
        };
        // No order exists; now find out how far a prefix can go.
        match self.explore(limit.explored_max.min(DRAWING_EXPLORED_MAX)) {
            End::Found => unreachable!("an order holds call {impossible}, which is never right"),
            End::Exhausted | End::LimitMet => {
                SearchResult::Nothing(DeadEnd { blocked: impossible, ..self.into_dead_end() })
            }
        }
    }

    /// A required call that is wrong at the start and that no call could make right.
    fn impossible_call(&self) -> Option<usize> {
        let initial = self.model.initial();
        let has_no_time = |call: &PreparedCall<'_, M>| call.earliest > call.latest;
        if let Some(call) = self.prepared.required.iter().position(has_no_time) {
            return Some(call);
        }
        (0..self.prepared.required.len()).find(|required| {
            let mut marks = Vec::new();
            self.model.marks(&initial, self.prepared.required[*required].input, &mut marks);
            self.demand.is_impossible(*required, &marks)
        })
    }

    fn explore(&mut self, explored_max: u64) -> End {
        self.enter(None, self.model.initial());
        while self.required_placed < self.prepared.required.len() {
            let frame = self.frames.last().expect("the loop ends when the first frame is left");
            if self.moves.len() == frame.moves_from {
                self.leave();
                if self.frames.is_empty() {
                    return End::Exhausted;
                }
                continue;
            }
            if self.explored >= explored_max {
                return End::LimitMet;
            }
            match self.moves.pop().expect("the frame has a move left") {
                Move::Others => self.push_others(),
                Move::Place { piece, choice } => self.try_place(piece, choice),
            }
        }
        End::Found
    }

    /// Enters a configuration: computes its first moves, or proves that it is dead.
    fn enter(&mut self, placed: Option<Piece>, state: M::State) {
        self.explored += 1;
        let moves_from = self.moves.len();
        let hopeless = self.hopeless(placed, &state);
        self.frames.push(Frame { state, placed, moves_from, hopeless });
        if hopeless.is_none() {
            self.push_first();
        }
    }

    /// Goes back from a configuration that leads nowhere.
    fn leave(&mut self) {
        self.note_dead_end();
        let frame = self.frames.pop().expect("a frame to leave");
        self.dead.insert(self.frontier.key(), frame.state, &self.spent);
        match frame.placed {
            Some(piece) => self.take_back(piece),
            None => assert!(self.frames.is_empty(), "only the first frame places no call"),
        }
    }

    /// Keeps the current configuration if none with as many required calls placed was kept.
    fn note_dead_end(&mut self) {
        if self.best.as_ref().is_some_and(|(most, _)| self.required_placed <= *most) {
            return;
        }
        let frame = self.frames.last().expect("the search is inside a configuration");
        let blocked = match frame.hopeless {
            Some(Hopeless::PreparedCall(call)) => Some(call),
            Some(Hopeless::Lost(token)) => {
                self.frontier.upcoming().find(|call| self.demand.is_needed_by(*call, token))
            }
            None => self.frontier.focus(),
        };
        let blocked = blocked.expect("a required call is left to place");
        let dead_end = DeadEnd { prefix: self.order(), state: frame.state.clone(), blocked };
        self.best = Some((self.required_placed, dead_end));
    }

    /// The longest order found; the search is over.
    fn into_dead_end(mut self) -> DeadEnd<M::State> {
        if !self.frames.is_empty() {
            self.note_dead_end();
        }
        self.best.expect("a configuration has been noted").1
    }

    fn try_place(&mut self, piece: Piece, choice: usize) {
        let call = self.call(piece);
        if !self.has_needed(self.state(), call) {
            return;
        }
        let mut successors = self.step(self.state(), piece).into_iter().skip(choice);
        let Some(next) = successors.next() else { return };
        if successors.next().is_some() {
            self.moves.push(Move::Place { piece, choice: choice + 1 });
        }
        if call.is_pure {
            assert!(next == *self.state(), "pure call {} changed the state", call.id);
        }
        if self.is_needless(piece, &next) {
            return;
        }
        if matches!(piece, Piece::Optional(_)) && self.is_in_vain(&next) {
            return;
        }
        self.put(piece);
        if !self.dead.is_empty() && self.dead.covers(self.frontier.key(), next.clone(), &self.spent)
        {
            self.take_back(piece);
            return;
        }
        self.enter(Some(piece), next);
    }

    /// Whether fewer optional calls lead to the same: `piece` is optional and has no effect, or the
    /// optional call before it made no difference.
    fn is_needless(&self, piece: Piece, next: &M::State) -> bool {
        if matches!(piece, Piece::Optional(_)) && *next == *self.state() {
            return true;
        }
        match self.frames.as_slice() {
            [.., before, Frame { placed: Some(Piece::Optional(_)), .. }] => {
                self.step(&before.state, piece).into_iter().any(|state| state == *next)
            }
            _ => false,
        }
    }

    /// Proof that no order continues from `state`, reached by placing `placed` in the current
    /// configuration; `None` without proof.
    fn hopeless(&self, placed: Option<Piece>, state: &M::State) -> Option<Hopeless> {
        if let Some(piece) = placed {
            let input = self.call(piece).input;
            let (mut before, mut after) = (Vec::new(), Vec::new());
            self.model.marks(self.state(), input, &mut before);
            self.model.marks(state, input, &mut after);
            if let Some(token) = self.demand.lost(self.index(piece), &before, &after) {
                return Some(Hopeless::Lost(token));
            }
        }
        // Spending an optional call is a guess, and a wrong one may show only much later.
        let horizon = if matches!(placed, Some(Piece::Optional(_))) { HORIZON } else { 1 };
        let is_hopeless = |required: &usize| {
            let call = &self.prepared.required[*required];
            call.output.is_some_and(|output| !self.model.can_lead_to(state, call.input, output))
        };
        self.frontier.upcoming().take(horizon).find(is_hopeless).map(Hopeless::PreparedCall)
    }

    /// Whether an optional call that led to `state` cannot matter.
    ///
    /// Only more optional calls may come between it and the next required call. None of them is
    /// blind, since that would undo it.
    fn is_in_vain(&self, state: &M::State) -> bool {
        let may_follow = |call: &u32| {
            let call = &self.prepared.required[*call as usize];
            !call.is_blind && call.needs.iter().all(|mark| self.model.may_grow_to(state, mark))
        };
        !self.candidates().iter().any(may_follow)
    }

    /// Pushes the first moves: a pure call, or the call whose response comes first.
    fn push_first(&mut self) {
        let candidates = self.candidates();
        let is_pure = |call: &&u32| self.prepared.required[**call as usize].is_pure;
        let mut pure = candidates.iter().filter(is_pure).map(|call| *call as usize);
        // Wherever an order places this call, moving it here changes no state and breaks no
        // precedence. So if any order exists, one exists that goes on like this.
        if let Some(free) = pure.find(|call| self.is_right(self.state(), *call)) {
            self.moves.push(Move::Place { piece: Piece::Required(free), choice: 0 });
            return;
        }
        self.moves.push(Move::Others);
        if let Some(focus) = self.right_focus(&candidates) {
            self.moves.push(Move::Place { piece: Piece::Required(focus), choice: 0 });
        }
    }

    /// Pushes the other moves: calls that make the focus right, required calls by response,
    /// optional calls.
    fn push_others(&mut self) {
        let candidates = self.candidates();
        let tried = self.right_focus(&candidates);
        let focus = self.frontier.focus().filter(|_| tried.is_none());
        let required = candidates
            .iter()
            .map(|call| *call as usize)
            // A pure call that were right would have been the first and only move.
            .filter(|call| Some(*call) != tried && !self.prepared.required[*call].is_pure)
            .map(Piece::Required);
        let pieces: Vec<Piece> = required.chain(self.usable_optionals(&candidates)).collect();
        let enables = |piece: &&Piece| {
            focus.is_some_and(|focus| {
                self.step(self.state(), **piece).into_iter().any(|next| self.is_right(&next, focus))
            })
        };
        let (enabling, rest): (Vec<&Piece>, Vec<&Piece>) = pieces.iter().partition(enables);
        let in_order = enabling.into_iter().chain(rest).rev();
        self.moves.extend(in_order.map(|piece| Move::Place { piece: *piece, choice: 0 }));
    }

    /// The required calls worth placing next, earliest response first.
    fn candidates(&self) -> Vec<u32> {
        let mut candidates = Vec::new();
        self.frontier.candidates(&mut candidates);
        // A useless call must be followed by a blind one, or be the last. It may just as well stand
        // before the first blind call from here on, so no other blind call goes first.
        if let Some(useless) = self.useless_of(&candidates) {
            candidates.retain(|call| *call == useless || !self.demand.is_blind(*call as usize));
        }
        candidates
    }

    fn useless_of(&self, candidates: &[u32]) -> Option<u32> {
        candidates.iter().copied().find(|call| self.demand.is_useless(*call as usize))
    }

    /// The call whose response comes first, if it may be placed and is right.
    fn right_focus(&self, candidates: &[u32]) -> Option<usize> {
        let focus = self.frontier.focus()?;
        // Candidates come by response, as the focus does.
        let may_be_placed = candidates.first().is_some_and(|call| *call as usize == focus);
        (may_be_placed && self.is_right(self.state(), focus)).then_some(focus)
    }

    /// The optional calls that may be placed. Of several alike only one, because they have no
    /// response: it makes no difference which, now or later.
    fn usable_optionals(&self, candidates: &[u32]) -> Vec<Piece> {
        let is_blind_held_back = self.useless_of(candidates).is_some();
        let mut seen = BitSet::with_capacity(self.prepared.optional.len());
        let mut usable = Vec::new();
        for (optional, class) in self.class.iter().enumerate() {
            let is_usable = !self.spent.contains(optional)
                && !seen.contains(*class)
                && !self.is_idle(optional, is_blind_held_back)
                && self.frontier.admits_optional(optional);
            if is_usable {
                seen.insert(*class);
                usable.push(Piece::Optional(optional));
            }
        }
        usable
    }

    /// Whether an optional call is blind and either useless or held back.
    fn is_idle(&self, optional: usize, is_blind_held_back: bool) -> bool {
        let call = self.index(Piece::Optional(optional));
        self.demand.is_blind(call) && (is_blind_held_back || self.demand.is_useless(call))
    }

    fn is_right(&self, state: &M::State, required: usize) -> bool {
        let is_answered = self.step(state, Piece::Required(required)).into_iter().next().is_some();
        is_answered && self.has_needed(state, &self.prepared.required[required])
    }

    /// Whether `state` has the inferred marks that the call needs; its answer may say less.
    fn has_needed(&self, state: &M::State, call: &PreparedCall<'_, M>) -> bool {
        call.needs.is_empty() || {
            let mut marks = Vec::new();
            self.model.marks(state, call.input, &mut marks);
            call.needs.iter().all(|needed| marks.contains(needed))
        }
    }

    fn step(&self, state: &M::State, piece: Piece) -> M::Successors {
        let call = self.call(piece);
        self.model.step(state, call.input, call.output)
    }

    fn call(&self, piece: Piece) -> &'a PreparedCall<'a, M> {
        match piece {
            Piece::Required(required) => &self.prepared.required[required],
            Piece::Optional(optional) => &self.prepared.optional[optional],
        }
    }

    fn state(&self) -> &M::State {
        &self.frames.last().expect("the search is inside a configuration").state
    }

    /// Names the call in `demand`.
    fn index(&self, piece: Piece) -> usize {
        match piece {
            Piece::Required(required) => required,
            Piece::Optional(optional) => self.prepared.required.len() + optional,
        }
    }

    fn put(&mut self, piece: Piece) {
        self.demand.place(self.index(piece));
        match piece {
            Piece::Required(required) => {
                self.frontier.place(required);
                self.required_placed += 1;
            }
            Piece::Optional(optional) => self.spent.insert(optional),
        }
    }

    fn take_back(&mut self, piece: Piece) {
        self.demand.unplace(self.index(piece));
        match piece {
            Piece::Required(required) => {
                self.frontier.unplace(required);
                self.required_placed -= 1;
            }
            Piece::Optional(optional) => self.spent.remove(optional),
        }
    }

    fn order(&self) -> Vec<OpId> {
        self.frames
            .iter()
            .filter_map(|frame| frame.placed)
            .map(|piece| self.call(piece).id)
            .collect()
    }
}

/// Numbers the kinds of calls; those that are alike have equal numbers.
fn classes<M: Model>(model: &M, calls: &[PreparedCall<'_, M>]) -> Vec<usize> {
    let mut kinds: Vec<&M::Input> = Vec::new();
    let mut numbers = Vec::with_capacity(calls.len());
    for call in calls {
        let known = kinds.iter().position(|kind| model.are_alike(kind, call.input));
        numbers.push(known.unwrap_or(kinds.len()));
        if known.is_none() {
            kinds.push(call.input);
        }
    }
    numbers
}
