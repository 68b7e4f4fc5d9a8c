//! The verdict on a schedule.

use base::Nanos;
use checker::linearizable::check;
use checker::model::kv::Kv;
use checker::verdict::{Limit, Verdict};
use types::{Outcome, Role, Tag};

use super::World;
use super::asks::Ask;
use crate::protocol::Protocol;

impl<P: Protocol> World<P> {
    /// Delivers and flushes until no message is left.
    pub fn drain(&mut self) {
        for _ in 0..100_000 {
            if !self.bag.is_empty() {
                let letter = self.bag.remove(0);
                self.deliver(letter);
                continue;
            }
            let mut any = false;
            for index in self.up() {
                any |= self.flush(index);
                any |= self.deliver_own(index);
            }
            if !any && self.bag.is_empty() {
                return;
            }
        }
        self.fail("messages never end".to_owned());
    }

    /// Lets time pass until these requests have ended.
    pub fn settle(&mut self, tags: &[Tag]) {
        for _ in 0..400 {
            self.drain();
            if self.fault.is_some() || tags.iter().all(|&tag| !self.is_open(tag)) {
                return;
            }
            let up = self.up();
            self.pass(Nanos::from_millis(10), up.into_iter());
        }
    }

    /// Everything works again: the group takes all nodes in, and each answers for every key.
    pub fn heal(&mut self) {
        self.long_turns = None;
        self.up().into_iter().for_each(|index| self.go_on(index));
        for index in 0..self.nodes.len() {
            if !self.nodes[index].is_up {
                self.start(index);
            }
        }
        if P::PROPERTIES.needs_config {
            self.rejoin_all();
        }
        let open: Vec<Tag> = self.open_here();
        self.settle(&open);
        let mut last = Vec::new();
        for index in 0..self.nodes.len() {
            for key in 0..self.keys.len() {
                last.push(self.ask(index, key, Ask::Get));
            }
        }
        self.settle(&last);
        for tag in self.open_here() {
            self.fail(format!("{tag:?} was never answered"));
        }
        for tag in last {
            if !matches!(self.outcomes.get(&tag), Some(Outcome::Reply(_))) {
                self.fail(format!("a read of a healed world failed: {tag:?}"));
            }
        }
    }

    fn rejoin_all(&mut self) {
        // A removed node learns of it, erases, joins as a shadow, copies, and becomes full.
        for _ in 0..4 {
            self.service.tried.0 += 1;
            self.up().into_iter().for_each(|index| self.wedge(index));
            let mut members = self.draft();
            members.retain(|&(index, _)| self.nodes[index].is_up);
            self.activate(members);
            self.up().into_iter().for_each(|index| self.install(index));
            self.up().into_iter().for_each(|index| self.erase(index));
            self.lend_all();
            for _ in 0..5 {
                self.drain();
                let up = self.up();
                self.pass(Nanos::from_millis(250), up.into_iter());
            }
        }
        let active = self.service.active.as_ref();
        let full = active.map_or(0, |active| active.full().count());
        if full < self.nodes.len() {
            self.fail(format!("only {full} nodes are full members in the end"));
        }
    }

    /// All nodes that may be members now: those of the active configuration in its order first.
    pub fn draft(&self) -> Vec<(usize, Role)> {
        let active = self.service.active.iter().flat_map(|active| active.members.iter());
        let mut order: Vec<usize> = active.map(|member| usize::from(member.node.0) - 1).collect();
        order.extend(
            (0..self.nodes.len()).filter(|index| !order.contains(index)).collect::<Vec<_>>(),
        );
        let role = |index: usize| self.eligible(index).map(|role| (index, role));
        order.into_iter().filter_map(role).collect()
    }

    /// Requests to living processes without an outcome.
    fn open_here(&self) -> Vec<Tag> {
        let lives = |(tag, asked): (&Tag, &super::Asked)| {
            let node = &self.nodes[asked.node];
            let lives = node.is_up && node.incarnation == asked.incarnation;
            (lives && self.is_open(*tag)).then_some(*tag)
        };
        self.asked.iter().filter_map(lives).collect()
    }

    /// The first fault, or the verdict on the histories.
    pub fn verdict(&mut self) -> Result<(), String> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        for (key, history) in &self.histories {
            if let Verdict::Violation(violation) =
                check(&Kv, history, Limit { explored_max: 50_000 })
            {
                return Err(format!("{key:?}: {violation}"));
            }
        }
        Ok(())
    }
}
