//! One client's conversation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use commands::{Execution, Plan, SessionVerb};
use node::front::{self, Client, SessionContext, Token};
use resp::{Limits, Parser, Progress, encode};
use types::limits::DATABASES;
use types::{Clock, Database, Key, Outcome, SessionId};

use crate::clients::ClientFacts;
use crate::front::Shared;
use crate::pipeline::{Answer, Parts, Pending, Pipeline, number_and_part, token, write};
use crate::walk::{Walk, WalkKind};
use crate::{access, client_command, config_command, info, outcomes, wait};

/// Requests that may wait for their turn, whatever they wait for.
const PIPELINE_MAX: usize = 4096;

/// Whether a client wants to hear anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Replies {
    On,
    Off,
    /// Not the next one.
    SkipNext,
}

/// The session of one connection.
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) facts: ClientFacts,
    pub(crate) replies: Replies,
    parser: Parser,
    pipeline: Pipeline,
    authenticated: bool,
    closing: bool,
    kill: Arc<AtomicBool>,
    seed: u64,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, client: &Client) -> Session {
        let authenticated = shared.config.password.is_none();
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
            kill: kill.clone(),
        };
        shared.clients.put(&facts);
        let parser = Parser::new(Limits { authenticated, ..limits(&shared) });
        Session {
            shared,
            facts,
            replies: Replies::On,
            parser,
            pipeline: Pipeline::default(),
            authenticated,
            closing: false,
            kill,
            seed: client.id.0,
        }
    }

    pub(crate) fn id(&self) -> SessionId {
        self.facts.id
    }

    fn database(&self) -> Database {
        Database(self.facts.database)
    }

    fn clock(&mut self, cx: &SessionContext<'_>) -> Clock {
        self.seed = self.seed.wrapping_add(1);
        Clock { unix: cx.unix, seed: base::Prng::new(self.seed ^ cx.now.0).next_u64() }
    }

    /// Handles one request.
    fn on_request(&mut self, args: &[&[u8]], cx: &mut SessionContext<'_>) {
        let spec = match commands::resolve(args) {
            Ok(spec) => spec,
            Err(_) if !self.authenticated && !opens(args) => return self.say_no_auth(cx),
            Err(error) => return self.say(cx, error.into_bytes()),
        };
        if !self.authenticated && !opens(args) {
            self.shared.counts.rejected(spec);
            return self.say_no_auth(cx);
        }
        self.shared.counts.called(spec);
        if let Execution::Session(verb) = spec.execution {
            return self.execute(verb, args, cx);
        }
        let clock = self.clock(cx);
        match spec.plan(args, clock) {
            Ok(Plan::Session(verb)) => self.execute(verb, args, cx),
            Ok(Plan::Key { command, key }) => {
                let number = self.wait(Answer::Waiting);
                cx.run(token(number, 0), self.database(), Key::new(args[key]), command);
            }
            Ok(Plan::PerKey { command, keys, combine }) => {
                let keys = args[keys].iter().map(|key| Key::new(key)).collect();
                let parts = Parts::new(self.database(), command, keys, combine);
                let number = self.wait(Answer::Parts(Box::new(parts)));
                self.go_on(number, cx);
            }
            Err(error) => {
                self.shared.counts.rejected(spec);
                self.say(cx, error.into_bytes());
            }
        }
    }

    /// Takes a place in the order of replies.
    fn wait(&mut self, answer: Answer) -> u64 {
        let muted = self.takes_muting();
        self.pipeline.push(Pending { resp3: self.facts.protocol == 3, muted, answer })
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

    /// Answers at once, behind what is still waiting.
    pub(crate) fn say(&mut self, cx: &mut SessionContext<'_>, reply: Bytes) {
        if !self.pipeline.is_empty() {
            self.wait(Answer::Ready(reply));
            return;
        }
        let muted = self.takes_muting();
        if reply.first() == Some(&b'-') {
            self.shared.counts.error(&reply);
        }
        if !muted {
            write(cx.out, &reply, self.facts.protocol == 3);
        }
    }

    pub(crate) fn say_with(
        &mut self,
        cx: &mut SessionContext<'_>,
        build: impl FnOnce(&mut Vec<u8>),
    ) {
        let mut reply = Vec::new();
        build(&mut reply);
        self.say(cx, reply.into());
    }

    pub(crate) fn say_ok(&mut self, cx: &mut SessionContext<'_>) {
        self.say(cx, Bytes::from_static(b"+OK\r\n"));
    }

    pub(crate) fn say_error(&mut self, cx: &mut SessionContext<'_>, text: &str) {
        self.say_with(cx, |out| encode::error(out, text.as_bytes()));
    }

    fn say_no_auth(&mut self, cx: &mut SessionContext<'_>) {
        self.say(cx, Bytes::from_static(b"-NOAUTH Authentication required.\r\n"));
    }

    fn execute(&mut self, verb: SessionVerb, args: &[&[u8]], cx: &mut SessionContext<'_>) {
        if let Some(answer) = commands::introspect::answer(verb, args) {
            return self.say(cx, answer);
        }
        match verb {
            SessionVerb::Ping if args.len() > 1 => {
                self.say_with(cx, |out| encode::bulk(out, args[1]))
            }
            SessionVerb::Ping => self.say(cx, Bytes::from_static(b"+PONG\r\n")),
            SessionVerb::Echo => self.say_with(cx, |out| encode::bulk(out, args[1])),
            SessionVerb::Quit => {
                self.say_ok(cx);
                self.closing = true;
            }
            SessionVerb::Reset => self.reset(cx),
            SessionVerb::Hello => self.hello(args, cx),
            SessionVerb::Auth => self.auth(args, cx),
            SessionVerb::Select => self.select(args, cx),
            SessionVerb::ReadOnly | SessionVerb::ReadWrite => self.say_ok(cx),
            SessionVerb::Lolwut => self.say_with(cx, |out| {
                encode::verbatim(out, *b"txt", b"Scraped and written over, again and again.\n");
            }),
            SessionVerb::Time => {
                let unix = cx.unix.0;
                self.say_with(cx, |out| {
                    encode::array(out, 2);
                    encode::bulk(out, (unix / 1_000).to_string().as_bytes());
                    encode::bulk(out, (unix % 1_000 * 1_000).to_string().as_bytes());
                });
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
            SessionVerb::Wait => self.start_wait(args, cx),
            SessionVerb::DbSize
            | SessionVerb::FlushAll
            | SessionVerb::FlushDb
            | SessionVerb::Scan
            | SessionVerb::Keys
            | SessionVerb::RandomKey => self.start_walk(verb, args, cx),
            other => client_command::execute(self, other, args, cx),
        }
    }

    fn reset(&mut self, cx: &mut SessionContext<'_>) {
        self.facts.name.clear();
        self.facts.database = 0;
        self.facts.protocol = 2;
        self.replies = Replies::On;
        self.authenticated = self.shared.config.password.is_none();
        self.parser.limits.authenticated = self.authenticated;
        self.shared.clients.put(&self.facts);
        self.say(cx, Bytes::from_static(b"+RESET\r\n"));
    }

    fn select(&mut self, args: &[&[u8]], cx: &mut SessionContext<'_>) {
        let Some(index) = base::decimal::parse_i64(args[1]) else {
            return self.say_error(cx, "ERR value is not an integer or out of range");
        };
        match u8::try_from(index) {
            Ok(index) if usize::from(index) < DATABASES => {
                self.facts.database = index;
                self.shared.clients.put(&self.facts);
                self.say_ok(cx);
            }
            _ => self.say_error(cx, "ERR DB index is out of range"),
        }
    }

    fn auth(&mut self, args: &[&[u8]], cx: &mut SessionContext<'_>) {
        let (user, password) = match args {
            [_, password] if self.shared.config.password.is_none() => {
                let _: &[u8] = password;
                return self.say_error(
                    cx,
                    "ERR AUTH <password> called without any password configured for the default user. \
                     Are you sure your configuration is correct?",
                );
            }
            [_, password] => (b"default".as_slice(), *password),
            [_, user, password] => (*user, *password),
            _ => return self.say_error(cx, "ERR syntax error"),
        };
        if self.authenticate(user, password) {
            self.say_ok(cx);
        } else {
            self.say_error(cx, WRONG_PASS);
        }
    }

    fn authenticate(&mut self, user: &[u8], password: &[u8]) -> bool {
        let valid = access::is_valid(&self.shared, user, password);
        self.authenticated |= valid;
        self.parser.limits.authenticated = self.authenticated;
        valid
    }

    /// `HELLO [version [AUTH user password] [SETNAME name]]`.
    fn hello(&mut self, args: &[&[u8]], cx: &mut SessionContext<'_>) {
        let version = match args.get(1) {
            None => self.facts.protocol,
            Some(version) => match base::decimal::parse_i64(version) {
                Some(2) => 2,
                Some(3) => 3,
                Some(_) => return self.say_error(cx, "NOPROTO unsupported protocol version"),
                None => {
                    return self
                        .say_error(cx, "ERR Protocol version is not an integer or out of range");
                }
            },
        };
        let mut name = None;
        let mut rest = args.get(2..).unwrap_or_default();
        while let Some((option, after)) = rest.split_first() {
            match after {
                [user, password, more @ ..] if option.eq_ignore_ascii_case(b"auth") => {
                    if !self.authenticate(user, password) {
                        return self.say_error(cx, WRONG_PASS);
                    }
                    rest = more;
                }
                [value, more @ ..] if option.eq_ignore_ascii_case(b"setname") => {
                    let Some(valid) = client_command::valid_name(value) else {
                        return self.say_error(cx, client_command::BAD_NAME);
                    };
                    name = Some(valid);
                    rest = more;
                }
                _ => {
                    let option = String::from_utf8_lossy(option);
                    return self
                        .say_error(cx, &format!("ERR Syntax error in HELLO option '{option}'"));
                }
            }
        }
        if !self.authenticated {
            return self.say_error(
                cx,
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                 AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                 version at the same time",
            );
        }
        if let Some(name) = name {
            self.facts.name = name;
        }
        self.facts.protocol = version;
        self.facts.since.get_or_insert(cx.now);
        self.shared.clients.put(&self.facts);
        let id = self.id();
        self.say_with(cx, |out| {
            encode::map(out, 7);
            for (name, value) in [("server", "redis"), ("version", info::REDIS_VERSION)] {
                encode::bulk(out, name.as_bytes());
                encode::bulk(out, value.as_bytes());
            }
            for (name, value) in [("proto", i64::from(version)), ("id", id.0 as i64)] {
                encode::bulk(out, name.as_bytes());
                encode::integer(out, value);
            }
            for (name, value) in [("mode", "standalone"), ("role", "master")] {
                encode::bulk(out, name.as_bytes());
                encode::bulk(out, value.as_bytes());
            }
            encode::bulk(out, b"modules");
            encode::array(out, 0);
        });
    }

    fn start_wait(&mut self, args: &[&[u8]], cx: &mut SessionContext<'_>) {
        let Some(wanted) = base::decimal::parse_i64(args[1]) else {
            return self.say_error(cx, "ERR value is not an integer or out of range");
        };
        let Some(millis) = base::decimal::parse_i64(args[2]) else {
            return self.say_error(cx, "ERR timeout is not an integer or out of range");
        };
        let Ok(millis) = u64::try_from(millis) else {
            return self.say_error(cx, "ERR timeout is negative");
        };
        let members = cx.node.config().members.len().max(1);
        let known = (members / 2) as i64;
        if self.pipeline.is_empty() && wanted <= known {
            return self.say_with(cx, |out| encode::integer(out, known));
        }
        let until = if wanted <= known {
            cx.now
        } else if millis == 0 {
            cx.now + wait::FOR_EVER
        } else {
            cx.now + base::Nanos::from_millis(millis.min(wait::FOR_EVER.as_millis()))
        };
        self.wait(Answer::Wait(wait::Wait { until: Some(until), known }));
        self.settle_waits(cx);
    }

    /// A wait counts what came before it: it ends when it is the oldest and its time has come.
    fn settle_waits(&mut self, cx: &mut SessionContext<'_>) {
        let mut next: Option<base::Nanos> = None;
        for pending in self.pipeline.waits() {
            let Answer::Wait(wait) = pending.answer else { continue };
            let until = wait.until.unwrap_or(base::Nanos::MAX);
            if until <= cx.now {
                let mut reply = Vec::new();
                encode::integer(&mut reply, wait.known);
                pending.answer = Answer::Ready(reply.into());
            } else {
                next = Some(next.map_or(until, |earlier| earlier.min(until)));
            }
        }
        if let Some(at) = next {
            cx.wake_at(at);
        }
    }

    fn start_walk(&mut self, verb: SessionVerb, args: &[&[u8]], cx: &mut SessionContext<'_>) {
        let seed = self.clock(cx).seed;
        match WalkKind::parse(verb, args, self.database(), cx.node, seed) {
            Ok(kind) => {
                let number = self.wait(Answer::Walk(Box::new(Walk::new(kind))));
                self.go_on(number, cx);
            }
            Err(reply) => self.say(cx, reply),
        }
    }

    /// Asks for what a request of several parts needs next.
    fn go_on(&mut self, number: u64, cx: &mut SessionContext<'_>) {
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
                if let Some(reply) = walk.finished() {
                    pending.answer = Answer::Ready(reply);
                }
            }
            Answer::Ready(_) | Answer::Waiting | Answer::Wait(_) => {}
        }
    }

    fn flush(&mut self, cx: &mut SessionContext<'_>) {
        let counts = &self.shared.counts;
        self.pipeline.flush(cx.out, |reply| {
            if reply.first() == Some(&b'-') {
                counts.error(reply);
            }
        });
    }
}

const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// Commands that a client may send before it has said who it is.
fn opens(args: &[&[u8]]) -> bool {
    let name = args.first().copied().unwrap_or_default();
    [b"auth".as_slice(), b"hello", b"quit", b"reset"]
        .iter()
        .any(|open| name.eq_ignore_ascii_case(open))
}

fn limits(shared: &Shared) -> Limits {
    // A value beyond the limit gets a clear error, up to what the connection can hold at all.
    let bulk_len_max = (shared.config.max_value_size * 2).max(32 << 20);
    Limits { bulk_len_max, request_len_max: front::INPUT_LEN_MAX, authenticated: true }
}

impl front::Session for Session {
    fn on_bytes(&mut self, input: &[u8], cx: &mut SessionContext<'_>) -> usize {
        let mut taken = 0;
        let mut parser = std::mem::take(&mut self.parser);
        while !self.closing && cx.has_room() && !self.is_full() {
            if self.kill.load(Relaxed) {
                self.closing = true;
                break;
            }
            parser.limits.authenticated = self.authenticated;
            match parser.next(&input[taken..]) {
                Ok(Progress::Command(request)) => {
                    taken += request.consumed();
                    let args = request.args();
                    self.on_request(&args, cx);
                }
                Ok(Progress::Blank { consumed }) => taken += consumed,
                Ok(Progress::NeedMore { .. }) => break,
                Err(error) => {
                    let mut reply = Vec::new();
                    error.encode(&mut reply);
                    self.say(cx, reply.into());
                    self.closing = true;
                    taken = input.len();
                }
            }
        }
        self.parser = parser;
        self.parser.limits.authenticated = self.authenticated;
        self.flush(cx);
        if self.closing { input.len() } else { taken }
    }

    fn is_full(&self) -> bool {
        self.pipeline.len() >= PIPELINE_MAX
    }

    fn on_outcome(&mut self, token: Token, outcome: Outcome, cx: &mut SessionContext<'_>) {
        let (number, part) = number_and_part(token);
        let is_walk =
            matches!(self.pipeline.get_mut(number), Some(Pending { answer: Answer::Walk(_), .. }));
        if is_walk {
            if let Some(Pending { answer: Answer::Walk(walk), .. }) = self.pipeline.get_mut(number)
            {
                walk.take(part, outcome);
            }
            self.go_on(number, cx);
        } else {
            self.pipeline.take_part(number, part, outcomes::reply(outcome));
            self.go_on(number, cx);
        }
        self.flush(cx);
    }

    fn on_timer(&mut self, cx: &mut SessionContext<'_>) {
        self.settle_waits(cx);
        self.flush(cx);
    }

    fn wants_close(&self) -> bool {
        self.closing && self.pipeline.is_empty()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.clients.remove(self.facts.id);
    }
}
