//! The search: depth first, each state once. A state is reached again by repeating the choices that led to it.

use std::collections::BTreeSet;
use std::fmt::Debug;

use protocols::Protocol;

use super::Plan;
use super::world::{Choice, World};

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Exploration {
    /// Different states, the first included.
    pub states: u64,
    /// Choices tried.
    pub steps: u64,
    /// States after which nothing can happen.
    pub ends: u64,
    /// Choices on the longest path.
    pub depth: usize,
    /// Everything was explored.
    pub is_complete: bool,
    pub fault: Option<Fault>,
}

/// Something that must not happen, and how it comes to it.
#[derive(Clone, Debug)]
pub struct Fault {
    pub what: String,
    pub path: Vec<String>,
}

/// A state on the path, and what was not yet tried there.
struct Open {
    choices: Vec<Choice>,
    next: usize,
}

/// Explores a world until it ends, a fault shows or `states_max` states were seen.
#[must_use]
pub fn explore<P: Protocol + Debug>(plan: &Plan) -> Exploration {
    let mut found = Exploration::default();
    let mut seen = BTreeSet::new();
    let mut path: Vec<Choice> = Vec::new();
    let mut world = World::<P>::new(plan);
    seen.insert(world.digest());
    let mut open = vec![Open { choices: world.choices(), next: 0 }];
    while let Some(top) = open.last_mut() {
        let Some(choice) = top.choices.get(top.next).cloned() else {
            found.ends += u64::from(top.choices.is_empty());
            open.pop();
            path.pop();
            continue;
        };
        if top.next > 0 {
            world = repeat(plan, &path);
        }
        top.next += 1;
        found.steps += 1;
        path.push(choice.clone());
        found.depth = found.depth.max(path.len());
        if let Err(what) = world.take(&choice) {
            found.states = seen.len() as u64;
            found.fault = Some(Fault { what, path: tell::<P>(plan, &path) });
            return found;
        }
        if seen.insert(world.digest()) {
            open.push(Open { choices: world.choices(), next: 0 });
        } else {
            path.pop();
        }
        if seen.len() as u64 >= plan.states_max {
            found.states = seen.len() as u64;
            return found;
        }
    }
    found.states = seen.len() as u64;
    found.is_complete = true;
    found
}

fn repeat<P: Protocol + Debug>(plan: &Plan, path: &[Choice]) -> World<P> {
    let mut world = World::new(plan);
    for choice in path {
        world.take(choice).expect("it went well before");
    }
    world
}

/// The path in words.
fn tell<P: Protocol + Debug>(plan: &Plan, path: &[Choice]) -> Vec<String> {
    let mut world = World::<P>::new(plan);
    let step = |choice: &Choice| {
        let words = world.words(choice);
        // The last one is the fault itself.
        let _ = world.take(choice);
        words
    };
    path.iter().map(step).collect()
}
