//! The run under way, as all functions of the Lua state see it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::OnceLock;

use base::Millis;
use commands::{BYTES_PER_INSTRUCTION, Budget, Halt, Permission, Space};
use types::Clock;

use crate::json::Settings;
use crate::random::Random;

/// Nanoseconds of a worker that count as one instruction: a short run takes 5 ms.
const NANOS_PER_INSTRUCTION: u64 = 25;

/// Instructions between two looks at the budget.
pub(crate) const HOOK_EVERY: u32 = 100;

/// Bytes of values with which looks begin to be closer: one instruction can walk all of them.
pub(crate) const CLOSER_FROM: usize = 64 << 10;
pub(crate) const HOOK_EVERY_MIN: u32 = 4;
const HOOK_EVERY_MIN_OF_LONG: u32 = 64;

/// Monotonic nanoseconds.
static TIMER: OnceLock<fn() -> u64> = OnceLock::new();

/// Sets the clock by which runs on a worker end. Without one they end by counted instructions
/// alone, so that a simulation repeats.
pub fn set_timer(timer: fn() -> u64) {
    let _ = TIMER.set(timer);
}

pub(crate) fn nanos() -> u64 {
    TIMER.get().map_or(0, |timer| timer())
}

/// The run, shared with the functions that scripts call.
pub(crate) type Shared = Rc<RefCell<Current>>;

pub(crate) struct Current {
    /// Present while a script runs.
    pub(crate) space: Option<Space>,
    /// Replies of commands are those of RESP3.
    pub(crate) resp3: bool,
    pub(crate) is_read_only: bool,
    /// The script accepts that its writes need room that is short.
    pub(crate) allows_growth: bool,
    /// The reason why the run must end without effect.
    pub(crate) halt: Option<Halt>,
    pub(crate) random: Random,
    pub(crate) json: Settings,
    /// Lines in the log of this run.
    pub(crate) logged: u32,
    /// The script changed the environment of a function, which may be its own.
    pub(crate) is_spoilt: bool,
    /// The source and the line where the run was ended.
    pub(crate) place: Option<(String, usize)>,
    /// Calls the function, or asks the table, that replaces a match of `gsub`.
    pub(crate) replace: Option<mlua::Function>,
    budget: Budget,
    spent: u64,
    began: u64,
    /// Bytes in use before the run, and at the last look.
    base: usize,
    memory: usize,
    /// Instructions until the next look.
    pub(crate) every: u32,
    unix: Millis,
}

impl Default for Current {
    fn default() -> Current {
        Current {
            space: None,
            resp3: false,
            is_read_only: false,
            allows_growth: false,
            halt: None,
            random: Random::new(0),
            json: Settings::default(),
            logged: 0,
            is_spoilt: false,
            place: None,
            replace: None,
            budget: Budget::SHORT,
            spent: 0,
            began: 0,
            base: 0,
            memory: 0,
            every: HOOK_EVERY,
            unix: Millis(0),
        }
    }
}

impl Current {
    /// A run on this space. `memory` is used already.
    pub(crate) fn of(space: Space, memory: usize) -> Current {
        let Clock { unix, seed } = space.clock();
        Current {
            random: Random::new(seed as u32),
            budget: space.budget().clone(),
            space: Some(space),
            began: nanos(),
            base: memory,
            memory,
            unix,
            ..Current::default()
        }
    }

    /// True if the run must end.
    pub(crate) fn spend(&mut self, instructions: u64) -> bool {
        self.spent = self.spent.saturating_add(instructions);
        self.halt.is_some() || self.is_over()
    }

    pub(crate) fn spend_bytes(&mut self, bytes: usize) -> bool {
        self.spend(bytes as u64 / BYTES_PER_INSTRUCTION)
    }

    /// Counts the instructions since the last look, and new memory.
    pub(crate) fn look(&mut self, memory: usize) -> bool {
        let instructions = u64::from(self.every);
        let grown_in_all = memory.saturating_sub(self.base);
        let least = if self.budget.is_short() { HOOK_EVERY_MIN } else { HOOK_EVERY_MIN_OF_LONG };
        let closer = HOOK_EVERY as usize * CLOSER_FROM / grown_in_all.max(CLOSER_FROM);
        self.every = (closer as u32).max(least);
        let grown = memory.saturating_sub(self.memory);
        self.memory = memory;
        self.spend(instructions + grown as u64 / BYTES_PER_INSTRUCTION)
    }

    fn is_over(&mut self) -> bool {
        if self.spent() > self.budget.instructions {
            self.halt = Some(Halt::TooLong);
        } else if let Some(error) = self.budget.interrupt.as_ref().and_then(|it| it.ends()) {
            self.halt = Some(Halt::Error(commands::ErrorReply::new(error.as_bytes())));
        }
        self.halt.is_some()
    }

    /// The run needs more memory than it may have.
    pub(crate) fn exceed_memory(&mut self) {
        let halt = match self.budget.is_short() {
            true => Halt::TooLong,
            false => {
                let text = format!("ERR script needs too much memory (max {})", self.budget.memory);
                Halt::Error(commands::ErrorReply::new(text.as_bytes()))
            }
        };
        self.halt.get_or_insert(halt);
    }

    /// Instructions, or the time that they took.
    pub(crate) fn spent(&self) -> u64 {
        let took = match self.budget.is_short() {
            true => nanos().saturating_sub(self.began) / NANOS_PER_INSTRUCTION,
            false => 0,
        };
        self.spent.max(took)
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The decision about a command that the script calls.
    pub(crate) fn permission(&self) -> Permission {
        let permission = self.space.as_ref().map(Space::permission).unwrap_or_default();
        Permission { allows_growth: self.allows_growth, ..permission }
    }

    /// Seconds that pass with each instruction: there is no other clock.
    pub(crate) fn seconds(&self) -> f64 {
        (self.unix.0 % 1_000_000_000) as f64 / 1e3 + self.spent as f64 / 1e8
    }
}
