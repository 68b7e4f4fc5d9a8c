//! Transactions after all faults have ended.

use types::key::SHARDS;
use types::{Outcome, Shard, Tag};

use super::*;
use crate::judge;
use crate::workload::transactions::{Beside, Shown, Step, TransactionInput, TransactionOutput};
use crate::world::DATABASE;

/// Tags of listings.
pub(super) const LISTINGS: u64 = 1 << 60;
/// Rounds of transfers that all nodes begin at one time.
const ROUNDS: u64 = 3;

impl Run {
    /// Snapshots of all keys succeed through every node, and no expired string stays. Contended
    /// transfers make progress.
    pub(super) fn end_transactions(&mut self) -> Result<(), Wrong> {
        let keys = &self.profile.keys;
        let lists: Vec<usize> = (0..keys.len()).filter(|&it| keys[it].is_of_lists()).collect();
        let accounts: Vec<usize> =
            (0..keys.len()).filter(|&it| keys[it] == Mix::Transfers).collect();
        if !accounts.is_empty() {
            for round in 0..ROUNDS {
                self.make_progress(&accounts, round)?;
            }
        }
        for node in 0..self.world.node_count() {
            if let Some(&first) = lists.first() {
                self.see_lists(node, first, &lists)?;
            }
            if let Some(&first) = accounts.first() {
                self.ask_finally(first, node, TransactionInput::alone(Step::Balances).into())?;
            }
        }
        Ok(())
    }

    /// The countdown of a string begins when its key is settled, which may be at the first
    /// snapshot.
    fn see_lists(&mut self, node: usize, first: usize, lists: &[usize]) -> Result<(), Wrong> {
        for _ in 0..=lists.len() {
            if !self.see_lists_once(node, first, lists)? {
                return Ok(());
            }
            self.let_expire()?;
        }
        Err("long after its time a string is still there".to_owned().into())
    }

    /// True if a string is there that will expire.
    fn see_lists_once(
        &mut self,
        node: usize,
        first: usize,
        lists: &[usize],
    ) -> Result<bool, Wrong> {
        let both = |&list: &usize| [Step::Range { list }, Step::Beside { list }];
        let steps: Vec<Step> = lists.iter().flat_map(both).collect();
        let input = TransactionInput::exec(steps);
        let shown = match self.ask_finally(first, node, input.into())? {
            Output::Transaction(TransactionOutput::Ran { shown, .. }) => shown,
            other => return Err(format!("a snapshot shows {other:?}").into()),
        };
        let mut is_expiring = false;
        for pair in shown.chunks_exact(2) {
            let [Shown::List(elements), Shown::Beside(string)] = pair else { continue };
            is_expiring |= string.is_some_and(|it| Beside::of(it) == Beside::Expires);
            if !judge::transactions::explains(elements, *string) {
                let reason = format!("in the end: {elements:?}, and beside it {string:?}");
                return Err(reason.into());
            }
        }
        Ok(is_expiring)
    }

    /// All nodes begin transfers over the same accounts. Some succeed.
    fn make_progress(&mut self, accounts: &[usize], round: u64) -> Result<(), Wrong> {
        let from = self.clients.ops.len();
        for node in 0..self.world.node_count() {
            for other in 0..2 {
                let at = |it: u64| accounts[(it as usize) % accounts.len()];
                let to = at(round + other + node as u64 + 1);
                let steps = vec![
                    Step::Add { account: to, amount: 1 },
                    Step::Add { account: at(round + other), amount: -1 },
                ];
                let input = TransactionInput::exec(steps);
                self.clients.ask_node(&mut self.world, node, to, input);
            }
        }
        let bound = self.answered_by();
        self.run_until(bound, |run| run.clients.outstanding == 0)?;
        let ops = &self.clients.ops[from..];
        if ops.iter().any(|op| matches!(op.ended, Some((_, Ended::Returned(_))))) {
            return Ok(());
        }
        let ended: Vec<_> = ops.iter().map(|op| &op.ended).collect();
        Err(format!("long after healing no transfer succeeds: {ended:?}").into())
    }

    /// No record is left: the patrol forgets those of coordinators that died. \[T14\]
    pub(super) fn forget_records(&mut self) -> Result<(), Wrong> {
        let nodes = self.world.node_count();
        for shard in 0..SHARDS {
            let shard = Shard(shard as u8);
            self.listed = None;
            let tag = Tag(LISTINGS + u64::from(shard.0));
            let node = usize::from(shard.0) % nodes;
            if !self.world.list(node, tag, DATABASE.hidden(), shard.first_hash(), usize::MAX) {
                return Err(format!("n{} does not list records", node + 1).into());
            }
            let bound = self.answered_by();
            self.run_until(bound, |run| run.listed.is_some())?;
            match &self.listed {
                Some(Outcome::Listed { keys, .. }) if keys.is_empty() => {}
                Some(Outcome::Listed { keys, .. }) => {
                    return Err(format!("at rest: records are left: {keys:?}").into());
                }
                other => {
                    return Err(format!("records of {shard:?} are not listed: {other:?}").into());
                }
            }
        }
        Ok(())
    }

    /// Registers that may be in memory at rest; `None`: any number, since absent ones stay for a
    /// while.
    pub(super) fn resident_max(&self) -> Option<usize> {
        let is_exact = !self.profile.has_transactions();
        is_exact.then_some(self.profile.keys.len() * self.world.node_count())
    }
}
