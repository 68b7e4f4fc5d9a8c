//! A queue whose items may add items while they are carried out.

use std::collections::VecDeque;

/// Items in the order in which they were added. One loop takes them at a time: an item that adds
/// others finds the loop running and leaves them to it.
#[derive(Debug)]
pub(super) struct InOrder<T> {
    waiting: VecDeque<T>,
    is_running: bool,
}

impl<T> InOrder<T> {
    pub fn new() -> InOrder<T> {
        InOrder { waiting: VecDeque::new(), is_running: false }
    }

    /// Adds items. True if the caller has to take them, until [`InOrder::next`] has none.
    pub fn add(&mut self, items: impl IntoIterator<Item = T>) -> bool {
        self.waiting.extend(items);
        !std::mem::replace(&mut self.is_running, true)
    }

    pub fn next(&mut self) -> Option<T> {
        let next = self.waiting.pop_front();
        self.is_running = next.is_some();
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A send whose link ends takes a step of its own: the record of the earlier step comes first.
    #[test]
    fn items_added_meanwhile_come_last() {
        let mut queue = InOrder::new();
        let mut done = Vec::new();
        assert!(queue.add(["send", "persist 1"]));
        while let Some(item) = queue.next() {
            if item == "send" {
                assert!(!queue.add(["persist 2"]), "the outer loop carries it out");
            }
            done.push(item);
        }
        assert_eq!(done, ["send", "persist 1", "persist 2"]);
        assert!(queue.add(["send"]), "the next step begins a loop");
    }
}
