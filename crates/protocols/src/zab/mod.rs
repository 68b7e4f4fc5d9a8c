//! Zab: one leader and one order over all keys.
//!
//! From ZAB: Junqueira, Reed, Serafini, "Zab: High-performance broadcast for primary-backup
//! systems", DSN 2011. Its phases 1 to 3 are discovery, synchronisation and broadcast. Its promise
//! to sessions: Hunt et al., "ZooKeeper", USENIX ATC 2010, section 2.3.
//!
//! A write goes to the leader. The leader gives it the next place, runs its command, and proposes
//! the resulting state of the key as an entry of the log. An entry is committed once a majority has
//! everything up to it durably. Each node applies committed entries in order. The requested node
//! answers once it has applied the write itself. A read is answered from this node's applied state.
//! It waits for the earlier writes of its own session. So a session never goes back, but it may lag
//! behind other sessions.
//!
//! Their words: zxid -> [`epoch::Zxid`], transaction -> [`txn::Txn`], history -> `History`,
//! deliver -> apply, prospective leader -> a leader in its phase `Discovery`.
//!
//! **A new leader.** Nodes without a leader tell each other how they stand (`Look`). The one of a
//! majority whose history is best founds an epoch.
//!
//! | message | asks or tells |
//! |---|---|
//! | `Look` | the sender's epochs and last entry; has it a leader? |
//! | `NewEpoch` -> `AckEpoch` | join this epoch and none before; the sender's history, by epochs |
//! | `Sync` or `Snap`, `Propose` | cut the log here, or copy my registers; these are next |
//! | `AckLeader` -> `UpToDate` | the sender has it all, durably; the epoch stands |
//! | `Write` | the sender's next write, to the leader |
//! | `Propose` -> `Ack` | these entries are next; cumulative, once durable |
//! | `Commit` | a majority has everything up to here; cumulative |
//!
//! **Workers.** The worker of shard 0 keeps the log: the `Sequencer`. It hands commands and entries
//! to the workers of their keys, each an `Applier`. They apply in parallel. A read waits until its
//! worker has applied all that any client of this node has seen.
//!
//! Invariants:
//! 1. Histories up to their committed entries are prefixes of each other. \[Z1\]
//! 2. A leader begins with every entry that was committed before. \[Z3\]
//! 3. `current <= accepted`, and both only grow, unless the node lost them. \[Z4\]
//! 4. Only committed entries that are durable here are applied, and in order. \[Z6\]
//! 5. An epoch takes a write of one stream and number once, in the order of numbers. A worker sends
//!    a write in another epoch only once all entries from before that epoch are applied here.
//! 6. A session reads its own writes, and never goes back. \[Z7\]
//!
//! **Loss.** A node that lost any register forgets all. It asks a majority of others which epochs
//! it may have promised, has no vote, and copies the state of a leader. Answers to a leader count
//! with the sender's amnesia count, as everywhere.
//!
//! **Times to live** are counted by each node. The leader deletes a key once its own count is over.
//!
//! Departures: indexes go on from epoch to epoch. A prospective leader is the best of a majority
//! and fetches no history. Entries carry the state of a key and not a difference. Histories are
//! compared by the ends of their epochs. A state is copied while entries behind it are applied.
//!
//! Start reading at `Sequencer::on_message`, then `Applier::on_register`.

mod applier;
mod context;
pub mod epoch;
mod history;
pub mod message;
mod reads;
pub mod register;
mod requests;
mod sequencer;
pub mod txn;

use base::{Nanos, checksum};
use types::explain::{Held, Record as Explained};
use types::{AmnesiaCount, Incarnation, Key, Outcome, Ticket};

use applier::{Applier, ENDS, SWEEP};
use context::{Cx, tell_own};
pub use message::Message;
use message::{HeldRegister, ToRegister, ToSequencer};
pub use register::{Meta, Register};
use sequencer::Sequencer;

use crate::effects::{TimerId, Violation};
use crate::protocol::{Consistency, Context, Env, Event, Peer, Properties, Protocol, Stats};
use crate::register_cache::{CachedRegister, RegisterCache, Weight};
use crate::replicas::Replicas;
use crate::toolkit::explainer::{EXPLAINER_TICK, Explainer};

const TICK: TimerId = TimerId(0);
/// The interval between looks at work in progress.
const BUSY: Nanos = Nanos::from_millis(10);

/// One instance of Zab.
#[derive(Debug)]
pub struct Zab {
    applier: Applier,
    /// At the worker of shard 0.
    sequencer: Option<Sequencer>,
    explainer: Explainer<Message>,
    tick_at: Option<Nanos>,
    /// The sequencer was asked to begin.
    has_begun: bool,
    amnesia: Option<AmnesiaCount>,
}

impl Protocol for Zab {
    const NAME: &'static str = "zab";
    const PROPERTIES: Properties = Properties {
        consistency: Consistency::SequentialReads,
        read_modify_write: true,
        total_order: true,
        needs_config: false,
        needs_lease: false,
        locks: false,
        keeps_log: true,
        uncommitted_reads: false,
    };

    type Message = Message;
    type Record = Register;
    type Meta = Meta;

    fn open(env: Env) -> Zab {
        Zab {
            applier: Applier::new(env.clone()),
            explainer: Explainer::new(&env, |id, key| {
                Message::Register(key, ToRegister::Explain { id })
            }),
            sequencer: (env.worker == 0).then(|| Sequencer::new(env)),
            tick_at: None,
            has_begun: false,
            amnesia: None,
        }
    }

    fn on(&mut self, cx: &mut Context<'_, Zab>, event: Event<Zab>) {
        self.begin(cx);
        match event {
            Event::Request(request) if request.command.once.is_some() => {
                cx.fx.reply(request.tag, Outcome::NoRetries(Zab::NAME));
            }
            Event::Request(request) if request.command.stays() => {
                cx.fx.reply(request.tag, Outcome::Unsupported(Zab::NAME));
            }
            Event::Request(request) => self.applier.on_request(cx, request),
            Event::List { tag, from_hash, limit } => {
                self.applier.on_list(cx, tag, from_hash, limit);
            }
            Event::Explain { tag, key } => self.explainer.on_explain(cx, tag, key),
            Event::Peer { from, message } => self.on_message(cx, from, message),
            Event::Timer(TICK) => self.on_tick(cx),
            Event::Timer(ENDS) => self.applier.on_ends(cx),
            Event::Timer(SWEEP) => self.applier.on_sweep_timer(cx),
            Event::Timer(EXPLAINER_TICK) => self.explainer.on_tick(cx),
            Event::Timer(_) => {}
            Event::Turn => {
                self.applier.on_turn(cx);
                if let Some(sequencer) = &mut self.sequencer {
                    sequencer.on_turn(cx);
                }
            }
            Event::Scanned(scanned) => self.applier.on_scanned(cx, scanned),
            Event::Forgotten { .. } => {
                self.applier.on_forgotten(cx);
                // Before any promise.
                if let Some(sequencer) = self.sequencer.as_mut().filter(|it| it.is_ready()) {
                    sequencer.on_lost(cx);
                }
            }
            Event::PeerReset { node } => {
                if let Some(sequencer) = &mut self.sequencer {
                    sequencer.on_reset(cx, node);
                }
            }
            Event::PeerUp { node } => {
                if let Some(sequencer) = &mut self.sequencer {
                    sequencer.on_up(cx, node);
                }
            }
            // Counts are taken anew with every answer.
            Event::ViewChanged | Event::PeerSteady { .. } | Event::Group(_) => {}
        }
        self.arm(cx);
    }

    fn renew(&mut self, incarnation: Incarnation) {
        self.applier.renew(incarnation);
    }

    fn weight(key: &Key, register: &Register) -> Weight {
        register.content.weight(key)
    }

    fn check(
        &self,
        _cache: &RegisterCache<Register>,
        _replicas: Replicas<'_>,
    ) -> Result<(), Violation> {
        self.sequencer.as_ref().map_or(Ok(()), Sequencer::check)
    }

    fn is_idle(&self) -> bool {
        self.applier.is_idle()
            && self.explainer.is_idle()
            && self.sequencer.as_ref().is_none_or(Sequencer::is_idle)
    }

    fn stats(&self, stats: &mut Stats) {
        self.applier.stats(stats);
        if let Some(sequencer) = &self.sequencer {
            sequencer.stats(stats);
        }
    }
}

impl Zab {
    /// The sequencer begins once the fields of shard 0 are known.
    fn begin(&mut self, cx: &mut Cx<'_>) {
        let amnesia = cx.replicas.peers.own().amnesia;
        if self.amnesia.replace(amnesia).is_some_and(|before| before != amnesia) {
            match &mut self.sequencer {
                Some(sequencer) if sequencer.is_ready() => sequencer.on_amnesia(cx),
                Some(_) => self.has_begun = false,
                None => tell_own(cx, ToSequencer::Dropped {}, Ticket::DURABLE),
            }
        }
        if !self.has_begun && self.sequencer.is_some() {
            self.has_begun = true;
            tell_own(cx, ToSequencer::Start {}, Ticket::DURABLE);
        }
    }

    fn on_message(&mut self, cx: &mut Cx<'_>, from: Peer, message: Message) {
        match message {
            Message::Sequencer(body) => {
                if let Some(sequencer) = &mut self.sequencer {
                    sequencer.on_message(cx, from, body);
                }
            }
            Message::Worker(_, body) => self.applier.on_worker(cx, from, body),
            Message::Register(key, ToRegister::Explain { id }) => {
                let held = held(cx, &key);
                let explained = ToRegister::Explained { id, held };
                cx.fx.send_now(from.node, Message::Register(key, explained));
            }
            Message::Register(_, ToRegister::Explained { id, held }) => {
                self.explainer.on_explained(cx, from, id, || explained(held));
            }
            Message::Register(key, body) => self.applier.on_register(cx, from, key, body),
        }
    }

    fn on_tick(&mut self, cx: &mut Cx<'_>) {
        if self.tick_at.is_none_or(|at| cx.now < at) {
            return;
        }
        self.tick_at = None;
        self.applier.on_tick(cx);
        if let Some(sequencer) = &mut self.sequencer {
            sequencer.on_tick(cx);
        }
    }

    fn arm(&mut self, cx: &mut Cx<'_>) {
        self.explainer.arm(cx);
        let interval = match (self.is_idle(), &self.sequencer) {
            (false, _) => BUSY,
            (true, Some(_)) => sequencer::BEAT,
            (true, None) => return,
        };
        let at = cx.now + interval;
        if self.tick_at.is_none_or(|armed| at < armed) {
            self.tick_at = Some(at);
            cx.fx.timer(TICK, at);
        }
    }
}

fn held(cx: &Cx<'_>, key: &Key) -> HeldRegister {
    match cx.cache.get(key) {
        CachedRegister::Present(register) => {
            let rest = register.content.countdown(cx.uptime, cx.unix).rest();
            HeldRegister::Present { register: register.clone(), rest: rest.map(|rest| rest.0) }
        }
        CachedRegister::Absent => HeldRegister::Absent {},
        CachedRegister::Lost => HeldRegister::Lost {},
    }
}

fn explained(held: HeldRegister) -> Held {
    match held {
        HeldRegister::Absent {} => Held::Absent,
        HeldRegister::Lost {} => Held::Silent,
        HeldRegister::Present { register, rest } => {
            let value: &[u8] = register.content.value.as_deref().unwrap_or_default();
            Held::Present(Explained {
                round: register.index.to_string(),
                version: register.index,
                is_tombstone: register.content.is_empty(),
                value_len: value.len(),
                checksum: checksum::hash(value),
                rest: rest.map(base::Millis),
            })
        }
    }
}
