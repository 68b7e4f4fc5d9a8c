//! Faults as they happen: begin, hold, heal, and wait until every node serves again.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base::Prng;

use crate::catalogue::Fault;
use crate::detour::{Delay, Detours};
use crate::gaps::Window;
use crate::host::{Host, Tool};
use crate::lab::Lab;
use crate::links::{Cut, Manner, NetworkRules, PartitionShape, minority, partition};
use crate::load::Recorder;
use crate::nodes::{NodeClocks, Nodes};
use crate::sh::{BrokenPromise, StopSignal};

mod files;

/// For how long a fault holds.
const HOLD_MS: (u64, u64) = (1_500, 4_000);
/// Clients work this long on a generation's keys before its fault.
const PRELUDE: Duration = Duration::from_millis(400);
/// Within this time after healing every node acknowledges a write. Clients wait seconds for lost
/// replies.
const WRITES_MAX: Duration = Duration::from_secs(20);
/// Connections between nodes notice a reset within this time, because they are never silent longer.
const RESET: Duration = Duration::from_millis(400);

/// One fault as it happened.
pub struct InjectedFault {
    pub fault: Fault,
    /// The fault's victims and details.
    pub details: String,
    /// From the first harm until the environment of the nodes was whole again.
    pub window: Window,
    /// Nodes that had a quorum all the time.
    pub survivors: Vec<usize>,
    /// When every node served and had recovered.
    pub recovered: u64,
}

struct HeldFault {
    details: String,
    window: Window,
    survivors: Vec<usize>,
}

/// Injects faults into the cluster.
pub struct Attack<'a> {
    pub lab: &'a mut Lab,
    pub nodes: &'a mut Nodes,
    pub recorder: &'a Recorder,
    pub host: &'a Host,
    pub rng: Prng,
    pub stop: &'a StopSignal,
}

impl Attack<'_> {
    /// Makes one fault happen, and heals it.
    ///
    /// # Errors
    /// A [`BrokenPromise`] when nodes do not recover; another error when the host failed.
    pub fn inject(&mut self, fault: Fault) -> Result<InjectedFault> {
        self.recorder.next_generation();
        self.stop.sleep(PRELUDE)?;
        let HeldFault { details, window, survivors } = self.begin_and_heal(fault)?;
        let all = self.nodes.all();
        self.nodes
            .wait_ready(&all, self.stop)
            .with_context(|| format!("after {} ({details})", fault.name()))?;
        let recovered = self.recorder.now();
        self.wait_for_writes(recovered)?;
        Ok(InjectedFault { fault, details, window, survivors, recovered })
    }

    /// Waits out clients' pending requests, so that they do not count against the next fault.
    fn wait_for_writes(&mut self, from: u64) -> Result<()> {
        let mut silent = None;
        self.stop.wait(WRITES_MAX, || {
            silent = self.recorder.silent_since(from);
            silent.is_none()
        })?;
        match silent {
            Some(node) => {
                bail!(BrokenPromise(format!("{} takes no writes, all healed", name(node))))
            }
            None => Ok(()),
        }
    }

    fn begin_and_heal(&mut self, fault: Fault) -> Result<HeldFault> {
        match fault {
            Fault::Calm => self.calm(),
            Fault::Kill => {
                let victims = minority(self.nodes.len(), &mut self.rng);
                self.kill(victims)
            }
            Fault::KillMajority => self.kill_all_but_one(),
            Fault::KillAll => self.kill(self.nodes.all()),
            Fault::KillStarting => self.kill_starting(),
            Fault::RollingRestart => self.rolling_restart(),
            Fault::Pause => {
                let victims = minority(self.nodes.len(), &mut self.rng);
                self.pause(victims)
            }
            Fault::PauseMajority => {
                let spared = self.one();
                self.pause(self.others(&[spared]))
            }
            Fault::PauseFlapping => self.pause_flapping(),
            Fault::PauseAndKill => self.pause_and_kill(),
            Fault::CutMinority => self.cut(PartitionShape::Minority, Manner::Silent),
            Fault::CutReset => self.cut(PartitionShape::Minority, Manner::Reset),
            Fault::CutAll => self.cut(PartitionShape::All, Manner::Silent),
            Fault::CutIncoming => self.cut(PartitionShape::Deaf, Manner::Silent),
            Fault::CutOutgoing => self.cut(PartitionShape::Mute, Manner::Silent),
            Fault::CutOneWay => self.cut(PartitionShape::OneWay, Manner::Silent),
            Fault::CutPair => self.cut(PartitionShape::Pair, Manner::Silent),
            Fault::CutRing => self.cut(PartitionShape::Ring, Manner::Silent),
            Fault::CutFlapping => self.cut_flapping(),
            Fault::CutClients => self.cut_clients(),
            Fault::CutAndKill => self.cut_and_kill(),
            Fault::SlowOne => {
                let victim = self.one();
                self.slow(&[victim], Delay { least_ms: 20, most_ms: 250 }, false)
            }
            Fault::SlowAll => {
                self.slow(&self.nodes.all(), Delay { least_ms: 5, most_ms: 60 }, false)
            }
            Fault::SlowAndKill => {
                self.slow(&self.nodes.all(), Delay { least_ms: 5, most_ms: 60 }, true)
            }
            Fault::Loss => self.loss(),
            Fault::Narrow => self.narrow(),
            Fault::FullDisk => {
                let victim = self.one();
                self.full_disk(&[victim])
            }
            Fault::FullDiskAll => self.full_disk(&self.nodes.all()),
            Fault::Damage => self.damage(),
            Fault::Wipe => self.wipe(),
            Fault::ClockSteps => self.clock_steps(),
            Fault::ClockReboot => self.clock_reboot(),
            Fault::ForgetAll => self.forget_all(),
        }
    }

    fn one(&mut self) -> usize {
        self.rng.below(self.nodes.len() as u64) as usize
    }

    fn two(&mut self) -> [usize; 2] {
        let first = self.one();
        let step = 1 + self.rng.below(self.nodes.len() as u64 - 1) as usize;
        [first, (first + step) % self.nodes.len()]
    }

    fn others(&self, victims: &[usize]) -> Vec<usize> {
        self.nodes.all().into_iter().filter(|node| !victims.contains(node)).collect()
    }

    /// The other nodes, if they are a quorum.
    fn survivors(&self, victims: &[usize]) -> Vec<usize> {
        let others = self.others(victims);
        if others.len() > self.nodes.len() / 2 { others } else { Vec::new() }
    }

    fn hold_time(&mut self) -> Duration {
        Duration::from_millis(self.rng.between(HOLD_MS.0, HOLD_MS.1))
    }

    fn sleep_between(&mut self, low_ms: u64, high_ms: u64) -> Result<()> {
        Ok(self.stop.sleep(Duration::from_millis(self.rng.between(low_ms, high_ms)))?)
    }

    /// Lets a fault that began at `from` hold.
    fn hold(&mut self, from: u64) -> Result<Window> {
        let time = self.hold_time();
        self.stop.sleep(time)?;
        Ok(Window { from, to: self.recorder.now() })
    }

    /// Makes the network whole again; extends the window until then. A busy host may be slow to
    /// change rules.
    fn heal_network(&mut self, window: Window) -> Result<Window> {
        self.lab.apply(&NetworkRules::default())?;
        Ok(Window { to: self.recorder.now(), ..window })
    }

    fn start(&mut self, which: &[usize]) -> Result<()> {
        which.iter().try_for_each(|&node| self.nodes.start(node))
    }

    fn wait_ready(&mut self, which: &[usize]) -> Result<()> {
        self.nodes.wait_ready(which, self.stop)
    }

    fn calm(&mut self) -> Result<HeldFault> {
        let window = self.hold(self.recorder.now())?;
        Ok(HeldFault { details: "no fault".into(), window, survivors: self.nodes.all() })
    }

    fn kill(&mut self, victims: Vec<usize>) -> Result<HeldFault> {
        let from = self.recorder.now();
        self.nodes.kill(&victims);
        let window = self.hold(from)?;
        self.start(&victims)?;
        Ok(HeldFault { details: names(&victims), window, survivors: self.survivors(&victims) })
    }

    fn kill_all_but_one(&mut self) -> Result<HeldFault> {
        let spared = self.one();
        self.kill(self.others(&[spared]))
    }

    fn kill_starting(&mut self) -> Result<HeldFault> {
        let victim = self.one();
        let from = self.recorder.now();
        let times = self.rng.between(3, 6);
        for _ in 0..times {
            self.nodes.kill(&[victim]);
            self.nodes.start(victim)?;
            self.sleep_between(5, 500)?;
        }
        let window = Window { from, to: self.recorder.now() };
        let details = format!("{}, {times} times", names(&[victim]));
        Ok(HeldFault { details, window, survivors: self.survivors(&[victim]) })
    }

    fn rolling_restart(&mut self) -> Result<HeldFault> {
        let from = self.recorder.now();
        for node in self.nodes.all() {
            let code = self.nodes.list[node].stop();
            if code != Some(0) {
                let log = self.nodes.list[node].log_tail();
                bail!(BrokenPromise(format!(
                    "{} ended with {code:?} after SIGTERM: {log}",
                    name(node)
                )));
            }
            self.nodes.start(node)?;
            self.wait_ready(&[node])?;
        }
        let window = Window { from, to: self.recorder.now() };
        // At most one node is down at any moment.
        Ok(HeldFault { details: "each in turn".into(), window, survivors: self.nodes.all() })
    }

    fn pause(&mut self, victims: Vec<usize>) -> Result<HeldFault> {
        let from = self.recorder.now();
        self.nodes.pause(&victims);
        let window = self.hold(from)?;
        self.nodes.resume(&victims);
        Ok(HeldFault { details: names(&victims), window, survivors: self.survivors(&victims) })
    }

    fn pause_flapping(&mut self) -> Result<HeldFault> {
        let victim = self.one();
        let from = self.recorder.now();
        for _ in 0..self.rng.between(6, 14) {
            self.nodes.pause(&[victim]);
            self.sleep_between(20, 400)?;
            self.nodes.resume(&[victim]);
            self.sleep_between(20, 200)?;
        }
        let window = Window { from, to: self.recorder.now() };
        Ok(HeldFault { details: names(&[victim]), window, survivors: self.survivors(&[victim]) })
    }

    fn pause_and_kill(&mut self) -> Result<HeldFault> {
        let [paused, killed] = self.two();
        let from = self.recorder.now();
        self.nodes.pause(&[paused]);
        self.sleep_between(100, 1_000)?;
        self.nodes.kill(&[killed]);
        self.sleep_between(100, 1_000)?;
        self.nodes.start(killed)?;
        let window = self.hold(from)?;
        self.nodes.resume(&[paused]);
        let details = format!("{} paused, {} killed", name(paused), name(killed));
        Ok(HeldFault { details, window, survivors: self.survivors(&[paused, killed]) })
    }

    fn cut(&mut self, shape: PartitionShape, manner: Manner) -> Result<HeldFault> {
        let (cuts, survivors) = partition(shape, self.nodes.len(), &mut self.rng);
        let details = describe(&cuts);
        let from = self.recorder.now();
        self.lab.apply(&NetworkRules { manner, ..NetworkRules::cut(cuts) })?;
        let window = self.hold(from)?;
        let window = self.heal_network(window)?;
        Ok(HeldFault { details, window, survivors })
    }

    fn cut_flapping(&mut self) -> Result<HeldFault> {
        const SHAPES: [PartitionShape; 6] = [
            PartitionShape::Minority,
            PartitionShape::All,
            PartitionShape::Deaf,
            PartitionShape::Mute,
            PartitionShape::Pair,
            PartitionShape::Ring,
        ];
        let from = self.recorder.now();
        let times = self.rng.between(4, 10);
        for _ in 0..times {
            let shape = *self.rng.pick(&SHAPES);
            let (cuts, _) = partition(shape, self.nodes.len(), &mut self.rng);
            self.lab.apply(&NetworkRules::cut(cuts))?;
            self.sleep_between(50, 700)?;
            self.lab.apply(&NetworkRules::default())?;
            self.sleep_between(50, 400)?;
        }
        let window = Window { from, to: self.recorder.now() };
        Ok(HeldFault { details: format!("{times} cuts"), window, survivors: self.nodes.all() })
    }

    fn cut_clients(&mut self) -> Result<HeldFault> {
        let victim = self.one();
        let from = self.recorder.now();
        self.lab.apply(&NetworkRules { deaf: [victim].into(), ..NetworkRules::default() })?;
        let window = self.hold(from)?;
        let window = self.heal_network(window)?;
        Ok(HeldFault { details: names(&[victim]), window, survivors: self.survivors(&[victim]) })
    }

    fn cut_and_kill(&mut self) -> Result<HeldFault> {
        let [alone, killed] = self.two();
        let others = self.others(&[alone]);
        let cuts = others
            .into_iter()
            .flat_map(|other| [Cut { from: alone, to: other }, Cut { from: other, to: alone }]);
        let rules = NetworkRules::cut(cuts);
        let from = self.recorder.now();
        self.lab.apply(&rules)?;
        self.sleep_between(100, 1_500)?;
        self.nodes.kill(&[killed]);
        self.sleep_between(100, 1_500)?;
        self.nodes.start(killed)?;
        let window = self.hold(from)?;
        let window = self.heal_network(window)?;
        let details = format!("{} cut off, {} killed", name(alone), name(killed));
        Ok(HeldFault { details, window, survivors: self.survivors(&[alone, killed]) })
    }

    /// Slows every link of a node in `which`.
    fn slow(&mut self, which: &[usize], delay: Delay, with_kill: bool) -> Result<HeldFault> {
        let detours = match self.host.has(Tool::Netem) {
            true => {
                let (base, jitter) = (delay.least_ms, (delay.most_ms - delay.least_ms) / 2);
                let discipline = format!("netem delay {}ms {jitter}ms", base + jitter);
                which.iter().try_for_each(|&node| self.lab.shape(node, &discipline))?;
                None
            }
            false => Some(self.lead_through_detours(which, delay)?),
        };
        // Slowing links breaks connections, which is another fault: wait until they stand again.
        self.wait_ready(&self.nodes.all())?;
        let from = self.recorder.now();
        let mut details = format!("{}, {} to {} ms", names(which), delay.least_ms, delay.most_ms);
        let mut killed = Vec::new();
        if with_kill {
            killed = minority(self.nodes.len(), &mut self.rng);
            details += &format!(", {} killed", names(&killed));
            self.sleep_between(200, 1_000)?;
            self.nodes.kill(&killed);
            self.sleep_between(200, 1_500)?;
            self.start(&killed)?;
        }
        let window = self.hold(from)?;
        if detours.is_none() {
            which.iter().try_for_each(|&node| self.lab.shape(node, ""))?;
        }
        let window = self.heal_network(window)?;
        drop(detours); // ends their connections: nodes dial directly again
        Ok(HeldFault { details, window, survivors: self.survivors(&killed) })
    }

    fn lead_through_detours(&mut self, which: &[usize], delay: Delay) -> Result<Detours> {
        let all = self.nodes.all();
        let touched = |a: &usize, b: &usize| a != b && (which.contains(a) || which.contains(b));
        let pairs: Vec<(usize, usize)> = all
            .iter()
            .flat_map(|&a| all.iter().map(move |&b| (a, b)))
            .filter(|(a, b)| touched(a, b))
            .collect();
        let detours = Detours::open(&pairs, delay, &mut self.rng)?;
        // Established connections keep their path, so reset them first.
        let cuts = pairs.iter().map(|&(from, to)| Cut { from, to });
        self.lab.apply(&NetworkRules { manner: Manner::Reset, ..NetworkRules::cut(cuts) })?;
        self.stop.sleep(RESET)?;
        self.lab
            .apply(&NetworkRules { detours: detours.ports.clone(), ..NetworkRules::default() })?;
        Ok(detours)
    }

    fn loss(&mut self) -> Result<HeldFault> {
        let loss_percent = self.rng.between(2, 25);
        let from = self.recorder.now();
        self.lab.apply(&NetworkRules { loss_percent, ..NetworkRules::default() })?;
        let window = self.hold(from)?;
        let window = self.heal_network(window)?;
        let details = format!("{loss_percent} % of packets");
        Ok(HeldFault { details, window, survivors: self.nodes.all() })
    }

    fn narrow(&mut self) -> Result<HeldFault> {
        let victim = self.one();
        let from = self.recorder.now();
        self.lab.shape(victim, "tbf rate 2mbit burst 16kb latency 200ms")?;
        let window = self.hold(from)?;
        self.lab.shape(victim, "")?;
        let window = self.heal_network(window)?;
        Ok(HeldFault { details: names(&[victim]), window, survivors: self.nodes.all() })
    }

    fn clock_steps(&mut self) -> Result<HeldFault> {
        const DAY_S: i64 = 86_400;
        const STEPS_S: [i64; 8] =
            [30, -30, 3_600, -3_600, DAY_S, -30 * DAY_S, 365 * DAY_S, -365 * DAY_S];
        let victim = self.one();
        let library = self.host.faketime.clone().context("libfaketime is here")?;
        self.restart_with(victim, NodeClocks { faketime: Some(library), ..NodeClocks::default() })?;
        let from = self.recorder.now();
        let mut steps = Vec::new();
        for _ in 0..self.rng.between(2, 5) {
            let step = *self.rng.pick(&STEPS_S);
            self.set_wall(victim, step)?;
            let shown = self.nodes.list[victim].wall_clock();
            let true_s = i64::try_from(crate::load::wall_ms() / 1_000).unwrap_or(i64::MAX);
            let off = shown.map(|shown| i64::try_from(shown).unwrap_or(i64::MAX) - true_s);
            ensure!(
                off.is_none_or(|off| (off - step).abs() < 10),
                "libfaketime has no effect: asked for {step} s, {} shows {off:?}",
                name(victim)
            );
            steps.push(format!("{step:+} s"));
            self.sleep_between(500, 1_800)?;
        }
        self.set_wall(victim, 0)?;
        let window = Window { from, to: self.recorder.now() };
        self.restart_with(victim, NodeClocks::default())?;
        let details = format!("{}: {}", names(&[victim]), steps.join(", "));
        Ok(HeldFault { details, window, survivors: self.nodes.all() })
    }

    fn set_wall(&self, node: usize, ahead_s: i64) -> Result<()> {
        let file = &self.nodes.list[node].wall_file;
        let next = file.with_extension("next");
        std::fs::write(&next, format!("{ahead_s:+}\n")).context("the file of the wall clock")?;
        std::fs::rename(&next, file).context("the file of the wall clock")
    }

    fn restart_with(&mut self, node: usize, clocks: NodeClocks) -> Result<()> {
        self.set_wall(node, 0)?;
        self.nodes.kill(&[node]);
        self.nodes.list[node].clocks = clocks;
        self.nodes.start(node)?;
        self.wait_ready(&[node])
    }

    fn clock_reboot(&mut self) -> Result<HeldFault> {
        const AHEAD_S_MAX: u64 = 400 * 86_400;
        let victim = self.one();
        let from = self.recorder.now();
        self.nodes.kill(&[victim]);
        let was = self.nodes.list[victim].clocks.monotonic_ahead_s;
        // Back to the host's clock, which is behind or far ahead.
        let ahead = if was > 0 { 0 } else { self.rng.between(1, AHEAD_S_MAX) };
        self.nodes.list[victim].clocks.monotonic_ahead_s = ahead;
        let window = self.hold(from)?;
        self.nodes.start(victim)?;
        let details = format!("{}: from {was} s ahead to {ahead} s", names(&[victim]));
        Ok(HeldFault { details, window, survivors: self.survivors(&[victim]) })
    }
}

fn name(node: usize) -> String {
    format!("node {}", node + 1)
}

/// For messages to people.
fn names(which: &[usize]) -> String {
    let numbers: Vec<String> = which.iter().map(|node| (node + 1).to_string()).collect();
    format!("node {}", numbers.join(", "))
}

fn describe(cuts: &[Cut]) -> String {
    let arrow = |cut: &Cut| format!("{}>{}", cut.from + 1, cut.to + 1);
    format!("cut {}", cuts.iter().map(arrow).collect::<Vec<_>>().join(" "))
}
