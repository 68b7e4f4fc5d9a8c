//! Links between nodes: draws the fate of each frame from the seed.
//!
//! Two kinds of network exist, one per run. On *datagrams* every frame travels alone. On
//! *connections* a link is first in, first out, and a lost frame ends the connection with
//! everything under way on it. The network does not read frames.

use base::Prng;

/// Parameters of links for a whole run. Spans are nanoseconds, chances parts per million.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Links {
    pub is_connected: bool,
    /// Constant latency that is added to each frame's delay.
    pub distance: u64,
    pub delay_min: u64,
    pub delay_max: u64,
    /// Share of frames that take up to `tail_max` instead.
    pub tail_ppm: u32,
    pub tail_max: u64,
    pub loss_ppm: u32,
    pub duplicate_ppm: u32,
    /// Without it a link keeps the order of its frames.
    pub reorders: bool,
    /// Windows of this length in which the newest frame comes first; zero: never.
    pub lifo_window: u64,
}

impl Default for Links {
    /// A quiet local network.
    fn default() -> Links {
        Links {
            is_connected: true,
            distance: 0,
            delay_min: 50_000,
            delay_max: 100_000,
            tail_ppm: 0,
            tail_max: 0,
            loss_ppm: 0,
            duplicate_ppm: 0,
            reorders: false,
            lifo_window: 0,
        }
    }
}

/// The fate of one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Lost,
    Arrives {
        at: u64,
    },
    /// A copy comes later.
    ArrivesTwice {
        at: u64,
        again_at: u64,
    },
    /// The link is dead for now and keeps the frame: connections only.
    Stalled,
    /// The connection ends, and this frame with it.
    Resets,
}

#[derive(Clone, Debug, Default)]
struct DirectedLink {
    /// Counts connections; frames of an earlier one never arrive.
    connection: u32,
    is_up: bool,
    blocks: u8,
    last_arrival: u64,
}

/// All links between `nodes` nodes.
#[derive(Debug)]
pub struct Network {
    links: Vec<DirectedLink>,
    nodes: usize,
    /// Delay factor of each node's links.
    slowness: Vec<u64>,
    profile: Links,
    rng: Prng,
}

impl Network {
    #[must_use]
    pub fn new(nodes: usize, profile: Links, rng: Prng) -> Network {
        let links = vec![DirectedLink::default(); nodes * nodes];
        Network { links, nodes, slowness: vec![1; nodes], profile, rng }
    }

    fn link(&mut self, from: usize, to: usize) -> &mut DirectedLink {
        &mut self.links[from * self.nodes + to]
    }

    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.profile.is_connected
    }

    /// Replaces the parameters; frames under way keep their fate.
    pub fn set_profile(&mut self, profile: Links) {
        let Links { is_connected, distance, .. } = self.profile;
        self.profile = Links { is_connected, distance, ..profile };
    }

    /// The number of the connection that a frame sent now belongs to.
    #[must_use]
    pub fn connection(&self, from: usize, to: usize) -> u32 {
        self.links[from * self.nodes + to].connection
    }

    /// True when a frame of this connection may still arrive.
    #[must_use]
    pub fn delivers(&self, from: usize, to: usize, connection: u32) -> bool {
        !self.profile.is_connected || self.connection(from, to) == connection
    }

    /// True when neither direction is blocked.
    #[must_use]
    pub fn is_open(&self, a: usize, b: usize) -> bool {
        self.links[a * self.nodes + b].blocks == 0 && self.links[b * self.nodes + a].blocks == 0
    }

    #[must_use]
    pub fn is_blocked(&self, from: usize, to: usize) -> bool {
        self.links[from * self.nodes + to].blocks > 0
    }

    #[must_use]
    pub fn is_up(&self, from: usize, to: usize) -> bool {
        self.links[from * self.nodes + to].is_up
    }

    /// Establishes a connection in both directions.
    pub fn connect(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            self.link(from, to).is_up = true;
        }
    }

    /// Ends the connection in both directions. True when it stood.
    pub fn reset(&mut self, a: usize, b: usize) -> bool {
        let stood = self.link(a, b).is_up;
        for (from, to) in [(a, b), (b, a)] {
            let link = self.link(from, to);
            link.connection += 1;
            link.is_up = false;
            link.last_arrival = 0;
        }
        stood
    }

    /// Blocks one direction; blocks are counted.
    pub fn block(&mut self, from: usize, to: usize) {
        self.link(from, to).blocks += 1;
    }

    pub fn unblock(&mut self, from: usize, to: usize) {
        let link = self.link(from, to);
        link.blocks = link.blocks.saturating_sub(1);
    }

    /// Ends all blocks and slowness.
    pub fn heal(&mut self) {
        for link in &mut self.links {
            link.blocks = 0;
        }
        self.slowness.fill(1);
    }

    /// Multiplies the delays of a node's links.
    pub fn set_slowness(&mut self, node: usize, factor: u64) {
        self.slowness[node] = factor;
    }

    /// Whether the others notice that this node is slow: they do if its factor is even.
    #[must_use]
    pub fn is_seen_slow(&self, node: usize) -> bool {
        self.slowness[node].is_multiple_of(2)
    }

    /// Draws the fate of a frame.
    pub fn send(&mut self, now: u64, from: usize, to: usize) -> Fate {
        let is_connected = self.profile.is_connected;
        let loss_ppm = self.profile.loss_ppm;
        let link = &self.links[from * self.nodes + to];
        if is_connected && !link.is_up {
            return Fate::Lost;
        }
        if link.blocks > 0 {
            return if is_connected { Fate::Stalled } else { Fate::Lost };
        }
        if loss_ppm > 0 && self.rng.chance_ppm(loss_ppm) {
            return if is_connected { Fate::Resets } else { Fate::Lost };
        }
        let at = self.arrival(now, from, to);
        let duplicate_ppm = self.profile.duplicate_ppm;
        if !is_connected && duplicate_ppm > 0 && self.rng.chance_ppm(duplicate_ppm) {
            let again_at = at + self.delay(from, to) * self.rng.between(1, 20);
            return Fate::ArrivesTwice { at, again_at };
        }
        Fate::Arrives { at }
    }

    /// The arrival time of a frame sent now.
    pub fn arrival(&mut self, now: u64, from: usize, to: usize) -> u64 {
        let mut at = now + self.delay(from, to);
        let window = self.profile.lifo_window;
        if window > 0 && !self.profile.is_connected {
            // Later frames of a window come sooner after its end.
            let end = (now / window + 1) * window;
            return end + (end - now) + self.profile.distance + self.profile.delay_min;
        }
        if self.profile.is_connected || !self.profile.reorders {
            let link = self.link(from, to);
            at = at.max(link.last_arrival);
            link.last_arrival = at;
        }
        at
    }

    fn delay(&mut self, from: usize, to: usize) -> u64 {
        let Links { distance, delay_min, delay_max, tail_ppm, tail_max, .. } = self.profile;
        let slowness = self.slowness[from].max(self.slowness[to]);
        if tail_ppm > 0 && self.rng.chance_ppm(tail_ppm) {
            return distance + self.rng.between(delay_min, tail_max.max(delay_min));
        }
        distance + self.rng.between(delay_min, delay_max) * slowness
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(profile: Links, count: u64) -> Vec<u64> {
        let mut network = Network::new(2, profile, Prng::new(1));
        network.connect(0, 1);
        (0..count)
            .filter_map(|n| match network.send(n * 1_000, 0, 1) {
                Fate::Arrives { at } => Some(at),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn connections_keep_the_order_of_frames() {
        let arrivals = arrivals(Links { delay_max: 10_000_000, ..Links::default() }, 100);
        assert!(arrivals.is_sorted());
    }

    #[test]
    fn datagrams_overtake_each_other() {
        let profile = Links { is_connected: false, reorders: true, ..Links::default() };
        assert!(!arrivals(Links { delay_max: 10_000_000, ..profile }, 100).is_sorted());
    }

    #[test]
    fn newest_comes_first_in_a_window() {
        let profile = Links { is_connected: false, lifo_window: 1_000_000, ..Links::default() };
        assert!(arrivals(profile, 100).iter().rev().is_sorted());
    }

    #[test]
    fn block_affects_one_direction() {
        let mut network = Network::new(2, Links::default(), Prng::new(1));
        network.connect(0, 1);
        network.block(0, 1);
        assert_eq!(network.send(0, 0, 1), Fate::Stalled);
        assert!(matches!(network.send(0, 1, 0), Fate::Arrives { .. }));
        network.unblock(0, 1);
        assert!(matches!(network.send(0, 0, 1), Fate::Arrives { .. }));
    }

    #[test]
    fn frames_of_an_ended_connection_never_arrive() {
        let mut network = Network::new(2, Links::default(), Prng::new(1));
        network.connect(0, 1);
        let connection = network.connection(0, 1);
        network.reset(0, 1);
        network.connect(0, 1);
        assert!(!network.delivers(0, 1, connection));
    }
}
