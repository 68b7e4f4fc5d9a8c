//! Commands about locks.

use types::{Command, Outcome, SessionId, Tag};

use super::World;
use crate::protocol::{Event, Request};

impl World {
    /// Starts a command about locks, which is in no history.
    pub(in super::super) fn start_hold(&mut self, node: usize, command: Command) -> Tag {
        self.next_tag += 1;
        let tag = Tag(self.next_tag);
        self.holds.insert(tag, None);
        let (key, session) = (self.key.clone(), SessionId(tag.0));
        let request = Request { tag, session, key, command, asked_at: self.now };
        self.step(node, Event::Request(request));
        tag
    }

    /// The outcome of a command about locks.
    pub(in super::super) fn held_by(&self, tag: Tag) -> Option<&Outcome> {
        self.holds.get(&tag).and_then(Option::as_ref)
    }

    /// True if it is such a command that ended.
    pub(super) fn complete_hold(&mut self, tag: Tag, outcome: &Outcome) -> bool {
        let Some(place) = self.holds.get_mut(&tag) else { return false };
        if place.replace(outcome.clone()).is_some() {
            self.fault.get_or_insert(format!("{tag:?} was answered twice"));
        }
        true
    }
}
