//! Members that hold up work: when the membership service is to hear of them.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};

use base::Nanos;
use types::NodeId;

/// Times of a stall after which one answer is no longer late, but stuck.
const LATE: u64 = 8;
/// Between two reports of a member: thousands of keys may tell the same.
const TELL_AGAIN: Nanos = Nanos::from_millis(50);

/// A protocol knows the answers that a member owes. Under load one may be late, so only a member
/// that gives no answer at all is reported soon.
#[derive(Default)]
pub struct Stalls {
    began: Nanos,
    members: BTreeMap<NodeId, Signs>,
}

/// States that differ here only do the same but for reports: a search visits one of them.
impl Debug for Stalls {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Stalls")
    }
}

#[derive(Clone, Copy, Debug)]
struct Signs {
    heard_at: Nanos,
    told_at: Option<Nanos>,
}

impl Stalls {
    /// An epoch begins.
    pub fn begin(&mut self, now: Nanos) {
        *self = Stalls { began: now, members: BTreeMap::new() };
    }

    /// A member has answered, which shows that it hears others.
    pub fn hear(&mut self, node: NodeId, now: Nanos) {
        self.signs(node).heard_at = now;
    }

    fn signs(&mut self, node: NodeId) -> &mut Signs {
        let new = Signs { heard_at: self.began, told_at: None };
        self.members.entry(node).or_insert(new)
    }

    /// True if a member has given no answer for so long.
    #[must_use]
    pub fn is_silent(&self, node: NodeId, stall: Nanos, now: Nanos) -> bool {
        let heard_at = self.members.get(&node).map_or(self.began, |signs| signs.heard_at);
        heard_at + stall <= now
    }

    /// True if a member that owes an answer since then is to be reported now.
    pub fn is_due(&mut self, node: NodeId, since: Nanos, stall: Nanos, now: Nanos) -> bool {
        let signs = self.signs(node);
        let is_silent = since.max(signs.heard_at) + stall <= now;
        let is_late = since + Nanos(LATE * stall.0) <= now;
        let is_told = signs.told_at.is_some_and(|told_at| told_at + TELL_AGAIN > now);
        let is_due = (is_silent || is_late) && !is_told;
        if is_due {
            signs.told_at = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_member_is_reported_late_and_silent_one_soon() {
        let (node, stall, ms) = (NodeId(2), Nanos::from_millis(500), Nanos::from_millis);
        let mut stalls = Stalls::default();
        stalls.begin(ms(1_000));
        assert!(!stalls.is_due(node, ms(0), stall, ms(1_400)), "the epoch has just begun");
        assert!(stalls.is_due(node, ms(0), stall, ms(1_500)));
        assert!(!stalls.is_due(node, ms(0), stall, ms(1_540)), "it was told");
        assert!(stalls.is_due(node, ms(0), stall, ms(1_550)));
        stalls.hear(node, ms(1_600));
        assert!(!stalls.is_due(node, ms(1_000), stall, ms(2_050)));
        stalls.hear(node, ms(4_990));
        assert!(stalls.is_due(node, ms(1_000), stall, ms(5_000)), "it is stuck");
    }
}
