//! The draws of a seed before a run begins: the world, the faults and their rates, and the
//! workload.
//!
//! Swarm testing [Groce et al., ISSTA 2012]: a run has some of the faults only, and one theme whose
//! faults come often. All faults at equal rates would hide many bugs behind each other.

use base::{Millis, Nanos, Prng};
use node::worker::ScrubConfig;

use crate::clock::{Clock, NOMINAL_PPM};
use crate::faults::{Fault, FaultSet};
use crate::medium::MediumKind;
use crate::network::Links;
use crate::store::Durability;
use crate::workload::mix::Mix;
use crate::workload::retries::Habits;
use crate::workload::transactions::ACCOUNTS;

const MILLI: u64 = 1_000_000;
/// Share of runs whose theme is media.
const MEDIA_CHANCE: f64 = 0.08;
/// Share of runs with a lock, and with a bank.
const SCRIPT_CHANCE: f64 = 0.1;
/// Time of a distant request, in one-way latencies.
const WAYS_MAX: u64 = 24;
/// Resident registers of a run without evictions.
pub const CELLS_MANY: usize = 10_000;

/// The interface between clients and nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Speech {
    /// To the workers, in the simulator's own commands.
    Direct,
    /// In RESP to a session, which runs the real commands.
    Resp,
}

impl Speech {
    pub const ALL: &[Speech] = &[Speech::Direct, Speech::Resp];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Speech::Direct => "direct",
            Speech::Resp => "resp",
        }
    }

    /// That of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Speech> {
        Speech::ALL.iter().copied().find(|speech| speech.name() == name)
    }
}

/// The frequent faults of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Theme {
    Calm,
    Crashes,
    Losses,
    Delays,
    Deletes,
    NewestFirst,
    Partitions,
    Amnesia,
    Mixed,
    /// Drawn apart from the others.
    Media,
}

const THEMES: &[Theme] = &[
    Theme::Calm,
    Theme::Crashes,
    Theme::Losses,
    Theme::Delays,
    Theme::Deletes,
    Theme::NewestFirst,
    Theme::Partitions,
    Theme::Amnesia,
    Theme::Mixed,
];

impl Theme {
    /// Faults that surely exist and come often.
    fn faults(self) -> &'static [Fault] {
        match self {
            Theme::Calm | Theme::Deletes => &[],
            Theme::Crashes => &[Fault::Crash, Fault::CrashAfterTurn, Fault::Torn],
            Theme::Losses => &[Fault::Loss, Fault::Reorder, Fault::Duplication],
            Theme::Delays => &[Fault::Delay, Fault::Reorder, Fault::Slow, Fault::Pause],
            Theme::NewestFirst => &[Fault::Lifo, Fault::Crash],
            Theme::Partitions => {
                &[Fault::Partition, Fault::PartialPartition, Fault::OneWay, Fault::Reset]
            }
            Theme::Amnesia => &[Fault::Amnesia, Fault::Rot, Fault::Crash, Fault::Delay],
            Theme::Media => &[
                Fault::DiskFull,
                Fault::FlushError,
                Fault::RollBack,
                Fault::RollingRestart,
                Fault::Torn,
            ],
            Theme::Mixed => &[Fault::Loss, Fault::Crash, Fault::Partition, Fault::Delay],
        }
    }
}

/// A drawn run. Spans are nanoseconds.
#[derive(Clone, Debug)]
pub struct Profile {
    pub theme: Theme,
    pub faults: FaultSet,
    pub durability: Durability,
    pub medium: MediumKind,
    /// The disk engine's.
    pub shape: storage::disk::Config,
    pub rest_after: u64,
    pub speech: Speech,
    /// Nodes that keep a shard.
    pub replicas: usize,
    /// Members that a configured group wants.
    pub group_size: usize,
    pub workers: usize,
    pub links: Links,
    pub clocks: Vec<Clock>,
    /// How long a lease of the membership service lasts.
    pub lease: u64,
    /// How often a turn stands still after it has read a value, in parts per million.
    pub late_ppm: u32,
    /// Rate of the M-th fastest clock: no majority's countdown runs faster.
    pub majority_rate_ppm: u64,
    pub request_timeout: u64,
    pub cells_max: usize,
    /// How nodes verify their storage; by their own clocks.
    pub scrub: ScrubConfig,
    pub turn_max: u64,
    pub flush_min: u64,
    pub flush_max: u64,
    pub slow_read_ppm: u32,
    pub clients: usize,
    /// Operations that a client may have outstanding.
    pub pipeline: usize,
    /// Clients hold back while no node serves, and while so many operations are outstanding.
    pub patience: Option<usize>,
    pub think_max: u64,
    /// One key per entry.
    pub keys: Vec<Mix>,
    /// Time to live of expiring values, milliseconds.
    pub ttl_max: u64,
    /// Spontaneous faults, with their mean gap.
    pub gaps: Vec<(Fault, u64)>,
    /// How often a node crashes right after it sent a message.
    pub crash_after_turn_ppm: u32,
    /// How often a read takes a place among the writes, in parts per million.
    pub ordered_ppm: u32,
    /// For how long lines under `ONCE` are repeated and remembered.
    pub habits: Habits,
    /// How often a client rests for longer than lines are remembered.
    pub rest_ppm: u32,
    /// How long partitions, pauses and down times are, at most.
    pub fault_len_max: u64,
}

/// The caller's choices.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    pub nodes: usize,
    /// `None`: all, or drawn where [`Given::spreads`].
    pub replicas: Option<usize>,
    /// The protocol supports nodes that are no replicas.
    pub spreads: bool,
    pub ops: u64,
    pub faults: FaultSet,
    /// The protocol runs commands whose effect depends on the state.
    pub read_modify_write: bool,
    /// Reads that ask for it take places among the writes, others lag.
    pub orders_reads: bool,
    /// The protocol sends deltas of long values.
    pub tells_changes: bool,
    /// The protocol has one order over all keys, and so one worker per node.
    pub total_order: bool,
    /// Leases rest on the rates of clocks.
    pub needs_config: bool,
    /// `None`: drawn.
    pub durability: Option<Durability>,
    /// `None`: drawn.
    pub medium: Option<MediumKind>,
    /// `None`: drawn. Sessions run commands whose effects depend on the state.
    pub speech: Option<Speech>,
    /// The mix of all keys; `None`: drawn.
    pub mix: Option<Mix>,
    /// Constant latency of every frame; `None`: zero.
    pub distance: Option<u64>,
}

impl Profile {
    #[must_use]
    pub fn draw(rng: &mut Prng, given: &Given) -> Profile {
        let mut theme = *rng.pick(THEMES);
        // Drawn apart: the medium must not affect other draws of a seed.
        let apart = &mut Prng::new(rng.clone().next_u64());
        if given.faults.has(Fault::DiskFull) && apart.chance(MEDIA_CHANCE) {
            theme = Theme::Media;
        }
        let faults: FaultSet = (given.faults.iter())
            .filter(|fault| theme.faults().contains(fault) || rng.chance(0.3))
            .filter(|_| theme != Theme::Calm)
            .collect();
        let of_medium = given.medium.and_then(MediumKind::durability);
        let durability =
            (of_medium.or(given.durability)).unwrap_or_else(|| draw_durability(rng, faults));
        let mut links = draw_links(rng, faults, theme);
        links.distance = given.distance.unwrap_or_default();
        let (replicas, group_size) = draw_replicas(rng, given);
        let (clocks, majority_rate_ppm) = draw_clocks(rng, (given.nodes, replicas), faults, given);
        let clients = rng.between(2, 8) as usize;
        let pipeline = *rng.pick(&[1, 1, 2, 6]);
        let think_max = *rng.pick(&[1, MILLI / 2, 3 * MILLI]);
        let (flush_min, flush_max) = *rng.pick(&[(20_000, 60_000), (MILLI / 2, 2 * MILLI)]);
        let latency = think_max / 2
            + 3 * (links.delay_min + links.delay_max) / 2
            + 3 * links.distance
            + flush_max;
        let length = (given.ops / (clients * pipeline) as u64 + 1) * latency;
        let fault_len_max = (length / rng.between(2, 10)).max(2 * MILLI);
        let apart = &mut Prng::new(rng.clone().next_u64());
        let medium = given.medium.unwrap_or_else(|| match draw_medium(apart, durability, theme) {
            // The simulated media of registers have no logs.
            _ if given.total_order => MediumKind::Model,
            drawn => drawn,
        });
        let mut scripts = apart.fork();
        let speaks_resp = apart.chance(0.25) && given.read_modify_write;
        let drawn = if speaks_resp { Speech::Resp } else { Speech::Direct };
        let shape = draw_shape(apart);
        let groups = &mut Prng::new(apart.clone().next_u64());
        let rest_after = *apart.pick(&[1, 10, 100]) * MILLI;
        let mut profile = Profile {
            theme,
            faults,
            durability,
            medium,
            shape,
            rest_after,
            replicas,
            group_size,
            speech: given.speech.unwrap_or(drawn),
            workers: rng.between(1, 2) as usize,
            links,
            lease: *groups.pick(&[8, 20, 60, 400]) * MILLI,
            late_ppm: if faults.has(Fault::Pause) { *groups.pick(&[0, 2_000, 20_000]) } else { 0 },
            clocks,
            majority_rate_ppm,
            request_timeout: *rng.pick(&[20, 100, 1_500]) * MILLI
                + WAYS_MAX * given.distance.unwrap_or_default(),
            cells_max: if faults.has(Fault::Eviction) {
                rng.between(1, 8) as usize
            } else {
                CELLS_MANY
            },
            scrub: ScrubConfig::OFF,
            turn_max: *rng.pick(&[2_000, 20_000, 200_000]),
            flush_min,
            flush_max,
            slow_read_ppm: if faults.has(Fault::Eviction) { 500_000 } else { 0 },
            clients,
            pipeline,
            patience: None,
            think_max,
            keys: {
                let mut keys = draw_scripts(&mut scripts, draw_keys(rng, theme, given), given);
                draw_collections(rng, &mut keys, given);
                draw_plain_expiry(rng, &mut keys, given);
                draw_lifetimes(rng, &mut keys, given);
                keys
            },
            ttl_max: (length / MILLI / 4).clamp(2, 60),
            gaps: draw_gaps(rng, faults, theme, length),
            crash_after_turn_ppm: match faults.has(Fault::CrashAfterTurn) {
                true => rng.between(500, 5_000) as u32,
                false => 0,
            },
            ordered_ppm: draw_ordered(rng, given),
            habits: Habits::default(),
            rest_ppm: 0,
            fault_len_max,
        };
        profile.draw_repeats(apart, given, length);
        profile.draw_transactions(rng, given);
        profile.scrub = draw_scrub(apart);
        if profile.has_transactions() {
            // Nodes look at locks for minutes, and would verify the same idle storage each time.
            profile.scrub.pass_min = Nanos::from_secs(60);
        }
        let has_one_worker = profile.workers == 1 && !faults.has(Fault::Workers);
        if given.total_order && (!has_one_worker || profile.slow_read_ppm > 0) {
            // Commands of one pipeline run side by side, and some wait for their registers.
            profile.pipeline = 1;
        }
        profile
    }

    /// Some runs have keys with requests under `ONCE`.
    fn draw_repeats(&mut self, rng: &mut Prng, given: &Given, length: u64) {
        match given.mix {
            Some(Mix::Expiry) if !given.read_modify_write => self.keys.fill(Mix::PlainExpiry),
            Some(mix) => self.keys.fill(mix),
            None if given.tells_changes && rng.below(7) == 3 => {
                let repeated = self.keys.iter_mut().filter(|_| rng.chance(0.7));
                repeated.for_each(|mix| *mix = Mix::Retries);
            }
            None => {}
        }
        let repeat_for = *rng.pick(&[length / 8, length, 4 * length]) + 10 * MILLI;
        // The last transmission may be delayed, and its node's clock may be slow.
        let late = 3 * self.fault_len_max + 8 * self.request_timeout + 300 * MILLI;
        let window = u128::from(repeat_for + late) * u128::from(self.majority_rate_ppm);
        let window = Millis((window / u128::from(NOMINAL_PPM * MILLI)) as u64 + 1);
        let sessions = *rng.pick(&[1, 3, 16, Habits::CROWD]);
        self.habits = Habits { repeat_for, window, sessions };
        if self.keys.contains(&Mix::Retries) && window < REST_WINDOW_MAX {
            self.rest_ppm = *rng.pick(&[0, 20_000, 60_000]);
        }
    }
}

impl Profile {
    /// Clients run transactions on several keys.
    #[must_use]
    pub fn has_transactions(&self) -> bool {
        self.keys.iter().any(|mix| mix.is_of_several_keys())
    }

    /// Some runs have transactions, through sessions. Drawn apart.
    fn draw_transactions(&mut self, rng: &Prng, given: &Given) {
        let apart = &mut Prng::new(rng.clone().next_u64() ^ TRANSACTIONS_SALT);
        let may = given.tells_changes && given.mix.is_none() && given.speech.is_none();
        let drawn = match apart.chance(TRANSACTIONS_CHANCE) {
            true if may => Some(*apart.pick(&[Mix::Transactions, Mix::Scripts, Mix::Transfers])),
            _ => None,
        };
        match given.mix.filter(|mix| mix.is_of_several_keys()) {
            Some(_) => self.keys.clear(),
            None if drawn.is_none() => return,
            None => {}
        }
        self.speech = Speech::Resp;
        match given.mix.or(drawn) {
            Some(Mix::Transfers) => self.keys.extend([Mix::Transfers; ACCOUNTS]),
            Some(mix) => self.keys.extend((0..apart.between(2, 5)).map(|_| mix)),
            None => {}
        }
        self.pace_faults();
    }

    /// Transactions on the same keys run one after the other, so a run is longer than `draw`
    /// assumes. Faults spread over all of it: else most outcomes are unknown.
    fn pace_faults(&mut self) {
        let abreast = (self.clients * self.pipeline) as u64;
        self.gaps.iter_mut().for_each(|(_, gap)| *gap *= abreast);
        self.patience = Some(OUTSTANDING_MAX);
    }

    /// Media are the theme: nodes verify everything every minute. Comparisons are rare enough for
    /// nodes to rest between two shards.
    pub fn scrub_soon(&mut self) {
        self.agree_on_rates();
        self.scrub = ScrubConfig {
            bytes_per_second: 16 << 20,
            pass_min: Nanos::from_secs(60),
            compare_every: Nanos::from_secs(256 * 40),
        };
    }

    /// Makes all clocks run at the right rate.
    pub fn agree_on_rates(&mut self) {
        let clocks = self.clocks.iter();
        self.clocks = clocks.map(|clock| clock.at_rate(NOMINAL_PPM)).collect();
        self.majority_rate_ppm = NOMINAL_PPM;
    }
}
/// From so many nodes on, replica sets may differ by shard; and the replicas of a shard then.
const SPREAD_FROM: usize = 5;
const SPREAD_REPLICAS: usize = 3;
const SPREAD_SALT: u64 = 57;
/// Share of runs with collections.
const COLLECTIONS_CHANCE: f64 = 0.2;
const COLLECTIONS_SALT: u64 = 58;
/// Runs with times to live under a protocol with plain writes only.
const PLAIN_EXPIRY_CHANCE: f64 = 0.3;
const PLAIN_EXPIRY_SALT: u64 = 60;
const LIFETIMES_CHANCE: f64 = 0.3;
const LIFETIMES_SALT: u64 = 61;
const ORDERED_SALT: u64 = 62;
/// Share of runs with transactions.
const TRANSACTIONS_CHANCE: f64 = 0.08;
const TRANSACTIONS_SALT: u64 = 59;
/// Operations under way in runs with transactions. A node that dies makes its share unknown.
const OUTSTANDING_MAX: usize = 8;
/// Clients rest for longer than lines are remembered only if that is short.
const REST_WINDOW_MAX: Millis = Millis(3_000);

fn draw_durability(rng: &mut Prng, faults: FaultSet) -> Durability {
    let kinds: &[Durability] = match faults.has(Fault::Amnesia) {
        true => &[Durability::Volatile, Durability::Volatile, Durability::Disk, Durability::Pmem],
        false => &[Durability::Disk, Durability::Disk, Durability::Pmem, Durability::Volatile],
    };
    *rng.pick(kinds)
}

/// A medium that promises the durability; rarely a slow one.
fn draw_medium(rng: &mut Prng, durability: Durability, theme: Theme) -> MediumKind {
    match durability {
        Durability::Disk if theme == Theme::Media => MediumKind::Disk,
        Durability::Disk if rng.chance(0.5) => MediumKind::Disk,
        Durability::Pmem if rng.chance(0.1) => MediumKind::Pmem,
        _ => MediumKind::Model,
    }
}

/// A disk store so small that few operations fill its ring and its pages.
fn draw_shape(rng: &mut Prng) -> storage::disk::Config {
    let shape = storage::disk::Config {
        ring_bytes: *rng.pick(&[64 << 10, 64 << 10, 96 << 10, 256 << 10]),
        spare_pages: *rng.pick(&[32, 64]),
        initial_level: *rng.pick(&[1, 1, 2, 4]),
        cache_bytes: *rng.pick(&[0, 16 << 10, 1 << 20]),
        fill_percent: *rng.pick(&[20, 60, 90]),
        first_fit: false,
    };
    // Derived without a draw, so that seeds keep their meaning.
    storage::disk::Config { first_fit: shape.fill_percent != 60, ..shape }
}

/// Passes follow each other much sooner than in production, but leave time for other work.
fn draw_scrub(rng: &mut Prng) -> ScrubConfig {
    let bytes_per_second = *rng.pick(&[0, 1 << 20, 16 << 20]);
    ScrubConfig { bytes_per_second, pass_min: Nanos::from_secs(5), compare_every: Nanos::ZERO }
}

fn draw_links(rng: &mut Prng, faults: FaultSet, theme: Theme) -> Links {
    let is_often = |fault| theme.faults().contains(&fault);
    let needs_datagrams = [Fault::Duplication, Fault::Reorder, Fault::Lifo]
        .into_iter()
        .any(|fault| faults.has(fault) && is_often(fault));
    let delay_min = *rng.pick(&[20_000, 100_000, 300_000]);
    let mut links = Links {
        is_connected: !needs_datagrams && rng.chance(0.5),
        delay_min,
        delay_max: delay_min * rng.between(1, 4),
        ..Links::default()
    };
    if faults.has(Fault::Loss) {
        links.loss_ppm = if is_often(Fault::Loss) { 100_000 } else { 10_000 };
        if links.is_connected {
            links.loss_ppm /= 20;
        }
    }
    if faults.has(Fault::Duplication) {
        links.duplicate_ppm = if is_often(Fault::Duplication) { 200_000 } else { 20_000 };
    }
    if faults.has(Fault::Delay) {
        links.tail_ppm = if is_often(Fault::Delay) { 150_000 } else { 10_000 };
        links.tail_max = rng.between(2, 60) * MILLI;
    }
    links.reorders = faults.has(Fault::Reorder);
    if faults.has(Fault::Lifo) {
        links.lifo_window = rng.between(1, 6) * MILLI;
    }
    links
}

/// The replicas of a shard, and the members of a group. All nodes are, or in half of the runs of
/// many nodes three. Drawn apart.
fn draw_replicas(rng: &Prng, given: &Given) -> (usize, usize) {
    let is_spread = (given.spreads || given.needs_config) && given.nodes >= SPREAD_FROM;
    let spread = is_spread && Prng::new(rng.clone().next_u64() ^ SPREAD_SALT).chance(0.5);
    let drawn = given.replicas.unwrap_or(if spread { SPREAD_REPLICAS } else { given.nodes });
    // All nodes keep the register of a group's configuration.
    if given.needs_config { (given.nodes, drawn) } else { (drawn, given.nodes) }
}

/// One clock per node, and the rate of the M-th fastest, M being a majority of replicas. Clocks
/// drift a little, and one is grossly wrong.
fn draw_clocks(
    rng: &mut Prng,
    (nodes, replicas): (usize, usize),
    faults: FaultSet,
    given: &Given,
) -> (Vec<Clock>, u64) {
    let mut rates = vec![NOMINAL_PPM; nodes];
    if faults.has(Fault::Drift) {
        for rate in &mut rates {
            *rate = rng.between(NOMINAL_PPM - 300, NOMINAL_PPM + 300);
        }
        // Leases rest on rates that are wrong by a hundredth at most.
        let far = if given.needs_config {
            [990_000, 1_000_000, 1_010_000]
        } else {
            [300_000, 1_000_000, 3_000_000]
        };
        rates[rng.below(nodes as u64) as usize] = *rng.pick(&far);
    }
    let clocks = rates
        .iter()
        .map(|&rate| Clock::new(rng.below(1_000_000 * MILLI), rate, rng.between(0, 2_000) as i64))
        .collect();
    let mut sorted = rates;
    sorted.sort_unstable();
    // One member finds a time to live over, where members are configured or one of them leads.
    let counts_alone = given.needs_config || given.total_order;
    let counting = if counts_alone { 1 } else { replicas / 2 + 1 };
    (clocks, sorted[nodes - counting])
}

fn draw_keys(rng: &mut Prng, theme: Theme, given: &Given) -> Vec<Mix> {
    let read_modify_write = given.read_modify_write;
    let count = *rng.pick(&[1, 2, 3, 12]);
    let mixes = match read_modify_write {
        true if given.tells_changes => Mix::EVERY_AND_LONG,
        true => Mix::EVERY,
        false => Mix::PLAIN,
    };
    let deletes = if read_modify_write { Mix::Recreate } else { Mix::PlainDelete };
    let drawn = (0..count).map(|_| match theme {
        Theme::Deletes => deletes,
        _ => *rng.pick(mixes),
    });
    drawn.collect()
}

/// Sometimes adds the keys of scripts.
fn draw_scripts(rng: &mut Prng, mut keys: Vec<Mix>, given: &Given) -> Vec<Mix> {
    if given.read_modify_write && rng.chance(SCRIPT_CHANCE) {
        keys.extend([Mix::Lock, Mix::Fence]);
    }
    if given.read_modify_write && rng.chance(SCRIPT_CHANCE) {
        keys.push(Mix::Bank);
    }
    keys
}

/// Some runs have keys that hold collections. Drawn apart.
fn draw_collections(rng: &Prng, keys: &mut [Mix], given: &Given) {
    let apart = &mut Prng::new(rng.clone().next_u64() ^ COLLECTIONS_SALT);
    if given.tells_changes && apart.chance(COLLECTIONS_CHANCE) {
        let is_plain = |mix: &&mut Mix| Mix::EVERY_AND_LONG.contains(mix);
        for mix in keys.iter_mut().filter(is_plain) {
            *mix = *apart.pick(Mix::COLLECTIONS);
        }
    }
}

/// Plain writes may have a time to live, too. Drawn apart.
fn draw_plain_expiry(rng: &Prng, keys: &mut [Mix], given: &Given) {
    let apart = &mut Prng::new(rng.clone().next_u64() ^ PLAIN_EXPIRY_SALT);
    if !given.read_modify_write && apart.chance(PLAIN_EXPIRY_CHANCE) {
        let is_plain = |mix: &&mut Mix| Mix::PLAIN.contains(mix);
        keys.iter_mut().filter(is_plain).for_each(|mix| *mix = Mix::PlainExpiry);
    }
}

/// Values of an order may be given a time to live, and keep it over other writes. Drawn apart.
fn draw_lifetimes(rng: &Prng, keys: &mut [Mix], given: &Given) {
    let apart = &mut Prng::new(rng.clone().next_u64() ^ LIFETIMES_SALT);
    if given.total_order && apart.chance(LIFETIMES_CHANCE) {
        let is_plain = |mix: &&mut Mix| Mix::EVERY.contains(mix);
        for mix in keys.iter_mut().filter(is_plain) {
            if apart.chance(0.5) {
                *mix = Mix::Lifetimes;
            }
        }
    }
}

/// Drawn apart.
fn draw_ordered(rng: &Prng, given: &Given) -> u32 {
    let apart = &mut Prng::new(rng.clone().next_u64() ^ ORDERED_SALT);
    if given.orders_reads { *apart.pick(&[0, 300_000, 300_000, 1_000_000]) } else { 0 }
}

fn draw_gaps(rng: &mut Prng, faults: FaultSet, theme: Theme, length: u64) -> Vec<(Fault, u64)> {
    let comes_by_itself = |fault: &Fault| {
        matches!(
            fault,
            Fault::Partition
                | Fault::PartialPartition
                | Fault::OneWay
                | Fault::Slow
                | Fault::Reset
                | Fault::Pause
                | Fault::Crash
                | Fault::RestartAll
                | Fault::RollingRestart
                | Fault::Amnesia
                | Fault::Rot
                | Fault::RollBack
                | Fault::DiskFull
                | Fault::FlushError
                | Fault::Jump
        )
    };
    (faults.iter().filter(comes_by_itself))
        .map(|fault| {
            let often = theme.faults().contains(&fault) && fault != Fault::RestartAll;
            let times = if often { rng.between(4, 16) } else { rng.between(1, 3) };
            (fault, length / times + 1)
        })
        .collect()
}
