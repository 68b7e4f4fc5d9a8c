//! How many responses, in time order, belong to calls that have been placed without a gap.
//!
//! A call may be placed once every response before its invocation has been passed, so this one
//! number decides real-time precedence.

/// Marks a call that is not a member.
const ABSENT: u32 = u32::MAX;

pub(crate) struct ResponseCut {
    // Members by response time.
    by_response: Vec<u32>,
    responses: Vec<u64>,
    // By call: its place in `by_response`, or ABSENT.
    rank: Vec<u32>,
    // By rank.
    is_placed: Vec<bool>,
    // All ranks below are placed, this one is not.
    passed: usize,
}

impl ResponseCut {
    /// Over the members, given as (call, response time); calls are below `calls_count`.
    pub(crate) fn new(
        calls_count: usize,
        members: impl IntoIterator<Item = (usize, u64)>,
    ) -> ResponseCut {
        let mut members: Vec<(usize, u64)> = members.into_iter().collect();
        members.sort_by_key(|(call, responded)| (*responded, *call));
        let mut rank = vec![ABSENT; calls_count];
        for (at, (call, _)) in members.iter().enumerate() {
            rank[*call] = index(at);
        }
        ResponseCut {
            by_response: members.iter().map(|(call, _)| index(*call)).collect(),
            responses: members.iter().map(|(_, responded)| *responded).collect(),
            rank,
            is_placed: vec![false; members.len()],
            passed: 0,
        }
    }

    /// How many responses must be passed before a call invoked at `invoked` may be placed.
    pub(crate) fn opening(&self, invoked: u64) -> u32 {
        index(self.responses.partition_point(|responded| *responded < invoked))
    }

    pub(crate) fn passed(&self) -> usize {
        self.passed
    }

    pub(crate) fn rank(&self, call: usize) -> u32 {
        self.rank[call]
    }

    pub(crate) fn call_at(&self, rank: usize) -> usize {
        self.by_response[rank] as usize
    }

    /// Marks a call, if it is a member, and moves past every response that now can be passed.
    pub(crate) fn place(&mut self, call: usize) {
        if self.rank[call] == ABSENT {
            return;
        }
        self.is_placed[self.rank[call] as usize] = true;
        while self.is_placed.get(self.passed) == Some(&true) {
            self.passed += 1;
        }
    }

    /// Undoes the last `place` that is not undone.
    pub(crate) fn unplace(&mut self, call: usize) {
        if self.rank[call] == ABSENT {
            return;
        }
        let rank = self.rank[call] as usize;
        self.is_placed[rank] = false;
        self.passed = self.passed.min(rank);
    }

    /// Members not placed, earliest response first.
    pub(crate) fn upcoming(&self) -> impl Iterator<Item = usize> + '_ {
        (self.passed..self.by_response.len())
            .filter(|rank| !self.is_placed[*rank])
            .map(|rank| self.call_at(rank))
    }
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("OPERATIONS_MAX is below u32::MAX")
}
