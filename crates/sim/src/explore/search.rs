//! The search: depth first, each state once; repeated after a wrong guess about dead messages.

use std::fmt::Debug;
use std::hash::BuildHasherDefault;

use hashbrown::HashSet;
use protocols::Protocol;

use super::WorldPlan;
use super::dead::DeadMessages;
use super::table::Mixed;
use super::world::{Choice, ExploredWorld, Rules};

/// The result of an exploration.
#[derive(Clone, Debug, Default)]
pub struct Exploration {
    /// Different states, the first included.
    pub states: u64,
    /// Different states of single nodes.
    pub node_states: u64,
    /// Choices tried.
    pub steps: u64,
    /// States without further choices.
    pub ends: u64,
    /// Choices on the longest path.
    pub depth: usize,
    /// Searches made; each has the guesses that the one before had corrected.
    pub passes: u32,
    /// Everything was explored.
    pub is_complete: bool,
    pub fault: Option<Counterexample>,
}

/// A broken rule, and the path to it.
#[derive(Clone, Debug)]
pub struct Counterexample {
    pub reason: String,
    pub path: Vec<String>,
}

/// A state on the path, and its untried choices.
struct Open {
    world: ExploredWorld,
    choices: Vec<Choice>,
    next: usize,
}

/// States of the first search, which begins to learn about droppable messages. An unfinished search
/// is followed by one of twice as many.
const LEARNED_MAX: u64 = 200_000;
/// Searches after which it stops learning.
const PASSES_MAX: u32 = 50;

/// Explores a world until it ends, a rule is broken, `states_max` states were seen or `may_go_on`
/// says no.
///
/// The result is that of the last search: the first that ended with all its guesses proven, if one
/// did.
#[must_use]
pub fn explore<P: Protocol + Debug>(
    plan: &WorldPlan,
    mut may_go_on: impl FnMut(&Exploration) -> bool,
) -> Exploration {
    let mut rules = Rules::<P>::new(plan);
    let mut limit = LEARNED_MAX.min(plan.states_max);
    let mut passes = 0;
    loop {
        let mut found = search(&mut rules, limit, &mut may_go_on);
        passes += 1;
        found.passes = passes;
        let dead = std::mem::take(&mut rules.dead);
        if found.is_complete {
            found.is_complete = dead.proves_itself(&mut rules.table);
        } else if found.states >= limit {
            limit = (2 * limit).min(plan.states_max);
        }
        let is_over = found.states >= plan.states_max || !may_go_on(&found);
        if found.is_complete || found.fault.is_some() || is_over || passes == PASSES_MAX {
            return found;
        }
        rules.dead = DeadMessages::learn(&rules.table);
    }
}

fn search<P: Protocol + Debug>(
    rules: &mut Rules<P>,
    states_max: u64,
    may_go_on: &mut impl FnMut(&Exploration) -> bool,
) -> Exploration {
    let mut found = Exploration::default();
    let mut seen: HashSet<u128, BuildHasherDefault<Mixed>> = HashSet::default();
    let mut scratch = Vec::new();
    let world = match rules.first() {
        Ok(world) => world,
        Err(reason) => {
            found.fault = Some(Counterexample { reason, path: Vec::new() });
            return found;
        }
    };
    seen.insert(world.digest(&mut scratch));
    let mut open = vec![Open { choices: rules.choices(&world), world, next: 0 }];
    while let Some(top) = open.last_mut() {
        let Some(&choice) = top.choices.get(top.next) else {
            found.ends += u64::from(top.choices.is_empty());
            open.pop();
            continue;
        };
        top.next += 1;
        found.steps += 1;
        match rules.take(&top.world, choice) {
            Ok(None) => {}
            Ok(Some(world)) => {
                if seen.insert(world.digest(&mut scratch)) {
                    open.push(Open { choices: rules.choices(&world), world, next: 0 });
                    found.depth = found.depth.max(open.len() - 1);
                }
            }
            Err(reason) => {
                found.fault = Some(Counterexample { reason, path: tell(rules, &open) });
                break;
            }
        }
        (found.states, found.node_states) = (seen.len() as u64, rules.table.len() as u64);
        if found.states >= states_max || !may_go_on(&found) {
            break;
        }
    }
    found.states = seen.len() as u64;
    found.is_complete = open.is_empty();
    found
}

/// The path in words.
fn tell<P: Protocol + Debug>(rules: &mut Rules<P>, open: &[Open]) -> Vec<String> {
    open.iter().map(|it| rules.words(&it.world, it.choices[it.next - 1])).collect()
}
