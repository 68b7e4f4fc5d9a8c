//! The one decision whether a client may run a command. Requests, lines of `EXEC` and calls of
//! scripts pass it.

use types::Shortage;

use crate::errors::{ErrorReply, NO_ROOM};
use crate::spec::{CommandSpec, Flag};

/// The facts about a client and its node that the decision rests on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Permission {
    /// The node's lack of room.
    pub shortage: Shortage,
    /// The client accepts that growing values need room that is short.
    pub allows_growth: bool,
}

impl Permission {
    #[must_use]
    pub fn of(shortage: Shortage) -> Permission {
        Permission { shortage, ..Permission::default() }
    }

    /// The error for a command that the client may not run.
    #[must_use]
    pub fn refusal(&self, spec: &CommandSpec) -> Option<ErrorReply> {
        let lacks_room = match self.shortage {
            Shortage::None => false,
            Shortage::OfGrowth => spec.has(Flag::DenyOom) && !self.allows_growth,
            Shortage::OfWrites => spec.has(Flag::Write),
        };
        lacks_room.then_some(NO_ROOM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_refused_by_the_lack_of_room() {
        let refused = |name: &str, shortage: Shortage| {
            let spec = crate::find(&[name.as_bytes()]).expect("a command");
            Permission::of(shortage).refusal(spec).is_some()
        };
        for (name, of_growth, of_writes) in
            [("get", false, false), ("del", false, true), ("set", true, true)]
        {
            assert!(!refused(name, Shortage::None));
            assert_eq!(refused(name, Shortage::OfGrowth), of_growth, "{name}");
            assert_eq!(refused(name, Shortage::OfWrites), of_writes, "{name}");
        }
        let set = crate::find(&[b"set"]).expect("a command");
        let growing = Permission { shortage: Shortage::OfGrowth, allows_growth: true };
        assert_eq!(growing.refusal(set), None);
    }
}
