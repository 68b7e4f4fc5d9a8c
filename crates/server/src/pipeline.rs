//! Replies in the order of the requests: outcomes come in any order, the ready front leaves.

use std::collections::VecDeque;

use base::Nanos;
use bytes::Bytes;
use commands::Combine;
use node::session::Token;
use types::{Command, Database, Key, Outcome, Reply};

use crate::budget::{Budget, Cost};
use crate::counts::Verdict;
use crate::recorder::{Call, verdict};
use crate::wait::Wait;
use crate::walk::Walk;
use crate::words::{Words, WordsAt};
use crate::{encoding, outcomes};

/// Bits of a token that name the part of a request.
const PART_BITS: u32 = 24;
/// Numbers wrap around, far beyond the number of pending requests.
const NUMBER_MASK: u64 = (1 << (64 - PART_BITS)) - 1;
/// Requests of one connection without a written reply.
const PENDING_MAX: usize = 4096;
/// Parts of one request under way at a time.
pub(crate) const PARTS_AT_ONCE: usize = 256;
/// Bytes of one reply that is put together from parts.
const REPLY_LEN_MAX: usize = 256 << 20;

/// A request that was not answered yet, or whose answer waits for earlier ones.
pub(crate) struct Pending {
    pub resp3: bool,
    /// `CLIENT REPLY OFF` or `SKIP`: the client gets no reply.
    pub muted: bool,
    /// Statistics of the request, unless they are complete.
    pub call: Option<Call>,
    /// A copy of its arguments for the slow log.
    pub words: Option<WordsAt>,
    pub answer: Answer,
}

pub(crate) enum Answer {
    Ready(Reply),
    /// For one reply; its cost until then.
    Waiting(Cost),
    Parts(Box<Parts>),
    Walk(Box<Walk>),
    Wait(Wait),
}

/// A command on several keys.
pub(crate) struct Parts {
    pub database: Database,
    pub command: Command,
    pub keys: Vec<Key>,
    pub combine: Combine,
    outcomes: Vec<Option<Outcome>>,
    asked: usize,
    answered: usize,
    len: usize,
    cost: Cost,
}

impl Parts {
    pub(crate) fn new(
        database: Database,
        command: Command,
        keys: Vec<Key>,
        combine: Combine,
    ) -> Parts {
        let outcomes = vec![None; keys.len()];
        let keys_len: usize = keys.iter().map(|key| key.bytes().len()).sum();
        let values = if combine == Combine::Array { keys.len().min(PARTS_AT_ONCE) } else { 0 };
        let cost = Cost { asked_len: keys_len + command.body.len(), values };
        Parts { database, command, keys, combine, outcomes, asked: 0, answered: 0, len: 0, cost }
    }

    /// The next key to ask, while not too many are under way.
    pub(crate) fn next_ask(&mut self) -> Option<(usize, Key)> {
        if self.asked == self.keys.len() || self.asked - self.answered >= PARTS_AT_ONCE {
            return None;
        }
        self.asked += 1;
        Some((self.asked - 1, self.keys[self.asked - 1].clone()))
    }

    fn take(&mut self, part: usize, outcome: Outcome) {
        self.len += outcomes::len(&outcome);
        if let Some(slot) = self.outcomes.get_mut(part)
            && slot.replace(outcome).is_none()
        {
            self.answered += 1;
        }
    }

    fn finished(&mut self) -> Option<Outcome> {
        if self.len > REPLY_LEN_MAX {
            // Outcomes of requests under way are ignored.
            let error = Reply::error("ERR reply too large: ask for fewer keys");
            return Some(Outcome::Reply(error));
        }
        if self.answered < self.keys.len() {
            return None;
        }
        let parts = self.outcomes.drain(..).flatten().collect();
        let is_update = !self.command.access.is_read();
        Some(outcomes::of_parts(parts, self.combine, is_update))
    }
}

/// A request that was completed, for its statistics.
pub(crate) struct Ended {
    pub call: Call,
    pub verdict: Verdict,
    pub words: Option<WordsAt>,
}

/// The requests of one session, oldest first.
pub(crate) struct Pipeline {
    words: Words,
    first: u64,
    pending: VecDeque<Pending>,
    budget: Budget,
}

impl Answer {
    /// Its cost while it is under way.
    fn cost(&self) -> Cost {
        match self {
            Answer::Waiting(cost) => *cost,
            Answer::Parts(parts) => parts.cost,
            Answer::Ready(_) | Answer::Walk(_) | Answer::Wait(_) => Cost::default(),
        }
    }
}

impl Pipeline {
    pub(crate) fn new(value_len_max: usize) -> Pipeline {
        let (words, first, pending) = Default::default();
        Pipeline { words, first, pending, budget: Budget::new(value_len_max) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Bytes of the requests under way.
    pub(crate) fn asked_len(&self) -> usize {
        self.budget.asked_len()
    }

    /// True where the next reply is that of a `WAIT` which has not ended.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.pending.front(), Some(Pending { answer: Answer::Wait(_), .. }))
    }

    /// True when no more may be taken before something leaves.
    pub(crate) fn is_full(&self) -> bool {
        self.pending.len() >= PENDING_MAX || self.budget.is_spent()
    }

    /// Appends a request and returns its number.
    pub(crate) fn push(&mut self, pending: Pending) -> u64 {
        match &pending.answer {
            Answer::Ready(reply) => self.budget.hold(reply.len()),
            under_way => self.budget.ask(under_way.cost()),
        }
        self.pending.push_back(pending);
        self.first.wrapping_add(self.pending.len() as u64 - 1) & NUMBER_MASK
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Pending> {
        let at = self.place(number)?;
        self.pending.get_mut(at)
    }

    fn place(&self, number: u64) -> Option<usize> {
        usize::try_from(number.wrapping_sub(self.first) & NUMBER_MASK).ok()
    }

    /// Copies the arguments of the last request, which is under way.
    pub(crate) fn keep_words(&mut self, args: &[&[u8]]) {
        if let Some(last) = self.pending.back_mut() {
            last.words = Some(self.words.put(args));
        }
    }

    pub(crate) fn words(&self, at: WordsAt) -> Vec<Bytes> {
        self.words.get(at)
    }

    /// Answers a pending request.
    pub(crate) fn answer(&mut self, number: u64, outcome: Outcome) -> Option<Ended> {
        let verdict = verdict(&outcome);
        let reply = outcomes::reply(outcome);
        let len = reply.len();
        let pending = self.get_mut(number)?;
        let cost = pending.answer.cost();
        let before = std::mem::replace(&mut pending.answer, Answer::Ready(reply));
        debug_assert!(!matches!(before, Answer::Ready(_)), "a request is answered once");
        let (call, words) = (pending.call.take(), pending.words);
        self.budget.end(cost);
        self.budget.hold(len);
        Some(Ended { call: call?, verdict, words })
    }

    /// Forgets all requests. Their later outcomes are ignored.
    pub(crate) fn clear(&mut self) {
        self.first = self.first.wrapping_add(self.pending.len() as u64) & NUMBER_MASK;
        self.pending.clear();
        self.words = Words::default();
        self.budget.clear();
    }

    /// Takes the outcome of a part of a request, which may complete it: see [`Pipeline::answer`].
    pub(crate) fn take_part(
        &mut self,
        number: u64,
        part: usize,
        outcome: Outcome,
    ) -> Option<Ended> {
        let at = self.place(number);
        let pending = at.and_then(|at| self.pending.get_mut(at))?;
        match &mut pending.answer {
            Answer::Waiting(cost) => {
                if cost.values > 0 {
                    self.budget.learn(outcomes::len(&outcome));
                }
                self.answer(number, outcome)
            }
            Answer::Parts(parts) => {
                if parts.cost.values > 0 {
                    self.budget.learn(outcomes::len(&outcome));
                }
                parts.take(part, outcome);
                let outcome = parts.finished()?;
                self.answer(number, outcome)
            }
            Answer::Ready(_) | Answer::Walk(_) | Answer::Wait(_) => None,
        }
    }

    /// Writes the ready front. `note` sees every reply once.
    pub(crate) fn flush(&mut self, out: &mut Vec<u8>, mut note: impl FnMut(&Reply)) {
        while let Some(Pending { answer: Answer::Ready(_), .. }) = self.pending.front() {
            let Some(Pending { resp3, muted, words, answer: Answer::Ready(reply), .. }) =
                self.pending.pop_front()
            else {
                return;
            };
            if let Some(words) = words {
                self.words.release(words);
            }
            self.first = self.first.wrapping_add(1) & NUMBER_MASK;
            self.budget.let_go(reply.len());
            note(&reply);
            if !muted {
                encoding::put(out, &reply, resp3);
            }
        }
    }

    /// Ends the waits whose time has come and returns when the next one does.
    pub(crate) fn settle_waits(&mut self, now: Nanos) -> Option<Nanos> {
        let mut next: Option<Nanos> = None;
        for pending in &mut self.pending {
            let Answer::Wait(wait) = pending.answer else { continue };
            if wait.until > now {
                next = Some(next.map_or(wait.until, |earlier| earlier.min(wait.until)));
                continue;
            }
            let reply = Reply::Integer(wait.known);
            self.budget.hold(reply.len());
            pending.answer = Answer::Ready(reply);
        }
        next
    }
}

pub(crate) fn token(number: u64, part: usize) -> Token {
    Token(number << PART_BITS | part as u64)
}

pub(crate) fn number_and_part(token: Token) -> (u64, usize) {
    (token.0 >> PART_BITS, (token.0 & ((1 << PART_BITS) - 1)) as usize)
}

#[cfg(test)]
mod tests {
    use types::Access;

    use super::*;

    fn waiting() -> Pending {
        Pending {
            resp3: true,
            muted: false,
            call: None,
            words: None,
            answer: Answer::Waiting(Cost::default()),
        }
    }

    #[test]
    fn replies_leave_in_the_order_of_the_requests() {
        let mut pipeline = Pipeline::new(1 << 20);
        let numbers: Vec<u64> = (0..3).map(|_| pipeline.push(waiting())).collect();
        let mut out = Vec::new();
        let told = |number| Outcome::Reply(Reply::Integer(number));
        pipeline.take_part(numbers[2], 0, told(3));
        pipeline.flush(&mut out, |_| {});
        assert!(out.is_empty());
        pipeline.take_part(numbers[0], 0, told(1));
        pipeline.flush(&mut out, |_| {});
        assert_eq!(out, b":1\r\n");
        pipeline.take_part(numbers[1], 0, told(2));
        pipeline.flush(&mut out, |_| {});
        assert_eq!(out, b":1\r\n:2\r\n:3\r\n");
        assert!(pipeline.is_empty());
    }

    #[test]
    fn parts_are_asked_for_in_portions_and_combined() {
        let keys: Vec<Key> = (0..600).map(|n: u32| Key::new(&n.to_le_bytes())).collect();
        let command = Command::new(Access::Update, Bytes::new());
        let mut parts = Parts::new(Database(0), command, keys, Combine::Sum);
        let mut answered = 0;
        let mut asked: VecDeque<usize> = VecDeque::new();
        while answered < 600 {
            while let Some((part, _)) = parts.next_ask() {
                asked.push_back(part);
            }
            assert!(asked.len() <= PARTS_AT_ONCE && parts.finished().is_none());
            let part = asked.pop_back().expect("something is under way");
            parts.take(part, Outcome::Reply(Reply::Integer(1)));
            answered += 1;
        }
        assert_eq!(parts.finished(), Some(Outcome::Reply(Reply::Integer(600))));
    }

    #[test]
    fn tokens_name_request_and_part() {
        assert_eq!(number_and_part(token(77, 1_000_000)), (77, 1_000_000));
    }
}
