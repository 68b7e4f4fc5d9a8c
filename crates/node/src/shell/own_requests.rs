//! Requests of the node's own code, to registers that users do not see.
//!
//! They take the path of clients' requests to the worker that owns the key. Their tags name no
//! worker, so their outcomes come back here.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use types::{Outcome, Tag};

use crate::config::WORKERS_MAX;

/// Requests without an outcome, at most. Further ones end with [`Outcome::NoQuorum`] at once.
const WAITING_MAX: usize = 1 << 10;

/// In the place of the worker in a tag.
pub(super) const NO_WORKER: usize = 0xff;
const _: () = assert!(WORKERS_MAX <= NO_WORKER);

/// Takes the outcome of a request, on the thread of a worker: it must not wait.
pub(crate) type OutcomeHandler = Box<dyn FnOnce(Outcome) + Send>;

/// The requests that wait for their outcome.
#[derive(Default)]
pub(crate) struct OwnRequests {
    waiting: Mutex<WaitingRequests>,
}

#[derive(Default)]
struct WaitingRequests {
    last: u64,
    answers: BTreeMap<Tag, OutcomeHandler>,
}

impl OwnRequests {
    /// The tag of a new request; its answer comes back where there are too many.
    pub(super) fn add(&self, answer: OutcomeHandler) -> Result<Tag, OutcomeHandler> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.answers.len() >= WAITING_MAX {
            return Err(answer);
        }
        waiting.last += 1;
        let tag = Tag((NO_WORKER as u64) << 56 | waiting.last);
        waiting.answers.insert(tag, answer);
        Ok(tag)
    }

    /// # Panics
    /// If the request ended before: one of two outcomes would be a lie.
    pub(super) fn end(&self, tag: Tag, outcome: Outcome) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = waiting.answers.remove(&tag).expect("a request ends once");
        drop(waiting);
        answer(outcome);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn waiting_requests_are_bounded() {
        let (sender, heard) = mpsc::channel();
        let requests = OwnRequests::default();
        let answer = || -> OutcomeHandler {
            let sender = sender.clone();
            Box::new(move |outcome| sender.send(outcome).expect("the test listens"))
        };
        let tags: Vec<Tag> = (0..WAITING_MAX).map_while(|_| requests.add(answer()).ok()).collect();
        assert_eq!(tags.len(), WAITING_MAX);
        assert!(requests.add(answer()).is_err());
        requests.end(tags[3], Outcome::Unknown);
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [Outcome::Unknown]);
        assert!(requests.add(answer()).is_ok_and(|tag| !tags.contains(&tag)));
    }
}
