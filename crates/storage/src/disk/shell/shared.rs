//! A store's engine and desk, as all its threads share them.

use super::desk::{Desk, LastWords};
use super::meeting::{Left, Meeting, Role};
use super::run::Run;

/// How often a thread looks again before it leaves the rest to a helper.
const TURNS_MAX: usize = 16;

pub(super) struct Shared {
    pub(super) run: Meeting<Run>,
    pub(super) desk: Desk,
}

impl Shared {
    /// Moves everything on that waits, unless another thread is doing that.
    pub(super) fn advance(&self, role: Role) {
        let desk = &self.desk;
        let turn = |run: &mut Run| self.turn(run, role);
        match self.run.advance(TURNS_MAX, turn, || desk.call_driver(), || desk.has_news()) {
            Left::Done => {}
            Left::More => desk.queues.remind(),
            Left::Broken => desk.say_last_words(),
        }
    }

    pub(super) fn turn(&self, run: &mut Run, role: Role) {
        let _last_words = LastWords(&self.desk);
        run.turn(&self.desk, role);
    }
}
