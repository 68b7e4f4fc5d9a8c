//! Commands that met a transaction's lock. They wait here, or at the node that forwarded them.

use types::{Lock, Outcome};

use super::instance::Core;
use crate::rmwpaxos::context::Cx;
use crate::rmwpaxos::progress::active::{Active, LockedOut};
use crate::rmwpaxos::progress::operation::Operation;

impl Core {
    /// These met a lock: they wait for its end, in order.
    pub(crate) fn lock_out(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        lock: Lock,
        mut operations: Vec<Operation>,
    ) {
        self.send_back(cx, &lock, &mut operations);
        if operations.is_empty() {
            return;
        }
        if LockedOut::add(&mut active.locked_out, lock.clone(), operations) {
            cx.fx.locked(active.key.clone(), lock);
        }
    }

    /// While a transaction holds the key, queued commands wait behind those that met its lock.
    /// Attempts are resolved first.
    pub(crate) fn step_aside(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let Some((lock, waiting)) = active.step_aside() else { return };
        self.lock_out(cx, active, lock, waiting);
    }

    /// A proposal is chosen whose base is without the attempts of those that wait: none of these
    /// attempts will ever be chosen.
    pub(super) fn exclude_attempts(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let Some(locked_out) = &mut active.locked_out else { return };
        if !locked_out.operations.iter().any(Operation::has_attempts) {
            return;
        }
        locked_out.operations.iter_mut().for_each(|operation| operation.attempts.clear());
        let lock = locked_out.lock.clone();
        self.send_back(cx, &lock, &mut locked_out.operations);
        active.locked_out.take_if(|it| it.operations.is_empty());
    }

    /// Answers other nodes' commands that this lock kept from running. They wait at their origins,
    /// which look after the lock.
    fn send_back(&mut self, cx: &mut Cx<'_>, lock: &Lock, operations: &mut Vec<Operation>) {
        let is_back = |operation: &Operation| operation.is_forwarded() && !operation.has_attempts();
        if !operations.iter().any(is_back) {
            return;
        }
        let (back, stay): (Vec<_>, Vec<_>) =
            std::mem::take(operations).into_iter().partition(is_back);
        *operations = stay;
        for operation in back {
            self.answer(cx, &operation, Outcome::not_run(lock.clone()));
        }
    }
}
