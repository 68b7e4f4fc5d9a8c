//! Random faults and schedules, and two stories that random schedules tell rarely.

use std::collections::BTreeSet;

use types::{NodeId, Role};

use super::world::{Body, Check, Counts, GROUP, MS, TIMING, World};
use crate::{GroupValue, Input, Phase};
use base::Nanos;

/// Runs one world: chaos, sometimes a story, sometimes healing.
pub(super) fn explore(seed: u64) -> Result<Counts, String> {
    let mut world = World::new(seed);
    let end = run(&mut world, seed);
    if let Some(log) = &world.log {
        println!("{}", log.join("\n"));
    }
    end.map_err(|violation| violation.to_string())?;
    Ok(world.counts)
}

fn run(world: &mut World, seed: u64) -> Check {
    world.form()?;
    world.chaos()?;
    if seed % 8 == 3 {
        world.story_of_one_left_out()?;
    }
    if seed % 8 == 7 {
        world.story_of_restarted_granters()?;
    }
    if seed.is_multiple_of(8) { world.heal() } else { Ok(()) }
}

impl World {
    /// Nodes form their group undisturbed.
    pub(super) fn form(&mut self) -> Check {
        let all = self.all();
        for _ in 0..400 {
            if self.is_settled(&all) {
                return Ok(());
            }
            self.advance(&all)?;
        }
        super::world::fail("no group came to be".into())
    }

    /// All members of the active configuration have installed it.
    pub(super) fn is_settled(&self, nodes: &BTreeSet<usize>) -> bool {
        let Some(value) = self.value().filter(GroupValue::is_active) else { return false };
        value.members().iter().map(|member| usize::from(member.node.0) - 1).all(|node| {
            let worker = &self.nodes[node].workers[0];
            nodes.contains(&node) && worker.epoch() == value.epoch() && !worker.is_sealed
        })
    }

    /// Delivers messages, operations and orders inside `nodes` while no time passes.
    pub(super) fn settle(&mut self, nodes: &BTreeSet<usize>, limit: usize) -> Check {
        for _ in 0..limit {
            for &node in nodes {
                if self.runs(node) {
                    self.flush(node, usize::MAX)?;
                    for worker in 0..2 {
                        while self.work(node, worker)? {}
                    }
                    self.hear_workers(node)?;
                }
            }
            let operation = self.operations.iter().position(|one| nodes.contains(&one.node));
            if let Some(place) = operation.filter(|&one| self.runs(self.operations[one].node)) {
                self.finish_operation(place)?;
                continue;
            }
            let inside = |one: &super::world::Packet| {
                nodes.contains(&one.from) && nodes.contains(&one.to) && self.runs(one.to)
            };
            let Some(place) = self.net.iter().position(inside) else { return Ok(()) };
            self.deliver(place)?;
        }
        Ok(())
    }

    /// Lets time pass until a node of `nodes` has a timer due, and settles.
    pub(super) fn advance(&mut self, nodes: &BTreeSet<usize>) -> Check {
        let due = |&node: &usize| {
            let service = self.nodes[node].service.as_ref().filter(|_| self.runs(node))?;
            Some(self.when(node, service.deadline()?))
        };
        let next = nodes.iter().filter_map(due).min().unwrap_or(self.now + 20 * MS);
        self.now = next.max(self.now + MS / 100).min(self.now + 30 * MS);
        for &node in nodes {
            let clock = self.clock(node);
            let service = self.nodes[node].service.as_ref();
            if service.and_then(crate::Membership::deadline).is_some_and(|at| at <= clock) {
                self.tick(node)?;
                self.chores(node)?;
            }
        }
        self.settle(nodes, 400)
    }

    /// The protocol's part: copies, replays, repeated writes and complaints.
    pub(super) fn chores(&mut self, node: usize) -> Check {
        if !self.runs(node) {
            return Ok(());
        }
        self.copy(node);
        for key in 0..2 {
            self.replay(node, key)?;
            self.repeat(node, key);
        }
        for stalled in self.stalled(node) {
            let stalled = NodeId(stalled as u16 + 1);
            self.input(node, Input::Suspect { group: GROUP, node: stalled })?;
        }
        Ok(())
    }

    fn any(&mut self) -> usize {
        self.random.below(self.nodes.len() as u64) as usize
    }

    /// A random quorum or more, mostly of the nodes that are not apart.
    fn some(&mut self) -> BTreeSet<usize> {
        let mut nodes: Vec<usize> = self.all().into_iter().collect();
        if self.random.chance(0.9) {
            nodes.retain(|node| !self.apart.contains(node));
        }
        let least = self.majority().min(nodes.len());
        let count = self.random.between(least as u64, nodes.len() as u64) as usize;
        self.sample(nodes, count)
    }

    fn sample(&mut self, mut nodes: Vec<usize>, count: usize) -> BTreeSet<usize> {
        while nodes.len() > count {
            let place = self.random.below(nodes.len() as u64) as usize;
            nodes.swap_remove(place);
        }
        nodes.into_iter().collect()
    }

    pub(super) fn chaos(&mut self) -> Check {
        self.is_rough = true;
        let (mut wipes, mut crashes) =
            (*self.random.pick(&[0, 1, 2]), *self.random.pick(&[1, 2, 4]));
        let steps = *self.random.pick(&[100, 200, 300]);
        let mut burst = false;
        for _ in 0..steps {
            let span = *self.random.pick(&[0, 0, 1, 1, 2]);
            self.now += span * MS;
            if self.random.chance(0.012) {
                let jump = *self.random.pick(&[20, 50, 100, 140]);
                self.now += jump * MS;
            }
            if self.random.chance(0.02) {
                let apart = *self.random.pick(&[0, 1, 1, 1, 2]);
                let all = self.all().into_iter().collect();
                self.apart = self.sample(all, apart.min(self.nodes.len() - self.majority()));
            }
            if !self.net.is_empty() && (burst || self.random.chance(0.4)) {
                let last = self.net.len() - 1;
                let place = match self.random.unit() {
                    _ if burst => last,
                    draw if draw < 0.35 => last,
                    draw if draw < 0.8 => self.random.below(last as u64 + 1) as usize,
                    _ => 0,
                };
                self.deliver(place)?;
                burst = self.random.chance(0.55);
                continue;
            }
            burst = false;
            self.act(&mut wipes, &mut crashes)?;
            let many = self.net.len().saturating_sub(120);
            self.net.drain(..many);
        }
        Ok(())
    }

    fn act(&mut self, wipes: &mut u32, crashes: &mut u32) -> Check {
        let node = self.any();
        match self.random.below(100) {
            0..10 => {
                let some = self.some();
                for _ in 0..*self.random.pick(&[1, 5, 20, 40]) {
                    self.advance(&some)?;
                }
                if self.random.chance(0.5) {
                    self.write_then_read(&some)?;
                }
            }
            10..16 => {
                let some = &self.some() | &BTreeSet::from([node]);
                self.tick(node)?;
                self.settle(&some, 60)?;
            }
            16..24 => {
                let some = &self.some() | &BTreeSet::from([node]);
                self.client(node, &some)?;
            }
            24..30 => drop(self.read_at_once(node)?),
            30..36 => {
                let some = self.some();
                self.write_then_read(&some)?;
            }
            36..44 => self.tick(node)?,
            44..50 => {
                self.chores(node)?;
            }
            50..58 => self.begin_read(node),
            58..70 => self.continue_read()?,
            70..78 => {
                let count = self.operations.len() as u64;
                if count > 0 {
                    let place = self.random.below(count) as usize;
                    self.step_operation(place)?;
                }
            }
            78..82 => self.progress(node)?,
            82..86 => self.cut(),
            86..90 => self.accuse(node)?,
            90..92 => {
                if self.is_up(node) {
                    let span = *self.random.pick(&[20, 60, 150]);
                    self.pause(node, span * MS);
                }
            }
            92..95 => self.jump_to_agreement()?,
            _ => self.crash_or_start(node, wipes, crashes)?,
        }
        Ok(())
    }

    /// The node's queues move on by some steps.
    fn progress(&mut self, node: usize) -> Check {
        if self.runs(node) {
            let steps = self.random.below(4) as usize;
            self.flush(node, steps)?;
            let worker = self.random.below(2) as usize;
            self.work(node, worker)?;
            if self.nodes[node].effects.is_empty() {
                self.hear_workers(node)?;
            }
        }
        Ok(())
    }

    fn cut(&mut self) {
        let (one, other) = (self.any(), self.any());
        match self.random.below(4) {
            0 | 1 => self.cuts.clear(),
            2 => drop(self.cuts.insert((one, other))),
            _ => {
                let both = self.random.chance(0.7);
                for other in self.all() {
                    self.cuts.insert((one, other));
                    if both {
                        self.cuts.insert((other, one));
                    }
                }
            }
        }
    }

    /// False evidence against a random node.
    fn accuse(&mut self, node: usize) -> Check {
        let accused = NodeId(self.any() as u16 + 1);
        if self.runs(node) {
            self.input(node, Input::Suspect { group: GROUP, node: accused })?;
            if self.random.chance(0.6) {
                let mut some = self.some();
                some.insert(node);
                for _ in 0..*self.random.pick(&[5, 15, 30]) {
                    self.advance(&some)?;
                }
                self.write_then_read(&some)?;
            }
        }
        Ok(())
    }

    fn crash_or_start(&mut self, node: usize, wipes: &mut u32, crashes: &mut u32) -> Check {
        if self.is_up(node) {
            if *crashes == 0 {
                return Ok(());
            }
            *crashes -= 1;
            let wiped = *wipes > 0 && self.random.chance(0.4);
            *wipes -= u32::from(wiped);
            if wiped && self.runs(node) && self.random.chance(0.3) {
                return self.lose(node);
            }
            self.crash(node, wiped);
            if self.random.chance(0.3) {
                return Ok(());
            }
        }
        if self.random.chance(0.3) {
            let offset = self.random.below(100 * MS);
            self.set_clock(node, offset);
        }
        if self.random.chance(0.1) {
            let lease = *self.random.pick(&[40_u64, 100, 250]);
            self.set_lease(node, Nanos::from_millis(lease));
        }
        self.start(node);
        if self.random.chance(0.7) {
            self.settle(&BTreeSet::from([node]), 10)?;
        }
        if self.random.chance(0.5) {
            let some = &self.some() | &BTreeSet::from([node]);
            for _ in 0..*self.random.pick(&[2, 10, 20]) {
                self.advance(&some)?;
            }
        }
        Ok(())
    }

    /// Time passes until some granter may agree to the epoch that it promised.
    fn jump_to_agreement(&mut self) -> Check {
        let waits = |&node: &usize| {
            let service = self.nodes[node].service.as_ref().filter(|_| self.runs(node))?;
            Some(self.when(node, service.deadline()?)).filter(|&at| at > self.now)
        };
        let all = self.all();
        let times: Vec<u64> = all.iter().filter_map(waits).collect();
        if times.is_empty() {
            return Ok(());
        }
        let slack = *self.random.pick(&[1000, MS / 2, 2 * MS]);
        self.now = (*self.random.pick(&times) + slack).min(self.now + 300 * MS);
        for node in all {
            self.tick(node)?;
        }
        let some = self.some();
        self.settle(&some, 80)?;
        if self.random.chance(0.7) { self.write_then_read(&some) } else { Ok(()) }
    }

    // Clients.

    fn client(&mut self, node: usize, nodes: &BTreeSet<usize>) -> Check {
        let key = self.random.below(2) as usize;
        if self.runs(node) {
            self.replay(node, key)?;
            self.settle_data(nodes, 12)?;
            if self.write(node, key)? {
                self.settle_data(nodes, 20)?;
            }
        }
        Ok(())
    }

    /// Only data moves.
    fn settle_data(&mut self, nodes: &BTreeSet<usize>, limit: usize) -> Check {
        for _ in 0..limit {
            let inside = |one: &super::world::Packet| {
                let known = nodes.contains(&one.from) && nodes.contains(&one.to);
                known && matches!(one.body, Body::Data(_)) && self.runs(one.to)
            };
            let Some(place) = self.net.iter().position(inside) else { return Ok(()) };
            self.deliver(place)?;
        }
        Ok(())
    }

    fn begin_read(&mut self, node: usize) {
        if self.runs(node) && self.reads.len() < 40 {
            let key = self.random.below(2) as usize;
            let read = self.read(node, key);
            self.reads.push(read);
        }
    }

    fn continue_read(&mut self) -> Check {
        if self.reads.is_empty() {
            return Ok(());
        }
        let place = self.random.below(self.reads.len() as u64) as usize;
        let mut read = self.reads.swap_remove(place);
        if read.is_slow && self.random.chance(0.9) {
            self.reads.push(read);
            return Ok(());
        }
        for _ in 0..*self.random.pick(&[1, 1, 4]) {
            if self.runs(read.node) && !self.step_read(&mut read)? {
                return Ok(());
            }
        }
        self.reads.push(read);
        Ok(())
    }

    pub(super) fn read_at_once(&mut self, node: usize) -> Check<bool> {
        let key = self.random.below(2) as usize;
        self.read_key(node, key)
    }

    pub(super) fn read_key(&mut self, node: usize, key: usize) -> Check<bool> {
        let mut read = self.read(node, key);
        while self.step_read(&mut read)? {}
        Ok(read.is_answered)
    }

    /// A write by a member of the newest epoch, then reads by members of older ones.
    pub(super) fn write_then_read(&mut self, nodes: &BTreeSet<usize>) -> Check {
        let serves = |world: &World, node: usize| {
            world.runs(node) && world.nodes[node].workers.iter().any(super::data::Worker::serves)
        };
        let epoch = |world: &World, node: usize| world.nodes[node].workers[0].epoch();
        let servers: Vec<usize> = self.all().into_iter().filter(|&one| serves(self, one)).collect();
        let Some(newest) = servers.iter().map(|&one| epoch(self, one)).max() else { return Ok(()) };
        let writers: Vec<usize> = servers
            .iter()
            .copied()
            .filter(|&one| epoch(self, one) == newest && nodes.contains(&one))
            .collect();
        if writers.is_empty() {
            return Ok(());
        }
        let writer = *self.random.pick(&writers);
        self.client(writer, nodes)?;
        let old: Vec<usize> =
            servers.iter().copied().filter(|&one| epoch(self, one) < newest).collect();
        if !old.is_empty() && self.random.chance(0.25) {
            let left_behind = *self.random.pick(&old);
            self.client(left_behind, &self.all())?;
        }
        let readers = if old.is_empty() || self.random.chance(0.3) { &servers } else { &old };
        let reader = *self.random.pick(readers);
        for key in 0..2 {
            let mut read = self.read(reader, key);
            let steps = *self.random.pick(&[1, 2, 3, 4, 4]);
            let mut goes_on = true;
            for _ in 0..steps {
                goes_on = goes_on && self.step_read(&mut read)?;
            }
            if goes_on && self.reads.len() < 40 {
                read.is_slow = self.random.chance(0.7);
                self.reads.push(read);
            }
        }
        Ok(())
    }

    // Stories.

    fn calm_down(&mut self) -> Check<bool> {
        self.cuts.clear();
        self.apart.clear();
        self.net.clear();
        self.is_rough = false;
        let all = self.all();
        for &node in &all {
            self.nodes[node].paused_until = 0;
            if !self.is_up(node) {
                self.start(node);
            }
        }
        for _ in 0..600 {
            let value = self.value().filter(GroupValue::is_active);
            let full = value.map_or(0, |value| value.configuration.full().count());
            if full > 1 && self.is_settled(&all) {
                return Ok(true);
            }
            self.advance(&all)?;
        }
        Ok(false)
    }

    fn pick_full(&mut self) -> Option<usize> {
        let value = self.value()?;
        let full: Vec<usize> =
            value.configuration.full().map(|member| usize::from(member.node.0) - 1).collect();
        Some(*self.random.pick(&full))
    }

    /// A full member with a fresh lease is left out of a change, reads, and comes back.
    fn story_of_one_left_out(&mut self) -> Check {
        if self.replicas == 1 || !self.calm_down()? {
            return Ok(());
        }
        let Some(node) = self.pick_full() else { return Ok(()) };
        let (all, key) = (self.all(), self.random.below(2) as usize);
        self.tick(node)?;
        self.settle(&all, 200)?;
        self.net.clear();
        let rest = &all - &BTreeSet::from([node]);
        let before = self.value().map(|value| value.epoch());
        self.say(|_| format!("story: {node} is left out"));
        let mut long = None;
        self.counts.stories += 1;
        let accused = NodeId(node as u16 + 1);
        if self.random.chance(0.7) {
            for &accuser in &rest {
                self.input(accuser, Input::Suspect { group: GROUP, node: accused })?;
            }
        }
        let ticks = self.random.chance(0.5);
        for _ in 0..150 {
            if ticks {
                self.tick(node)?;
            }
            self.advance(&rest)?;
            let value = self.value().filter(|value| value.is_active());
            let is_out = value.as_ref().is_some_and(|value| {
                value.configuration.member(accused).is_none() && Some(value.epoch()) > before
            });
            if is_out {
                let Some(value) = value else { break };
                for member in value.configuration.full() {
                    let writer = usize::from(member.node.0) - 1;
                    self.replay(writer, key)?;
                    self.settle(&rest, 40)?;
                    if self.write(writer, key)? {
                        self.settle(&rest, 40)?;
                        break;
                    }
                }
                self.read_key(node, key)?;
                // A read that begins behind the write and ends in a later epoch.
                let mut read = self.read(node, key);
                long = self.step_read(&mut read)?.then_some(read);
                break;
            }
        }
        // It comes back, with all that it sent meanwhile.
        for _ in 0..200 {
            self.advance(&all)?;
            self.read_key(node, key)?;
        }
        if let Some(mut read) = long {
            while self.step_read(&mut read)? {}
        }
        Ok(())
    }

    /// The granters of a lease restart while the holder is being removed.
    fn story_of_restarted_granters(&mut self) -> Check {
        if self.replicas == 1 || !self.calm_down()? {
            return Ok(());
        }
        let Some(node) = self.pick_full() else { return Ok(()) };
        let (all, key) = (self.all(), self.random.below(2) as usize);
        let rest = &all - &BTreeSet::from([node]);
        let majority = self.majority() - 1;
        let granters = self.sample(rest.iter().copied().collect(), majority);
        self.net.clear();
        self.tick(node)?;
        self.settle(&(&granters | &BTreeSet::from([node])), 200)?;
        self.net.clear();
        self.counts.stories += 1;
        self.say(|_| format!("story: {granters:?} grant to {node}"));
        let accused = NodeId(node as u16 + 1);
        let accuses = self.random.chance(0.7);
        if accuses {
            for &accuser in &rest {
                self.input(accuser, Input::Suspect { group: GROUP, node: accused })?;
            }
        }
        let steps = *self.random.pick(&[0, 2, 6, 12]);
        for _ in 0..steps {
            self.advance(&rest)?;
        }
        for &granter in &granters {
            if self.random.chance(0.8) {
                self.crash(granter, false);
                let lease = *self.random.pick(&[40, 100, 250]);
                self.set_lease(granter, Nanos::from_millis(lease));
                self.start(granter);
            }
        }
        if self.random.chance(0.5) {
            self.settle(&granters, 40)?;
        }
        for &accuser in rest.iter().filter(|_| accuses) {
            self.input(accuser, Input::Suspect { group: GROUP, node: accused })?;
        }
        let before = self.value().map(|value| value.order());
        for _ in 0..150 {
            self.advance(&rest)?;
            self.check_leases()?;
            let value = self.value();
            let is_new = value.as_ref().map(GroupValue::order) > before;
            if let Some(value) = value.filter(|one| is_new && one.phase == Phase::Active) {
                for member in value.members().iter().filter(|one| one.role == Role::Full) {
                    let writer = usize::from(member.node.0) - 1;
                    if writer != node && self.write(writer, key)? {
                        self.settle(&rest, 40)?;
                        self.read_key(node, key)?;
                    }
                }
                if self.now > 1_000_000 * MS || value.configuration.member(accused).is_none() {
                    break;
                }
            }
        }
        debug_assert!(TIMING.lease > Nanos::ZERO);
        Ok(())
    }
}
