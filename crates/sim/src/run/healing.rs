//! The second act: faults are over, and everything comes to rest.

use super::*;

/// How long reads may be stale after healing, where the protocol lets them be.
const STALE_MAX: u64 = 1_000 * MILLI;

impl Run {
    /// Waits until all requests are answered and all nodes are idle and recovered; then reads every
    /// key through every node.
    pub(super) fn act_of_healing(&mut self) -> Result<(), Wrong> {
        self.end_requests()?;
        let healed = self.heal();
        // The last reads may be those that find damage.
        if self.world.has_lost_its_group() {
            return self.stand_still();
        }
        healed
    }

    fn heal(&mut self) -> Result<(), Wrong> {
        self.settle()?;
        if self.expires() {
            self.let_expire()?;
            self.settle()?;
        }
        if self.profile.has_transactions() {
            self.end_transactions()?;
            self.settle()?;
        }
        self.world.watchers.iter_mut().for_each(|watcher| watcher.on_rest());
        for key in 0..self.profile.keys.len() {
            self.agree(key)?;
        }
        self.settle()?;
        if self.profile.has_transactions() {
            self.forget_records()?;
            self.settle()?;
        }
        // Nodes that compare replicas again and again are never silent.
        if self.profile.scrub.compare_every > Nanos::ZERO {
            return Ok(());
        }
        self.be_silent()?;
        self.leave_nothing()
    }

    /// A group without a whole copy says so, and waits for an operator.
    fn stand_still(&mut self) -> Result<(), Wrong> {
        self.is_lost = true;
        self.run_until(self.world.now() + IDLE_MAX, |run| run.world.is_loss_known())?;
        match self.world.is_loss_known() {
            true => Ok(()),
            false => {
                let groups = self.world.groups_text();
                Err(format!("no whole copy is left, and no node says so:{groups}").into())
            }
        }
    }

    /// Stops the clients and waits for their outstanding answers.
    pub(super) fn end_requests(&mut self) -> Result<(), Wrong> {
        self.ops_left = 0;
        let bound = self.answered_by();
        self.run_until(bound, |run| run.clients.outstanding == 0)?;
        if let Some(op) = self.clients.oldest_outstanding() {
            let reason = format!("{:?} was never answered by n{}", op.input, op.node + 1);
            return Err(Wrong::of_key(op.key, reason));
        }
        Ok(())
    }

    /// The time by which nodes answer or give up requests sent now.
    pub(super) fn answered_by(&self) -> u64 {
        self.world.now() + self.profile.request_timeout * SLOWEST + SLACK
    }

    fn expires(&self) -> bool {
        self.clients.ops.iter().any(|op| {
            op.verb == Verb::Acquire
                || match &op.input {
                    Input::Text(KvInput::SetExpiring(..) | KvInput::ExpireIn(_)) => true,
                    Input::Transaction(input) => input.expires(),
                    _ => false,
                }
        })
    }

    /// Waits until all values that a majority holds have expired by the slowest clock.
    pub(super) fn let_expire(&mut self) -> Result<(), Wrong> {
        let longest = self.profile.ttl_max * MILLI * 4 + 100 * MILLI;
        self.run_for(longest)
    }

    pub(super) fn settle(&mut self) -> Result<(), Wrong> {
        let lines_last = self.profile.habits.window.0 * MILLI * SLOWEST;
        let locks_last = if self.profile.has_transactions() { LINGER_MAX } else { 0 };
        self.run_until(self.world.now() + IDLE_MAX + lines_last + locks_last, |run| {
            let is_lost = run.world.has_lost_its_group() && run.world.is_loss_known();
            is_lost || run.world.is_idle() && run.world.is_connected() && run.world.groups_serve()
        })?;
        match self.world.busy() {
            Some(busy) => {
                let groups = self.world.groups_text();
                Err(format!("long after healing: {busy}{groups}").into())
            }
            None if !self.world.groups_serve() => {
                let groups = self.world.groups_text();
                Err(format!("long after healing a node does not serve:{groups}").into())
            }
            None => Ok(()),
        }
    }

    /// Every node comes to show the same value, and none that should have expired. A value that
    /// only a minority had accepted may still surface, once per read that meets it.
    fn agree(&mut self, key: usize) -> Result<(), Wrong> {
        let nodes = self.world.node_count();
        let has_expired = |value: &Output| match value {
            Output::Text(KvOutput::Value(Some(bytes))) => bytes.as_slice().first() == Some(&b't'),
            _ => false,
        };
        let mut seen = Vec::new();
        for _ in 0..=nodes {
            seen.clear();
            for node in 0..nodes {
                seen.push(self.read_finally(key, node)?);
            }
            if seen.iter().all(|value| *value == seen[0]) && !has_expired(&seen[0]) {
                return self.end_lifetime(key);
            }
            if self.consistency == Consistency::SequentialReads {
                // A leader without followers may take a while to notice.
                self.run_for(STALE_MAX)?;
            }
            // The countdown of a value accepted by a minority began with the first read that met
            // it.
            if seen.iter().any(has_expired) {
                self.let_expire()?;
            }
        }
        let reason = match seen.iter().any(has_expired) {
            true => format!("long after its time: {seen:?}"),
            false => format!("nodes disagree for good: {seen:?}"),
        };
        Err(Wrong::of_key(key, reason))
    }

    /// A value whose time to live would be over by now has none.
    fn end_lifetime(&mut self, key: usize) -> Result<(), Wrong> {
        if self.profile.keys[key] != Mix::Lifetimes {
            return Ok(());
        }
        match self.ask_finally(key, 0, KvInput::Persist.into())? {
            Output::Text(KvOutput::Integer(0)) => Ok(()),
            had => Err(Wrong::of_key(key, format!("long after its time PERSIST says {had:?}"))),
        }
    }

    pub(super) fn read_finally(&mut self, key: usize, node: usize) -> Result<Output, Wrong> {
        self.ask_finally(key, node, self.profile.keys[key].read(key))
    }

    pub(super) fn ask_finally(
        &mut self,
        key: usize,
        node: usize,
        input: Input,
    ) -> Result<Output, Wrong> {
        for _ in 0..FINAL_TRIES {
            let id = self.clients.ops.len();
            if self.clients.ask_node(&mut self.world, node, key, input.clone()) {
                let bound = self.answered_by();
                self.run_until(bound, |run| run.clients.outstanding == 0)?;
                match &self.clients.ops[id].ended {
                    Some((_, Ended::Returned(value))) => return Ok(value.clone()),
                    Some(_) => {}
                    None => {
                        let reason = format!("a read through n{} was never answered", node + 1);
                        return Err(Wrong::of_key(key, reason));
                    }
                }
            }
            self.run_for(10 * MILLI)?;
        }
        let reason = format!("long after healing no read through n{} succeeds", node + 1);
        Err(Wrong::of_key(key, reason))
    }
}
