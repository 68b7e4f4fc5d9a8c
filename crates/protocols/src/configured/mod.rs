//! The frame of every protocol that needs a configuration: epochs, shadows, requests at nodes that
//! are no members.
//!
//! A protocol of this kind implements [`Member`], and [`Configured`] makes a
//! [`Protocol`](crate::Protocol) of it. The membership service orders changes by
//! [`GroupEvent`](crate::GroupEvent); see `docs/protocols/membership.md`.
//!
//! | message | asks or tells |
//! |---|---|
//! | `Member` | a message of the protocol, in the epoch that it names |
//! | `Pass` -> `Passed` | run this request for a node that serves none |
//! | `PassList` -> `PassedList` | the same for a step of a listing |
//! | `Copy` -> `Page` | a part of a shard, for a shadow |
//! | `Adopt`, `Drop`, `Settled` | to this node itself: a copied register, a void one, the end |
//! | `Explain` -> `Explained` | the record of one node, for people |
//!
//! Rules:
//! 1. A message of an epoch below the installed one, or of the installed one once it is sealed, has
//!    no effect. One of an epoch above waits for it.
//! 2. A message counts as a member's only if its sender is the process that the configuration
//!    names.
//! 3. Only full members of an unsealed epoch run requests. A read is answered from the own state
//!    only if the lease is found to hold after the value was taken.
//! 4. A shadow stores and acknowledges from its first epoch on. It copies from full members of its
//!    own epoch, and starts again with every epoch that it was not finished in.
//! 5. A request is passed on to one process only. If its answer is lost, the outcome of a write is
//!    unknown.
//!
//! Start reading at `Configured::on`.

mod context;
mod copying;
pub mod envelope;
mod erasing;
mod explaining;
mod gate;
mod listing;
mod parked;
mod passing;
mod state;

use std::sync::Arc;

use base::{Millis, Nanos};
use bytes::Bytes;
use types::explain::Record as Explained;
use types::limits::SENT_LEN_MAX;
use types::{Access, Configuration, Epoch, Key, NodeId, Outcome, Reply, Role, Shard, Wire};

pub use context::Inside;
pub use envelope::Envelope;

use crate::effects::{TimerId, Violation};
use crate::group::{GroupEvent, GroupReport};
use crate::mutation::{self, Mutation};
use crate::protocol::{
    Context, Env, Event, Message, Peer, Properties, Protocol, Request, Scanned, Stats,
};
use crate::register_cache::{RegisterCache, Weight};
use crate::replicas::{ReplicaSet, Replicas};
use crate::toolkit::sweep::SWEEP_SCAN;
use crate::uptime::Uptime;
use state::copying::Copying;
use state::erasing::Erasing;
use state::explanations::Explanations;
use state::gate::Gate;
use state::link::Link;
use state::listings::Listings;
use state::parked::{Admitted, Parked, place};
use state::passing::Passing;

/// Timers of the frame count down from here; those of the protocol are below.
const FRAME_TIMERS: u64 = u64::MAX - 8;
const PARKED_DUE: TimerId = TimerId(FRAME_TIMERS);
const PASSED_DUE: TimerId = TimerId(FRAME_TIMERS + 1);
const COPY_DUE: TimerId = TimerId(FRAME_TIMERS + 2);
const EXPLAIN_DUE: TimerId = TimerId(FRAME_TIMERS + 3);
const SEALED_DUE: TimerId = TimerId(FRAME_TIMERS + 4);

/// How often a sealed member's requests are looked at.
const SEALED_LOOK: Nanos = Nanos::from_millis(50);

/// A protocol of members: its steps within one epoch, and at the change of epochs.
pub trait Member: Sized + Send + 'static {
    const NAME: &'static str;
    const PROPERTIES: Properties;

    type Message: Message;
    type Record: Wire + std::fmt::Debug + Send;
    type Meta: Wire + Default + std::fmt::Debug + Send;

    fn open(env: Env) -> Self;

    /// One step within the epoch of `cx`. Requests come to full members only.
    fn on(&mut self, cx: &mut Inside<'_, '_, Self>, event: MemberEvent<Self>);

    /// A member's digest for the next epoch. The present one has just ended.
    fn seal(&mut self) -> Bytes {
        Bytes::new()
    }

    /// An epoch begins in which this node is a member.
    fn install(&mut self, cx: &mut Inside<'_, '_, Self>);

    /// Answers requests whose time is over. Called now and then between epochs.
    fn expire(&mut self, cx: &mut Context<'_, Configured<Self>>);

    /// This node is no member any more: end every request, unpin every register. Returns the
    /// requests without any effect so far, in the order of their arrival.
    fn leave(&mut self, cx: &mut Context<'_, Configured<Self>>) -> Vec<Request>;

    /// The register that a shadow keeps: the newer of its own and the copied one. `None`: its own.
    fn merge(
        held: Option<&Self::Record>,
        copied: Self::Record,
        uptime: &dyn Uptime,
    ) -> Option<Self::Record>;

    /// The register for the copy of another node: with the rest of its time to live.
    fn lend(record: Self::Record, uptime: &dyn Uptime, unix: Millis) -> Self::Record;

    /// True for a register that shows a value to clients; `None` if that is not decided here.
    fn is_live(record: &Self::Record, uptime: &dyn Uptime, unix: Millis) -> Option<bool>;

    /// Runs a read on the value held here, committed or not. `None` if the value is unknown.
    fn read_uncommitted(
        _cx: &mut Context<'_, Configured<Self>>,
        _key: &Key,
        _command: &Bytes,
    ) -> Option<Reply> {
        None
    }

    fn explain(record: &Self::Record, uptime: &dyn Uptime, unix: Millis) -> Explained;

    fn weight(key: &Key, record: &Self::Record) -> Weight;

    /// Checks local invariants.
    ///
    /// # Errors
    /// Names the invariant that does not hold.
    fn check(&self, cache: &RegisterCache<Self::Record>) -> Result<(), Violation>;

    fn is_idle(&self) -> bool;

    fn stats(&self, stats: &mut Stats);
}

/// The input of a member's step.
pub enum MemberEvent<P: Member> {
    Request(Request),
    /// A message of this epoch from a member, this node included.
    Message {
        from: NodeId,
        message: P::Message,
    },
    /// A copied register was taken.
    Copied {
        key: Key,
    },
    /// The answer to a scan of the protocol. Its number has [`SWEEP_SCAN`].
    Scanned(Scanned<P::Record>),
    /// The connection to this node ended.
    PeerReset {
        node: NodeId,
    },
    /// A connection to this node stands.
    PeerUp {
        node: NodeId,
    },
    Timer(TimerId),
    Turn,
}

/// The outcome of a request that may have changed the register.
pub(crate) fn given_up(request: &Request) -> Outcome {
    // A read that found a time to live over has shown no value.
    if request.command.access.is_read() { Outcome::NoQuorum } else { Outcome::Unknown }
}

/// The reply to a command that cannot go from node to node, or whose reply cannot.
pub(crate) fn too_long(part: &str, len: usize) -> Option<Reply> {
    let text =
        || format!("ERR a {part} of {len} bytes is too long for a message: at most {SENT_LEN_MAX}");
    (len > SENT_LEN_MAX).then(|| Reply::error(text()))
}

/// The installed configuration, as this node sees it.
#[derive(Debug)]
struct Installed {
    configuration: Arc<Configuration>,
    /// The members, for counting acknowledgements. Empty if this node is no member.
    set: ReplicaSet,
    role: Option<Role>,
    is_sealed: bool,
}

/// A protocol of members as a protocol of nodes.
#[derive(Debug)]
pub struct Configured<P: Member> {
    env: Env,
    member: P,
    installed: Option<Installed>,
    /// The last epoch up to which this node has everything that was committed.
    complete: Option<Epoch>,
    /// The service knows that this image is damaged.
    is_loss_told: bool,
    gate: Gate<P::Message>,
    parked: Parked,
    passing: Passing,
    copying: Copying,
    link: Link,
    erasing: Erasing,
    listings: Listings,
    explanations: Explanations,
}

type Cx<'a, P> = Context<'a, Configured<P>>;

impl<P: Member> Protocol for Configured<P> {
    const NAME: &'static str = P::NAME;
    const PROPERTIES: Properties = P::PROPERTIES;

    type Message = Envelope<P::Message>;
    type Record = P::Record;
    type Meta = P::Meta;

    fn open(env: Env) -> Configured<P> {
        Configured {
            member: P::open(env.clone()),
            installed: None,
            complete: None,
            is_loss_told: false,
            gate: Gate::default(),
            parked: Parked::default(),
            passing: Passing::new(env.incarnation, env.worker),
            copying: Copying::default(),
            link: Link::new(Arc::clone(&env.shared)),
            erasing: Erasing::default(),
            listings: Listings::default(),
            explanations: Explanations::default(),
            env,
        }
    }

    fn on(&mut self, cx: &mut Cx<'_, P>, event: Event<Configured<P>>) {
        match event {
            Event::Request(request) => self.on_request(cx, request),
            Event::List { tag, from_hash, limit } => self.on_list(cx, tag, from_hash, limit),
            Event::Explain { tag, key } => self.on_explain(cx, tag, key),
            Event::Peer { from, message } => self.on_message(cx, from, message),
            Event::Group(event) => self.on_group(cx, event),
            Event::Timer(id) => self.on_timer(cx, id),
            Event::Scanned(scanned) => self.on_scanned(cx, scanned),
            Event::PeerReset { node } => {
                self.on_passed_reset(cx, node);
                self.inside(cx, |member, cx| member.on(cx, MemberEvent::PeerReset { node }));
            }
            Event::PeerUp { node } => {
                self.inside(cx, |member, cx| member.on(cx, MemberEvent::PeerUp { node }));
            }
            Event::Turn => self.inside(cx, |member, cx| member.on(cx, MemberEvent::Turn)),
            Event::Forgotten { .. } => self.on_forgotten(cx),
            Event::PeerSteady { .. } | Event::ViewChanged => {}
        }
        self.answer_passed(cx);
    }

    fn outlives_epoch(message: &Envelope<P::Message>) -> bool {
        !matches!(message, Envelope::Member { .. })
    }

    fn weight(key: &Key, record: &P::Record) -> Weight {
        P::weight(key, record)
    }

    fn check(
        &self,
        cache: &RegisterCache<P::Record>,
        _replicas: Replicas<'_>,
    ) -> Result<(), Violation> {
        self.member.check(cache)
    }

    fn is_idle(&self) -> bool {
        self.member.is_idle()
            && self.parked.is_empty()
            && self.passing.is_empty()
            && self.copying.is_idle()
            && self.erasing.is_idle()
            && self.listings.is_empty()
            && self.explanations.is_empty()
    }

    fn stats(&self, stats: &mut Stats) {
        self.member.stats(stats);
        let own = (0..=u8::MAX).map(Shard).filter(|&shard| self.env.owns(shard));
        let missing = if self.is_wanted() { own.count() } else { 0 };
        stats.add("shards_recovering", missing as u64);
        stats.add("requests_parked", self.parked.len() as u64);
        stats.add("requests_passed_on", self.passing.len() as u64);
        stats.add("messages_held", self.gate.len() as u64);
        stats.add("copies_in_progress", u64::from(self.copying.is_on()));
        stats.add("copies_served", self.copying.served_len() as u64);
        stats.add("erasures_in_progress", u64::from(!self.erasing.is_idle()));
    }
}

impl<P: Member> Configured<P> {
    /// True unless this node is a full member, or the group is complete without it. Others must
    /// not rely on a node that is still to copy.
    fn is_wanted(&self) -> bool {
        let Some(Installed { configuration, role, .. }) = &self.installed else { return true };
        match role {
            Some(Role::Full) => false,
            Some(Role::Shadow) => true,
            // A configuration that names another process or image of this node still counts on it.
            None => {
                configuration.member(self.env.me).is_some()
                    || configuration.members.len() < self.env.group_size
            }
        }
    }
}

/// Requests.
impl<P: Member> Configured<P> {
    fn on_request(&mut self, cx: &mut Cx<'_, P>, mut request: Request) {
        if request.command.once.is_some() {
            return cx.fx.reply(request.tag, Outcome::NoRetries(P::NAME));
        }
        if request.command.hold.is_some() {
            return cx.fx.reply(request.tag, Outcome::NoTransactions(P::NAME));
        }
        if let Some(refusal) = too_long("command", request.command.body.len()) {
            return cx.fx.reply(request.tag, Outcome::Reply(refusal));
        }
        if !self.parked.has(request.tag) && self.answer_uncommitted(cx, &mut request) {
            return;
        }
        let mut request = match self.parked.admit(request) {
            Admitted::Now(request) => request,
            Admitted::Kept => return,
            Admitted::Refused(request) => return cx.fx.reply(request.tag, Outcome::NoQuorum),
        };
        let turn = self.parked.has(request.tag).then(|| (request.tag, place(&request)));
        if request.asked_at + self.env.request_timeout <= cx.now {
            cx.fx.reply(request.tag, Outcome::NoQuorum);
        } else {
            match &self.installed {
                Some(Installed { role: Some(role), is_sealed: false, .. })
                    if *role == Role::Full || mutation::is(Mutation::ShadowServes) =>
                {
                    if !self.answer_uncommitted(cx, &mut request) {
                        self.inside(cx, |member, cx| member.on(cx, MemberEvent::Request(request)));
                    }
                }
                Some(Installed { role: None | Some(Role::Shadow), .. })
                    if self.passing.serves(request.tag) =>
                {
                    self.refuse_passed(cx, request.tag);
                }
                // A member that is about to go on, or a node that does not know the members yet.
                Some(Installed { role: Some(Role::Full), .. }) | None => {
                    return self.park(cx, request);
                }
                Some(_) => return self.pass_on(cx, request),
            }
        }
        if let Some((tag, place)) = turn {
            self.end_turn(cx, tag, &place);
        }
    }

    /// Answers an uncommitted read if this node is a full member, in an epoch or between two. It
    /// needs neither a lease nor its turn.
    fn answer_uncommitted(&self, cx: &mut Cx<'_, P>, request: &mut Request) -> bool {
        let is_full = self.installed.as_ref().is_some_and(|it| it.role == Some(Role::Full));
        if request.command.access != Access::UncommittedRead || !is_full {
            return false;
        }
        match P::read_uncommitted(cx, &request.key, &request.command.body) {
            Some(reply) => {
                cx.fx.reply(request.tag, Outcome::Reply(reply));
                true
            }
            None => {
                request.command.access = Access::Read;
                false
            }
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, P>, id: TimerId) {
        match id {
            PARKED_DUE => self.on_parked_due(cx),
            PASSED_DUE => self.on_passed_due(cx),
            COPY_DUE => self.on_copy_due(cx),
            EXPLAIN_DUE => self.on_explain_due(cx),
            SEALED_DUE => self.look_sealed(cx),
            id => self.inside(cx, |member, cx| member.on(cx, MemberEvent::Timer(id))),
        }
    }

    fn on_message(&mut self, cx: &mut Cx<'_, P>, from: Peer, message: Envelope<P::Message>) {
        match message {
            Envelope::Member { epoch, message } => self.on_member(cx, from, epoch, message),
            Envelope::Pass(pass) => self.on_pass(cx, from, pass),
            Envelope::Passed { id, answer, .. } => self.on_passed(cx, from, id, answer),
            Envelope::PassList { id, from_hash, limit } => {
                self.on_pass_list(cx, from, id, from_hash, limit);
            }
            Envelope::PassedList { id, listed, .. } => self.on_passed_list(cx, from, id, listed),
            Envelope::Copy(copy) => self.on_copy(cx, from, copy),
            Envelope::Page(page) => self.on_page(cx, from, page),
            Envelope::Adopt { epoch, id, key, record } => {
                self.on_adopt(cx, from, (epoch, id), &key, &record);
            }
            Envelope::Drop { scan, key } => self.on_drop(cx, from, scan, &key),
            Envelope::Settled { epoch } => self.on_settled(cx, from, epoch),
            Envelope::Explain { id, key } => self.on_explain_asked(cx, from, id, &key),
            Envelope::Explained { id, held, .. } => self.on_explained(cx, from, id, held),
        }
    }

    fn on_scanned(&mut self, cx: &mut Cx<'_, P>, scanned: Scanned<P::Record>) {
        if scanned.id & SWEEP_SCAN != 0 {
            return self.inside(cx, |member, cx| member.on(cx, MemberEvent::Scanned(scanned)));
        }
        match scanned.id & SCAN_KINDS {
            SCAN_TO_LIST => self.on_listed(cx, scanned),
            SCAN_TO_COPY => self.on_copied(cx, scanned),
            _ => self.on_erasable(cx, scanned),
        }
    }

    /// The number of a scan for one of these purposes. Sweeps have numbers of their own.
    fn next_scan(&mut self, purpose: u64) -> u64 {
        (self.passing.next_id() << 2 | purpose) & !SWEEP_SCAN
    }
}

/// The lowest bits of a scan's number tell its purpose.
const SCAN_KINDS: u64 = 3;
const SCAN_TO_LIST: u64 = 0;
const SCAN_TO_COPY: u64 = 1;
const SCAN_TO_ERASE: u64 = 2;

/// Epochs.
impl<P: Member> Configured<P> {
    fn on_group(&mut self, cx: &mut Cx<'_, P>, event: GroupEvent) {
        match event {
            GroupEvent::Wedge { epoch } => self.on_wedge(cx, epoch),
            GroupEvent::Install { configuration, role } => {
                self.on_install(cx, configuration, role);
            }
            GroupEvent::Erase { image } => self.on_erase(cx, image),
            GroupEvent::Keep => self.on_keep(cx),
        }
    }

    fn on_wedge(&mut self, cx: &mut Cx<'_, P>, epoch: Epoch) {
        let mut summary = Bytes::new();
        if let Some(installed) = &mut self.installed
            // The seal after a loss names the epoch that runs.
            && installed.configuration.epoch <= epoch
        {
            let was_sealed = std::mem::replace(&mut installed.is_sealed, true);
            if installed.role.is_some() {
                summary = self.member.seal();
                self.plan_sealed_look(cx, was_sealed);
            }
        }
        cx.fx.report(GroupReport::Sealed { epoch, summary });
    }

    fn on_install(
        &mut self,
        cx: &mut Cx<'_, P>,
        configuration: Arc<Configuration>,
        role: Option<Role>,
    ) {
        let before = self.installed.as_ref().map(|it| it.configuration.epoch);
        if before.is_some_and(|before| before >= configuration.epoch) {
            return;
        }
        let nodes: Vec<NodeId> = configuration.members.iter().map(|it| it.node).collect();
        let epoch = configuration.epoch;
        let set = match role {
            Some(_) => ReplicaSet::new(epoch, cx.replicas.me(), &nodes),
            None => ReplicaSet::without_replicas(epoch),
        };
        // It may have been on its way when the loss was told.
        let is_sealed = self.is_loss_told;
        self.installed = Some(Installed { configuration, set, role, is_sealed });
        match role {
            Some(Role::Full) => self.complete = Some(epoch),
            // A finished copy stays one as long as the node stays a member.
            Some(Role::Shadow) if self.complete.is_some() && self.complete == before => {
                self.complete = Some(epoch);
            }
            Some(Role::Shadow) | None => self.complete = None,
        }
        match role {
            Some(_) => self.inside(cx, |member, cx| member.install(cx)),
            None => self.end_membership(cx),
        }
        self.begin_copy(cx);
        self.release_held(cx);
        self.release_parked(cx);
        self.retry_lists(cx);
    }

    /// Storage has lost registers. This node must neither serve nor give copies of the rest.
    fn on_forgotten(&mut self, cx: &mut Cx<'_, P>) {
        if let Some(installed) = &mut self.installed {
            let was_sealed = std::mem::replace(&mut installed.is_sealed, true);
            self.plan_sealed_look(cx, was_sealed);
        }
        if self.erasing.is_idle() {
            if !std::mem::replace(&mut self.is_loss_told, true) {
                cx.fx.report(GroupReport::Lost);
            }
        } else {
            self.erase_again(cx);
        }
    }

    fn plan_sealed_look(&mut self, cx: &mut Cx<'_, P>, was_sealed: bool) {
        if !was_sealed {
            cx.fx.timer(SEALED_DUE, cx.now + SEALED_LOOK);
        }
    }

    fn look_sealed(&mut self, cx: &mut Cx<'_, P>) {
        if self.installed.as_ref().is_some_and(|installed| installed.is_sealed) {
            self.member.expire(cx);
            cx.fx.timer(SEALED_DUE, cx.now + SEALED_LOOK);
        }
    }

    fn end_membership(&mut self, cx: &mut Cx<'_, P>) {
        let requests = self.member.leave(cx);
        self.parked.keep_first(requests);
        self.release_parked(cx);
    }

    /// Runs a step of the member, unless its epoch has ended.
    fn inside(&mut self, cx: &mut Cx<'_, P>, run: impl FnOnce(&mut P, &mut Inside<'_, '_, P>)) {
        let Some(installed) = &self.installed else { return };
        if installed.is_sealed || installed.role.is_none() {
            return;
        }
        let (configuration, set) = (&*installed.configuration, &installed.set);
        run(&mut self.member, &mut Inside { scope: cx, configuration, set });
    }
}
