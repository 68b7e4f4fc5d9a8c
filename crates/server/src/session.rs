//! One client's conversation.

mod patience;
mod rules;
mod transact;
mod waits;
mod walks;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use base::Nanos;
use commands::spec::Flag;
use commands::{Combine, CommandSpec, ErrorReply, Execution, Plan, SessionVerb, Trace};
use node::session::{self, Client, ClientPort, SessionContext, Socket, Token};
use resp::{Limits, Parser, Progress};
use types::{Clock, Database, Outcome, Reply, SessionId};

use crate::clients::{ClientFacts, State};
use crate::consistency::Consistency;
use crate::exec::Executing;
use crate::monitor::Monitor;
use crate::pipeline::{Answer, Parts, Pending, Pipeline, number_and_part, token};
use crate::recorder::{Call, Recorder};
use crate::script_command::{Lookup, ScriptRun};
use crate::sentinel::Sentinel;
use crate::session_factory::Shared;
use crate::transaction::Transaction;
use crate::{
    client_command, cluster_command, config_command, encoding, info, memory_command, outcomes,
};

pub(crate) use self::rules::{bulk_len_max, is_http, permission};
use self::rules::{cost_of, limits, opens, takes_turns};

/// As redis-server answers: a monitor counts as a replica.
const MONITORS_ONLY: &str = "ERR Replica can't interact with the keyspace";

/// Whether a client wants to hear anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Replies {
    On,
    Off,
    /// Not the next one.
    SkipNext,
}

/// Why a session takes no input although there is room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    No,
    /// Until everything before has been answered.
    Answers,
    /// Until the pause of clients is over.
    Pause,
}

/// The session of one connection.
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) facts: ClientFacts,
    pub(crate) replies: Replies,
    pub(crate) parser: Parser,
    pub(crate) pipeline: Pipeline,
    pub(crate) recorder: Recorder,
    /// The request that is being executed, until its statistics are recorded or passed on.
    current: Option<Call>,
    /// The last reply that this session made itself was an error.
    pub(crate) has_failed: bool,
    /// The client sees the commands of all clients.
    pub(crate) monitor: Option<Monitor>,
    /// The state of a client of Redis Sentinel.
    pub(crate) sentinel: Option<Box<Sentinel>>,
    /// How reads are ordered.
    pub(crate) consistency: Consistency,
    pub(crate) authenticated: bool,
    pub(crate) closing: bool,
    /// The connection ends at once, with replies that are not written yet.
    gone: bool,
    pub(crate) transaction: Transaction,
    /// The `EXEC` under way.
    pub(crate) executing: Option<Executing>,
    /// Set while replies go into `EXEC`'s.
    pub(crate) captured: Option<Vec<Reply>>,
    pub(crate) lookup: Option<Lookup>,
    pub(crate) script_run: Option<ScriptRun>,
    /// The calls of the scripts that have ended, for monitors.
    pub(crate) traced: Option<Trace>,
    kill: Arc<AtomicBool>,
    pub(crate) hold: Hold,
    /// The earliest timer that is still to come.
    armed: Nanos,
    seed: u64,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, client: &Client) -> Session {
        let authenticated = shared.password.is_open();
        let kill = Arc::new(AtomicBool::new(false));
        let facts = ClientFacts {
            id: client.id,
            peer: client.peer,
            local: client.local,
            name: String::new(),
            library: String::new(),
            library_version: String::new(),
            database: 0,
            protocol: 2,
            since: None,
            activity: Arc::default(),
            kill: kill.clone(),
        };
        shared.clients.put(&facts);
        let pipeline = Pipeline::new(shared.config.max_value_size);
        let parser = Parser::new(Limits { authenticated, ..limits(&shared) });
        let recorder = Recorder::new(&shared, client.worker);
        Session {
            shared,
            facts,
            replies: Replies::On,
            parser,
            pipeline,
            recorder,
            current: None,
            has_failed: false,
            monitor: None,
            sentinel: (client.port == ClientPort::Sentinel).then(Box::default),
            consistency: Consistency::Local,
            authenticated,
            closing: false,
            gone: false,
            transaction: Transaction::default(),
            executing: None,
            captured: None,
            lookup: None,
            script_run: None,
            traced: None,
            kill,
            hold: Hold::No,
            armed: Nanos::MAX,
            seed: client.id.0,
        }
    }

    pub(crate) fn id(&self) -> SessionId {
        self.facts.id
    }

    /// Publishes the client's name and library for `CLIENT LIST`.
    pub(crate) fn publish(&mut self, cx: &SessionContext<'_>) {
        self.facts.since.get_or_insert(cx.now);
        self.shared.clients.put(&self.facts);
    }

    pub(crate) fn database(&self) -> Database {
        Database(self.facts.database)
    }

    pub(crate) fn clock(&mut self, cx: &SessionContext<'_>) -> Clock {
        self.seed = self.seed.wrapping_add(1);
        Clock { unix: cx.unix, seed: base::Prng::new(self.seed ^ cx.now.0).next_u64() }
    }

    /// A page makes a browser speak to this port: close without a reply, as redis-server does.
    pub(crate) fn end_of_http(&mut self) {
        self.pipeline.clear();
        self.closing = true;
    }

    /// Handles one request.
    pub(crate) fn on_request(
        &mut self,
        spec: Result<&'static CommandSpec, ErrorReply>,
        args: &[&[u8]],
        cx: &mut SessionContext<'_>,
    ) {
        if is_http(args) {
            return self.end_of_http();
        }
        let spec = match spec {
            Ok(spec) => spec,
            // As in redis-server, an unknown command is named before the password is asked for.
            Err(error) => {
                self.transaction.fail();
                return self.say(cx, error.into());
            }
        };
        if let Some(refusal) = self.refusal(spec, args, cx) {
            self.recorder.reject(spec);
            self.transaction.fail();
            return self.say(cx, refusal);
        }
        if self.transaction.holds(spec, args) {
            return self.queue(spec, args, cx);
        }
        self.facts.activity.called(spec);
        self.current = Some(Call { spec, began: cx.moment });
        self.start(spec, args, cx);
        match self.current.take() {
            Some(call) => self.record_now(call, args, cx),
            None if self.shared.slow.log.threshold().is_some() => self.pipeline.keep_words(args),
            None => {}
        }
        if !self.shows_later(args) {
            self.show_to_monitors(spec, args, cx);
        }
    }

    /// The reply to a request that must not run.
    fn refusal(
        &self,
        spec: &'static CommandSpec,
        args: &[&[u8]],
        cx: &SessionContext<'_>,
    ) -> Option<Reply> {
        if let Err(error) = spec.check_arity(args.len()) {
            return Some(error.into());
        }
        // The password may have been removed since the client came.
        if !self.authenticated && !opens(args) && !self.shared.password.is_open() {
            return Some(Reply::error("NOAUTH Authentication required."));
        }
        if self.monitor.is_some() && (spec.has(Flag::Write) || spec.has(Flag::Readonly)) {
            return Some(Reply::error(MONITORS_ONLY));
        }
        permission(cx).refusal(self.gate_of(spec)).map(Reply::from)
    }

    /// Executes a request, or sends its parts to their registers.
    fn start(&mut self, spec: &'static CommandSpec, args: &[&[u8]], cx: &mut SessionContext<'_>) {
        self.has_failed = false;
        if let Execution::Session(verb) = spec.execution {
            return self.execute(verb, args, cx);
        }
        if let Execution::Script = spec.execution {
            return self.eval(spec, args, cx);
        }
        let clock = self.clock(cx);
        match spec.plan(args, clock) {
            Ok(Plan::Session(verb)) => self.execute(verb, args, cx),
            Ok(Plan::Reply(reply)) => self.say(cx, reply),
            Ok(Plan::Key { .. }) if spec.is_heavy => self.eval_under(None, args, cx),
            Ok(Plan::Key { mut command, key }) => {
                if let Some(once) = &mut command.once {
                    once.window = self.shared.limits.once_window();
                }
                let Some(positions) = cx.positions() else {
                    return self.say(cx, outcomes::reply(Outcome::Loading));
                };
                command.access = self.consistency.of(command.access);
                let number = self.wait(Answer::Waiting(cost_of(&command, args[key])));
                cx.run(token(number, 0), self.database(), positions.key(args[key]), command);
            }
            Ok(Plan::PerKey { keys, combine: Combine::Array, .. })
                if keys.len() > 1 && self.has_transactions(cx) =>
            {
                self.transact_line(args, clock, None, cx);
            }
            Ok(Plan::PerKey { mut command, keys, combine }) => {
                command.access = self.consistency.of(command.access);
                let Some(positions) = cx.positions() else {
                    return self.say(cx, outcomes::reply(Outcome::Loading));
                };
                let keys = args[keys].iter().map(|key| positions.key(key)).collect();
                let parts = Parts::new(self.database(), command, keys, combine);
                if takes_turns(spec, args) {
                    self.hold = Hold::Answers;
                }
                let number = self.wait(Answer::Parts(Box::new(parts)));
                self.go_on(number, cx);
            }
            Ok(Plan::Keys { .. }) => self.transact_line(args, clock, None, cx),
            Ok(Plan::Once { once, inner }) => self.run_once(once, &args[inner..], clock, cx),
            Err(error) => self.say(cx, error.into()),
        }
    }

    /// Takes a place in the order of replies.
    pub(crate) fn wait(&mut self, answer: Answer) -> u64 {
        let muted = self.takes_muting();
        let call = match answer {
            Answer::Waiting(_) | Answer::Parts(_) | Answer::Walk(_) => self.current.take(),
            // The time that a client chose to wait is not the command's, as in Redis.
            Answer::Ready(_) | Answer::Wait(_) => None,
        };
        self.pipeline.push(Pending {
            resp3: self.facts.protocol == 3,
            muted,
            call,
            words: None,
            answer,
        })
    }

    fn takes_muting(&mut self) -> bool {
        match self.replies {
            Replies::On => false,
            Replies::Off => true,
            Replies::SkipNext => {
                self.replies = Replies::On;
                true
            }
        }
    }

    /// Answers at once, behind pending replies.
    pub(crate) fn say(&mut self, cx: &mut SessionContext<'_>, reply: Reply) {
        if let Some(captured) = &mut self.captured {
            return captured.push(reply);
        }
        self.has_failed = reply.is_error();
        if !self.pipeline.is_empty() {
            self.wait(Answer::Ready(reply));
            return;
        }
        let muted = self.takes_muting();
        self.shared.counts.errors.note(&reply);
        if !muted {
            encoding::put(cx.out, &reply, self.facts.protocol == 3);
        }
    }

    pub(crate) fn say_ok(&mut self, cx: &mut SessionContext<'_>) {
        self.say(cx, Reply::OK);
    }

    pub(crate) fn say_error(&mut self, cx: &mut SessionContext<'_>, text: &str) {
        self.say(cx, Reply::error(text.to_string()));
    }

    pub(crate) fn execute(
        &mut self,
        verb: SessionVerb,
        args: &[&[u8]],
        cx: &mut SessionContext<'_>,
    ) {
        match verb {
            SessionVerb::Ping if args.len() > 2 => {
                self.say(cx, commands::errors::wrong_arity("ping").into());
            }
            SessionVerb::Ping if args.len() == 2 => {
                self.say(cx, Reply::copy(args[1]));
            }
            SessionVerb::Ping => self.say(cx, Reply::simple("PONG")),
            SessionVerb::Quit => {
                self.say_ok(cx);
                self.closing = true;
            }
            SessionVerb::Reset => self.reset(cx),
            SessionVerb::Hello => self.hello(args, cx),
            SessionVerb::Auth => self.auth(args, cx),
            SessionVerb::Select => self.select(args, cx),
            SessionVerb::ReadOnly | SessionVerb::ReadWrite | SessionVerb::Asking => self.say_ok(cx),
            SessionVerb::Role if self.is_sentinel() => {
                let reply = self.sentinel_role();
                self.say(cx, reply);
            }
            SessionVerb::Role
            | SessionVerb::ClusterInfo
            | SessionVerb::ClusterNodes
            | SessionVerb::ClusterSlots
            | SessionVerb::ClusterShards
            | SessionVerb::ClusterReplicas
            | SessionVerb::ClusterSlaves
            | SessionVerb::ClusterMyId
            | SessionVerb::ClusterMyShardId
            | SessionVerb::ClusterCountFailureReports => {
                let reply = cluster_command::reply(verb, args, cx);
                self.say(cx, reply);
            }
            SessionVerb::Time => {
                let numbers = [cx.unix.0 / 1_000, cx.unix.0 % 1_000 * 1_000];
                let texts = numbers.iter().map(|number| Reply::bulk(number.to_string()));
                self.say(cx, Reply::array(texts));
            }
            SessionVerb::LastSave => {
                let up = cx.node.status().up.0;
                self.say(cx, Reply::Integer((cx.unix.0.saturating_sub(up) / 1_000) as i64));
            }
            SessionVerb::Info => {
                let reply = info::reply(self, &args[1..], cx);
                self.say(cx, reply);
            }
            SessionVerb::ConfigGet | SessionVerb::ConfigSet | SessionVerb::ConfigRewrite => {
                let reply = config_command::reply(&self.shared, verb, args, cx);
                self.say(cx, reply);
            }
            SessionVerb::ConfigResetStat => {
                self.shared.counts.reset();
                self.say_ok(cx);
            }
            SessionVerb::Monitor => self.start_monitor(cx),
            SessionVerb::SlowlogGet
            | SessionVerb::SlowlogLen
            | SessionVerb::SlowlogReset
            | SessionVerb::LatencyDoctor
            | SessionVerb::LatencyGraph
            | SessionVerb::LatencyHistogram
            | SessionVerb::LatencyHistory
            | SessionVerb::LatencyLatest
            | SessionVerb::LatencyReset => self.watch_command(verb, args, cx),
            SessionVerb::Wait => self.start_wait(args, cx),
            SessionVerb::KeyExplain => self.start_explain(args[1], cx),
            SessionVerb::MemoryDoctor
            | SessionVerb::MemoryMallocStats
            | SessionVerb::MemoryPurge
            | SessionVerb::MemoryStats => {
                let reply = memory_command::reply(verb, cx);
                self.say(cx, reply);
            }
            SessionVerb::ScriptLoad
            | SessionVerb::ScriptExists
            | SessionVerb::ScriptFlush
            | SessionVerb::ScriptKill
            | SessionVerb::ScriptDebug => self.script(verb, args, cx),
            SessionVerb::Multi => self.multi(cx),
            SessionVerb::Exec => self.exec(None, cx),
            SessionVerb::Discard => self.discard(cx),
            SessionVerb::Watch => self.watch(args, cx),
            SessionVerb::Unwatch => self.unwatch(cx),
            SessionVerb::DbSize => self.count_keys(args, cx),
            SessionVerb::FlushAll
            | SessionVerb::FlushDb
            | SessionVerb::Scan
            | SessionVerb::Keys
            | SessionVerb::RandomKey => self.start_walk(verb, args, cx),
            other => client_command::execute(self, other, args, cx),
        }
    }

    fn settle_waits(&mut self, cx: &mut SessionContext<'_>) {
        if let Some(at) = self.pipeline.settle_waits(cx.now) {
            self.arm(at, cx);
        }
    }

    /// Makes the shell call [`session::Session::on_timer`] at `at` or earlier. That looks at
    /// everything that may have become due, so one timer is enough.
    pub(crate) fn arm(&mut self, at: Nanos, cx: &mut SessionContext<'_>) {
        if at < self.armed {
            self.armed = at;
            cx.wake_at(at);
        }
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.kill.load(Relaxed)
    }

    /// A client that another one killed ends at once; one that killed itself hears so first.
    fn look_at_kill(&mut self) {
        if self.is_killed() && !self.closing {
            self.end_now();
        }
    }

    /// Lets `CLIENT LIST` see this session.
    fn note_state(&self, cx: &SessionContext<'_>) {
        let state = State {
            is_monitor: self.monitor.is_some(),
            is_in_transaction: self.transaction.is_open(),
            is_closing: self.closing,
        };
        self.facts.activity.note(state, self.pipeline.asked_len(), cx.out.len());
    }

    pub(crate) fn end_now(&mut self) {
        (self.closing, self.gone) = (true, true);
        self.pipeline.clear();
    }

    /// Lets others see whether this client waits for the end of a pause, or in `WAIT`.
    fn note_blocked(&self) {
        let is_blocked = !self.closing && (self.hold == Hold::Pause || self.pipeline.is_waiting());
        self.shared.clients.note_blocked(&self.facts.activity, is_blocked);
    }

    /// The row whose rules of writes hold for a request: `EXEC` writes as its commands do.
    fn gate_of(&self, spec: &'static CommandSpec) -> &'static CommandSpec {
        match spec.execution {
            Execution::Session(SessionVerb::Exec) => self.transaction.gate().unwrap_or(spec),
            _ => spec,
        }
    }

    /// True when a request must not begin yet; it is shown again.
    fn must_hold(
        &mut self,
        spec: &'static CommandSpec,
        args: &[&[u8]],
        cx: &mut SessionContext<'_>,
    ) -> bool {
        if self.transaction.holds(spec, args) {
            return false;
        }
        if !self.pipeline.is_empty() && takes_turns(spec, args) {
            self.hold = Hold::Answers;
            return true;
        }
        let spec = self.gate_of(spec);
        if self.shared.pause.holds(spec, cx.now) {
            self.hold = Hold::Pause;
            self.arm(self.shared.pause.until(), cx);
            return true;
        }
        if spec.may_write() && !cx.takes_writes() && permission(cx).refusal(spec).is_none() {
            cx.hold_write();
            return true;
        }
        false
    }

    /// Sends the next parts of a request.
    pub(crate) fn go_on(&mut self, number: u64, cx: &mut SessionContext<'_>) {
        let Some(pending) = self.pipeline.get_mut(number) else { return };
        match &mut pending.answer {
            Answer::Parts(parts) => {
                while let Some((part, key)) = parts.next_ask() {
                    cx.run(token(number, part), parts.database, key, parts.command.clone());
                }
            }
            Answer::Walk(walk) => {
                walk.go_on(number, cx);
                while walk.next_database() {
                    walk.go_on(number, cx);
                }
                if let Some(outcome) = walk.finished() {
                    self.answer(number, outcome, cx);
                }
            }
            Answer::Ready(_) | Answer::Waiting(_) | Answer::Wait(_) => {}
        }
    }

    pub(crate) fn answer(&mut self, number: u64, outcome: Outcome, cx: &SessionContext<'_>) {
        self.end_executing(number, cx);
        if let Some(ended) = self.pipeline.answer(number, outcome) {
            self.record(ended, cx);
        }
    }

    /// Takes an outcome of a request on keys.
    fn take_part(&mut self, number: u64, part: usize, outcome: Outcome, cx: &SessionContext<'_>) {
        let call = self.pipeline.get_mut(number).and_then(|pending| pending.call);
        if let Some(Call { spec, .. }) = call {
            self.recorder.look_up(spec, &outcome);
        }
        if let Some(ended) = self.pipeline.take_part(number, part, outcome) {
            self.record(ended, cx);
        }
    }

    /// Takes whole requests off the front of `input` while there is room; returns how many bytes
    /// they were.
    fn take_requests(&mut self, input: &[u8], cx: &mut SessionContext<'_>) -> usize {
        let mut taken = 0;
        let mut parser = std::mem::take(&mut self.parser);
        while !self.closing && cx.has_room() && !session::Session::is_full(self) {
            parser.limits.authenticated = self.authenticated;
            match parser.next(&input[taken..]) {
                Ok(Progress::Command(request)) => {
                    let args = request.args();
                    if self.is_sentinel() {
                        taken += request.consumed();
                        self.on_sentinel_request(&args, cx);
                        continue;
                    }
                    let spec = commands::find(&args);
                    if let Ok(spec) = &spec
                        && spec.check_arity(args.len()).is_ok()
                        && self.must_hold(spec, &args, cx)
                    {
                        break;
                    }
                    taken += request.consumed();
                    self.on_request(spec, &args, cx);
                }
                Ok(Progress::Blank { consumed }) => taken += consumed,
                Ok(Progress::NeedMore { .. }) => break,
                Err(error) => {
                    self.say(cx, Reply::error(error.text()));
                    self.closing = true;
                }
            }
        }
        self.parser = parser;
        taken
    }

    fn flush(&mut self, cx: &mut SessionContext<'_>) {
        let counts = &self.shared.counts;
        self.pipeline.flush(cx.out, |reply| counts.errors.note(reply));
    }
}

impl session::Session for Session {
    fn on_bytes(&mut self, input: &[u8], cx: &mut SessionContext<'_>) -> usize {
        self.look_at_kill();
        self.facts.activity.touch(cx.now);
        let mut taken = 0;
        loop {
            if self.hold == Hold::Answers && self.pipeline.is_empty() {
                self.hold = Hold::No;
            }
            taken += self.take_requests(&input[taken..], cx);
            let was_full = self.is_full();
            self.flush(cx);
            // A wait may have ended meanwhile and made room, for which the shell does not call
            // again.
            if self.closing || !was_full || self.is_full() || !cx.has_room() {
                break;
            }
        }
        self.look_at_monitor(cx);
        self.look_at_kill();
        self.note_state(cx);
        self.note_blocked();
        if self.closing { input.len() } else { taken }
    }

    fn is_full(&self) -> bool {
        let is_held = match self.hold {
            Hold::No => false,
            Hold::Answers => !self.pipeline.is_empty(),
            Hold::Pause => true,
        };
        is_held || self.pipeline.is_full()
    }

    fn on_outcome(&mut self, token: Token, outcome: Outcome, cx: &mut SessionContext<'_>) {
        let (number, part) = number_and_part(token);
        let outcome = self.on_watched(number, outcome);
        let Some(outcome) = self.on_script(number, part, outcome, cx) else {
            self.flush(cx);
            return;
        };
        let outcome = self.on_executed(number, outcome, cx);
        self.show_traced(cx);
        match self.pipeline.get_mut(number) {
            Some(Pending { answer: Answer::Walk(walk), .. }) => {
                walk.take(part, outcome);
                self.go_on(number, cx);
            }
            Some(Pending { answer: Answer::Parts(_), .. }) => {
                self.take_part(number, part, outcome, cx);
                self.go_on(number, cx);
            }
            _ => self.take_part(number, part, outcome, cx),
        }
        self.flush(cx);
        if self.pipeline.is_empty() {
            self.note_state(cx);
        }
        self.note_blocked();
    }

    fn on_timer(&mut self, cx: &mut SessionContext<'_>) {
        if cx.now >= self.armed {
            self.armed = Nanos::MAX;
        }
        self.look_at_pause(cx);
        if self.facts.since.is_none() {
            self.publish(cx);
        }
        self.look_at_kill();
        self.settle_waits(cx);
        self.flush(cx);
        self.look_at_monitor(cx);
        self.look_at_nodes(cx);
        self.note_state(cx);
        if !self.closing {
            self.look_at_idle(cx);
        }
        self.note_blocked();
    }

    fn wants_close(&self) -> bool {
        self.closing && self.pipeline.is_empty()
    }

    fn is_gone(&self) -> bool {
        self.gone
    }

    fn note_socket(&mut self, socket: &Socket) {
        self.facts.activity.note_socket(socket);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.clients.note_blocked(&self.facts.activity, false);
        self.shared.clients.remove(self.facts.id);
    }
}
