//! Clients: sessions that send requests, wait, and move to another node when theirs dies.

use std::collections::BTreeMap;

use base::Prng;
use checker::model::kv::KvInput;
use types::{Key, Outcome, Reply, SessionId, Tag};

use crate::invariants::session_order;
use crate::resp_connections::{self, RespConnections};
use crate::workload::mix::Mix;
use crate::workload::operation::{Input, Output};
use crate::workload::retries::{self, Retries};
use crate::workload::script::{ScriptStep, Scripts, Verb};
use crate::workload::{redis, transactions, update};
use crate::world::{ClientReply, World};

/// How often a patient client asks a node that cannot serve.
const RASH_CHANCE: f64 = 0.02;
/// Patient clients bear so many unknown outcomes, and one in so many more.
const UNKNOWN_FEW: usize = 3;
const UNKNOWN_ONE_IN: usize = 12;
const ORDERED_SALT: u64 = 62;

/// How an operation ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    Returned(Output),
    /// Surely no effect.
    Failed,
    /// This transmission had no effect; another one of the same line may have had one.
    Refused,
    Unknown,
}

/// One operation of a client.
#[derive(Clone, Debug)]
pub struct Op {
    pub client: usize,
    pub session: u64,
    pub node: usize,
    pub key: usize,
    pub input: Input,
    pub verb: Verb,
    pub ttl_millis: u64,
    /// The line that it transmits, if it is under `ONCE`.
    pub line: Option<usize>,
    pub invoked: u64,
    /// When and how it ended; `None` while it is outstanding.
    pub ended: Option<(u64, Ended)>,
}

#[derive(Debug)]
struct SimClient {
    node: usize,
    session: u64,
    outstanding: usize,
}

/// A key of the run.
#[derive(Clone, Debug)]
pub struct SimKey {
    pub key: Key,
    pub mix: Mix,
}

/// All clients of a run, and their operations.
#[derive(Debug)]
pub struct Clients {
    clients: Vec<SimClient>,
    pub keys: Vec<SimKey>,
    /// An operation's tag is its index.
    pub ops: Vec<Op>,
    sessions: u64,
    pipeline: usize,
    /// Clients hold back while no node serves, and while so many operations are outstanding.
    pub patience: Option<usize>,
    ttl_max: u64,
    pub retries: Retries,
    pub outstanding: usize,
    /// Operations of unknown outcome.
    unknown: usize,
    scripts: Scripts,
    /// How often a read takes a place among the writes, and the draws for it.
    ordered: (u32, Prng),
    /// Connections that speak RESP, if clients use them.
    lines: Option<RespConnections>,
    /// Replies so far to operations of several commands.
    heard: BTreeMap<usize, Vec<Reply>>,
    rng: Prng,
}

impl Clients {
    #[must_use]
    pub fn new(
        count: usize,
        nodes: usize,
        pipeline: usize,
        mixes: &[Mix],
        ttl_max: u64,
        mut rng: Prng,
    ) -> Clients {
        let clients: Vec<SimClient> = (0..count)
            .map(|index| SimClient {
                node: rng.below(nodes as u64) as usize,
                session: index as u64,
                outstanding: 0,
            })
            .collect();
        let keys = mixes.iter().enumerate();
        let keys = keys
            .map(|(index, &mix)| SimKey { key: Key::new(format!("k{index}").as_bytes()), mix })
            .collect();
        let sessions = count as u64;
        Clients {
            clients,
            keys,
            ops: Vec::new(),
            sessions,
            pipeline,
            patience: None,
            ttl_max,
            retries: Retries::default(),
            outstanding: 0,
            unknown: 0,
            scripts: Scripts::default(),
            ordered: (0, Prng::new(0)),
            lines: None,
            heard: BTreeMap::new(),
            rng,
        }
    }

    /// Switches clients to RESP.
    pub fn speak_resp(&mut self, nodes: usize) {
        let window = self.retries.habits.window;
        self.lines =
            Some(RespConnections::new(nodes, window, Prng::new(self.rng.clone().next_u64())));
    }

    /// Lets so many of a million reads take places among the writes.
    pub fn order_reads(&mut self, ppm: u32) {
        self.ordered = (ppm, Prng::new(self.rng.clone().next_u64() ^ ORDERED_SALT));
    }

    fn draw_order(&mut self, (key, verb, input): ScriptStep) -> ScriptStep {
        let is_read =
            matches!(input, Input::Text(KvInput::Get | KvInput::Exists | KvInput::StrLen));
        let (ppm, rng) = &mut self.ordered;
        let is_ordered = is_read && verb == Verb::Plain && *ppm > 0 && rng.chance_ppm(*ppm);
        (key, if is_ordered { Verb::Ordered } else { verb }, input)
    }

    /// Lets a client issue an operation of its choice if it may. True when it did.
    pub fn issue(&mut self, world: &mut World, client: usize) -> bool {
        if !self.is_free(client) || self.patience.is_some_and(|most| self.outstanding >= most) {
            return false;
        }
        let index = self.rng.below(self.keys.len() as u64) as usize;
        if matches!(self.keys[index].mix, Mix::Retries)
            && let Some(line) = self.retries.draw(&mut self.rng, index, world.now())
        {
            return self.send_line(world, client, index, line);
        }
        let id = self.ops.len() as u64;
        let mix = self.keys[index].mix;
        if mix.is_of_several_keys() {
            let input = transactions::draw(&mut self.rng, mix, &self.keys, id, self.ttl_max);
            return self.ask(world, client, (index, Verb::Plain, input.into()), None);
        }
        let step = self.scripts.next(&mut self.rng, (client, index), &self.keys, id);
        let drawn = || (index, Verb::Plain, self.keys[index].mix.draw(&mut self.rng, id));
        let step = step.unwrap_or_else(drawn);
        let step = self.draw_order(step);
        self.ask(world, client, step, None)
    }

    /// Transmits a line, which may be new.
    fn send_line(&mut self, world: &mut World, client: usize, key: usize, line: usize) -> bool {
        if let Some(known) = self.retries.lines.get(line) {
            let step = (key, Verb::Plain, known.input.clone());
            return self.ask(world, client, step, Some(line));
        }
        let input = self.keys[key].mix.draw(&mut self.rng, self.ops.len() as u64);
        let new = self.retries.line(client, key, input.clone(), world.now(), self.ops.len());
        self.retries.lines.push(new);
        let is_sent = self.ask(world, client, (key, Verb::Plain, input), Some(line));
        if !is_sent {
            self.retries.lines.pop();
        }
        is_sent
    }

    /// True when the client may issue an operation.
    #[must_use]
    pub fn is_free(&self, client: usize) -> bool {
        self.clients[client].outstanding < self.pipeline
    }

    /// Sends a client's request. False when its node takes no requests now.
    fn ask(
        &mut self,
        world: &mut World,
        client: usize,
        step: ScriptStep,
        line: Option<usize>,
    ) -> bool {
        if !world.is_up(self.clients[client].node) {
            self.reconnect(world, client);
        }
        if self.patience.is_some()
            && !self.rng.chance(RASH_CHANCE)
            && !self.find_service(world, client)
        {
            return false;
        }
        let (node, session) = (self.clients[client].node, self.clients[client].session);
        if self.submit(world, (client, node, session), step, line) {
            self.clients[client].outstanding += 1;
            return true;
        }
        false
    }

    /// Without clients: tests issue operations one by one, see [`Clients::ask_node`].
    #[must_use]
    pub fn by_hand() -> Clients {
        Clients::new(0, 1, 1, &[], 1, Prng::new(0))
    }

    /// The index of the key of this name; adds a new key.
    pub fn key(&mut self, name: &str) -> usize {
        let key = Key::new(name.as_bytes());
        if let Some(index) = self.keys.iter().position(|known| known.key == key) {
            return index;
        }
        self.keys.push(SimKey { key, mix: Mix::All });
        self.keys.len() - 1
    }

    /// Sends a request to a node, in a session of its own.
    pub fn ask_node(
        &mut self,
        world: &mut World,
        node: usize,
        key: usize,
        input: impl Into<Input>,
    ) -> bool {
        self.sessions += 1;
        let step = (key, Verb::Plain, input.into());
        self.submit(world, (usize::MAX, node, self.sessions), step, None)
    }

    fn submit(
        &mut self,
        world: &mut World,
        (client, node, session): (usize, usize, u64),
        (key, verb, input): ScriptStep,
        line: Option<usize>,
    ) -> bool {
        let ttl_millis = self.rng.between(1, self.ttl_max);
        let tag = Tag(self.ops.len() as u64);
        let of = &self.keys[key].key;
        let sent = line.map(|line| &self.retries.lines[line]);
        let is_taken = match &mut self.lines {
            None => {
                let mut command = update::encode_step(verb, &input, ttl_millis);
                if let Some(line) = sent {
                    command = command.under(self.retries.once(line));
                }
                world.request(node, tag, SessionId(session), of, command)
            }
            Some(lines) if let Input::Transaction(input) = &input => {
                lines.say(world, (node, session), self.ops.len(), &input.lines(&self.keys));
                true
            }
            Some(lines) => {
                let mut words = redis::step_words(verb, &input, of, ttl_millis);
                if let Some(line) = sent {
                    words = retries::words(line, words);
                }
                match client {
                    // A request without a client, sent without a connection.
                    usize::MAX => redis::command(&words).is_some_and(|command| {
                        world.request(node, tag, SessionId(session), of, command)
                    }),
                    _ => {
                        let said = redis::lines(verb, words);
                        lines.say(world, (node, session), self.ops.len(), &said);
                        true
                    }
                }
            }
        };
        if !is_taken {
            return false;
        }
        let invoked = world.now();
        if let Some(trace) = &mut world.trace {
            let under = sent.map_or(String::new(), |it| format!("once {} {} ", it.name, it.seq));
            trace.asked(invoked, of, (session, node), format!("#{} {under}{input:?}", tag.0));
        }
        let op =
            Op { client, session, node, key, input, verb, ttl_millis, line, invoked, ended: None };
        self.ops.push(op);
        self.outstanding += 1;
        true
    }

    fn reconnect(&mut self, world: &World, client: usize) {
        let up: Vec<usize> = (0..world.node_count()).filter(|&node| world.is_up(node)).collect();
        self.reconnect_to_one_of(client, &up);
    }

    fn reconnect_to_one_of(&mut self, client: usize, nodes: &[usize]) {
        self.sessions += 1;
        let it = &mut self.clients[client];
        it.session = self.sessions;
        if !nodes.is_empty() {
            it.node = *self.rng.pick(nodes);
        }
    }

    /// Moves the client to a node that serves, if its own does not. False if none does.
    fn find_service(&mut self, world: &World, client: usize) -> bool {
        if world.serves(self.clients[client].node) {
            return true;
        }
        let serving: Vec<usize> =
            (0..world.node_count()).filter(|&node| world.serves(node)).collect();
        if !serving.is_empty() {
            self.reconnect_to_one_of(client, &serving);
        }
        !serving.is_empty()
    }

    /// Takes in a reply. Returns the client that may go on.
    ///
    /// # Errors
    /// One line, when the reply itself is wrong.
    pub fn on_reply(
        &mut self,
        world: &mut World,
        reply: ClientReply,
    ) -> Result<Option<usize>, String> {
        let ClientReply { tag, outcome, node } = reply;
        if let Some(lines) = &mut self.lines
            && tag.0 >= resp_connections::TAGS
        {
            return lines.on_outcome(world, tag, outcome).map(|()| None);
        }
        let speaks_resp = self.lines.is_some();
        let now = world.now();
        let op = self
            .ops
            .get_mut(tag.0 as usize)
            .ok_or_else(|| format!("a reply without a request: {tag:?}"))?;
        if op.ended.is_some() {
            return Err(format!("{tag:?} was answered twice, now {outcome:?}"));
        }
        if let Some(trace) = &mut world.trace {
            let shown = match &outcome {
                Outcome::Reply(reply) if !speaks_resp => {
                    format!("{:?}", update::ended(&op.input, reply))
                }
                other => format!("{other:?}"),
            };
            let of = &self.keys[op.key].key;
            trace.answered(now, of, (op.session, node), format!("#{} {shown}", tag.0));
        }
        let ended = match outcome {
            Outcome::Reply(reply) => {
                let ended = match speaks_resp {
                    true => redis::ended(&op.input, &reply),
                    false => update::ended(&op.input, &reply),
                };
                ended.ok_or_else(|| format!("{tag:?} {:?} was answered {reply:?}", op.input))?
            }
            Outcome::Refused(_) => Ended::Refused,
            // It ran, and its answer is unknown.
            Outcome::AlreadyDone => Ended::Unknown,
            Outcome::NoQuorum | Outcome::Loading => Ended::Failed,
            Outcome::Unknown => Ended::Unknown,
            Outcome::Held(_)
            | Outcome::Locked(_)
            | Outcome::Listed { .. }
            | Outcome::Explained(_)
            | Outcome::Unsupported(_)
            | Outcome::NoTransactions(_)
            | Outcome::NoRetries(_)
            | Outcome::NoUncommittedReads(_) => {
                return Err(format!("{tag:?} {:?} was answered {outcome:?}", op.input));
            }
        };
        Ok(self.end(tag.0 as usize, now, ended))
    }

    /// Ends an operation. Returns the client that may go on.
    fn end(&mut self, op: usize, now: u64, ended: Ended) -> Option<usize> {
        self.unknown += usize::from(ended == Ended::Unknown);
        let op = &mut self.ops[op];
        op.ended = Some((now, ended));
        self.outstanding -= 1;
        let client = op.client;
        if client == usize::MAX {
            return None;
        }
        self.clients[client].outstanding -= 1;
        self.scripts.on_end(op, &self.keys);
        Some(client)
    }

    /// Moves bytes on a connection. Returns the clients that may go on.
    ///
    /// # Errors
    /// One line, when a reply is wrong.
    pub fn on_line(&mut self, world: &mut World, session: u64) -> Result<Vec<usize>, String> {
        let Some(lines) = &mut self.lines else { return Ok(Vec::new()) };
        let mut answered = Vec::new();
        lines.on_wake(world, session, &mut answered)?;
        let now = world.now();
        let mut freed = Vec::new();
        for (id, reply) in answered {
            let op = &self.ops[id];
            if let Some(trace) = &mut world.trace {
                let of = &self.keys[op.key].key;
                trace.answered(now, of, (session, op.node), format!("#{id} {reply:?}"));
            }
            let shown = format!("{reply:?}");
            let wrong = || format!("#{id} {:?} was answered {shown}", op.input);
            let reply = redis::heard(reply).ok_or_else(wrong)?;
            let replies = match &op.input {
                Input::Transaction(input) => input.replies(),
                _ => redis::replies(op.verb),
            };
            let heard = self.heard.entry(id).or_default();
            heard.push(reply);
            if heard.len() < replies {
                continue;
            }
            let heard = self.heard.remove(&id).unwrap_or_default();
            let ended = match &op.input {
                Input::Transaction(input) => input.ended(&heard),
                input => redis::ended_all(op.verb, input, &heard),
            };
            let wrong = || format!("#{id} {:?} was answered {heard:?}", op.input);
            let ended = ended.ok_or_else(wrong)?;
            freed.extend(self.end(id, now, ended));
        }
        Ok(freed)
    }

    /// Handles the death of a node: its outstanding requests get no answer. Returns the clients
    /// that may go on.
    pub fn on_crash(&mut self, world: &World, node: usize) -> Vec<usize> {
        if let Some(lines) = &mut self.lines {
            lines.on_crash(node);
        }
        let now = world.now();
        let mut freed = Vec::new();
        for op in &mut self.ops {
            if op.node == node && op.ended.is_none() {
                op.ended = Some((now, Ended::Unknown));
                self.outstanding -= 1;
                self.unknown += 1;
                if op.client != usize::MAX {
                    self.clients[op.client].outstanding -= 1;
                    freed.push(op.client);
                }
            }
        }
        for client in 0..self.clients.len() {
            if self.clients[client].node == node {
                self.reconnect(world, client);
            }
        }
        freed.sort_unstable();
        freed.dedup();
        freed
    }

    /// So many outcomes are unknown that the checks get weak: patient clients want a rest from
    /// faults.
    #[must_use]
    pub fn want_rest(&self) -> bool {
        let ended = self.ops.len() - self.outstanding;
        self.patience.is_some() && self.unknown > UNKNOWN_FEW + ended / UNKNOWN_ONE_IN
    }

    /// Requests of sessions that workers have not ended.
    #[must_use]
    pub fn requests_of_sessions(&self) -> usize {
        self.lines.as_ref().map_or(0, RespConnections::requests)
    }

    /// The operation that has waited longest.
    #[must_use]
    pub fn oldest_outstanding(&self) -> Option<&Op> {
        self.ops.iter().find(|op| op.ended.is_none())
    }

    /// Checks that operations of one session on one key kept their order.
    ///
    /// # Errors
    /// The key, and one line that names the operations.
    pub fn check_session_order(&self) -> Result<(), (usize, String)> {
        session_order::check(&self.ops, &self.keys)
    }
}
