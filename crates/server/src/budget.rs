//! The memory that one client may take: requests under way, their expected replies, and replies
//! that wait for an earlier one. A session beyond it takes no more input, and drops no request.
//!
//! A session expects replies as long as its last ones, and the longest value until it has seen
//! some. This is wrong by much where the sizes of a client's values jump. Therefore the replies
//! that may be as long as a value are bounded in number as well.
//!
//! Replies that were written and not read are not counted here: see `node::session::OUT_LEN_MAX`.

use types::limits::VALUE_LEN_DEFAULT;

/// Bytes that a client may make the node hold as long as its replies are as long as they were.
pub(crate) const HELD_LEN_MAX: usize = 32 << 20;

/// Bytes that replies may come to if each is as long as a value can be.
const AT_RISK_LEN_MAX: usize = 128 << 20;

/// Values that may always be asked for at a time, however long they can be.
const VALUES_MIN: usize = 32;

/// The memory that one request takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cost {
    /// Bytes of the request.
    pub asked_len: usize,
    /// Replies that may be as long as a value.
    pub values: usize,
}

/// The memory that a session takes and expects to take.
#[derive(Debug)]
pub(crate) struct Budget {
    under_way: Cost,
    /// Bytes of replies that are there and cannot leave yet.
    ready_len: usize,
    /// Expected length of one of the values under way.
    expected_len: usize,
    values_max: usize,
}

impl Budget {
    /// `value_len_max` is this node's limit. Stored values may be longer: it may have been lowered.
    pub(crate) fn new(value_len_max: usize) -> Budget {
        let value_len_max = value_len_max.max(VALUE_LEN_DEFAULT);
        Budget {
            under_way: Cost::default(),
            ready_len: 0,
            expected_len: value_len_max.min(HELD_LEN_MAX / VALUES_MIN),
            values_max: (AT_RISK_LEN_MAX / value_len_max).max(VALUES_MIN),
        }
    }

    /// A request goes on its way.
    pub(crate) fn ask(&mut self, cost: Cost) {
        self.under_way.asked_len += cost.asked_len;
        self.under_way.values += cost.values;
    }

    /// A request is answered, or forgotten.
    pub(crate) fn end(&mut self, cost: Cost) {
        self.under_way.asked_len -= cost.asked_len;
        self.under_way.values -= cost.values;
    }

    /// A reply that may be as long as a value has come. The expectation rises at once, falls
    /// slowly.
    pub(crate) fn learn(&mut self, len: usize) {
        let fallen = self.expected_len - self.expected_len.saturating_sub(len) / 8;
        self.expected_len = fallen.max(len);
    }

    /// Bytes of the requests under way.
    pub(crate) fn asked_len(&self) -> usize {
        self.under_way.asked_len
    }

    pub(crate) fn hold(&mut self, len: usize) {
        self.ready_len += len;
    }

    pub(crate) fn let_go(&mut self, len: usize) {
        self.ready_len -= len;
    }

    /// All requests are forgotten.
    pub(crate) fn clear(&mut self) {
        (self.under_way, self.ready_len) = (Cost::default(), 0);
    }

    /// Another request has to wait. Never true of an empty budget: every request finds its turn.
    pub(crate) fn is_spent(&self) -> bool {
        let Cost { asked_len, values } = self.under_way;
        let expected = values.saturating_mul(self.expected_len);
        asked_len.saturating_add(self.ready_len).saturating_add(expected) >= HELD_LEN_MAX
            || values >= self.values_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: Cost = Cost { asked_len: 0, values: 1 };

    /// Asks until there is no room.
    fn fill(budget: &mut Budget) -> usize {
        let mut asked = 0;
        while !budget.is_spent() {
            budget.ask(VALUE);
            asked += 1;
        }
        asked
    }

    #[test]
    fn who_was_not_answered_yet_asks_for_few_values() {
        assert_eq!(fill(&mut Budget::new(1 << 20)), 32);
        assert_eq!(fill(&mut Budget::new(512 << 20)), 32);
    }

    #[test]
    fn lowered_limit_reckons_with_stored_values() {
        let mut budget = Budget::new(1 << 10);
        assert_eq!(fill(&mut budget), 32);
        (0..32).for_each(|_| budget.end(VALUE));
        (0..100).for_each(|_| budget.learn(100));
        assert_eq!(fill(&mut budget), AT_RISK_LEN_MAX / VALUE_LEN_DEFAULT);
    }

    #[test]
    fn short_replies_widen_and_one_long_one_narrows() {
        let mut budget = Budget::new(1 << 20);
        (0..100).for_each(|_| budget.learn(100));
        assert_eq!(fill(&mut budget), 128, "never more than what would be 128 MiB");
        (0..128).for_each(|_| budget.end(VALUE));
        budget.learn(1 << 20);
        assert_eq!(fill(&mut budget), 32);
    }

    #[test]
    fn requests_and_replies_count_by_their_length() {
        let mut budget = Budget::new(1 << 20);
        let cost = Cost { asked_len: HELD_LEN_MAX - 1, values: 0 };
        budget.ask(cost);
        assert!(!budget.is_spent());
        budget.hold(1);
        assert!(budget.is_spent());
        budget.end(cost);
        budget.let_go(1);
        budget.hold(HELD_LEN_MAX);
        assert!(budget.is_spent());
        budget.clear();
        assert!(!budget.is_spent());
    }
}
