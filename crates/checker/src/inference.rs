//! Conclusions from the answers alone, before any search.
//!
//! A call needs a mark that the start lacks, and only one other call can make it.
//! Then that call took effect first, and it found the marks that it needs to make this one.
//! Those are needs too, and so on.
//! So a read of a list names its appends one by one, also those of unknown outcome.
//! The register with unique values is a case of this: Gibbons and Korach, "Testing Shared Memories"
//! (1997).
//!
//! Each precedence narrows the time in which either call took effect.
//! Every order that explains the history satisfies all of this, so no verdict is lost.

use hashbrown::HashMap;

use crate::history::ClientId;
use crate::makers::Makers;
use crate::model::Model;
use crate::prepared::{Prepared, PreparedCall};

/// Most marks noted as needed by one call; to note fewer than could be is never wrong.
const NEEDS_MAX: usize = 4;
/// Makers of a mark looked for: one that counts, one that needs the mark itself, one too many.
const MAKERS_MAX: usize = 3;

/// Makes calls required that surely took effect, and narrows when each did.
///
/// For real-time order; with `in_sessions`, answered calls of one client also take effect in its
/// order.
pub(crate) fn infer<M: Model>(model: &M, prepared: &mut Prepared<'_, M>, in_sessions: bool) {
    let required_count = prepared.required.len();
    let Inferred { needs, is_certain, times } = Inference::new(model, prepared).run(in_sessions);
    let calls = prepared.required.iter_mut().chain(&mut prepared.optional);
    for ((call, needs), (earliest, latest)) in calls.zip(needs).zip(times) {
        (call.needs, call.earliest, call.latest) = (needs, earliest, latest);
    }
    let mut certain = is_certain.into_iter().skip(required_count);
    let is_now_required =
        |_: &mut PreparedCall<'_, M>| certain.next().expect("one for each optional call");
    let now_required = prepared.optional.extract_if(.., is_now_required);
    prepared.required.extend(now_required);
    prepared.sort();
}

/// Conclusions on each call.
struct Inferred<K> {
    needs: Vec<Vec<K>>,
    is_certain: Vec<bool>,
    /// Earliest and latest effect.
    times: Vec<(u64, u64)>,
}

/// Calls are named as by `Makers`.
struct Inference<'p, 'a, M: Model> {
    makers: Makers<'p, 'a, M>,
    required_count: usize,
    // By call.
    needs: Vec<Vec<M::Mark>>,
    is_certain: Vec<bool>,
    // The first takes effect before the second.
    before: Vec<(usize, usize)>,
}

impl<'p, 'a, M: Model> Inference<'p, 'a, M> {
    fn new(model: &'p M, prepared: &'p Prepared<'a, M>) -> Self {
        let makers = Makers::new(model, prepared);
        let required_count = prepared.required.len();
        let needs = makers.calls.iter().map(|call| call.needs.clone()).collect();
        let is_certain = (0..makers.calls.len()).map(|at| at < required_count).collect();
        Inference { makers, required_count, needs, is_certain, before: Vec::new() }
    }

    fn run(mut self, in_sessions: bool) -> Inferred<M::Mark> {
        self.find_needs();
        if in_sessions {
            self.follow_sessions();
        }
        let times = self.narrowed();
        Inferred { needs: self.needs, is_certain: self.is_certain, times }
    }

    /// Goes from needs to the only call that can have met them, and on to that call's needs.
    fn find_needs(&mut self) {
        let mut known: HashMap<M::Mark, Vec<usize>> = HashMap::new();
        let mut open: Vec<(usize, M::Mark)> = (0..self.required_count)
            .flat_map(|at| self.needs[at].iter().map(move |mark| (at, mark.clone())))
            .collect();
        while let Some((needer, mark)) = open.pop() {
            if self.makers.is_initial(needer, &mark) {
                continue;
            }
            let makers = known
                .entry(mark.clone())
                .or_insert_with(|| self.makers.of(&mark).take(MAKERS_MAX).collect());
            let others: Vec<usize> = makers.iter().copied().filter(|at| *at != needer).collect();
            let [maker] = others[..] else { continue };
            self.before.push((maker, needer));
            self.is_certain[maker] = true;
            let Some(needed) = self.makers.needed_to_make(maker, &mark) else { continue };
            let needs = &mut self.needs[maker];
            if needs.len() < NEEDS_MAX && !needs.contains(&needed) {
                needs.push(needed.clone());
                open.push((maker, needed));
            }
        }
    }

    fn follow_sessions(&mut self) {
        let mut last: HashMap<ClientId, usize> = HashMap::new();
        // Required calls come by invocation here.
        for at in 0..self.required_count {
            if let Some(earlier) = last.insert(self.makers.calls[at].client, at) {
                self.before.push((earlier, at));
            }
        }
    }

    /// By call, the times between which it took effect.
    fn narrowed(&self) -> Vec<(u64, u64)> {
        let mut times: Vec<(u64, u64)> =
            self.makers.calls.iter().map(|call| (call.earliest, call.latest)).collect();
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
