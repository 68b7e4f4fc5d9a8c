//! The run under way, as all functions of the Lua state see it.

use std::cell::RefCell;
use std::rc::Rc;

use base::Millis;
use commands::{BYTES_PER_INSTRUCTION, Budget, Halt, Shortage, Space};
use types::Clock;

use crate::json::Settings;
use crate::random::Random;

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
    memory: usize,
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
            memory: 0,
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

    /// Counts instructions and new memory.
    pub(crate) fn look(&mut self, instructions: u64, memory: usize) -> bool {
        let grown = memory.saturating_sub(self.memory);
        self.memory = memory;
        self.spend(instructions + grown as u64 / BYTES_PER_INSTRUCTION)
    }

    fn is_over(&mut self) -> bool {
        if self.spent > self.budget.instructions {
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

    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(crate) fn shortage(&self) -> Shortage {
        self.space.as_ref().map_or(Shortage::None, Space::shortage)
    }

    /// Seconds that pass with each instruction: there is no other clock.
    pub(crate) fn seconds(&self) -> f64 {
        (self.unix.0 % 1_000_000_000) as f64 / 1e3 + self.spent as f64 / 1e8
    }
}
