//! What the answers alone say, before any search.
//!
//! A call needs a mark that the start lacks, and only one other call can make it: then that call
//! took effect, before the first, and where it found what it needs in order to make the mark. That
//! is a need too, and so on. A list that was read thus names its appends one by one, those of
//! unknown outcome among them. The register whose values are unlike is a case of this: Gibbons and
//! Korach, "Testing Shared Memories" (1997).
//!
//! What must come before what narrows the time in which either took effect. Every order that
//! explains the history satisfies all of this, so no verdict is lost.

use hashbrown::HashMap;

use crate::history::ClientId;
use crate::model::{MarksAfter, Model};
use crate::prepared::{Call, Prepared};

/// Most marks noted as needed by one call; to note fewer than could be is never wrong.
const NEEDS_MAX: usize = 4;
/// Makers of a mark looked for: one that counts, one that needs the mark itself, one too many.
const MAKERS_MAX: usize = 3;

/// Makes calls required that surely took effect, and narrows when each did.
///
/// For real-time order; with `in_sessions`, answered calls of one client also take effect in its
/// order.
pub(crate) fn infer<M: Model>(model: &M, prepared: &mut Prepared<'_, M>, in_sessions: bool) {
    let mut inference = Inference::new(model, prepared);
    inference.find_needs();
    if in_sessions {
        inference.follow_sessions();
    }
    let times = inference.narrowed();
    let Inference { needs, is_certain, .. } = inference;
    let is_certain = is_certain[prepared.required.len()..].to_vec();
    let calls = prepared.required.iter_mut().chain(&mut prepared.optional);
    for ((call, needs), (earliest, latest)) in calls.zip(needs).zip(times) {
        (call.needs, call.earliest, call.latest) = (needs, earliest, latest);
    }
    let mut certain = is_certain.into_iter();
    let is_now_required = |_: &mut Call<'_, M>| certain.next().expect("one for each optional call");
    let now_required = prepared.optional.extract_if(.., is_now_required);
    prepared.required.extend(now_required);
    prepared.sort();
}

/// Calls are named by their index in `Prepared::required`, then `Prepared::optional`.
struct Inference<'p, 'a, M: Model> {
    model: &'p M,
    calls: Vec<&'p Call<'a, M>>,
    required_count: usize,
    // Makers of a mark: those that make no marks but a few, and those to ask.
    only: HashMap<M::Mark, Vec<usize>>,
    several: Vec<usize>,
    // By call.
    needs: Vec<Vec<M::Mark>>,
    is_certain: Vec<bool>,
    // The first takes effect before the second.
    before: Vec<(usize, usize)>,
}

impl<'p, 'a, M: Model> Inference<'p, 'a, M> {
    fn new(model: &'p M, prepared: &'p Prepared<'a, M>) -> Self {
        let calls: Vec<&Call<'a, M>> = prepared.required.iter().chain(&prepared.optional).collect();
        let required_count = prepared.required.len();
        let (mut only, mut several) = (HashMap::<M::Mark, Vec<usize>>::new(), Vec::new());
        for (at, call) in calls.iter().enumerate() {
            match &call.makes {
                MarksAfter::Only(marks) => marks.iter().for_each(|mark| {
                    only.entry(mark.clone()).or_default().push(at);
                }),
                MarksAfter::Several => several.push(at),
            }
        }
        let needs = calls.iter().map(|call| call.needs.clone()).collect();
        let is_certain = (0..calls.len()).map(|at| at < required_count).collect();
        let before = Vec::new();
        Inference { model, calls, required_count, only, several, needs, is_certain, before }
    }

    /// Goes from needs to the only call that can have met them, and on to what that one needs.
    fn find_needs(&mut self) {
        let mut known: HashMap<M::Mark, Vec<usize>> = HashMap::new();
        let mut open: Vec<(usize, M::Mark)> = (0..self.required_count)
            .flat_map(|at| self.needs[at].iter().map(move |mark| (at, mark.clone())))
            .collect();
        while let Some((needer, mark)) = open.pop() {
            if self.is_initial(needer, &mark) {
                continue;
            }
            let makers = known.entry(mark.clone()).or_insert_with(|| self.makers(&mark));
            let others: Vec<usize> = makers.iter().copied().filter(|at| *at != needer).collect();
            let [maker] = others[..] else { continue };
            self.before.push((maker, needer));
            self.is_certain[maker] = true;
            let Some(needed) = self.needed_to_make(maker, &mark) else { continue };
            let needs = &mut self.needs[maker];
            if needs.len() < NEEDS_MAX && !needs.contains(&needed) {
                needs.push(needed.clone());
                open.push((maker, needed));
            }
        }
    }

    /// Some of the calls that may make `mark`, all of them if they are fewer than `MAKERS_MAX`.
    fn makers(&self, mark: &M::Mark) -> Vec<usize> {
        // What a call needs in order to make the mark must come of something too.
        let is_possible = |maker: &usize| {
            self.needed_to_make(*maker, mark).is_none_or(|needed| {
                self.is_initial(*maker, &needed)
                    || self.may_make(&needed).any(|other| other != *maker)
            })
        };
        self.may_make(mark).filter(is_possible).take(MAKERS_MAX).collect()
    }

    fn may_make(&self, mark: &M::Mark) -> impl Iterator<Item = usize> {
        let only = self.only.get(mark).into_iter().flatten();
        let several = self.several.iter().filter(|at| {
            let call = self.calls[**at];
            self.model.may_make(call.input, call.output, mark)
        });
        only.chain(several).copied()
    }

    fn needed_to_make(&self, maker: usize, mark: &M::Mark) -> Option<M::Mark> {
        let call = self.calls[maker];
        self.model.mark_to_make(call.input, call.output, mark)
    }

    fn is_initial(&self, call: usize, mark: &M::Mark) -> bool {
        let mut marks = Vec::new();
        self.model.marks(&self.model.initial(), self.calls[call].input, &mut marks);
        marks.contains(mark)
    }

    fn follow_sessions(&mut self) {
        let mut last: HashMap<ClientId, usize> = HashMap::new();
        // Required calls come by invocation here.
        for at in 0..self.required_count {
            if let Some(earlier) = last.insert(self.calls[at].client, at) {
                self.before.push((earlier, at));
            }
        }
    }

    /// By call, the times between which it took effect.
    fn narrowed(&self) -> Vec<(u64, u64)> {
        let mut times: Vec<(u64, u64)> =
            self.calls.iter().map(|call| (call.earliest, call.latest)).collect();
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); times.len()];
        let mut after = before.clone();
        for (one, other) in &self.before {
            before[*other].push(*one);
            after[*one].push(*other);
        }
        // Every time only moves one way, among those of the history: this ends.
        let mut open: Vec<usize> = (0..times.len()).collect();
        while let Some(at) = open.pop() {
            let (earliest, latest) = times[at];
            for later in &after[at] {
                if times[*later].0 < earliest {
                    times[*later].0 = earliest;
                    open.push(*later);
                }
            }
            for earlier in &before[at] {
                if times[*earlier].1 > latest {
                    times[*earlier].1 = latest;
                    open.push(*earlier);
                }
            }
        }
        times
    }
}
